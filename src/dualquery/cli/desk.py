"""`dualquery desk`: the steward's page."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from dualquery.cli.flags import QuietFlag, argument, option, with_flags


@with_flags(
    folder=argument("[FOLDER]", "Where your tables lie, and releases are written. [default: this folder]"),
    port=option(
        "Where it listens, on this machine alone. [default: any that is free]", "PORT", min=0, max=65535
    ),
    browser=option("Open the page in your browser."),
)
def desk(folder: Path = Path("."), port: int = 0, browser: bool = False, quiet: QuietFlag = False) -> None:
    """Open a page on this machine that goes from a file to a signed release, and shows the command behind each step.

    It prints a link with a token; nobody without it is answered. It ends with Ctrl-C.

    Examples:

    ```
    dualquery desk
    dualquery desk survey-2025 --browser
    ```
    """
    from dualquery.desk.run import run, shown_by_browser

    with ExitStack() as during:

        def ready(link: str) -> None:
            if not quiet:
                print(f"Your desk: {link} (stop with Ctrl-C)", flush=True)
            if browser:
                during.enter_context(shown_by_browser(link))

        run(folder, port=port, ready=ready)
