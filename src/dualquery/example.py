"""Invented tables for `dualquery demo` and the tests: a survey, payments, customers, a register.

The demonstration and the tests need tables that look like those a data steward has, and no real table may travel
with a program. The people of the survey are drawn from the chain of rules below: age and region first, then each
attribute from those before it. Of the survey and the register only uniform numbers in [0, 1) are drawn, so a seed
gives the same people with every version of numpy.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dualquery.types import Integers, Reals


@dataclass(frozen=True)
class Example:
    """Files to write into a folder, which of them is the private table, and what is asked about it."""

    title: str
    table: str
    files: dict[str, pa.Table | str]  # the schema is schema.toml
    rows: int
    queries: str
    questions: tuple[str, ...]
    neighbours: str = "replace"
    judged: tuple[str, ...] = ()  # families to compare with the truth; without any, the queries


PEOPLE = 20_000
SEED = 2014

EDGES = {
    "age": [18, 25, 35, 45, 55, 65, 75, 100],
    "income": [0, 10000, 20000, 30000, 45000, 65000, 100000, 250000],
}
VALUES = {
    "sex": ["female", "male"],
    "region": ["north", "east", "south", "west", "capital"],
    "education": ["school", "vocational", "college", "university"],
    "employment": ["employed", "self-employed", "unemployed", "student", "retired", "at home"],
    "marital_status": ["single", "married", "divorced", "widowed"],
    "household": ["1", "2", "3", "4", "5 or more"],
    "housing": ["owns", "rents", "with family"],
    "commute": ["none", "car", "transit", "bicycle", "on foot"],
    "smokes": ["never", "formerly", "yes"],
    "health": ["poor", "fair", "good", "very good"],
}
ORDERED = {"education", "household", "health"}
ATTRIBUTES = ("age", *list(VALUES)[:4], "income", *list(VALUES)[4:])


def _attribute(name: str) -> str:
    if name in EDGES:
        said = f"edges = {EDGES[name]}\ninteger = true\nclamp = true"
    else:
        said = f"values = {json.dumps(VALUES[name])}" + ("\nordered = true" if name in ORDERED else "")
    return f'\n[[attribute]]\nname = "{name}"\n{said}\n'


SCHEMA = (
    "# The public description of the example survey: what may be asked, written without looking at any answer.\n"
    + "".join(map(_attribute, ATTRIBUTES))
)

QUERIES = "marginals:3"
QUESTIONS = (
    "age >= 55 & sex = female",
    "education = university & income >= 45000",
    "region = capital & housing = rents",
    "employment = retired & health in {good, 'very good'}",
    "smokes = yes & !(commute = car)",
)


@dataclass(frozen=True)
class Chance:
    """Draws for all people at once, from uniform numbers alone."""

    rng: np.random.Generator
    people: int

    def uniform(self) -> Reals:
        return self.rng.random(self.people)

    def one_of(self, *odds: NDArray[np.floating] | float) -> Integers:
        """Alternative k with probability proportional to odds[k], which may differ from person to person."""
        weights = np.stack([np.broadcast_to(odd, self.people) for odd in odds])
        ends = np.cumsum(weights, axis=0)
        return (self.uniform() * ends[-1] >= ends).sum(axis=0)

    def bell(self) -> Reals:
        """Roughly normal, mean 0 and variance 1: twelve uniforms, less six."""
        return self.rng.random((12, self.people)).sum(axis=0) - 6.0


def people(folder: Path) -> Example:
    """The survey, asked all tables over three attributes."""
    return Example(
        "A survey that nobody answered",
        "survey.csv",
        {"survey.csv": survey(), "schema.toml": SCHEMA},
        PEOPLE,
        QUERIES,
        QUESTIONS,
        judged=("marginals:1", "marginals:2", "marginals:3"),
    )


def survey(people: int = PEOPLE, seed: int = SEED) -> pa.Table:
    chance = Chance(np.random.default_rng(seed), people)
    region = chance.one_of(0.18, 0.17, 0.22, 0.21, 0.22)
    capital = region == 4
    age = _age(chance, capital)
    young, old = age < 25, age >= 65
    male = chance.one_of(0.5 + 0.08 * (age >= 75), 0.5 - 0.08 * (age >= 75)) == 1
    education = chance.one_of(
        np.where(old, 0.42, 0.16) + 0.20 * young,
        np.where(capital, 0.20, 0.36),
        np.where(old, 0.16, 0.28),
        np.where(capital, 0.34, 0.16) * np.where(young, 0.3, 1.0) * np.where(old, 0.6, 1.0),
    )
    employment = _employment(chance, age, male, education)
    income = _income(chance, age, male, education, employment, capital)
    marital = _marital_status(chance, age, male)
    household = _household(chance, age, marital)
    housing = chance.one_of(
        np.clip(0.10 + 0.009 * (age - 18) + 0.10 * (income > 45_000) - 0.22 * capital, 0.02, 0.9),
        np.where(capital, 0.55, 0.35),
        np.where(young, 0.80, np.where(age < 35, 0.12, 0.02)) * (marital == 0),
    )
    commute = _commute(chance, employment, region, income)
    smokes = chance.one_of(
        np.where(male, 0.48, 0.60) + 0.10 * (education == 3),
        0.05 + 0.005 * (age - 18),
        np.where(education == 3, 0.09, 0.24) * np.where(old, 0.5, 1.0),
    )
    fitness = (
        1.3
        - 0.030 * (age - 45)
        + 0.25 * education
        + 0.35 * (income > 30_000)
        - 0.55 * (smokes == 2)
        + 0.40 * (commute >= 3)
        - 0.80 * (employment == 2)
        + chance.bell()
    )
    health = np.digitize(fitness, [-0.6, 0.7, 2.3])
    codes = (male, region, education, employment, marital, household, housing, commute, smokes, health)
    columns = {"age": pa.array(age, pa.int32()), "income": pa.array(income, pa.int32())}
    columns |= {name: words(each, VALUES[name]) for name, each in zip(VALUES, codes, strict=True)}
    return pa.table({name: columns[name] for name in ATTRIBUTES})


GROWING = 10_000  # people in a year
QUARTERS = ("2024-Q1", "2024-Q2", "2024-Q3", "2024-Q4")
DRIFT = 0.3  # how much later the old answer than the young


def growing(folder: Path) -> Example:
    """The survey as it comes in over a year: a fourth of the people each quarter, the younger a little sooner."""
    table = survey(GROWING)
    rng, ages = np.random.default_rng(SEED + 1), np.asarray(table["age"])
    turn = np.argsort(rng.random(GROWING) + DRIFT * np.argsort(np.argsort(ages)) / GROWING)
    months = np.empty(GROWING, np.int64)
    months[turn] = 1 + np.arange(GROWING) * 12 // GROWING
    days = pa.array([f"2024-{month:02}-15" for month in months.tolist()])
    schema = '[table]\nperiod = "received"\ncalendar = "quarter"\n\n' + SCHEMA
    return Example(
        "A survey that comes in over a year",
        "survey.csv",
        {"survey.csv": table.append_column("received", days), "schema.toml": schema},
        GROWING,
        "marginals:2",
        QUESTIONS,
        neighbours="add-remove",
        judged=("marginals:2",),
    )


def words(codes: NDArray[np.generic], of: Sequence[str]) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(codes.astype(np.int32)), list(of)).cast(pa.string())


def _age(chance: Chance, capital: NDArray[np.bool_]) -> Integers:
    """Whole years from 18; people of the capital are somewhat younger."""
    years = 18 + np.floor(74 * chance.uniform() ** np.where(capital, 1.55, 1.20))
    return years.astype(np.int64)


def _employment(chance: Chance, age: Integers, male: NDArray[np.bool_], education: Integers) -> Integers:
    working = np.where(age < 65, 0.62 + 0.05 * education, 0.05)
    return chance.one_of(
        working * np.where(age < 25, 0.55, 1.0),
        0.12 * (age >= 25) * np.where(age < 70, 1.0, 0.2),
        0.09 * (age < 65) * (1.3 - 0.25 * education),
        np.where(age < 25, 0.65, np.where(age < 30, 0.10, 0.0)),
        np.where(age >= 65, 0.95, np.where(age >= 58, 0.25, 0.0)),
        np.where(male, 0.02, 0.14) * (age >= 22) * (age < 68),
    )


def _income(
    chance: Chance,
    age: Integers,
    male: NDArray[np.bool_],
    education: Integers,
    employment: Integers,
    capital: NDArray[np.bool_],
) -> Integers:
    base = np.array([31_000.0, 28_000.0, 9_000.0, 6_500.0, 17_500.0, 5_500.0])[employment]
    learned = np.array([0.80, 1.0, 1.15, 1.62])[education]
    grown = 1.0 + 0.35 * np.clip((age - 18) / 35.0, 0.0, 1.0)
    spread = np.where(employment == 1, 0.62, 0.36)
    earned = base * learned * grown * np.where(male, 1.10, 1.0) * np.where(capital, 1.18, 1.0)
    return np.clip(np.round(earned * np.exp2(spread * 1.44 * chance.bell()), -2), 0, 240_000).astype(np.int64)


def _marital_status(chance: Chance, age: Integers, male: NDArray[np.bool_]) -> Integers:
    grown = np.clip((age - 20) / 18.0, 0.0, 1.0)
    return chance.one_of(
        1.05 - 0.88 * grown,
        0.72 * grown,
        0.20 * np.clip((age - 28) / 25.0, 0.0, 1.0),
        np.where(male, 0.35, 0.85) * np.clip((age - 58) / 30.0, 0.0, 1.0),
    )


def _household(chance: Chance, age: Integers, marital: Integers) -> Integers:
    married, young = marital == 1, age < 25
    parents = married & (age >= 28) & (age < 55)
    return chance.one_of(
        np.where(married, 0.01, np.where(young, 0.22, 0.60)),
        np.where(parents, 0.18, np.where(married, 0.75, 0.22)),
        np.where(parents, 0.26, np.where(young, 0.24, 0.11)),
        np.where(parents, 0.36, np.where(young, 0.20, 0.05)),
        np.where(parents, 0.16, np.where(young, 0.09, 0.02)),
    )


def _commute(chance: Chance, employment: Integers, region: Integers, income: Integers) -> Integers:
    moves = (employment <= 1) | (employment == 3)
    capital, student = region == 4, employment == 3
    return chance.one_of(
        np.where(moves, np.where(employment == 1, 0.35, 0.12), 1.0),
        moves
        * np.where(capital, 0.16, 0.62)
        * np.where(student, 0.35, 1.0)
        * (1.0 + 0.4 * (income > 45_000)),
        moves * np.where(capital, 0.52, 0.13),
        moves * np.where(region == 1, 0.24, 0.10) * np.where(student, 1.8, 1.0),
        moves * 0.09,
    )


# Payments between accounts, and where customers live.

REGIONS = ("North", "East", "South", "West", "Coast")
TRADES = ("household", "shop", "maker")
ACCOUNTS, PAYMENTS, CUSTOMERS = 400, 40_000, 20_000

GRAPH_SCHEMA = """# Payments between accounts. Accounts, their regions and trades are public; payments are not.
[graph]
source = "payer"
target = "payee"
vertices = "accounts.csv"

