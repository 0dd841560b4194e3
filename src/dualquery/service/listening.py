"""Where a service listens, and how: sockets, TLS, and the settings of the HTTP server."""

from __future__ import annotations

import errno
import os
import socket
import ssl

import uvicorn

from dualquery.errors import DualQueryError
from dualquery.service.app import application
from dualquery.service.connections import patient
from dualquery.service.desk import Desk
from dualquery.service.settings import Settings


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


def configured(desk: Desk) -> uvicorn.Config:
    """How uvicorn runs a service."""
    certificate, key = _tls(desk.settings)
    return uvicorn.Config(
        application(desk),
        ssl_certfile=certificate,
        ssl_keyfile=key,
        http=patient(most=desk.settings.http.connections),
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
