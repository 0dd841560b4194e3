"""Linked tables: households and persons of EU-SILC, and invented ones, released as units.

What is compared: tables of persons with their household, each person counting once; pairs of persons of one
household (siblings); and how many households have any, all, or two and more persons with a value. Errors of tables
are in L1, those of questions are fractions of the households.
"""

from __future__ import annotations

import csv
import gzip
import json
import resource
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from itertools import combinations
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from dualquery.counting import MemoryCounter
from dualquery.mechanisms.linked import LINKED
from dualquery.mechanisms.mechanism import Task
from dualquery.privacy.budget import Accounting, Budget, Neighbours, PersonAddRemove
from dualquery.privacy.curator import Curator
from dualquery.privacy.ledger import Ledger
from dualquery.queries.group import Group
from dualquery.queries.language.formula import Literal, Query, canonical
from dualquery.queries.language.reader import to_groups
from dualquery.queries.tables import Tables
from dualquery.queries.views import Counted, negated, over_units
from dualquery.queries.workload import Workload
from dualquery.randomness import SeededEntropy
from dualquery.releases.make import release
from dualquery.releases.release import Release
from dualquery.table.columns import Categorical
from dualquery.table.database import Database, Linked, database_of, starts_of
from dualquery.table.domain import Domain
from dualquery.table.records import Records
from dualquery.table.units import Units, units_of
from dualquery.types import silent
from experiments.data import DAMAGE, Data, Unavailable
from experiments.drawing import BLUE, GREEN, GREY, ORANGE, VERMILION, Look, legend_below
from experiments.harness import Experiment, Point, Rows, Setting, Size, Value, main, mean_by, parser, where
from experiments.peer_flags import add_flags, terms_of_flags
from experiments.peer_methods import DPSYNTH
from experiments.peer_runs import (
    NOT_STARTED,
    Terms,
    command_of,
    exact_rho,
    installing_problem,
    python_of,
    worth_another_try,
)
from experiments.processes import DONE, run_within

DELTA = 1e-6
LINKED_TABLES, FLAT, ONE_TABLE, APART, ALONE, ALONE_FLAT, INVENTED = (
    "linked",
    "flat, 6 rows of each",
    "one table of persons as a database",
    "persons dealt out anew",
    "households of one",
    "households of one, flat",
    "invented",
)
KINDS = ("any", "all", "two", "unit", "row")
ASKED = 400  # questions of each kind
LAHMAN = (
    "a table of the R package Lahman (or core/ of the repository chadwickbureau/baseballdatabank), as csv"
)
RELATIONAL = replace(DPSYNTH, program="run_dpsynth_relational.py")
PEER_LIMIT = 1800.0  # processor seconds
PEER_RUNS = (("MST", 1.0, 3), ("MST", 3.2, 3), ("AIM", 3.2, 1))  # of a mechanism, at ε
SIZES = {"agec": 8, "sex": 2, "act": 8, "cit": 4, "inc": 6}


def attribute(name: str, size: int) -> Categorical:
    return Categorical(name, tuple(map(str, range(size))))


def household(at_most: int, at_least: int = 1) -> Database:
    root = Linked("household", (attribute("region", 9), attribute("eq", 6)), key="hh")
    own = tuple(attribute(name, size) for name, size in SIZES.items())
    person = Linked("person", own, parent="household", link="hh", at_most=at_most, at_least=at_least)
    return database_of([root, person], "household")


@lru_cache(maxsize=2)
def eusilc(data: Data) -> Units:
    """6,000 households of the synthetic EU-SILC of the R package laeken, at most six persons of each."""
    homes = numbers(data, "linked/eusilc_household.csv.gz")
    persons = numbers(data, "linked/eusilc_person.csv.gz")
    homes, persons = homes[np.argsort(homes[:, 0])], persons[np.argsort(persons[:, 0], kind="stable")]
    first, last = (np.searchsorted(persons[:, 0], homes[:, 0], side=side) for side in ("left", "right"))
    sizes = np.minimum(last - first, 6)
    kept = np.concatenate([np.arange(a, a + m) for a, m in zip(first, sizes, strict=True)])
    return units_of(household(6), homes[:, 1:], [(sizes, persons[kept, 1:])])


