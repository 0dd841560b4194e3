"""The application: routes, page, and one shape for whatever is refused."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from http import HTTPStatus
from importlib.resources import files

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from dualquery import __version__
from dualquery.errors import DualQueryError, LedgerError
from dualquery.service.departures import Application, Departures, Message, Receive, Scope, Send
from dualquery.service.desk import Desk
from dualquery.service.limits import BodyLimit, RequestRate
from dualquery.service.problems import ProblemError, a_defect, problem_of
from dualquery.service.routes import routes, watching
from dualquery.service.tally import Tally

_FRESH = 1.0  # seconds after which a revoked token opens nothing
_PAGE = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/page/page.css": ("page.css", "text/css; charset=utf-8"),
    "/page/icon.svg": ("icon.svg", "image/svg+xml"),
    "/page/page.js": ("page.js", "text/javascript; charset=utf-8"),
    "/page/asking.js": ("asking.js", "text/javascript; charset=utf-8"),
    "/page/numbers.js": ("numbers.js", "text/javascript; charset=utf-8"),
    "/page/completion.js": ("completion.js", "text/javascript; charset=utf-8"),
    "/page/pictures.js": ("pictures.js", "text/javascript; charset=utf-8"),
    "/page/views.js": ("views.js", "text/javascript; charset=utf-8"),
}
_SAID = {
    400: "the body of this request cannot be read",
    404: "there is nothing at this address; /v1/openapi.json says what there is",
    405: "this address does not know this method",
}
# Nothing from elsewhere, nothing inline, no frames, no forms that leave, no place that tells where one came from.
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


def application(desk: Desk) -> Application:
    """The whole service, as uvicorn runs it."""
    app = FastAPI(
        title="dualquery",
        version=__version__,
        description="Questions about a private table, one at a time, with differential privacy.",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        openapi_url="/v1/openapi.json",
        lifespan=_looking_at_tokens(desk),
    )
    app.state.desk = desk
    app.state.rate = RequestRate(desk.settings.http.requests_a_second)
    app.include_router(routes)
    app.include_router(watching)
    for path, (name, kind) in _PAGE.items():
        app.get(path, include_in_schema=False)(_file(name, kind))
    app.exception_handler(DualQueryError)(_refused)
    app.exception_handler(HTTPException)(_http)
    app.exception_handler(RequestValidationError)(_malformed)
    app.exception_handler(Exception)(_defect)
    http = desk.settings.http
    limited = BodyLimit(app, most=http.longest_body)
    departing = Departures(_with_headers(limited), quantum=http.quantum, tally=desk.tally)
    return _counted(departing, desk.tally)


def _counted(application: Application, tally: Tally) -> Application:
    """Every response is counted when it has left, by its route: a path may hold anything."""

    async def called(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await application(scope, receive, send)
            return
        arrived, status = time.time(), 0

        async def noted(message: Message) -> None:
            nonlocal status
            status = message.get("status", status)
            await send(message)

        try:
            await application(scope, receive, noted)
        finally:
            route = getattr(scope.get("route"), "path", "other")
            tally.count(scope["method"], route, status, analyst=scope.get("analyst"), arrived=arrived)

    return called


def _with_headers(application: Application) -> Application:
    """Every response has them: pages, answers, and what is refused."""
    more = [(name.lower().encode(), value.encode()) for name, value in HEADERS.items()]

    async def called(scope: Scope, receive: Receive, send: Send) -> None:
        async def headed(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", []), *more]
            await send(message)

        await application(scope, receive, headed)

    return called


def _looking_at_tokens(desk: Desk) -> Callable[[FastAPI], AbstractAsyncContextManager[None]]:
    @asynccontextmanager
    async def life(_: FastAPI) -> AsyncIterator[None]:
        looking = [asyncio.create_task(each) for each in (_refresh(desk), _watch(desk))]
        yield
        for task in looking:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    return life


async def _refresh(desk: Desk) -> None:
    while True:
        await asyncio.sleep(_FRESH)
        with suppress(LedgerError):  # it is away: what was known stays
            await desk.look_at_wishes()


async def _watch(desk: Desk) -> None:
    """One attempt at a time: a ledger that is silent gets no more of them."""
    while True:
        await desk.clerk.look()
        await asyncio.sleep(_FRESH)


def _file(name: str, kind: str) -> Callable[[], Awaitable[Response]]:
    content = (files("dualquery.service") / "page" / name).read_bytes()

    async def give() -> Response:
        return Response(content, media_type=kind)

    return give


def _answer(problem: ProblemError) -> Response:
    return Response(problem.body(), problem.status, media_type="application/json", headers=problem.headers)


async def _refused(_: Request, error: Exception) -> Response:
    assert isinstance(error, DualQueryError)
    return _answer(problem_of(error))


async def _http(_: Request, error: Exception) -> Response:
    """What the framework refuses: no such path, no such method."""
    assert isinstance(error, HTTPException)
    status = HTTPStatus(error.status_code)
    said = _SAID.get(error.status_code, status.phrase)
    return _answer(
        ProblemError(
            error.status_code,
            status.phrase.lower().replace(" ", "_"),
            said,
            headers=dict(error.headers or {}),
        )
    )


async def _malformed(_: Request, error: Exception) -> Response:
    """A body or a parameter that does not fit: where, and why, without repeating what was sent."""
    assert isinstance(error, RequestValidationError)
    faults = [
        {"place": ".".join(str(each) for each in fault["loc"]), "message": str(fault["msg"])}
        for fault in error.errors()[:10]
    ]
    said = f"{faults[0]['place']}: {faults[0]['message']}"
    return _answer(ProblemError(422, "malformed_request", said, faults=faults))


async def _defect(_: Request, __: Exception) -> Response:
    return _answer(a_defect())
