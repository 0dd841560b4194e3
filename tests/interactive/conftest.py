"""A small private table, a release of it, and ways to open it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import numpy as np
import pytest

import dualquery
from dualquery import Accounting, Budget, Neighbours, Online, Release
from dualquery.interactive.opening import first_release
from dualquery.loops import limited
from dualquery.table.domain import Categorical, Domain, Numeric
from dualquery.table.records import Records

DOMAIN = Domain(
    (
        Categorical("region", ("north", "south", "east", "west")),
        Categorical("sex", ("f", "m")),
        Numeric("age", tuple(float(x) for x in range(0, 100, 10)), integer=True),
        Categorical("rare", ("no", "yes")),
    )
)
ROWS = 20_000
BUDGET = Budget(epsilon=1.0, delta=1e-6, neighbours=Neighbours.REPLACE, accounting=Accounting.RENYI)


def records(*, lean: float = 0.0, seed: int = 0, rows: int = ROWS) -> Records:
    """Leaning towards the south, as an older table might."""
    rng = np.random.default_rng(seed)
    region = rng.choice(4, rows, p=np.array([0.4 - lean, 0.1 + lean, 0.3, 0.2]))
    sex = (rng.random(rows) < 0.3 + 0.1 * region).astype(int)
    age = rng.binomial(8, 0.3 + 0.1 * sex)
    rare = (rng.random(rows) < 0.02).astype(int)
    return Records.from_rows(DOMAIN, np.column_stack([region, sex, age, rare]))


@cache
def release_of(lean: float = 0.0, share: float = 0.9) -> Release:
    return first_release(
        records(lean=lean), schema=DOMAIN, budget=BUDGET, share=share, workload="marginals:2", seed=1
    )


@pytest.fixture
def open_table() -> Callable[..., Online]:
    """`dualquery.online` over the table with a good release, or with a stale one."""

    def opened(*, lean: float = 0.0, share: float = 0.9, **options: Any) -> Online:
        options = {"seed": 5, "budget": BUDGET, "release": release_of(lean, share), **options}
        return dualquery.online(records(), schema=DOMAIN, **options)

    return opened


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    with limited(1):
        yield