def numbers(data: Data, file: str) -> NDArray[np.int64]:
    path = data.folder / file
    if not path.is_file():
        raise Unavailable(f"{file} is not in {data.folder}; it can be made of eusilc in the R package laeken")
    try:
        with gzip.open(path, "rt", encoding="utf-8", newline="") as opened:
            _, *rows = csv.reader(opened)
        return np.array(rows, np.int64)
    except DAMAGE:
        raise Unavailable(f"{file} cannot be read; make it again of eusilc in the R package laeken") from None


@lru_cache(maxsize=1)
def invented(number: int) -> Units:
    """So many households, of 0 to 6 persons who follow their region and each other."""
    rng, database = np.random.default_rng(number), household(6, 0)
    own = np.stack([rng.integers(0, 9, number), rng.integers(0, 6, number)], axis=1)
    sizes = rng.integers(0, 7, number)
    owner = np.repeat(np.arange(number), sizes)
    rows = np.stack([rng.integers(0, k, len(owner)) for k in SIZES.values()], axis=1)
    like = rng.random(rows.shape) < 0.5
    common = np.stack([rng.integers(0, k, number) for k in SIZES.values()], axis=1)
    rows[like] = common[owner][like]
    return units_of(database, own, [(sizes, rows)])


@lru_cache(maxsize=1)
def employers(data: Data) -> Units:
    """500 employers with their employees of the synthetic earnings survey of laeken, at most 40 of each."""
    rows = table(
        data, "linked/ses.csv.gz", "as write.csv writes `ses` of the R package laeken (Debian: r-cran-laeken)"
    )
    own = [coded(rows, name) for name in ("location", "NACE1", "size", "payAgreement")]
    pay = np.array([float(row["earningsHour"]) for row in rows])
    hanging = [
        coded(rows, name) for name in ("sex", "age", "education", "contract", "fullPart", "lengthService")
    ]
    hanging.append(("pay", np.searchsorted([8, 11, 14, 18, 25], pay), 6))
    return hung([row["IDunit"] for row in rows], own, hanging, 40, "employer", "employee")


@lru_cache(maxsize=1)
def players(data: Data) -> Units:
    """19,898 baseball players with their seasons from 1871 to 2020, a team each, at most 12 of each."""
    rows = [r for r in table(data, "linked/Batting.csv.gz", LAHMAN) if int(r["yearID"]) <= 2020]
    hanging = [
        within("year", rows, "yearID", [1900, 1920, 1940, 1960, 1980, 2000]),
        ("league", np.array([["NL", "AL"].index(r["lgID"]) if r["lgID"] in ("NL", "AL") else 2 for r in rows]), 3),
        within("games", rows, "G", [10, 30, 60, 100, 140]),
        within("hits", rows, "H", [1, 5, 20, 60, 120]),
        within("homers", rows, "HR", [1, 3, 10, 20]),
    ]  # fmt: skip
    return of_players(data, rows, ("bats", "throws", "height"), hanging)


@lru_cache(maxsize=1)
def paid_players(data: Data) -> Units:
    """5,149 of them with their seasons of 1985 to 2016 that have a salary, at most 12 of each."""
    rows = table(data, "linked/Salaries.csv.gz", LAHMAN)
    pay = np.log10(np.maximum([float(r["salary"]) for r in rows], 1.0))
    hanging = [
        within("year", rows, "yearID", [1991, 1996, 2001, 2006, 2011]),
        ("league", np.array([int(r["lgID"] == "NL") for r in rows]), 2),
        ("pay", np.searchsorted([5.1, 5.5, 5.8, 6.2, 6.6, 7.0], pay), 7),
        coded(rows, "teamID"),
    ]
    return of_players(data, rows, ("bats", "throws", "height", "born", "abroad"), hanging)


