"""The desk over HTTP: who may speak to it, the page, and one address for each button.

*Who may speak.* The socket is bound to 127.0.0.1, so that nobody else's machine reaches it. Pages of other origins do
reach it, through the curator's browser: a request whose Host is another name than ours (a name that was made to lead
here) or whose Origin is another page is refused, and every request needs the token of the link, which a browser sends
only because our page does (there is no cookie). The token stands behind the # of the link, so that it is in no
request's address; a report is opened by a ticket that opens it once.

*Labels and file names may be hostile.* The page writes all of them as text, never as HTML, and its policy lets no
inline script run. A report is shown under a policy of its own, without any script.
"""

from __future__ import annotations

import io
import secrets
import zipfile
from collections.abc import Awaitable, Callable
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any

from fastapi import Depends, FastAPI, Header, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from dualquery import __version__
from dualquery.desk import columns, commands
from dualquery.desk.commands import Jobs, Name, Strict, curve_of, written
from dualquery.errors import DualQueryError
from dualquery.releases.folder import REPORT, read_certificate
from dualquery.releases.seal import CERTIFICATE
from dualquery.releases.sentences import about, cost
from dualquery.service.app import HEADERS, KINDS_OF_FILES, refused
from dualquery.service.settings import ProblemError

_PAGE = {
    "desk": ("desk.js", "steps.js", "schema.js", "curve.js"),
    "service": (
        "page.css",
        "icon.svg",
        "asking.js",
        "numbers.js",
        "pictures.js",
        "views.js",
        "completion.js",
    ),
}
# What a report may do: be styled and read. It runs nothing, loads nothing, and is an origin of its own.
_REPORT = (
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'; sandbox"
)
_LARGEST = 4_000_000  # bytes of a request
SHOWN = (REPORT, "registry.html")


class Desk:
    """The folder that the curator works in, and what is going on."""

    def __init__(self, folder: Path, token: str | None = None) -> None:
        self.folder = folder.resolve()
        self.token = token or secrets.token_urlsafe(24)
        self.jobs = Jobs(self.folder)
        self.tickets: dict[str, Path] = {}

    def releases(self) -> list[dict[str, Any]]:
        """The releases in the folder, newest first; one that is damaged is not listed."""
        found = []
        for path in self.folder.iterdir():
            if not path.name.startswith(".") and (path / CERTIFICATE).is_file():
                try:
                    certificate = read_certificate(path)
                    said = {"cost": cost(certificate), "dataset": about(certificate).get("dataset")}
                except DualQueryError:  # it may come from anybody
                    continue
                found.append(
                    {
                        "name": path.name,
                        "created": certificate["created"],
                        **said,
                        "private": certificate.private,
                        "signed": "signature" in certificate,
                        "files": sorted([*certificate["files"], CERTIFICATE]),
                    }
                )
        return sorted(found, key=lambda each: each["created"], reverse=True)

    def fresh(self) -> str:
        """A folder for the next release."""
        number = 1
        while (self.folder / f"released-{number}").exists():
            number += 1
        return f"released-{number}"

    def file(self, release: str, name: str) -> Path:
        """A file of a release in the folder, by names that its certificate lists."""
        listed = next((each for each in self.releases() if each["name"] == release), None)
        if listed is None or name not in listed["files"]:
            raise ProblemError(404, "not_found", "there is no such file; load the page again")
        return self.folder / release / name


class Look(Strict):
    release: Name
    name: Name


