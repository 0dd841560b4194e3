"""A release as notebooks show it: in one line, as a card, and as pictures of tables with their bars.

Pictures carry their own light ground, so that they read the same on a dark page.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dualquery.errors import QueryError, ReleaseError
from dualquery.releases import plots
from dualquery.releases import sentences as words
from dualquery.releases.frames import attributes_of, cells_table

if TYPE_CHECKING:
    from dualquery.releases.release import Release

MOST_BARS = 60
MOST_CELLS_A_SIDE = 40
_CARD = (
    "background:#fff;color:#1f2a37;border:1px solid #e3e8ee;border-radius:8px;padding:12px 16px;"
    "max-width:46rem;font:14px/1.5 system-ui,sans-serif"
)


@dataclass(frozen=True)
class Figure:
    """A picture with its title. Notebooks show it; `save` writes it to a file."""

    title: str
    svg: str

    def __repr__(self) -> str:
        return f"<Figure: {self.title}>"

    def _repr_html_(self) -> str:
        return f'<div style="{_CARD}"><b>{escape(self.title)}</b>{self.svg}</div>'

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write an SVG file."""
        if Path(path).suffix.lower() != ".svg":
            raise ReleaseError(f"pictures are written as SVG; name the file '{Path(path).stem}.svg'")
        try:
            Path(path).write_text(self.svg, encoding="utf-8")
        except OSError as error:
            raise ReleaseError(f"'{path}' cannot be written: {error.strerror}") from None


def plotted(release: Release, by: str | Sequence[str], where: str | None) -> Figure:
    """Shares of one attribute with bars, or of two as a heat map."""
    members = attributes_of(release, by)
    if len(members) > 2:
        raise QueryError("a picture shows one attribute or two; ask `table` for more")
    cells = cells_table(release, by, where)
    names = [release.domain.name(j) for j in members]
    labels = [release.domain.labels(j) for j in members]
    shares = cells["share"].to_numpy()
    among = "" if where is None else f", where {where}"
    if len(members) == 1:
        kept = _most(shares, MOST_BARS)
        bars = np.array([bar or 0.0 for bar in cells["bar"].to_pylist()])
        svg = plots.histogram([labels[0][i] for i in kept], shares[kept], name=names[0], bars=bars[kept])
        return Figure(f"{names[0]}: shares and 95% bars{among}", svg)
    joint = shares.reshape(len(labels[0]), len(labels[1]))
    down, across = _most(joint.sum(axis=1), MOST_CELLS_A_SIDE), _most(joint.sum(axis=0), MOST_CELLS_A_SIDE)
    svg = plots.heat_map(
        [labels[0][i] for i in down],
        [labels[1][i] for i in across],
        joint[np.ix_(down, across)],
        names=(names[0], names[1]),
    )
    return Figure(f"{names[0]} × {names[1]}, in percent of the table{among}", svg)


def _most(shares: NDArray[np.float64], room: int) -> list[int]:
    """The largest, as many as there is room for, in their own order."""
    return sorted(np.argsort(-shares, kind="stable")[:room].tolist())


def in_short(release: Release) -> str:
    """One line, for people and logs."""
    certificate, width = release.certificate, release.domain.width
    rows = certificate["synthetic_rows"]
    what = "answers" if rows is None else f"{rows:,} synthetic records"
    budget = certificate["budget"]
    private = "" if certificate.private else ", NOT PRIVATE"
    return (
        f"<Release: {what}, {width:,} attribute{'' if width == 1 else 's'}, {certificate['mechanism']}, "
        f"ε = {words.number(budget['epsilon'])}, δ = {words.number(budget['delta'])}{private}>"
    )


def card(release: Release) -> str:
    """What a notebook shows: what it is, what is promised, how good it is, and what to ask next."""
    certificate = release.certificate
    budget, predicted = certificate["budget"], certificate.predicted_error
    expected = (
        "unknown"
        if predicted.mean is None
        else f"{plots.percentage(predicted.mean)} of the records on average, for the questions it was made for"
    )
    facts = {
        "released": words.headline(certificate),
        "mechanism": certificate["mechanism"],
        "privacy": f"ε = {words.number(budget['epsilon'])}, δ = {words.number(budget['delta'])}, "
        f"neighbours {words.relation(certificate)}",
        "expected error": expected,
        "attributes": _attributes(release),
    }
    if not certificate.private:
        facts["not private"] = words.why_not_private(certificate)
    rows = "".join(
        f'<tr><th style="text-align:left;vertical-align:top;padding-right:12px;font-weight:500;color:#5b6a7b">'
        f'{escape(name)}</th><td style="text-align:left">{escape(value)}</td></tr>'
        for name, value in facts.items()
    )
    return f'<div style="{_CARD}"><b>Release</b><table style="color:inherit">{rows}</table></div>'


def _attributes(release: Release) -> str:
    names = [column.name for column in release.domain.columns]
    shown = ", ".join(names[:12])
    return shown if len(names) <= 12 else f"{shown}, and {len(names) - 12:,} more"