def of_players(data: Data, rows: list[dict[str, str]], names: tuple[str, ...], hanging: list[Coded]) -> Units:
    """Seasons with some of what is known of whose they are."""
    people = {r["playerID"]: r for r in table(data, "linked/People.csv.gz", LAHMAN)}
    of = [people[row["playerID"]] for row in rows]
    own = {
        "bats": ("bats", np.array(["LRB".find(r["bats"] or "?") + 1 for r in of]), 4),
        "throws": ("throws", np.array(["LR".find(r["throws"][:1] or "?") + 1 for r in of]), 3),
        "height": within("height", of, "height", [70, 72, 74, 76]),
        "born": within("born", of, "birthYear", [1955, 1965, 1975, 1985]),
        "abroad": ("abroad", np.array([int(r["birthCountry"] != "USA") for r in of]), 2),
    }
    keys = [row["playerID"] for row in rows]
    return hung(keys, [own[name] for name in names], hanging, 12, "player", "season")


def within(name: str, rows: list[dict[str, str]], column: str, edges: list[int]) -> Coded:
    """Numbers in bins, where none stands in the lowest."""
    cells = [float(row[column] or 0) for row in rows]
    return name, np.searchsorted(edges, cells, side="right"), len(edges) + 1


Coded = tuple[str, NDArray[np.int64], int]  # an attribute, its codes, how many there are


def coded(rows: list[dict[str, str]], name: str) -> Coded:
    """A column by the values that occur: it is public here."""
    found, codes = np.unique([row[name] for row in rows], return_inverse=True)
    return name, codes, len(found)


def hung(keys: list[str], own: list[Coded], hanging: list[Coded], most: int, root: str, child: str) -> Units:
    """Units of rows that have the attributes of their unit, too; the first so many rows of each."""
    _, of = np.unique(keys, return_inverse=True)
    order = np.argsort(of, kind="stable")
    start = starts_of(np.bincount(of))
    kept = order[np.arange(len(of)) - start[of[order]] < most]
    database = database_of(
        [
            Linked(root, tuple(attribute(name, size) for name, _, size in own), key="id"),
            Linked(
                child, tuple(attribute(name, size) for name, _, size in hanging), None, root, "id", most, 1
            ),
        ],
        root,
    )
    roots = np.stack([codes for _, codes, _ in own], axis=1)[order[start[:-1]]]
    rows = np.stack([codes for _, codes, _ in hanging], axis=1)[kept]
    return units_of(database, roots, [(np.bincount(of[kept]), rows)])


def table(data: Data, file: str, what: str) -> list[dict[str, str]]:
    path = data.folder / file
    if not path.is_file():
        raise Unavailable(f"{file} is not in {data.folder}; it is {what}")
    try:
        with gzip.open(path, "rt", encoding="utf-8", newline="") as opened:
            return list(csv.DictReader(opened))
    except DAMAGE:
        raise Unavailable(f"{file} cannot be read; it is {what}") from None


def dealt_out(units: Units) -> Units:
    """The same persons, each in a household of the same size and attributes, beside others of such households: what
    is left where nothing is known of pairs."""
    (members,), rng = units.members, np.random.default_rng(1)
    flat = units.to_rows().astype(np.int64)
    alike = np.ravel_multi_index(tuple(flat.T), tuple(units.domain.sizes.tolist()))
    of = np.asarray(alike, np.int64)[members.owner]
    rows = np.arange(len(of))
    rows[np.lexsort((rows, of))] = np.lexsort((rng.random(len(of)), of))
    codes = members.records.take(rows).to_rows().astype(np.int64)
    return units_of(units.database, flat[:, : len(units.database.root.columns)], [(members.sizes, codes)])


def persons_of(units: Units) -> Records:
    """Every person with the attributes of the household, the size not among them."""
    (members,) = units.members
    roots = len(units.database.root.columns)
    own = units.to_rows()[:, :roots].astype(np.int64)
    columns = (*units.domain.columns[:roots], *members.records.domain.columns)
    rows = np.concatenate([own[members.owner], members.records.to_rows()], axis=1)
    return Records.from_rows(Domain(columns), rows.astype(np.int64))


def distance(one: NDArray[np.int64], other: NDArray[np.int64]) -> float:
    return float(np.abs(one / max(1, one.sum()) - other / max(1, other.sum())).sum())


def tables_off(one: Records, other: Records, order: int) -> float:
    tables = Tables(one.domain, tuple(combinations(range(one.domain.width), order)))
    pairs = zip(tables.split(tables.counts(one)), tables.split(tables.counts(other)), strict=True)
    return float(np.mean([distance(a, b) for a, b in pairs]))


