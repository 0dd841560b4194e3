"""Audits of every mechanism: its own plan and its own run, on tables of a few records.

What the adversary sees is what a release publishes: how many synthetic records lie in each cell of the universe, or
the bare answers, and the events on the certificate.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from dualquery.audits.bounds import Claim
from dualquery.audits.case import Case, Sampled, Sampler, Tell
from dualquery.audits.events import Feature
from dualquery.audits.pairs import ALONE, BITS, DUPLICATES, MANY, REPLACED, Pair
from dualquery.counting.counter import MemoryCounter
from dualquery.mechanisms.mechanism import Outcome, Task
from dualquery.mechanisms.wishes import MECHANISMS
from dualquery.privacy.budget import Accounting, Budget
from dualquery.privacy.curator import Curator
from dualquery.privacy.ledger import Ledger
from dualquery.queries.families import from_texts
from dualquery.queries.tables import Tables
from dualquery.queries.workload import Workload
from dualquery.randomness import Entropy
from dualquery.types import silent

ALL_CELLS = Workload(BITS, (Tables(BITS, ((0, 1),)),), "all cells")
ONE_TABLE = Workload(BITS, (Tables(BITS, ((0,),)),), "one table")
ONE_ATTRIBUTE = from_texts(BITS, ["a = 1"])  # the other one is free
EITHER = from_texts(BITS, ["a = 1 | b = 1"])


@dataclass(frozen=True)
class MechanismSetting:
    """A mechanism, a budget and options that let few runs tell much."""

    mechanism: str
    pair: Pair
    accounting: Accounting = Accounting.PURE
    epsilon: float = 2.0
    options: Mapping[str, object] = field(default_factory=dict)
    workload: Workload = ALL_CELLS
    words: str = ""

    @property
    def budget(self) -> Budget:
        delta = 0.0 if self.accounting is Accounting.PURE else 0.05
        return Budget(
            epsilon=self.epsilon,
            delta=delta,
            neighbours=self.pair.neighbours,
            accounting=self.accounting,
        )

    def case(self, quick: int, long: int) -> Case:
        pair = f"{self.pair.words}{self.words}"
        return Case(self.mechanism, pair, runs_of(self), quick=quick, long=long)


def runs_of(setting: MechanismSetting) -> Sampler:
    """Plan once, as the public would; run as often as asked."""

    def sample(side: int, runs: int, entropy: Entropy, tell: Tell) -> Sampled:
        mechanism = MECHANISMS[setting.mechanism]
        task = Task(setting.workload, setting.pair.public_rows, setting.budget)
        plan = mechanism.plan_for(task, setting.options)
        counter, found, claim = MemoryCounter(setting.pair.tables[side]), [], Claim(0.0)
        for _ in range(runs):
            ledger = Ledger(setting.budget)
            outcome = mechanism.run(
                plan, Curator(counter, ledger, entropy), entropy.public_generator(), silent
            )
            found.append({**published(outcome), "events": float(len(ledger.events))})
            if ledger.events:
                spent = ledger.spent()
                claim = max(claim, Claim(spent.epsilon, spent.delta), key=lambda each: each.epsilon)
            tell(1)
        return Sampled({name: _column([each[name] for each in found]) for name in found[0]}, claim)

    return sample


def published(outcome: Outcome) -> dict[str, float | str]:
    """What anybody can read off a release of a mechanism."""
    if outcome.artefact.rows is None:
        assert outcome.answers is not None, "bare answers are answers"
        return {f"answer {i}": float(each) for i, each in enumerate(outcome.answers)}
    cells = np.rint(outcome.artefact.rows * outcome.artefact.fractions(ALL_CELLS.groups[0]))
    seen: dict[str, float | str] = {f"cell {i}": float(each) for i, each in enumerate(cells)}
    return seen | {"cells": " ".join(f"{each:.0f}" for each in cells)}


def _column(values: list[float | str]) -> Feature:
    return np.array(values, np.str_) if isinstance(values[0], str) else np.array(values, np.float64)


def cases() -> list[Case]:
    """For whoever looks at data one pair that spends all on one attribute, and one that spreads it over all cells."""
    zcdp, gaussian = Accounting.ZCDP, Accounting.GAUSSIAN
    many, few, slow, late = (500, 20_000), (240, 4000), (400, 10_000), (0, 4000)
    rows = {"synthetic_rows": 2000}
    once = {"rounds": 1, **rows}
    dual_query: dict[str, object] = {"rounds": 2, "samples": 1, "free": "zeros"}
    density, spread = {**dual_query, "free": "density"}, {**dual_query, "rounds": 3, "learning_rate": 5.0}
    return [
        MechanismSetting("dualquery", REPLACED, options=dual_query, workload=ONE_ATTRIBUTE).case(*many),
        MechanismSetting("dualquery", MANY, options=spread).case(*many),
        MechanismSetting(
            "dualquery", REPLACED, options=density, workload=ONE_ATTRIBUTE, words=", one attribute free"
        ).case(*many),
        MechanismSetting("mwem", DUPLICATES, options=once, workload=ONE_ATTRIBUTE).case(*many),
        MechanismSetting("mwem", MANY, options={**rows, "rounds": 2}).case(*many),
        MechanismSetting(
            "mwem", DUPLICATES, zcdp, options={**once, "start": "noisy"}, words=", noisy start"
        ).case(*late),
        MechanismSetting("pmw", DUPLICATES, options={**once, "iterate": "last"}, workload=ONE_ATTRIBUTE).case(
            *many
        ),
        MechanismSetting("pmw", MANY, options={**rows, "rounds": 2, "iterate": "last"}).case(*many),
        MechanismSetting("mirror", DUPLICATES, options=once, workload=ONE_ATTRIBUTE).case(*many),
        MechanismSetting("mirror", MANY, options={**rows, "rounds": 2, "mirror_map": "euclidean"}).case(
            *many
        ),
        MechanismSetting("euclidean", DUPLICATES, zcdp, options=once, workload=ONE_ATTRIBUTE).case(*slow),
        MechanismSetting("monomials", DUPLICATES, zcdp, options={"rounds": 1}, workload=EITHER).case(*slow),
        MechanismSetting("parities", DUPLICATES, zcdp, workload=EITHER).case(*slow),
        MechanismSetting("projection", DUPLICATES, gaussian, options=rows, workload=ONE_TABLE).case(*few),
        MechanismSetting("projection", MANY, gaussian, options=rows).case(*late),
        MechanismSetting("laplace", DUPLICATES).case(1000, 40_000),
        MechanismSetting("laplace", ALONE).case(1000, 40_000),
        MechanismSetting("gaussian", DUPLICATES, gaussian).case(*slow),
        MechanismSetting("gaussian", MANY, gaussian).case(0, 10_000),
        MechanismSetting("hadamard", DUPLICATES, options=rows, workload=ONE_TABLE).case(*many),
        MechanismSetting("hadamard", MANY, options=rows).case(*many),
        MechanismSetting("uniform", DUPLICATES, options=rows).case(*many),
        MechanismSetting("zeros", DUPLICATES, options=rows).case(*many),
    ]