[[attribute]]
name = "region"
values = ["North", "East", "South", "West", "Coast"]

[[attribute]]
name = "trade"
values = ["household", "shop", "maker"]
"""

POINTS_SCHEMA = """# Where customers live. The bounds are those of the country, and public.
[points]
clamp = true

[points.columns]
lat = [47.2, 55.1]
lon = [5.8, 15.1]
"""


def payments(folder: Path) -> Example:
    """Households pay shops near them, shops pay makers anywhere."""
    rng = np.random.default_rng(20)
    region, trade = rng.integers(5, size=ACCOUNTS), rng.choice(3, size=ACCOUNTS, p=(0.7, 0.2, 0.1))
    likes = np.array([[0.2, 6.0, 0.5], [0.5, 0.6, 5.0], [3.0, 0.3, 2.0]])
    near = np.where(region[:, None] == region[None, :], 4.0, 1.0)
    busy = np.outer(rng.gamma(2, size=ACCOUNTS), rng.gamma(1, size=ACCOUNTS))
    chance = likes[np.ix_(trade, trade)] * near * busy
    np.fill_diagonal(chance, 0.0)
    drawn = rng.choice(ACCOUNTS**2, size=PAYMENTS, p=(chance / chance.sum()).ravel())
    names = np.array([f"A{i:03d}" for i in range(ACCOUNTS)])
    known = {"vertex": names, "region": np.array(REGIONS)[region], "trade": np.array(TRADES)[trade]}
    paid = {"payer": names[drawn // ACCOUNTS], "payee": names[drawn % ACCOUNTS]}
    return Example(
        "Payments that nobody made",
        "payments.csv",
        {"accounts.csv": pa.table(known), "payments.csv": pa.table(paid), "schema.toml": GRAPH_SCHEMA},
        PAYMENTS,
        "cuts:region + cuts:trade + cuts:random:500",
        (
            "edges from {region = North} to {region = South}",
            "edges leaving {region = Coast}",
            "edges from {trade = household} to {trade = maker}",
            "edges within {region = East & trade = shop}",
            "edges leaving {A000 .. A049}",
        ),
        neighbours="add-remove",
    )


def customers(folder: Path) -> Example:
    rng = np.random.default_rng(21)
    towns = np.array([[52.5, 13.4], [53.5, 10.0], [48.1, 11.6], [50.9, 6.9], [50.1, 8.7], [51.3, 12.4]])
    town = rng.choice(6, size=CUSTOMERS, p=(0.28, 0.17, 0.18, 0.15, 0.14, 0.08))
    held = towns[town] + rng.normal(size=(CUSTOMERS, 2)) * [0.35, 0.5]
    held = np.clip(held, [47.2, 5.8], [55.1, 15.1]).round(4).astype(np.float64)
    return Example(
        "Customers that nobody is",
        "customers.csv",
        {
            "customers.csv": pa.table(dict(zip(("lat", "lon"), held.T, strict=True))),
            "schema.toml": POINTS_SCHEMA,
        },
        CUSTOMERS,
        "points:random:1000",
        tuple(f"distance to (lat = {lat}, lon = {lon})" for lat, lon in towns.tolist()),
        neighbours="add-remove",
    )


# Integers.

PATIENTS, DISEASES, DISTRICTS = 20_000, 400, 40
POPULAR = 1.1  # the exponent of the law of diagnoses: few are frequent, many are rare
LOOKUPS, WATCHED = "lookups.csv", "watched.csv"

CODES_SCHEMA = """\
# The public description of the example register. No list of codes: any code of the right shape may occur.