def siblings(units: Units) -> list[NDArray[np.int64]]:
    """The table of each attribute of a person with itself and each later one of another person of the household."""
    (members,) = units.members
    codes, sizes = members.records.to_rows().astype(np.int64), members.records.domain.sizes.tolist()
    others = members.sizes[members.owner] - 1
    one = np.repeat(np.arange(len(codes)), others)
    place = np.arange(len(one)) - np.repeat(np.cumsum(others) - others, others)
    two = members.start[members.owner[one]] + place
    two += two >= one
    pairs = [(a, b) for a in range(len(sizes)) for b in range(a, len(sizes))]
    return [
        np.bincount(codes[one, a] * sizes[b] + codes[two, b], minlength=sizes[a] * sizes[b]) for a, b in pairs
    ]


def held(units: Units, *attributes: int) -> NDArray[np.int64]:
    """How many persons of each household have each value, or each pair of values: households by values."""
    (members,) = units.members
    sizes = [int(members.records.domain.sizes[a]) for a in attributes]
    codes = np.ravel_multi_index(
        tuple(np.asarray(members.records.columns[a], np.int64) for a in attributes), sizes
    )
    values = int(np.prod(sizes))
    return np.bincount(members.owner * values + codes, minlength=units.rows * values).reshape(-1, values)


def questions_off(truth: Units, made: Units) -> dict[str, Value]:
    """Mean and worst errors of any, all, and two and more, of every value; and of any of two values of one person."""
    found: dict[str, list[float]] = {"any": [], "all": [], "two": [], "any two": []}
    width = truth.members[0].records.domain.width
    for a in range(width):
        one, other = held(truth, a), held(made, a)
        sizes = truth.members[0].sizes[:, None], made.members[0].sizes[:, None]
        for name, asked in (
            ("any", (one > 0, other > 0)),
            ("two", (one > 1, other > 1)),
            ("all", (one == sizes[0], other == sizes[1])),
        ):
            found[name] += np.abs(asked[0].mean(axis=0) - asked[1].mean(axis=0)).tolist()
        for b in range(a + 1, width):
            both = [(held(each, a, b) > 0).mean(axis=0) for each in (truth, made)]
            found["any two"] += np.abs(both[0] - both[1]).tolist()
    means: dict[str, Value] = {name: float(np.mean(each)) for name, each in found.items()}
    return means | {f"worst {name}": max(each) for name, each in found.items()}


def plain(units: Units) -> Records:
    """Households without their persons."""
    return Records.from_rows(Domain(units.domain.columns), units.to_rows().astype(np.int64))


def judged(truth: Units, made: Units) -> dict[str, Value]:
    joined = persons_of(truth), persons_of(made)
    units = plain(truth), plain(made)
    pairs = [distance(a, b) for a, b in zip(siblings(truth), siblings(made), strict=True)]
    size = Tables(units[0].domain, ((truth.domain.width - 1,),))
    return {
        **{f"joined {k}": tables_off(*joined, k) for k in (1, 2, 3)},
        "household pairs": tables_off(*units, 2),
        "sizes": distance(size.counts(units[0]), size.counts(units[1])),
        "siblings": float(np.mean(pairs)),
        "worst siblings": max(pairs),
        **questions_off(truth, made),
    }


