"""The quality page: what `releases.quality` has found, in pictures and sentences. Internal: do not publish."""

from __future__ import annotations

from html import escape

import numpy as np

from dualquery import plots
from dualquery.releases.quality import Quality
from dualquery.releases.release import Release
from dualquery.releases.report import document, gallery, paragraph, section
from dualquery.releases.sentences import number

PAIRS_SHOWN = 6


def page(found: Quality, release: Release) -> str:
    """The page: one file without a script, stamped on top."""
    body = [
        section("Internal: do not publish", f"<p>{INTERNAL}</p>", "alarm"),
        _numbers(found),
        gallery("Column by column", BESIDE, "columns", _ones(found, release)),
        gallery("The pairs that are farthest from the truth", APART, "two", _pairs(found, release)),
        _worst(found, release),
        _near(found),
    ]
    return document("Quality of a release, beside the truth", found.stamp, _tiles(found), body)


INTERNAL = (
    "This page was made with the private table. Whoever reads it learns things about people in it that the release "
    "keeps back. Keep it where the table is kept."
)
BESIDE = "Above the truth (orange), below the release (blue)."
APART = "Left the truth, right the release; darker cells hold more records, numbers are percentages."


def _tiles(found: Quality) -> list[tuple[str, str]]:
    tiles = [
        (number(float(f"{found.pmse:.3g}")), "pMSE, times that of two samples of one table"),
        (
            _percent(found.copied[0]),
            f"of synthetic rows have a real twin ({_percent(found.copied[1])} of real rows)",
        ),
    ]
    if found.trained is not None:
        t = found.trained
        tiles.append(
            (
                f"{t.synthetic:.3f}",
                f"{t.measure} of {t.target}, trained on synthetic rows ({t.real:.3f} on real)",
            )
        )
    if found.attack is not None:
        tiles.append(
            (
                _percent(found.attack.right),
                f"right: who knows all but one record (at most {_percent(found.attack.bound)})",
            )
        )
    if found.holdout is not None:
        tiles.append(
            (f"{found.holdout:.3f}", "area under the curve of the nearest-record attack (0.5 is guessing)")
        )
    return tiles


def _numbers(found: Quality) -> str:
    said = [
        f"pMSE is {number(float(f'{found.pmse:.3g}'))} times what two samples of one table would have. Near 1 nobody "
        "tells real rows from synthetic ones by a logistic model of single columns; it grows with the number of rows."
    ]
    if (t := found.trained) is not None:
        said.append(
            f"A linear model of {t.target} reaches {t.measure} = {t.synthetic:.3f} on real rows when trained on "
            f"synthetic ones, {t.real:.3f} when trained on real ones, and {t.nothing:.3f} without any column."
        )
    if (a := found.attack) is not None:
        said.append(
            "An attacker who knows every record but one and all noisy numbers of this release says which of two "
            f"records is in the table: right in {_percent(a.right)} of {a.asked:,} cases. Guessing is right in 50%, "
            f"and its ε lets nobody be right in more than {_percent(a.bound)}."
        )
    if found.holdout is not None:
        said.append(
            "The usual attack calls records near a synthetic one members: against the records that you gave, the "
            f"area under its curve is {found.holdout:.3f}; 0.5 is guessing."
        )
    return section("In words", "".join(map(paragraph, said)))


def _ones(found: Quality, release: Release) -> list[plots.Figure]:
    figures = []
    for attribute, true, made in found.ones:
        name, labels = release.domain.name(attribute), release.domain.labels(attribute)
        kept = sorted(np.argsort(-(true + made), kind="stable")[: plots.MOST_CELLS_A_SIDE].tolist())
        svg = plots.beside([labels[i] for i in kept], true[kept], made[kept], name=name)
        off = 100 * float(np.abs(true - made).sum())
        figures.append(plots.Figure(name, svg, f"{off:.2g} percentage points in all"))
    return figures


def _pairs(found: Quality, release: Release) -> list[plots.Figure]:
    figures = []
    for each in found.pairs[:PAIRS_SHOWN]:
        names = (release.domain.name(each.members[0]), release.domain.name(each.members[1]))
        kept = [
            sorted(
                np.argsort(-each.true.sum(axis=1 - axis), kind="stable")[: plots.MOST_CELLS_A_SIDE].tolist()
            )
            for axis in (0, 1)
        ]
        labels = [[release.domain.labels(j)[i] for i in k] for j, k in zip(each.members, kept, strict=True)]
        for words, shares in (("truth", each.true), ("release", each.released)):
            svg = plots.heat_map(labels[0], labels[1], shares[np.ix_(*kept)], names=names)
            figures.append(
                plots.Figure(f"{names[0]} × {names[1]}: {words}", svg, f"{100 * each.l1:.2g} points apart")
            )
    return figures


def _worst(found: Quality, release: Release) -> str:
    rows = "".join(
        f"<tr><td>{escape(' × '.join(release.domain.name(j) for j in each.members))}</td><td>{each.l1:.4f}</td></tr>"
        for each in found.pairs[:10]
    )
    mean = float(np.mean([each.l1 for each in found.pairs])) if found.pairs else 0.0
    return section(
        "Pairs of columns",
        f"<p>Σ |difference| over the cells of a pair's table is {mean:.4f} on average of {len(found.pairs):,} pairs. "
        f"The ten largest:</p><table><tr><th>pair</th><th>Σ |difference|</th></tr>{rows}</table>",
    )


def _near(found: Quality) -> str:
    last = int(np.flatnonzero(found.nearest[0] + found.nearest[1]).max()) + 1
    made, real = (each[:last] for each in found.nearest)
    svg = plots.beside([f"{k} columns" for k in range(last)], real, made, name="distances")
    note = (
        "In how many columns a row differs from the nearest real row: real rows (orange, compared with the others), "
        "and synthetic ones (blue). Blue far above orange at 0 would mean copies."
    )
    return section("Nearest records", f'<p class="note">{note}</p>{svg}')


def _percent(share: float) -> str:
    return f"{100 * share:.1f}%"