[codes.columns]
icd = {text = 8}
district = {text = 5}
born = {from = 1900, to = 2030}
"""


def patients(folder: Path) -> Example:
    """A register of rare diseases that nobody has: look-ups of frequent ones, and a list to watch."""
    letters = "CDEGIJKM"
    made = [f"{letters[i % 8]}{(71 + 7 * (i // 8)) % 100:02d}.{9 - i % 10}" for i in range(DISEASES)]
    diagnoses = list(dict.fromkeys(made))  # the most frequent first
    districts = [f"{4103 + 17 * i:05d}" for i in range(DISTRICTS)]
    rng = np.random.default_rng(1984)
    icd = _drawn(rng.random(PATIENTS), 1 / np.arange(1, len(diagnoses) + 1) ** POPULAR)
    district = _drawn(rng.random(PATIENTS), 1 / np.arange(1, DISTRICTS + 1))
    born = 1984 + np.floor(12 * (rng.random(PATIENTS) + rng.random(PATIENTS) - 1)).astype(np.int64)
    asked = [(a, b, c) for a in diagnoses[:12] for b in districts[:8] for c in range(1976, 1993)]
    return Example(
        "A register that nobody is in",
        "register.csv",
        {
            "register.csv": _register(np.array(diagnoses)[icd], np.array(districts)[district], born),
            LOOKUPS: _register(*zip(*asked, strict=True)),
            WATCHED: _register(*zip(*(row for row in asked if row[0] in diagnoses[3:7]), strict=True)),
            "schema.toml": CODES_SCHEMA,
        },
        PATIENTS,
        f"lookups:{folder / LOOKUPS}",
        ("icd = C71.9 & district = 04103 & born = 1984", f"record in list('{folder / WATCHED}')"),
    )


def _register(*columns: Sequence[object] | NDArray[np.generic]) -> pa.Table:
    return pa.table(dict(zip(("icd", "district", "born"), map(pa.array, columns), strict=True)))


def _drawn(uniform: NDArray[np.float64], weights: NDArray[np.float64]) -> NDArray[np.intp]:
    edges = np.cumsum(weights) / weights.sum()
    return np.minimum(np.searchsorted(edges, uniform, side="right"), len(weights) - 1)


HOUSEHOLDS = 6_000
SIZES = (0.36, 0.31, 0.15, 0.12, 0.04, 0.02)  # of households of one person, of two, …

DATABASE_SCHEMA = """# Households and the persons in them. Regions and answers are those of the form, and public.
[database]
protect = "household"