def bars(truth: Units, made: Release, seed: int) -> dict[str, Value]:
    """How often the bars of questions of each kind hold, those with an answer of 1% to 99%."""
    rng, database, (child,) = np.random.default_rng(seed), truth.database, truth.database.children
    view, width, found = database.view_domain(child.name), database.width, dict[str, Value]()

    def about(attributes: Iterable[int]) -> Query:
        """One value of each, all others but one, or a range."""
        literals = []
        for j in sorted(attributes):
            size, way = int(view.sizes[j]), rng.random()
            low, high = sorted(rng.integers(0, size, 2).tolist())
            one, everything = 1 << int(rng.integers(size)), (1 << size) - 1
            accepted = (1 << high + 1) - (1 << low)
            if way < 0.7 or accepted == everything:
                accepted = one if way < 0.5 else everything ^ one
            literals.append(Literal(j, *canonical(accepted, size)))
        return Query(tuple(literals))

    def some(first: int, last: int, most: int) -> list[int]:
        known = [j for j in range(first, last) if view.sizes[j] > 1]
        number = min(int(rng.integers(1, most + 1)), len(known))
        return [int(j) for j in rng.choice(known, number, replace=False)]

    def hanging(kind: str) -> tuple[Query, tuple[Counted, ...]]:
        of_row = about(some(width, view.width, 2))
        number = Counted.of(database, child.name, negated(of_row) if kind == "all" else of_row)
        everything = (1 << len(number.values)) - 1
        accepted = {"any": everything ^ 1, "all": 1, "two": everything ^ 3}[kind]
        own = about(some(0, width, 1)).literals if rng.random() < 0.3 else ()
        literals = (*own, Literal(width, *canonical(accepted, len(number.values))))
        return Query(literals), (number,)

    rows = truth.joined(child.name)
    for kind in KINDS:
        records, release = (rows, made.of(child.name)) if kind == "row" else (truth, made)
        if kind in ("unit", "row"):
            own = [some(0, width, 3 if kind == "unit" else 1) for _ in range(ASKED)]
            if kind == "row":
                own = [[*some(width, view.width, 2), *(each if rng.random() < 0.5 else ())] for each in own]
            groups: Sequence[Group] = to_groups(records.domain, [about(each) for each in own])
        else:
            groups = [over_units(database, [hanging(kind) for _ in range(ASKED)])]
        inside = [
            abs(answer.value - true) <= (answer.error or 0.0)
            for group in groups
            for answer, true in zip(
                release.answers_of(group), group.counts(records) / records.rows, strict=True
            )
            if 0.01 <= true <= 0.99
        ]
        found[f"held {kind}"] = float(np.mean(inside))
    return found


def budget_of(epsilon: float, neighbours: Neighbours = Neighbours.ADD_REMOVE) -> Budget:
    return Budget(epsilon, DELTA, neighbours)


def measure_linked(load: Callable[[Data], Units], data: Data, epsilon: float, seed: int) -> dict[str, Value]:
    truth = load(data)
    made = release(truth, budget=budget_of(epsilon), workload="marginals:2", seed=seed)
    assert isinstance(made.records, Units)
    return judged(truth, made.records) | bars(truth, made, seed)


def measure_peer(terms: Terms, method: str, data: Data, epsilon: float, seed: int) -> dict[str, Value]:
    """Households by dpsynth, those without a person left out; or why there are none."""
    limit = terms.limit or PEER_LIMIT
    given: dict[str, Value] = {"limit": limit}
    if problem := terms.skip or installing_problem(RELATIONAL, terms):
        return given | {"outcome": f"{NOT_STARTED} {problem}"}
    truth, database = eusilc(data), household(6)
    (members,), (child,) = truth.members, database.children
    with TemporaryDirectory() as name:
        folder, roots = Path(name), len(database.root.columns)
        task = {
            "method": method,
            "rho": exact_rho(epsilon),
            "seed": seed,
            "at_most": child.at_most,
            "household": database.sizes[:roots].tolist(),
            "person": child.domain.sizes.tolist(),
        }
        (folder / "task.json").write_text(json.dumps(task))
        number = np.arange(truth.rows)
        np.save(
            folder / "households.npy", np.column_stack([number, truth.to_rows()[:, :roots]]).astype(np.int64)
        )
        persons = np.column_stack([number[members.owner], members.records.to_rows()])
        np.save(folder / "persons.npy", persons.astype(np.int64))
        command = command_of(RELATIONAL, python_of(RELATIONAL, terms), folder)
        ran = run_within(command, limit, terms.cores, terms.memory)
        given |= {"outcome": ran.outcome, "seconds": ran.processor_seconds, "gigabytes": ran.peak_gb}
        if ran.outcome != DONE:
            return given
        homes, hanging = (np.load(folder / f"made_{table}s.npy") for table in ("household", "person"))
    homes, hanging = homes[np.argsort(homes[:, 0])], hanging[np.argsort(hanging[:, 0], kind="stable")]
    first, last = (np.searchsorted(hanging[:, 0], homes[:, 0], side=side) for side in ("left", "right"))
    kept = last > first
    made = units_of(database, homes[kept, 1:], [((last - first)[kept], hanging[:, 1:])])
    return given | judged(truth, made)


