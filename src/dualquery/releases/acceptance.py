"""Acceptance: what good enough means, named before the table is read, and a verdict on the release.

    [[criterion]]                    [[criterion]]              [[criterion]]               [[criterion]]
    tables = 2                       tables = 2                 table = ["sex", "income"]   mean_of = "age"
    mean = 0.05                      worst = 0.2                error = 0.02                by = ["sex"]
                                                                                            error = 1.5

The error of a table is Σ_cells |share − share in the rows|; `tables` is about those of so many attributes that a
check looks at, and `mean_of` about a mean within groups: how far off it is, averaged over the groups by their size.
Of a database attributes of its rows are named `person.age`, of the other row of a pair `other person.age`, and
`tables` has `of = "person"` or `of = "pairs of person"`.
Each criterion is one number, which a record moves by one at most (`queries.derived`), and is measured with the check.

A criterion passes where the measured error and a one-sided bound of its noise stay within the limit, so that a
release that is worse than a limit passes in at most one case of twenty, however many criteria there are. It fails
where the error less such a bound, of all criteria at once, exceeds the limit. A limit is refused where a release with
half of that error would pass in less than four cases of five.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any, TypeAlias

import numpy as np

from dualquery.errors import DualQueryError
from dualquery.mechanisms.mechanism import Task
from dualquery.privacy.noise import Noise
from dualquery.queries.derived import WEIGHT
from dualquery.queries.language import unknown_name
from dualquery.queries.question import values_of
from dualquery.queries.random_families import Stream
from dualquery.queries.tables import Tables
from dualquery.queries.views import View, ViewTables
from dualquery.releases.certificate import VERDICTS
from dualquery.releases.check import (
    MOST_CELLS,
    OF_VIEWS,
    ORDERS,
    Asked,
    Check,
    Reserved,
    Unchecked,
    as_released,
    asked,
    checked_share,
    errors_of,
    hanging,
    set_aside,
    tables_drawn,
    tables_over,
    varied,
)
from dualquery.table.domain import Domain
from dualquery.table.records import Records
from dualquery.table.toml_text import contents, document
from dualquery.types import Integers, Set, halved

# Of a pass, one-sided: a little more than the 95% that are promised; and that half the limit passes.
LEVEL, POWER = 0.965, 0.8
MOST_ORDER = 4
PASS, FAIL, UNKNOWN = VERDICTS
GivenAcceptance: TypeAlias = str | os.PathLike[str] | Mapping[str, Any]


@dataclass(frozen=True)
class Criterion:
    """A limit on one number: of tables of so many attributes, of one table, or of a mean within groups."""

    says: str
    limit: float  # in the unit of the number
    order: int = 0
    worst: bool = False
    members: Set = ()
    view: View | None = None  # of a database: rows of a child table, or pairs of them
    mean_of: int | None = None  # its groups are the others of the members
    unit: float = 1.0  # of a mean: the width of what it is a mean of

    @property
    def in_check(self) -> bool:
        """Whether a check measures the number anyway."""
        return not self.worst and (0 < self.order <= ORDERS if self.view is None else self.order == OF_VIEWS)


@dataclass(frozen=True)
class Wanted:
    """The share of the budget for a check, and the criteria."""

    share: float = 0.0
    criteria: tuple[Criterion, ...] = ()

    @staticmethod
    def of(share: object, accept: GivenAcceptance | None, domain: Domain) -> Wanted:
        """As it is asked for; refused before anything is charged."""
        found = checked_share(share)
        if accept is None:
            return Wanted(found)
        if found == 0:
            raise DualQueryError(
                "acceptance is measured with the check; give it a share of the budget (--check)"
            )
        return Wanted(found, read_acceptance(accept, domain))

    @property
    def more(self) -> int:
        """Numbers beside those of a check."""
        return sum(not each.in_check for each in self.criteria)

    def set_aside(self, task: Task) -> Reserved | Unchecked:
        """What is set aside of a task; refused where a criterion could not be told.

        (Where the number of records was measured something is charged already, and the verdict says what it can.)
        """
        kept = set_aside(task, self.share, self.more)
        varied_now = len(varied(task.workload))
        for each in self.criteria:
            if each.view is None and each.order > varied_now:
                raise DualQueryError(
                    f"the criterion '{each.says}' is about {each.order} attributes, and the questions are about "
                    f"{varied_now} that vary; leave it out"
                )
        if isinstance(kept, Unchecked):
            return self.refused(kept.why, late=task.rows_variance is not None)
        least = 2 * told_within(kept.portion.noise) * kept.unit
        for each in self.criteria:
            if each.limit < least * each.unit and task.rows_variance is None:
                raise DualQueryError(
                    f"the limit of '{each.says}' is below what could be told here, {least * each.unit:.2g}: give a "
                    "larger limit, a larger share for the check (--check), or a larger budget"
                )
        return kept

    def refused(self, why: str, *, late: bool = False) -> Unchecked:
        """No check: a refusal where criteria wait for one."""
        if self.criteria and not late:
            raise DualQueryError(f"nothing can be accepted here, because nothing can be checked: {why}")
        return Unchecked(why)

    def asked(self, task: Task, released: Records, seed: int) -> Asked:
        """The tables of the check and of all criteria, and what is measured of them."""
        made = asked(task, released, seed)
        about, parts = list(made.about), list(made.parts)
        means = {made.what(part): place for place, part in enumerate(parts)}
        of_order = {what: parts[place] for what, place in means.items()}
        places: list[int | None] = []
        for number, each in enumerate(self.criteria):
            what = each.view.words if each.view else "", each.order
            if each.in_check:
                places.append(means.get(what))
                continue
            view = each.view and as_released(each.view, released)
            if view is not None and not view.mass(released):
                places.append(None)
                continue
            if each.order and what not in of_order:
                drawn = tables_drawn(task, released, each.order, Stream(seed + 1 + number), view)
                if drawn:
                    of_order[what] = errors_of(view, released, len(about), len(drawn))
                about += [(view, members) for members in drawn]
            if each.order:
                part = of_order.get(what)
                part = None if part is None else replace(part, largest=each.worst)
            else:
                part = errors_of(view, released, len(about), 1)
                if each.mean_of is not None:
                    counted = tables_over(task.domain, view, [each.members])
                    weights, groups = _weights(counted, each.mean_of, released)
                    part = replace(part, weights=weights, groups=groups)
                about.append((view, each.members))
            places.append(None if part is None else len(parts))
            parts += [] if part is None else [part]
        return Asked.of(task.domain, about, parts, made.means, places)

    def accepted(self, check: Check | Unchecked) -> dict[str, Any] | None:
        """The verdicts, as the certificate says them; None where nothing was named beforehand."""
        if not self.criteria:
            return None
        places = [None] * len(self.criteria) if isinstance(check, Unchecked) else check.asked.places
        told = [
            _told(each, None, None, UNKNOWN, None)
            if at is None or isinstance(check, Unchecked)
            else _judged(each, check, at, len(self.criteria))
            for each, at in zip(self.criteria, places, strict=True)
        ]
        verdicts = [each["verdict"] for each in told]
        whole = FAIL if FAIL in verdicts else UNKNOWN if UNKNOWN in verdicts else PASS
        return {"verdict": whole, "criteria": told}


NOTHING_WANTED = Wanted()


def doubts(accepted: Mapping[str, Any] | None) -> list[str]:
    """What a reader must know where a release was not accepted."""
    if accepted is None or accepted["verdict"] == PASS:
        return []
    failed = [
        f"{each['says']}: {each['verdict']}" for each in accepted["criteria"] if each["verdict"] != PASS
    ]
    words = "perhaps not good enough: whether it is could not be told"
    if accepted["verdict"] == FAIL:
        words = "not accepted: the release is worse than was said beforehand to be good enough"
    return [f"{words} ({'; '.join(failed)})"]


def told_within(noise: Noise) -> float:
    """From how far below a limit an error passes, in four cases of five: both quantiles of the noise, one-sided."""
    return noise.size_within(2 * LEVEL - 1) + noise.size_within(2 * POWER - 1)


def _judged(each: Criterion, check: Check, at: int, criteria: int) -> dict[str, Any]:
    noise = check.reserved.portion.noise
    error, one = float(check.shares[at]), float(check.units[at])
    limit = each.limit / each.unit
    if error + noise.size_within(2 * LEVEL - 1) * one <= limit:
        verdict = PASS
    elif error - noise.size_within(1 - 2 * (1 - LEVEL) / criteria) * one > limit:
        verdict = FAIL
    else:
        verdict = UNKNOWN
    bar = float(check.bars[at])
    return _told(each, error, bar, verdict, _chance(noise, (limit - error) / one))


def _chance(noise: Noise, below: float) -> float:
    """How likely noise is not to have hidden a larger error: its chance to lie above −below, by bisection."""
    low, _ = halved(0.0, 1.0 - 1e-12, 50, lambda level: noise.size_within(level) >= abs(below))
    return round((1 + low) / 2 if below > 0 else (1 - low) / 2, 6)


def _told(
    each: Criterion, error: float | None, bar: float | None, verdict: str, confidence: float | None
) -> dict[str, Any]:
    unit = each.unit
    return {
        "says": each.says,
        "limit": each.limit,
        "error": None if error is None else max(0.0, error) * unit,
        "bar": None if bar is None else bar * unit,
        "verdict": verdict,
        "confidence": confidence,
    }


def _weights(counted: Tables | ViewTables, mean_of: int, released: Records) -> tuple[Integers, Integers]:
    """Of every cell: its weight less the mean of its group in the released rows, and its group."""
    tables = counted if isinstance(counted, Tables) else counted.tables
    shape, axis = tables.shape_of(0), tables.sets[0].index(mean_of)
    values, low, width = _scale(tables.domain, mean_of)
    along = [1] * len(shape)
    along[axis] = len(values)
    known = np.broadcast_to(np.isfinite(values).reshape(along), shape)
    whole = np.rint(WEIGHT * (np.nan_to_num(values, nan=low) - low) / width).astype(np.int64).reshape(along)
    counts = counted.counts(released).reshape(shape) * known
    held = counts.sum(axis=axis, keepdims=True)
    mean = np.rint((counts * whole).sum(axis=axis, keepdims=True) / np.maximum(held, 1)).astype(np.int64)
    others = np.arange(math.prod(shape) // shape[axis]).reshape(
        [1 if a == axis else k for a, k in enumerate(shape)]
    )
    weights = np.where(known, whole - mean, 0)
    return weights.ravel(), np.broadcast_to(others, shape).ravel()


def _scale(domain: Domain, attribute: int) -> tuple[np.ndarray, float, float]:
    """The number of each code, NaN where it has none; the least of them, and how far they reach."""
    try:
        values = np.asarray(values_of(domain, attribute)).astype(np.float64)
    except ValueError:
        raise DualQueryError(f"'{domain.name(attribute)}' is no number, so it has no mean") from None
    known = values[np.isfinite(values)]
    if len(known) < 2 or known.max() == known.min():
        raise DualQueryError(
            f"'{domain.name(attribute)}' has only one value, so its mean is known; leave that criterion out"
        )
    return values, float(known.min()), float(known.max() - known.min())


# Reading


def read_acceptance(given: GivenAcceptance, domain: Domain) -> tuple[Criterion, ...]:
    """The criteria in a file, or in a dict of the same contents; DualQueryError in one sentence."""
    if not isinstance(given, str | os.PathLike | Mapping):
        raise DualQueryError('acceptance is a file, or a dict: {"criterion": [{"tables": 2, "mean": 0.05}]}')
    where = "acceptance" if isinstance(given, Mapping) else f"acceptance file '{os.fspath(given)}'"
    said = given if isinstance(given, Mapping) else _document(given, where)
    listed = said.get("criterion")
    if set(said) != {"criterion"} or not isinstance(listed, list) or not listed:
        raise DualQueryError(f"{where} may hold only sections [[criterion]], one for each criterion")
    found = []
    for number, each in enumerate(listed, 1):
        try:
            found.append(_criterion(each, domain))
        except DualQueryError as problem:
            raise DualQueryError(f"{where}, criterion {number}: {problem}") from None
    return tuple(found)


def _document(path: str | os.PathLike[str], where: str) -> Mapping[str, Any]:
    try:
        return document(contents(path, where, DualQueryError))
    except ValueError as problem:
        raise DualQueryError(f"{where} {problem}") from None


FORMS = (
    'tables = 2 with mean = 0.05 or worst = 0.2, table = ["sex", "income"] with error = 0.02, or mean_of = "age" '
    'with error = 1.5 and, if wanted, by = ["sex"]'
)


def _criterion(said: Any, domain: Domain) -> Criterion:
    keys = set(said) if isinstance(said, Mapping) else set()
    if {"tables"} < keys <= {"tables", "mean", "of"} or {"tables"} < keys <= {"tables", "worst", "of"}:
        view = _view(said["of"], domain) if "of" in keys else None
        limit = "worst" if "worst" in keys else "mean"
        if limit in keys:
            return _of_order(said["tables"], "worst" in keys, _limit(said, limit), view)
    if keys == {"table", "error"}:
        domain, view = _known(said["table"], domain)
        members = _members(said["table"], domain)
        words = f"error of {_named(domain, members)}"
        return Criterion(words, _limit(said, "error"), members=_not_too_large(members, domain), view=view)
    if keys in ({"mean_of", "error"}, {"mean_of", "by", "error"}):
        domain, view = _known([said["mean_of"], *_texts(said.get("by", said["mean_of"]))], domain)
        (attribute,) = _members([said["mean_of"]], domain)
        by = _members(said["by"], domain) if "by" in keys else ()
        if attribute in by:
            raise DualQueryError(f"'{domain.name(attribute)}' stands in by and mean_of; leave it out of by")
        _, _, width = _scale(domain, attribute)
        members = _not_too_large(tuple(sorted((attribute, *by))), domain)
        groups = f" by {', '.join(domain.name(j) for j in by)}" if by else ""
        words = f"error of the mean of {domain.name(attribute)}{groups}"
        return Criterion(
            words, _limit(said, "error"), members=members, view=view, mean_of=attribute, unit=width
        )
    raise DualQueryError(f"a criterion says {FORMS}")


def _view(of: Any, domain: Domain) -> View:
    """What `of` names: rows of a child table, or pairs of them."""
    views = {view.words: view for view in hanging(domain)}
    if not isinstance(of, str) or of not in views:
        known = f"{' or '.join(map(repr, views))}" if views else "a table of a database, and this is none"
        raise DualQueryError(f"'of' names {known}; {of!r} is not known")
    return views[of]


def _known(names: Any, domain: Domain) -> tuple[Domain, View | None]:
    """Where all of these attributes are known: of units, of their rows, or of pairs of rows; else where most are."""
    listed = _texts(names)
    places: list[tuple[Domain, View | None]] = [(domain, None), *((v.domain, v) for v in hanging(domain))]
    return max(places, key=lambda place: sum(place[0].find(name) is not None for name in listed))


def _of_order(order: Any, worst: bool, limit: float, view: View | None) -> Criterion:
    if isinstance(order, bool) or not isinstance(order, int) or not 1 <= order <= MOST_ORDER:
        raise DualQueryError(f"tables are of 1 to {MOST_ORDER} attributes, and {order!r} is no such number")
    if view is not None and order < view.slots:
        raise DualQueryError(f"tables of {view.words} are of {view.slots} attributes at least")
    what = "attribute" if order == 1 else f"{order} attributes"
    words = f"{'worst' if worst else 'mean'} error of tables of {'one ' if order == 1 else ''}{what}"
    words += f" of {view.words}" if view else ""
    return Criterion(words, limit, order=order, worst=worst, view=view)


def _limit(said: Mapping[str, Any], key: str) -> float:
    value = said[key]
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise DualQueryError(f"{key} is a limit above 0, and {value!r} is not")
    return float(value)


def _texts(names: Any) -> list[str]:
    listed: Any = [names] if isinstance(names, str) else names
    if not isinstance(listed, list) or not listed or not all(isinstance(each, str) for each in listed):
        raise DualQueryError(f"name attributes in a list of texts; {names!r} is not one")
    return listed


def _members(names: Any, domain: Domain) -> Set:
    found = []
    for name in _texts(names):
        attribute = domain.find(name)
        if attribute is None:
            raise DualQueryError(unknown_name(domain, name))
        found.append(attribute)
    if any(a == b for a, b in combinations(found, 2)):
        raise DualQueryError("an attribute is named twice")
    return tuple(sorted(found))


def _not_too_large(members: Set, domain: Domain) -> Set:
    cells = math.prod(int(domain.sizes[j]) for j in members)
    if cells > MOST_CELLS:
        raise DualQueryError(
            f"{_named(domain, members)} has {cells:,} cells, and a criterion is about {MOST_CELLS:,} at most"
        )
    return members


def _named(domain: Domain, members: Set) -> str:
    return " × ".join(domain.name(j) for j in members)