[[table]]
name = "household"
key = "hh"

[[table.attribute]]
name = "region"
values = ["North", "East", "South", "West", "Coast"]

[[table.attribute]]
name = "housing"
values = ["owns", "rents"]

[[table]]
name = "person"
parent = "household"
link = "hh"
key = "pid"
at_most = 6
at_least = 1

[[table.attribute]]
name = "age"
edges = [0, 6, 18, 30, 45, 65, 80, 100]
integer = true

[[table.attribute]]
name = "sex"
values = ["female", "male"]

[[table.attribute]]
name = "work"
values = ["none", "part time", "full time", "retired"]

[[table.attribute]]
name = "education"
values = ["school", "vocational", "university"]
"""


def households(folder: Path) -> Example:
    """Couples of about one age and like schooling, their children, people who live alone; both partners' work goes
    together, and where there are children one of them works less."""
    rng = np.random.default_rng(1871)
    size = 1 + _drawn(rng.random(HOUSEHOLDS), np.array(SIZES))
    region = rng.integers(5, size=HOUSEHOLDS)
    home = np.repeat(np.arange(HOUSEHOLDS), size)
    place = np.arange(len(home)) - np.repeat(np.cumsum(size) - size, size)
    small = size[home] <= 2
    oldest = np.where(size <= 2, rng.integers(20, 95, HOUSEHOLDS), rng.integers(26, 58, HOUSEHOLDS))
    age = oldest[home] + np.where(place == 0, 0, rng.integers(-4, 4, len(home)))
    child = (place > 1) | ((place == 1) & ~small & (rng.random(len(home)) < 0.2))
    age = np.clip(np.where(child, oldest[home] - rng.integers(22, 40, len(home)), age), 0, 99)
    first = rng.integers(2, size=HOUSEHOLDS)
    alike = (place == 1) & ~child & (rng.random(len(home)) < 0.97)
    sex = np.where(alike, 1 - first[home], np.where(place == 0, first[home], rng.integers(2, size=len(home))))
    schooling = _drawn(rng.random(HOUSEHOLDS), np.array([0.25, 0.45, 0.3]))
    own = _drawn(rng.random(len(home)), np.array([0.25, 0.45, 0.3]))
    education = np.where(age < 18, 0, np.where(rng.random(len(home)) < 0.55, schooling[home], own))
    busy = 0.55 + 0.15 * education - np.where((place == 1) & ~small, 0.35, 0.0)
    work = np.where(rng.random(len(home)) < busy, 2, np.where(rng.random(len(home)) < 0.6, 1, 0))
    work = np.where(age >= 65, np.where(rng.random(len(home)) < 0.9, 3, work), np.where(age < 18, 0, work))
    owns = rng.random(HOUSEHOLDS) < 0.2 + 0.004 * oldest + 0.15 * (size > 2) + 0.1 * (schooling == 2)
    homes = {"hh": np.arange(HOUSEHOLDS), "region": np.array(REGIONS)[region]}
    homes["housing"] = np.where(owns, "owns", "rents")
    persons = {"pid": np.arange(len(home)), "hh": home, "age": age, "sex": np.array(["female", "male"])[sex]}
    persons["work"] = np.array(["none", "part time", "full time", "retired"])[work]
    persons["education"] = np.array(["school", "vocational", "university"])[education]
    return Example(
        "Households that nobody lives in",
        ".",
        {
            "household.csv": pa.table(homes),
            "person.csv": pa.table(persons),
            "schema.toml": DATABASE_SCHEMA,
        },
        HOUSEHOLDS,
        "marginals:2",
        (
            "any(person.age < 18)",
            "region = Coast & any(person.age >= 80)",
            "any(person.age < 18) & all(person.work in {none, 'part time'})",
            "count(person where work = 'full time') >= 2",
            "all(person.education = university)",
        ),
        neighbours="add-remove",
        judged=("marginals:1", "marginals:2", "any:1", "any:2"),
    )