def measure_dealt_out(data: Data) -> dict[str, Value]:
    truth = eusilc(data)
    return judged(truth, dealt_out(truth))


def measure_flat(data: Data, epsilon: float, seed: int, single: bool) -> dict[str, Value]:
    """Persons with their household as one table, of each household as many rows as there can be."""
    truth = persons_of(first_persons(data) if single else eusilc(data))
    neighbours = Neighbours.ADD_REMOVE if single else PersonAddRemove(6)
    limited = Records(truth.domain, truth.rows, truth.columns, neighbours.records_per_person)
    made = release(limited, budget=budget_of(epsilon, neighbours), workload="marginals:2", seed=seed, check=0)
    assert made.records is not None
    return {f"joined {k}": tables_off(truth, made.records, k) for k in (1, 2, 3)}


def measure_one_table(data: Data, epsilon: float, seed: int) -> dict[str, Value]:
    """Persons with what is known of their household, and households that are nothing but who is named."""
    units = eusilc(data)
    truth, (members,) = persons_of(units), units.members
    child = Linked("person", tuple(truth.domain.columns), parent="household", link="hh", at_most=6)
    rows = truth.to_rows().astype(np.int64)
    named = units_of(
        database_of([child], "household"), np.zeros((units.rows, 0), np.int64), [(members.sizes, rows)]
    )
    made = played(named, epsilon, seed)
    return {f"joined {k}": tables_off(truth, persons_of(made), k) for k in (1, 2, 3)}


@lru_cache(maxsize=1)
def first_persons(data: Data) -> Units:
    """Every household with its first person alone."""
    units, database = eusilc(data), household(1)
    (members,) = units.members
    own = units.to_rows()[:, :2].astype(np.int64)
    rows = members.records.take(members.start[:-1]).to_rows().astype(np.int64)
    return units_of(database, own, [(np.ones(units.rows, np.int64), rows)])


def measure_alone(data: Data, epsilon: float, seed: int) -> dict[str, Value]:
    truth = first_persons(data)
    made = played(truth, epsilon, seed)
    return {f"joined {k}": tables_off(persons_of(truth), persons_of(made), k) for k in (1, 2, 3)}


def played(truth: Units, epsilon: float, seed: int) -> Units:
    """By the mechanism alone, without replicas."""
    budget = Budget(epsilon, DELTA, Neighbours.ADD_REMOVE, Accounting.GAUSSIAN)
    workload = Workload(truth.domain, (Tables(truth.domain, ((0,),)),), "one table")
    plan = LINKED.plan_for(Task(workload, truth.rows, budget), {})
    entropy = SeededEntropy(seed)
    curator = Curator(MemoryCounter(truth), Ledger(budget), entropy)
    made = LINKED.run(plan, curator, entropy.public_generator(), silent).artefact.records  # type: ignore[attr-defined]
    assert isinstance(made, Units)
    return made


def measure_invented(number: int) -> dict[str, Value]:
    """Seconds of the processor and the most memory of this process, which grows from point to point."""
    truth = invented(number)
    before = time.process_time()
    made = played(truth, 1.0, 0)
    seconds = time.process_time() - before
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    return {"seconds": seconds, "gigabytes": memory, "siblings": float(np.mean([
        distance(a, b) for a, b in zip(siblings(truth), siblings(made), strict=True)
    ]))}  # fmt: skip


OTHERS: dict[str, Callable[[Data], Units]] = {
    "players": players,
    "paid players": paid_players,
    "employers": employers,
    "5,000 invented": lambda data: invented(5_000),
}


