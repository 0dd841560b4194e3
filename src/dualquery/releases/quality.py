"""How good a release is beside the truth, on a page for its curator. Internal: nothing here is private.

*pMSE.* A logistic model is fitted to tell real rows from synthetic ones; p̂ is what it thinks of each. With N rows,
half of them synthetic, and k coefficients, p̂ − ½ is about x·β̂/4 with the covariance 4(XᵀX)⁻¹ of β̂ where both are
samples of one law, so that pMSE = (1/N) Σ (p̂ − ½)² is (k − 1)/(4N) on average; shown is how many times as large it
is. (Snoke, Raab, Nowok, Dibben and Slavković 2018 have half of that, for rows of a law fitted to the real ones.)

*Train on synthetic, test on real.* The same linear model of a named column, fitted to synthetic rows and to real
ones, is asked about real rows that neither has seen.

*Nearest records.* In how many columns a synthetic row differs from the real row that is nearest to it, beside how far
real rows lie from their nearest other one: rows that were copied would lie nearer.

*Membership.* The strongest attacker there is knows every record but one, and all noisy numbers of this release, and
says which of two records is in the table. With counts c(x) of a record x and noise Z of variance v, the likelihoods
say x rather than x' where  Σ_S [½‖c_S(x) − c_S(x')‖² + Z_S(x) − Z_S(x')] / v_S > 0.  The curator knows Z, because
the curator knows the truth, and so can say how often the attacker is right about this very release. Under (ε, δ)
between tables in which one record is replaced, nobody is right more often than (e^ε + δ)/(1 + e^ε); where records are
added or removed, a replacement is two such steps, and the ε for two records counts. With a file of records that were
never in the table the usual attack is shown, too: records near a synthetic one are called members.

The quality page: what `releases.quality` has found, in pictures and sentences. Internal: do not publish.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dualquery import plots
from dualquery.errors import QueryError
from dualquery.fitting.measured import MeasuredTables
from dualquery.queries.language import unknown_name
from dualquery.queries.tables import Tables, attribute_codes, centred
from dualquery.releases.evaluate import STAMP
from dualquery.releases.release import Release
from dualquery.releases.report import document, gallery, paragraph, section
from dualquery.releases.sentences import number, relation
from dualquery.table.columns import Categorical
from dualquery.table.domain import Items, Numeric
from dualquery.table.encoding import encode
from dualquery.table.reading import AnyTable
from dualquery.table.records import Records
from dualquery.types import Integers, Progress, Reals, Set, silent

MOST_COLUMNS = 60
MOST_ROWS = 20_000  # that models are fitted to, and that neighbours are looked for among
ASKED = 1_000  # rows whose nearest is looked for
CANDIDATES = 5_000  # pairs of records that an attacker is asked about
RIDGE, STEPS = 1e-3, 25
MOST_LEVELS = 12  # values of a column that a model has a coefficient for; rarer ones share one
LEAST = 1e-12


@dataclass(frozen=True)
class PairBeside:
    """Two columns: how far their tables lie apart (Σ |difference|), and both tables as shares."""

    members: tuple[int, int]
    l1: float
    true: Reals
    released: Reals


@dataclass(frozen=True)
class Attack:
    """How often an attacker who knows all but one record is right, and how often anybody can be."""

    right: float
    bound: float
    asked: int


@dataclass(frozen=True)
class Trained:
    """A model of one column: what it reaches when fitted to synthetic rows, to real ones, and without any."""

    target: str
    measure: str
    synthetic: float
    real: float
    nothing: float


@dataclass(frozen=True)
class Quality:
    """All that the page shows. Internal: do not publish."""

    ones: tuple[tuple[int, Reals, Reals], ...]
    pairs: tuple[PairBeside, ...]
    pmse: float
    trained: Trained | None
    nearest: tuple[Reals, Reals]  # shares by number of columns that differ: of synthetic rows, of real ones
    copied: tuple[float, float]  # shares of rows that have a twin
    attack: Attack | None
    holdout: float | None  # of the usual attack, the area under its curve
    stamp: str = STAMP


def quality(
    release: Release,
    table: AnyTable,
    *,
    target: str | None = None,
    holdout: AnyTable | None = None,
    seed: int = 0,
    progress: Progress = silent,
) -> Quality:
    """Everything of the page, of a release and the table that it was made from. **Not private: do not publish.**"""
    if release.records is None:
        raise QueryError(
            "this release holds answers and no rows; `dualquery evaluate` without --html compares answers"
        )
    schema, rng = release.certificate.schema_read, np.random.default_rng(seed)
    if schema.domain.kind != "records":
        raise QueryError("the page is for tables of attributes; leave --html out")
    members = _shown(release)
    aim = _target(release, target)
    progress("reading the table", 0, 1)
    most = relation(release.certificate).records_per_person
    private, synthetic = encode(table, schema, records_per_person=most), release.records
    if private.rows < 20:
        raise QueryError(
            "the table has too few rows for this page; `dualquery evaluate` without --html compares them"
        )
    progress("comparing", 0, 4)
    ones, pairs = _pictures(release, private, members)
    progress("comparing", 1, 4)
    size = min(MOST_ROWS, private.rows, synthetic.rows)
    real, made = (_some(each, members, size, rng) for each in (private, synthetic))
    sizes = [int(release.domain.sizes[j]) for j in members]
    pmse = _pmse(real, made, sizes)
    trained = None if aim is None else _trained(release, aim, members, real, made, rng)
    progress("comparing", 2, 4)
    near = [_nearest(made, real, rng), _nearest(real, real, rng, apart=True)]
    shares = [np.bincount(each, minlength=len(members) + 1) / len(each) for each in near]
    progress("comparing", 3, 4)
    area = None
    if holdout is not None:
        others = _some(encode(holdout, schema), members, size, rng)
        area = _area(_nearest(real, made, rng), _nearest(others, made, rng))
    return Quality(
        tuple(ones),
        tuple(pairs),
        pmse,
        trained,
        (shares[0], shares[1]),
        (float(shares[0][0]), float(shares[1][0])),
        _attack(release, private, rng),
        area,
    )


def _shown(release: Release) -> list[int]:
    """The attributes that are columns of their own."""
    domain = release.domain
    own = [domain.starts[i] for i, column in enumerate(domain.columns) if not isinstance(column, Items)]
    if len(own) < 2:
        raise QueryError("the page compares columns, and this table has fewer than two; leave --html out")
    return own[:MOST_COLUMNS]


def _target(release: Release, name: str | None) -> int | None:
    if name is None:
        return None
    found = release.domain.find(name)
    if found is None or isinstance(release.domain.column_of(found)[1], Items):
        raise QueryError(unknown_name(release.domain, name))
    return found


def _some(records: Records, members: Sequence[int], size: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """The codes of some rows, by chance: one row each."""
    chosen = np.sort(rng.choice(records.rows, min(size, records.rows), replace=False))
    return attribute_codes(records.take(chosen), list(members)).T.astype(np.int64)


def _pictures(
    release: Release, private: Records, members: Sequence[int]
) -> tuple[list[tuple[int, Reals, Reals]], list[PairBeside]]:
    """The tables of single columns, and those of all pairs, the worst first; truth beside release."""
    assert release.records is not None
    sizes = release.domain.sizes
    sets: list[Set] = [(j,) for j in members]
    sets += [s for s in combinations(members, 2) if int(sizes[list(s)].prod()) <= 4_000_000]
    tables = Tables(release.domain, tuple(sets))
    true, made = (
        tables.split(tables.counts(each).astype(np.float64) / each.rows)
        for each in (private, release.records)
    )
    ones = [(s[0], t, r) for s, t, r in zip(sets, true, made, strict=True) if len(s) == 1]
    pairs = [
        PairBeside((s[0], s[1]), float(np.abs(t - r).sum()), t, r)
        for s, t, r in zip(sets, true, made, strict=True)
        if len(s) == 2
    ]
    return ones, sorted(pairs, key=lambda each: -each.l1)


def _design(codes: NDArray[np.int64], sizes: Sequence[int], like: NDArray[np.int64]) -> Reals:
    """A one, and a column for each of the most frequent values (in `like`) of an attribute but the first of them."""
    parts = [np.ones((len(codes), 1))]
    for j, size in enumerate(sizes):
        counts = np.bincount(like[:, j], minlength=size)
        frequent = np.argsort(-counts, kind="stable")[1:MOST_LEVELS]
        parts.append((codes[:, j, None] == frequent[counts[frequent] > 0]).astype(np.float64))
    return np.concatenate(parts, axis=1)


def _logistic(design: Reals, ones: Reals) -> Reals:
    """The coefficients of a logistic model by Newton's steps, held back a little so that they stay finite."""
    weights = np.zeros(design.shape[1])
    for _ in range(STEPS):
        chance = 1 / (1 + np.exp(-np.clip(design @ weights, -30, 30)))
        slope = design.T @ (ones - chance) - RIDGE * len(ones) * 1e-2 * weights
        bend = (design * (chance * (1 - chance))[:, None]).T @ design
        step = np.linalg.solve(bend + (RIDGE * len(ones) * 1e-2) * np.eye(len(weights)), slope)
        weights = weights + step
        if np.abs(step).max() < 1e-6:
            break
    return weights