def application(desk: Desk, port: Callable[[], int]) -> FastAPI:
    app = FastAPI(
        title="dualquery desk", version=__version__, docs_url=None, redoc_url=None, openapi_url=None
    )
    guarded = [Depends(_guard(desk))]

    @app.middleware("http")
    async def around(request: Request, answer: Callable[[Request], Awaitable[Response]]) -> Response:
        """Our own name and our own page only, small bodies, and the headers of the service's page."""
        names = {f"127.0.0.1:{port()}", f"localhost:{port()}"}
        origin = request.headers.get("origin")
        if request.headers.get("host") not in names or (
            origin is not None and origin not in {f"http://{name}" for name in names}
        ):
            return _said(
                ProblemError(
                    403, "elsewhere", "this desk answers its own page only; open the link that it printed"
                )
            )
        told = request.headers.get("content-length") or "0"  # in pieces: nobody knows how long it gets
        if "transfer-encoding" in request.headers or not told.isdecimal() or int(told) > _LARGEST:
            return _said(ProblemError(413, "too_large", "the request is too large"))
        response = await answer(request)
        for name, value in HEADERS.items():
            response.headers.setdefault(name, value)
        return response

    for room, names in _PAGE.items():
        for name in names:
            app.get(f"/page/{name}")(_file(room, name))
    app.get("/")(_file("desk", "index.html"))

    @app.get("/v1/desk", dependencies=guarded)
    def state() -> dict[str, Any]:
        """What there is in the folder."""
        here = {each.name for each in desk.folder.iterdir()}
        tables = {name: commands.WantedTable(table=name) for name in commands.tables_in(desk.folder)}
        return {
            "version": __version__,
            "folder": str(desk.folder),
            "key": commands.KEY in here,
            "tables": [
                {
                    "name": name,
                    "size": (desk.folder / name).stat().st_size,
                    "schema": table.file(commands.SCHEMA) in here,
                    "ledger": table.file(commands.LEDGER) in here,
                }
                for name, table in tables.items()
            ],
            "releases": desk.releases(),
        }

    @app.post("/v1/draft", dependencies=guarded)
    def draft(asked: commands.WantedDraft, key: JobKey) -> dict[str, Any]:
        return desk.jobs.start(key, commands.draft(asked)).to_json()

    @app.post("/v1/there", dependencies=guarded)
    def there(asked: commands.WantedTable) -> dict[str, bool]:
        return {"there": (desk.folder / asked.file(commands.SCHEMA)).exists()}

    @app.post("/v1/columns", dependencies=guarded)
    def shown(asked: commands.WantedTable) -> dict[str, Any]:
        return columns.shown(desk.folder / asked.file(commands.SCHEMA))

    @app.post("/v1/schema", dependencies=guarded)
    def save(asked: columns.EditedSchema) -> dict[str, Any]:
        path = desk.folder / asked.file(commands.SCHEMA)
        path.write_text(columns.edited(asked, path), encoding="utf-8")
        return columns.shown(path)

    @app.post("/v1/private/command", dependencies=guarded)
    def foreseen(asked: commands.WantedPrivateDraft) -> dict[str, str]:
        """What the button of a private draft would run."""
        schema = columns.stated(desk.folder / asked.file(commands.SCHEMA))[1]
        found = commands.private_draft(asked, unit=schema.unit, encoding=schema.encoding)
        return {"command": written(found)}

    @app.post("/v1/private", dependencies=guarded)
    def find(asked: commands.WantedPrivateDraft, key: JobKey) -> dict[str, Any]:
        known, said = columns.stated(desk.folder / asked.file(commands.SCHEMA))
        if asked.known != (known is not None):
            raise ProblemError(409, "changed", "the schema was saved in another window; load the page again")
        arguments = commands.private_draft(asked, unit=said.unit, encoding=said.encoding)
        schema, aside = (desk.folder / asked.file(each) for each in (commands.SCHEMA, commands.READ_OFF))

        def before() -> None:
            if known is not None:
                (desk.folder / asked.file(commands.KNOWN)).write_text(known, encoding="utf-8")
            schema.replace(aside)

        def failed() -> None:
            if not schema.exists():
                aside.replace(schema)

        return desk.jobs.start(key, arguments, before, failed).to_json()

    @app.post("/v1/check", dependencies=guarded)
    def check(asked: commands.WantedTable, key: JobKey) -> dict[str, Any]:
        return desk.jobs.start(key, commands.check(asked)).to_json()

    @app.post("/v1/ledger", dependencies=guarded)
    def ledger(asked: commands.WantedLedger, key: JobKey) -> dict[str, Any]:
        return desk.jobs.start(key, commands.ledger(asked)).to_json()

    @app.post("/v1/spent", dependencies=guarded)
    def spent(asked: commands.WantedTable) -> dict[str, Any]:
        """The ledger of a table, as `dualquery ledger show --json` has it."""
        from dualquery.releases.verify import as_json
        from dualquery.releases.verify import audit as verify

        place = asked.file(commands.LEDGER)
        books = as_json(verify(desk.folder / place).statements) if (desk.folder / place).exists() else []
        return {"books": books, "command": written(["ledger", "show", place])}

    @app.post("/v1/key", dependencies=guarded)
    def make_key(key: JobKey) -> dict[str, Any]:
        return desk.jobs.start(key, commands.key()).to_json()

    @app.post("/v1/curve", dependencies=guarded)
    def curve(asked: commands.Released) -> dict[str, Any]:
        return curve_of(asked, desk.folder)

    @app.post("/v1/release", dependencies=guarded)
    def release(asked: commands.Released, key: JobKey) -> dict[str, Any]:
        def before() -> None:
            if asked.limit is not None:
                accepted = desk.folder / asked.file(commands.ACCEPT)
                accepted.write_text(commands.acceptance(asked.limit), encoding="utf-8")

        return desk.jobs.start(key, commands.release(asked, desk.fresh()), before).to_json()

    @app.post("/v1/command", dependencies=guarded)
    def command(asked: commands.Released) -> dict[str, str]:
        """What the button of a release would run."""
        return {"command": written(commands.release(asked, desk.fresh()))}

    @app.get("/v1/jobs/{key}", dependencies=guarded)
    def job(key: str) -> dict[str, Any]:
        return desk.jobs.of(key).to_json()

    @app.post("/v1/look", dependencies=guarded)
    def ticket(asked: Look) -> dict[str, str]:
        """An address that shows a page of a release, once."""
        path = desk.file(asked.release, asked.name)
        if asked.name not in SHOWN:
            raise ProblemError(404, "not_found", "only reports are shown; download the others")
        made = secrets.token_urlsafe(24)
        desk.tickets[made] = path
        return {"address": f"/look/{made}"}

    @app.get("/look/{ticket}")
    def look(ticket: str) -> Response:
        path = desk.tickets.pop(ticket, None)
        if path is None:
            raise ProblemError(
                404, "not_found", "this link has been opened before; open the report from the desk"
            )
        return Response(
            path.read_bytes(), media_type="text/html", headers={"Content-Security-Policy": _REPORT}
        )

    @app.get("/v1/files/{release}/{name}", dependencies=guarded)
    def keep(release: str, name: str) -> Response:
        return Response(desk.file(release, name).read_bytes(), media_type="application/octet-stream")

    @app.get("/v1/folders/{release}", dependencies=guarded)
    def keep_all(release: str) -> Response:
        return Response(_zipped(desk, release), media_type="application/zip")

    for kind in (DualQueryError, HTTPException, RequestValidationError, Exception):
        app.exception_handler(kind)(refused if kind is not DualQueryError else _refusal)
    return app


