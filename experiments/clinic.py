"""A clinic that nobody went to: 6,000 invented stays, as such tables are exported.

The second example has what the first has not: dates, incomes that are skewed and often zero, codes with leading
zeros, four ways to write a missing cell, an id, a free text, amounts that add up, and combinations that cannot be
(`RULES`). `EDITED` is all that a person who knows the clinic changes in a draft of its schema: at most ten lines.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dualquery.example import Chance, words
from dualquery.types import Integers

STAYS = 6_000
SEED = 15

WARDS = ("010", "020", "031", "032", "041")
AREAS = ("01001", "01002", "02139", "02140", "10115", "10117", "90210", "99501")
COUNTY = {
    "01001": "hill",
    "01002": "hill",
    "02139": "bay",
    "02140": "bay",
    "10115": "plain",
    "10117": "plain",
}
RULES = (
    "age < 15 => income = 0",
    "never sex = m & pregnant = yes",
    "total = fees + drugs",
    "county from area",
)

# Lines of the draft, and what they become; the rules are added at its end, two lines each.
EDITED = {
    "draft = true  # delete this line once every value below is public knowledge": "",
    'from = "2022-01"  # from the data': 'from = "2020-01"  # the clinic opened',
}


def edited(draft: str) -> str:
    """The schema that a person who knows the clinic makes of a draft."""
    lines = [EDITED.get(line, line) for line in draft.splitlines()]
    return "\n".join([*lines, *(f'[[rule]]\nsays = "{rule}"' for rule in RULES)]) + "\n"


def stays(number: int = STAYS, seed: int = SEED) -> pa.Table:
    """The invented stays, one row each."""
    chance = Chance(np.random.default_rng(seed), number)
    age = np.floor(95 * chance.uniform() ** 0.8).astype(np.int64)
    male = chance.one_of(0.49, 0.51) == 0
    area = chance.one_of(*([0.2, 0.15, 0.15, 0.1, 0.1, 0.1, 0.1, 0.1]))
    fertile = ~male & (age >= 18) & (age < 45)
    pregnant = fertile & (chance.uniform() < 0.25)
    ward = np.where(pregnant, 2, np.where(age < 15, 1, chance.one_of(0.5, 0.0, 0.0, 0.2, 0.3)))
    days = 1 + np.floor(3 * np.exp2(1.2 * chance.bell())).astype(np.int64).clip(0, 60)
    fees = (days * (220 + 60 * ward) * np.exp2(0.3 * chance.bell())).astype(np.int64)
    drugs = (
        np.where(chance.uniform() < 0.35, 0, 40 * np.exp2(2.0 * chance.bell()))
        .astype(np.int64)
        .clip(0, 20_000)
    )
    return pa.table(
        {
            "stay_id": pa.array(100_000 + np.arange(number)),
            "admitted": _dates(chance, number),
            "area": words(area, AREAS),
            "county": words(area, [COUNTY.get(each, "far") for each in AREAS]),
            "ward": words(ward, WARDS),
            "age": pa.array(age),
            "sex": words(male, ["f", "m"]),
            "pregnant": words(pregnant, ["no", "yes"]),
            "income": _incomes(chance, age, male),
            "smokes": words(
                chance.one_of(0.55, 0.2, 0.15, 0.06, 0.04), ["never", "formerly", "yes", "NA", ""]
            ),
            "pain": words(chance.one_of(*[0.1] * 10, 0.05), [*map(str, range(10)), "-9"]),
            "days": pa.array(days),
            "fees": pa.array(fees),
            "drugs": pa.array(drugs),
            "total": pa.array(fees + drugs),
            "note": [
                f"Stay {i}: seen by the doctor on duty, went home in a good state" for i in range(number)
            ],
        }
    )


def _dates(chance: Chance, number: int) -> pa.Array:
    """Days from 2022 to 2024, more of them in winter."""
    day = np.floor(1096 * chance.uniform()).astype(np.int64)
    winter = np.cos(2 * np.pi * day / 365.25) < 2 * chance.uniform() - 1.4
    moved = np.where(winter, np.floor(1096 * chance.uniform()), day).astype("timedelta64[D]")
    return pa.array([str(each) for each in np.datetime64("2022-01-01") + moved])


def _incomes(chance: Chance, age: Integers, male: NDArray[np.bool_]) -> pa.Array:
    """Whole euros: nothing for children and many others, few very large ones, some unknown."""
    earned = np.where(male, 26_000, 23_000) * np.exp2(1.25 * chance.bell())
    none = (age < 15) | (chance.uniform() < np.where(age < 25, 0.5, 0.12))
    amount = np.where(none, 0, earned).astype(np.int64).clip(0, 900_000)
    unknown = (age >= 15) & (chance.uniform() < 0.05)
    return pa.array(
        ["" if absent else str(each) for each, absent in zip(amount.tolist(), unknown, strict=True)]
    )
