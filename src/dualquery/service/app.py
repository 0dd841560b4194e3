"""The application: routes, page, one shape for whatever is refused; where it listens, and how uvicorn runs it.

*Connections.* A client that sends its request slowly, or none, costs a connection. There are so many of them; each
has so many seconds until its headers are here; and where all are taken, the one that has waited longest without
asking makes room for the next. So whoever asks at once is heard, whatever others do.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from http import HTTPStatus
from importlib.resources import files
from itertools import count
from typing import Any

import uvicorn
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from dualquery import __version__
from dualquery.errors import DualQueryError, LedgerError
from dualquery.service.requests import Service
from dualquery.service.routes import routes, watching
from dualquery.service.settings import (
    Application,
    Departures,
    ProblemError,
    RequestRate,
    Settings,
    problem_of,
)

_FRESH = 1.0  # seconds after which a revoked token opens nothing
_PAGE = (
    "page.css",
    "icon.svg",
    "page.js",
    "asking.js",
    "numbers.js",
    "completion.js",
    "pictures.js",
    "views.js",
)
KINDS_OF_FILES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
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


def application(service: Service) -> Application:
    app = FastAPI(
        title="dualquery",
        version=__version__,
        description="Questions about a private table, one at a time, with differential privacy.",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        openapi_url="/v1/openapi.json",
        lifespan=_looking_at_tokens(service),
    )
    app.state.service = service
    app.state.rate = RequestRate(service.settings.http.requests_a_second)
    app.include_router(routes)
    app.include_router(watching)
    app.get("/", include_in_schema=False)(_file("index.html"))
    for name in _PAGE:
        app.get(f"/page/{name}", include_in_schema=False)(_file(name))
    for kind in (DualQueryError, HTTPException, RequestValidationError, Exception):
        app.exception_handler(kind)(refused)
    return Departures(app, service.settings.http, service.counts, headers=HEADERS)


def _looking_at_tokens(service: Service) -> Callable[[FastAPI], AbstractAsyncContextManager[None]]:
    @asynccontextmanager
    async def life(_: FastAPI) -> AsyncIterator[None]:
        looking = [asyncio.create_task(each) for each in (_refresh(service), _watch(service))]
        yield
        for task in looking:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    return life


async def _refresh(service: Service) -> None:
    while True:
        await asyncio.sleep(_FRESH)
        with suppress(LedgerError):  # it is away: what was known stays
            await service.look_at_wishes()


async def _watch(service: Service) -> None:
    """One attempt at a time: a ledger that is silent gets no more of them."""
    while True:
        await service.worker.look()
        await asyncio.sleep(_FRESH)


def _file(name: str) -> Callable[[], Awaitable[Response]]:
    content = (files("dualquery.service") / "page" / name).read_bytes()

    async def give() -> Response:
        return Response(content, media_type=KINDS_OF_FILES[name.rpartition(".")[2]])

    return give


async def refused(_: Request, error: Exception) -> Response:
    """What we refuse, and what the framework does: no such path or method, a body that does not fit.

    Of a body or a parameter it is said where it does not fit, and why, without repeating what was sent.
    """
    if isinstance(error, HTTPException):
        status = HTTPStatus(error.status_code)
        said, code = _SAID.get(status, status.phrase), status.phrase.lower().replace(" ", "_")
        problem = ProblemError(error.status_code, code, said, headers=dict(error.headers or {}))
    elif isinstance(error, RequestValidationError):
        faults = [
            {"place": ".".join(str(each) for each in fault["loc"]), "message": str(fault["msg"])}
            for fault in error.errors()[:10]
        ]
        said = f"{faults[0]['place']}: {faults[0]['message']}"
        problem = ProblemError(422, "malformed_request", said, faults=faults)
    else:
        problem = problem_of(error)
    return Response(problem.body(), problem.status, media_type="application/json", headers=problem.headers)


def bound(settings: Settings) -> list[socket.socket]:
    """The sockets of a service, taken and not listening yet; DualQueryError where they, or TLS, cannot be had."""
    _check_tls(settings)
    http = settings.http
    found: list[socket.socket] = []
    try:
        places = socket.getaddrinfo(http.host, http.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for family, kind, protocol, _, address in places:
            try:
                found.append(_bound(socket.socket(family, kind, protocol), address))
            except OSError as error:
                if error.errno not in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT) or len(places) == 1:
                    raise
    except OSError as error:
        for each in found:
            each.close()
        taken = error.errno == errno.EADDRINUSE
        why = "something else listens there" if taken else (error.strerror or "it cannot be used")
        raise DualQueryError(
            f"cannot listen at {http.host}, port {http.port}: {why}; name another with --port or --host"
        ) from None
    return found


def _bound(made: socket.socket, address: tuple[object, ...]) -> socket.socket:
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if made.family == socket.AF_INET6:
        made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    try:
        made.bind(address)
    except OSError:
        made.close()
        raise
    return made


def configured(service: Service) -> uvicorn.Config:
    certificate, key = _tls(service.settings)
    return uvicorn.Config(
        application(service),
        ssl_certfile=certificate,
        ssl_keyfile=key,
        http=type("Patient", (Patient,), {"most": service.settings.http.connections}),
        ws="none",
        access_log=False,
        log_level="warning",
        server_header=False,
        timeout_graceful_shutdown=5,
    )


def _tls(settings: Settings) -> tuple[str | None, str | None]:
    """The files of certificate and key, None where there is none."""
    certificate, key = settings.http.certificate, settings.http.key
    return (
        os.fspath(settings.path(certificate)) if certificate else None,
        os.fspath(settings.path(key)) if key else None,
    )


def _check_tls(settings: Settings) -> None:
    certificate, key = _tls(settings)
    if certificate is None and key is not None:
        raise DualQueryError("a TLS key needs its certificate; give it with --tls-certificate")
    for path in (certificate, key):
        if path is not None and not os.access(path, os.R_OK):
            raise DualQueryError(f"the TLS file '{path}' is not there or cannot be read; name another")
    if certificate is not None:
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key, password=lambda: b"")
        except (OSError, ValueError):
            raise DualQueryError(
                f"'{certificate}' and its key are not a TLS certificate in PEM with the key that belongs to it, "
                "without a password"
            ) from None


LONGEST = 65_536  # bytes of headers


class Patient(HttpToolsProtocol):
    """A connection that must ask in time, of so many at `most`."""

    most, slowest = 500, 10.0  # at once; seconds for headers to arrive
    _places = count()

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._deadline: asyncio.TimerHandle | None = None
        self._early = 0  # bytes of headers that are not whole
        self.since = 0  # its place among all that began to ask

    @property
    def asking(self) -> bool:
        """Whether a request is here as a whole and its answer is not gone yet."""
        return self.cycle is not None and not self.cycle.response_complete and not self.cycle.more_body

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._begin()
        if len(self.connections) > self.most:
            here = [each for each in self.connections if not each.transport.is_closing()]
            waiting = [each for each in here if isinstance(each, Patient) and not each.asking]
            if len(here) > self.most:
                min(waiting, key=lambda each: each.since).close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        heading = self.cycle is None or self.cycle.response_complete
        if heading and self._deadline is None:
            self._begin()
        self._early += len(data) if heading else 0
        super().data_received(data)
        if self.cycle is not None and not self.cycle.response_complete:
            self._forget()  # the headers are here; a body has a time of its own (limits.py)
        elif self._early > LONGEST:
            self.close()

    def close(self) -> None:
        """At once, with nothing said."""
        self._forget()
        self.transport.abort()

    def _begin(self) -> None:
        # Not the time: a loop tells one time to all that come in the same turn.
        self.since, self._early = next(self._places), 0
        self._deadline = self.loop.call_later(self.slowest, self.close)

    def _forget(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