def points(terms: Terms, setting: Setting) -> list[Point]:
    data, seeds = setting.data, setting.seeds(full=5)
    epsilons = setting.choose(toy=(3.2,), quick=(3.2,), full=(1.0, 3.2))
    found = [
        ("eusilc", LINKED_TABLES, e, s, partial(measure_linked, eusilc, data, e, s))
        for e in epsilons
        for s in seeds
    ]
    found.append(("eusilc", APART, 0.0, 0, partial(measure_dealt_out, data)))
    for e in epsilons:
        for s in seeds:
            found += [
                ("eusilc", FLAT, e, s, partial(measure_flat, data, e, s, False)),
                ("eusilc", ONE_TABLE, e, s, partial(measure_one_table, data, e, s)),
                ("eusilc", ALONE, e, s, partial(measure_alone, data, e, s)),
                ("eusilc", ALONE_FLAT, e, s, partial(measure_flat, data, e, s, True)),
            ]
    found += [
        (n, LINKED_TABLES, e, s, partial(measure_linked, f, data, e, s))
        for n, f in OTHERS.items()
        for e in epsilons
        for s in seeds[:3]
    ]
    if setting.size is Size.FULL:
        found += [
            ("eusilc", f"dpsynth, {method}", e, s, partial(measure_peer, terms, method, data, e, s))
            for method, e, runs in PEER_RUNS
            for s in seeds[:runs]
        ]
    numbers_of = setting.choose(toy=(2_000,), quick=(20_000,), full=(100_000, 300_000, 1_000_000))
    found += [(f"{n:,}", INVENTED, 1.0, 0, partial(measure_invented, n)) for n in numbers_of]
    return [
        Point(
            {"units": units, "way": way, "epsilon": epsilon, "run": seed},
            measured,
            again=lambda row: (
                "dpsynth" in row["way"] and worth_another_try(row, terms, terms.limit or PEER_LIMIT)
            ),
        )
        for units, way, epsilon, seed, measured in found
    ]


LOOKS = {
    1.0: Look(VERMILION, "s", "--"),
    3.2: Look(BLUE, "o"),
    0.0: Look(GREY, "D", ":"),
}
OTHER = ("joined 2", "siblings", "any")
SHOWN = ("joined 1", "joined 2", "joined 3", "household pairs", "siblings", "any", "two", "all")
COLOURS = (GREEN, ORANGE, BLUE)


def draw(rows: Rows) -> Figure:
    picture = Figure(figsize=(9, 4), layout="constrained")
    left, right = picture.subplots(1, 2)
    for epsilon, look in LOOKS.items():
        mine = where(rows, units="eusilc", epsilon=epsilon, way=APART if not epsilon else LINKED_TABLES)
        if mine:
            errors = [mean_by(mine, (), name)[()] for name in SHOWN]
            label = f"ε = {epsilon:g}" if epsilon else APART
            left.plot(
                errors, range(len(SHOWN)), color=look.colour, marker=look.marker, linestyle="", label=label
            )
            if epsilon:
                held_by = [mean_by(mine, (), f"held {kind}")[()] for kind in KINDS]
                right.plot(held_by, range(len(KINDS)), color=look.colour, marker=look.marker, linestyle="")
    left.set(xscale="log", xlabel="error", yticks=range(len(SHOWN)), yticklabels=SHOWN)
    right.set(xlabel="bars of 95% that hold", yticks=range(len(KINDS)), yticklabels=KINDS, xlim=(0.5, 1.01))
    right.axvline(0.95, color=GREY, linewidth=0.8)
    legend_below(picture, left, 3)
    return picture


