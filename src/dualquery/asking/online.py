"""A table that answers one question at a time."""

from __future__ import annotations

from collections.abc import Mapping

from dualquery.asking.answers import Cost, Json, OnlineAnswer, Quote, Status
from dualquery.asking.journal import Journal
from dualquery.releases.release import Release
from dualquery.table.domain import Domain


class Online:
    """Asks, buys, quotes; safe to use from many threads."""

    domain: Domain
    journal: Journal
    release: Release
    published: Mapping[str, Release]
    price: Cost  # of a fire with its measurement

    def ask(
        self, text: str, *, tolerance: float | None = None, release: str | None = None, note: str = ""
    ) -> OnlineAnswer:
        raise NotImplementedError

    def buy(self, text: str, *, error: float, note: str = "") -> OnlineAnswer:
        raise NotImplementedError

    def quote(self, text: str, *, tolerance: float | None = None, error: float | None = None) -> Quote:
        raise NotImplementedError

    def status(self) -> Status:
        raise NotImplementedError

    def certificate(self) -> dict[str, Json]:
        raise NotImplementedError

    def fingerprint(self) -> str:
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError
