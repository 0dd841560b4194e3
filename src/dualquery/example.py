"""A survey that nobody answered: some 20,000 invented people with a dozen related attributes.

The demonstration and the tests need a table that looks like one a data steward has, and no real table may
travel with a program. So the people are drawn from the chain of rules below: age and region first, then
each attribute from those before it. Only uniform numbers in [0, 1) are drawn, so a seed gives the same
people with every version of numpy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dualquery.types import Reals

PEOPLE = 20_000
SEED = 2014

SCHEMA = """\
# The public description of the example survey: what may be asked, written without looking at any answer.

[[attribute]]
name = "age"
edges = [18, 25, 35, 45, 55, 65, 75, 100]
integer = true
clamp = true

[[attribute]]
name = "sex"
values = ["female", "male"]

[[attribute]]
name = "region"
values = ["north", "east", "south", "west", "capital"]

[[attribute]]
name = "education"
values = ["school", "vocational", "college", "university"]
ordered = true

[[attribute]]
name = "employment"
values = ["employed", "self-employed", "unemployed", "student", "retired", "at home"]

[[attribute]]
name = "income"
edges = [0, 10000, 20000, 30000, 45000, 65000, 100000, 250000]
integer = true
clamp = true

[[attribute]]
name = "marital_status"
values = ["single", "married", "divorced", "widowed"]

[[attribute]]
name = "household"
values = ["1", "2", "3", "4", "5 or more"]
ordered = true

[[attribute]]
name = "housing"
values = ["owns", "rents", "with family"]

[[attribute]]
name = "commute"
values = ["none", "car", "transit", "bicycle", "on foot"]

[[attribute]]
name = "smokes"
values = ["never", "formerly", "yes"]

[[attribute]]
name = "health"
values = ["poor", "fair", "good", "very good"]
ordered = true
"""

QUERIES = "marginals:3"

Codes = NDArray[np.int64]


@dataclass(frozen=True)
class Chance:
    """Draws for all people at once, from uniform numbers alone."""

    rng: np.random.Generator
    people: int

    def uniform(self) -> Reals:
        return self.rng.random(self.people)

    def one_of(self, *odds: NDArray[np.floating] | float) -> Codes:
        """Alternative k with probability proportional to odds[k], which may differ from person to person."""
        weights = np.stack([np.broadcast_to(odd, self.people) for odd in odds])
        ends = np.cumsum(weights, axis=0)
        return (self.uniform() * ends[-1] >= ends).sum(axis=0)

    def bell(self) -> Reals:
        """Roughly normal, mean 0 and variance 1: twelve uniforms, less six."""
        return self.rng.random((12, self.people)).sum(axis=0) - 6.0


def survey(people: int = PEOPLE, seed: int = SEED) -> pa.Table:
    """The invented answers, one row a person."""
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
    return pa.table(
        {
            "age": pa.array(age, pa.int32()),
            "sex": words(male, ["female", "male"]),
            "region": words(region, ["north", "east", "south", "west", "capital"]),
            "education": words(education, ["school", "vocational", "college", "university"]),
            "employment": words(
                employment, ["employed", "self-employed", "unemployed", "student", "retired", "at home"]
            ),
            "income": pa.array(income, pa.int32()),
            "marital_status": words(marital, ["single", "married", "divorced", "widowed"]),
            "household": words(household, ["1", "2", "3", "4", "5 or more"]),
            "housing": words(housing, ["owns", "rents", "with family"]),
            "commute": words(commute, ["none", "car", "transit", "bicycle", "on foot"]),
            "smokes": words(smokes, ["never", "formerly", "yes"]),
            "health": words(health, ["poor", "fair", "good", "very good"]),
        }
    )


def words(codes: NDArray[np.generic], of: Sequence[str]) -> pa.Array:
    """The word of each code."""
    return pa.DictionaryArray.from_arrays(pa.array(codes.astype(np.int32)), list(of)).cast(pa.string())


def _age(chance: Chance, capital: NDArray[np.bool_]) -> Codes:
    """Whole years from 18; people of the capital are somewhat younger."""
    years = 18 + np.floor(74 * chance.uniform() ** np.where(capital, 1.55, 1.20))
    return years.astype(np.int64)


def _employment(chance: Chance, age: Codes, male: NDArray[np.bool_], education: Codes) -> Codes:
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
    age: Codes,
    male: NDArray[np.bool_],
    education: Codes,
    employment: Codes,
    capital: NDArray[np.bool_],
) -> Codes:
    base = np.array([31_000.0, 28_000.0, 9_000.0, 6_500.0, 17_500.0, 5_500.0])[employment]
    learned = np.array([0.80, 1.0, 1.15, 1.62])[education]
    grown = 1.0 + 0.35 * np.clip((age - 18) / 35.0, 0.0, 1.0)
    spread = np.where(employment == 1, 0.62, 0.36)
    earned = base * learned * grown * np.where(male, 1.10, 1.0) * np.where(capital, 1.18, 1.0)
    return np.clip(np.round(earned * np.exp2(spread * 1.44 * chance.bell()), -2), 0, 240_000).astype(np.int64)


def _marital_status(chance: Chance, age: Codes, male: NDArray[np.bool_]) -> Codes:
    grown = np.clip((age - 20) / 18.0, 0.0, 1.0)
    return chance.one_of(
        1.05 - 0.88 * grown,
        0.72 * grown,
        0.20 * np.clip((age - 28) / 25.0, 0.0, 1.0),
        np.where(male, 0.35, 0.85) * np.clip((age - 58) / 30.0, 0.0, 1.0),
    )


def _household(chance: Chance, age: Codes, marital: Codes) -> Codes:
    married, young = marital == 1, age < 25
    parents = married & (age >= 28) & (age < 55)
    return chance.one_of(
        np.where(married, 0.01, np.where(young, 0.22, 0.60)),
        np.where(parents, 0.18, np.where(married, 0.75, 0.22)),
        np.where(parents, 0.26, np.where(young, 0.24, 0.11)),
        np.where(parents, 0.36, np.where(young, 0.20, 0.05)),
        np.where(parents, 0.16, np.where(young, 0.09, 0.02)),
    )


def _commute(chance: Chance, employment: Codes, region: Codes, income: Codes) -> Codes:
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