def _pmse(real: NDArray[np.int64], made: NDArray[np.int64], sizes: Sequence[int]) -> float:
    """The ratio of pMSE to what two samples of one law would have."""
    size = min(len(real), len(made))
    both = np.concatenate([real[:size], made[:size]])
    design = _design(both, sizes, both)
    which = np.repeat([0.0, 1.0], size)
    chance = 1 / (1 + np.exp(-np.clip(design @ _logistic(design, which), -30, 30)))
    return float(np.mean((chance - 0.5) ** 2) / ((design.shape[1] - 1) / (4 * len(both))))


def _trained(
    release: Release,
    aim: int,
    members: Sequence[int],
    real: NDArray[np.int64],
    made: NDArray[np.int64],
    rng: np.random.Generator,
) -> Trained:
    """Accuracy of a category, R² of a number, on the half of the real rows that no model was fitted to."""
    column = release.domain.column_of(aim)[1]
    if aim not in members:
        raise QueryError(f"'{column.name}' is beyond the first {MOST_COLUMNS} columns, which the page shows")
    place = members.index(aim)
    rest = [i for i in range(len(members)) if i != place]
    sizes = [int(release.domain.sizes[members[i]]) for i in rest]
    order = rng.permutation(len(real))
    seen, asked = real[order[: len(real) // 2]], real[order[len(real) // 2 :]]
    few = made[: len(seen)]
    if isinstance(column, Numeric) or (isinstance(column, Categorical) and column.numeric):
        values = _places(column)

        def left(train: NDArray[np.int64]) -> float:
            known = train[~np.isnan(values[train[:, place]])]
            x, y = _design(known[:, rest], sizes, seen[:, rest]), values[known[:, place]]
            weights = np.linalg.solve(x.T @ x + np.eye(x.shape[1]), x.T @ y)
            test = asked[~np.isnan(values[asked[:, place]])]
            off = values[test[:, place]] - _design(test[:, rest], sizes, seen[:, rest]) @ weights
            return 1 - float(np.mean(off**2)) / max(float(np.var(values[test[:, place]])), LEAST)

        return Trained(column.name, "R²", left(few), left(seen), 0.0)
    levels = np.unique(np.concatenate([seen[:, place], few[:, place]]))

    def hit(train: NDArray[np.int64]) -> float:
        x, test = (_design(each[:, rest], sizes, seen[:, rest]) for each in (train, asked))
        scores = [test @ _logistic(x, (train[:, place] == level).astype(np.float64)) for level in levels]
        return float(np.mean(levels[np.argmax(scores, axis=0)] == asked[:, place]))

    usual = np.bincount(seen[:, place]).argmax()
    return Trained(column.name, "accuracy", hit(few), hit(seen), float(np.mean(asked[:, place] == usual)))


def _places(column: Any) -> Reals:
    """What each code of a number stands for: itself, or the middle of its bin; NaN where it is missing."""
    if isinstance(column, Categorical):
        return column.numbers
    low, high = column.bounds()
    middles = (np.asarray(low, np.float64) + np.asarray(high, np.float64)) / 2
    return np.append(middles, np.nan)


def _nearest(
    asked: NDArray[np.int64], among: NDArray[np.int64], rng: np.random.Generator, *, apart: bool = False
) -> Integers:
    """In how many columns some rows differ from the row nearest to them; with `apart` not from themselves."""
    chosen = rng.choice(len(asked), min(ASKED, len(asked)), replace=False)
    found = np.empty(len(chosen), np.int64)
    for i, row in enumerate(chosen.tolist()):
        differ = np.zeros(len(among), np.int64)
        for j in range(among.shape[1]):
            differ += among[:, j] != asked[row, j]
        if apart:
            differ[row] = among.shape[1]
        found[i] = differ.min()
    return found


def _area(members: Integers, others: Integers) -> float:
    """The chance that a member lies nearer than another, ties by halves: ½ is guessing."""
    below = (members[:, None] < others[None, :]).mean()
    return float(below + 0.5 * (members[:, None] == others[None, :]).mean())


def _attack(release: Release, private: Records, rng: np.random.Generator) -> Attack | None:
    """The likelihood ratio of two records given this release and all other records; None where no table is kept."""
    told = [each for each in release.measured if isinstance(each.what, tuple) and each.what]
    budget = release.certificate["budget"]
    if not told or budget["accounting"] == "pure":
        return None
    known, domain = MeasuredTables.of(release.domain, release.measured), release.domain
    sets = tuple(members for members in known.interactions if members)
    tables = Tables(domain, sets)
    true_counts = tables.split(tables.counts(private).astype(np.float64))
    first, second = (rng.integers(0, private.rows, CANDIDATES) for _ in range(2))
    codes = attribute_codes(private, list(range(domain.width))).astype(np.int64)
    score = np.zeros(CANDIDATES)
    for members, counts in zip(sets, true_counts, strict=True):
        shape = [int(domain.sizes[j]) for j in members]
        noise = known.interactions[members] - centred(counts.reshape(shape))
        x, other = ([codes[j, rows] for j in members] for rows in (first, second))
        own = math.prod((k - 1) / k for k in shape)  # ‖c(x)‖²
        both = np.prod([(a == b) - 1 / k for a, b, k in zip(x, other, shape, strict=True)], axis=0)
        score += ((own - both) + noise[tuple(x)] - noise[tuple(other)]) / max(known.variance[members], LEAST)
    differ = np.zeros(CANDIDATES, bool)
    for j in range(domain.width):
        differ |= codes[j, first] != codes[j, second]
    if not differ.any():
        return None
    right = float(np.mean(np.where(score[differ] == 0, 0.5, score[differ] > 0)))
    steps = 1 if relation(release.certificate).size_is_public else 2
    several = release.certificate["several"]["2"]
    epsilon = float(budget["epsilon"]) if steps == 1 else math.inf if several is None else float(several)
    delta = float(budget["delta"])
    bound = min(1.0, (1 + delta * math.exp(-epsilon)) / (1 + math.exp(-epsilon)))
    return Attack(right, bound, int(differ.sum()))


PAIRS_SHOWN = 6


def quality_page(found: Quality, release: Release) -> str:
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
