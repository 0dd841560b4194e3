"""Tests of the card run on the emulator everywhere, and once more on the card where there is one."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from threading import local

import pytest

import dualquery.card
import dualquery.fitting.cuda
from dualquery.card import CardError, kernels
from tests.card.emulator import emulated


@pytest.fixture(scope="session")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the kernels lie once they are compiled for the processor."""
    return tmp_path_factory.mktemp("kernels")


@pytest.fixture(params=["emulated", pytest.param("real", marks=pytest.mark.gpu)])
def any_card(
    request: pytest.FixtureRequest, compiled: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    if request.param == "real":
        try:
            dualquery.card.card()
        except CardError as problem:
            pytest.skip(str(problem))
        yield
        return
    if shutil.which("g++") is None:
        pytest.skip("no compiler for the emulator")
    fake = emulated(compiled)
    for module in (dualquery.card, dualquery.fitting.cuda):
        monkeypatch.setattr(module, "card", lambda: fake)
    monkeypatch.setattr(dualquery.card, "_MINE", local())
    kernels.cache_clear()
    yield
    kernels.cache_clear()