def find(rows: Rows) -> str:
    sentences = []
    for epsilon in (3.2, 1.0):
        mine = where(rows, units="eusilc", epsilon=epsilon, way=LINKED_TABLES)
        if mine:
            told = {
                name: mean_by(mine, (), name)[()] for name in (*SHOWN, "sizes", "worst any", "worst any two")
            }
            sentences.append(
                f"At ε = {epsilon:g} pairs of attributes of persons and households are off by "
                f"{told['joined 2']:.3f}, those of two persons of a household by {told['siblings']:.3f}, "
                f"the size by {told['sizes']:.4f}; "
                f"`any` by {told['any']:.4f} (worst {told['worst any']:.3f}, of two values of one person "
                f"{told['worst any two']:.3f}), two and more by {told['two']:.4f}, `all` by {told['all']:.4f}."
            )
    for epsilon in (3.2, 1.0):
        flat = mean_by(where(rows, epsilon=epsilon, way=ALONE_FLAT), (), "joined 2")[()]
        alone = mean_by(where(rows, epsilon=epsilon, way=ALONE), (), "joined 2")[()]
        sentences.append(f"Where every household is one person, pairs are off by {alone:.4f} at ε = {epsilon:g}, and "
                         f"by {flat:.4f} as one table of persons.")  # fmt: skip
        whole = mean_by(where(rows, epsilon=epsilon, way=FLAT), (), "joined 2")[()]
        named = mean_by(where(rows, epsilon=epsilon, way=ONE_TABLE), (), "joined 2")[()]
        sentences.append(
            f"One table of persons, of each household six at most, is off by {whole:.3f} at ε = {epsilon:g} with a "
            f"`unit`, and by {named:.3f} as a database of whoever it names."
        )
    for units in OTHERS:
        told = {name: mean_by(where(rows, units=units, epsilon=3.2), (), name)[()] for name in OTHER}
        sentences.append(
            f"Of {units} pairs are off by {told['joined 2']:.4f} at ε = 3.2, those of two rows of one by "
            f"{told['siblings']:.4f}, and `any` by {told['any']:.4f}."
        )
    for row in where(rows, way=INVENTED):
        sentences.append(
            f"{row['units']} invented households take {row['seconds']:.0f} seconds of one processor and "
            f"{row['gigabytes']:.1f} GB."
        )
    for way in dict.fromkeys(row["way"] for row in rows if row["way"].startswith("dpsynth")):
        for epsilon in dict.fromkeys(row["epsilon"] for row in where(rows, way=way)):
            mine = where(rows, way=way, epsilon=epsilon)
            told = {name: mean_by(mine, (), name)[()] for name in OTHER}
            outcomes = sorted({row["outcome"] for row in mine} - {DONE})
            told_of = f"{way} at ε = {epsilon:g}: {'; '.join(outcomes)}."
            if not outcomes:
                told_of = (
                    f"By {way} EU-SILC's pairs are off by {told['joined 2']:.3f} at ε = {epsilon:g}, those of two "
                    f"persons by {told['siblings']:.3f}, and `any` by {told['any']:.4f}."
                )
            sentences.append(told_of)
    linked, means = where(rows, way=LINKED_TABLES), dict[str, float]()
    for kind in KINDS:
        held_by = mean_by(linked, ("units", "epsilon"), f"held {kind}")
        means |= {f"{kind} of {units} at ε = {epsilon:g}": each for (units, epsilon), each in held_by.items()}
    least, most = min(means, key=means.__getitem__), max(means, key=means.__getitem__)
    sentences.append(
        f"Bars of 95% held {fmean(means.values()):.1%} of the time; least often of {least} ({means[least]:.1%}), "
        f"most often of {most} ({means[most]:.1%})."
    )
    sentences.append("At most 200,000 units are fitted, so that more of them cost little but their counting.")
    return " ".join(sentences)


EXPERIMENT = Experiment(
    name="linked",
    title="Linked tables: households and persons",
    paper="Our own: 6,000 households with 14,827 persons of the synthetic EU-SILC of the R package laeken, at most "
    "six of each; 19,898 baseball players with 99,200 seasons, at most twelve of each (a prototype had as many, with "
    "attributes that nobody wrote down, and was off by 0.0145 of pairs, 0.019 of two rows and 0.0038 of `any`), and "
    "5,149 of them with 25,176 seasons of known pay; 500 employers with 10,777 employees of the synthetic earnings "
    "survey of laeken, at most forty; 5,000 invented households. A unit is added or removed, δ = 10⁻⁶. The only peer "
    "that we know of: the relational tables of dpsynth, experimental as it says, with the settings of its example.",
    before="A household should be protected at the price of one record, and come back with persons who belong "
    "together",
    points=partial(points, Terms()),
    draw=draw,
    find=find,
    by=("units", "way", "epsilon"),
    shown=(
        "joined 1",
        "joined 2",
        "joined 3",
        "household pairs",
        "sizes",
        "siblings",
        "worst siblings",
        "any",
        "worst any",
        "worst any two",
        "two",
        "all",
        *(f"held {kind}" for kind in KINDS),
        "seconds",
        "gigabytes",
        "outcome",
    ),
)

if __name__ == "__main__":
    flags = parser(__doc__ or "", name="linked")
    add_flags(flags)
    given = flags.parse_args()
    main(replace(EXPERIMENT, points=partial(points, terms_of_flags(given))), given)