JobKey = Annotated[str, Header(alias="Idempotency-Key", min_length=16, max_length=64, pattern="^[0-9a-f]+$")]


def _guard(desk: Desk) -> Callable[..., None]:
    def guard(authorization: Annotated[str | None, Header()] = None) -> None:
        given = (authorization or "").removeprefix("Bearer ").encode("utf-8", "replace")
        if not secrets.compare_digest(given, desk.token.encode("ascii")):
            raise ProblemError(
                401,
                "no_token",
                "open the link that `dualquery desk` printed: it holds the token of this desk",
            )

    return guard


async def _refusal(_: Request, error: Exception) -> Response:
    """One sentence of ours, which may name what the curator's own screen would."""
    problem = error if isinstance(error, ProblemError) else ProblemError(422, "refused", str(error))
    return _said(problem)


def _said(problem: ProblemError) -> Response:
    return Response(
        problem.body(), problem.status, media_type="application/json", headers={**HEADERS, **problem.headers}
    )


def _file(room: str, name: str) -> Callable[[], Response]:
    content = (files(f"dualquery.{room}") / "page" / name).read_bytes()

    def give() -> Response:
        return Response(content, media_type=KINDS_OF_FILES[name.rpartition(".")[2]])

    return give


def _zipped(desk: Desk, release: str) -> bytes:
    names = next((each["files"] for each in desk.releases() if each["name"] == release), None)
    if names is None:
        raise ProblemError(404, "not_found", "there is no such release; load the page again")
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_STORED) as archive:
        for name in names:
            archive.write(desk.folder / release / name, f"{release}/{name}")
    return made.getvalue()
