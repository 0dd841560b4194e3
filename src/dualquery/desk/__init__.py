"""The steward's desk: a web page on this machine that runs our own commands, one after another, and shows each.

It computes nothing of its own: every button is a command of `dualquery` that is run beside it, with its words on the
page (`commands`). What it adds is a way to edit a schema by hand (`columns`). It listens at 127.0.0.1 alone,
answers nobody without the token in its link, and nothing that its page loads comes from elsewhere (`app`).

The curator is the one who sits here. The page shows what the curator's own screen may show: names of files and
columns, and the values that a draft found, marked as private until the curator says that they are public. It never
sends a row of the table.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from dualquery.errors import DualQueryError


def run(folder: Path, *, port: int = 0, ready: Callable[[str], object] = print) -> None:
    """Listen, say the link with its token, and end what still runs when interrupted."""
    try:
        import uvicorn

        from dualquery.desk.app import Desk, application
    except ModuleNotFoundError:
        raise DualQueryError("the desk needs the extra `service`: pip install 'dualquery[service]'") from None
    if not folder.is_dir():
        raise DualQueryError(f"'{folder}' is not a folder; name the one in which your table lies")
    desk, listening = Desk(folder), bound(port)
    chosen = listening.getsockname()[1]
    config = uvicorn.Config(
        application(desk, lambda: chosen),
        access_log=False,
        log_level="warning",
        server_header=False,
        ws="none",
    )
    ready(f"http://127.0.0.1:{chosen}/#{desk.token}")
    try:
        with suppress(KeyboardInterrupt):
            uvicorn.Server(config).run([listening])
    finally:
        desk.jobs.stop()


@contextmanager
def shown_by_browser(link: str) -> Iterator[None]:
    """Open the link by a file that leads there: all users of a machine see what its programs were called with."""
    import tempfile
    import webbrowser

    with tempfile.TemporaryDirectory(prefix="dualquery-desk-") as private:
        leads = Path(private) / "desk.html"
        leads.write_text(f'<meta http-equiv="refresh" content="0; url={link}">\n', encoding="ascii")
        webbrowser.open(leads.as_uri())
        yield


def bound(port: int) -> socket.socket:
    """A socket at 127.0.0.1; port 0 takes any that is free."""
    made = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        made.bind(("127.0.0.1", port))
    except OSError as error:
        made.close()
        raise DualQueryError(
            f"cannot listen at port {port}: {error.strerror}; name another with --port"
        ) from None
    return made
