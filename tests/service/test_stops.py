"""A signal to stop is heard at any moment after the ledger was opened."""

from __future__ import annotations

import os
import signal
from threading import Timer
from typing import Any

import pytest
import uvicorn

from dualquery.service.run import serve
from tests.service.conftest import Make


def test_a_signal_before_the_server_has_begun_is_not_lost(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Raised as an exception it was, where somebody who ran at that moment swallowed it: the server served on."""
    real, late = uvicorn.Server.run, []

    def run(self: uvicorn.Server, *arguments: Any) -> None:
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            os.getppid()  # a moment, in which an exception would be raised
        except KeyboardInterrupt:
            pass  # as a library might
        timer = Timer(20, lambda: late.append(True) or setattr(self, "should_exit", True))
        timer.start()
        try:
            real(self, *arguments)
        finally:
            timer.cancel()

    monkeypatch.setattr(uvicorn.Server, "run", run)
    serve(make(None))
    assert not late
