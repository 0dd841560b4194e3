"""Audits of special tables: cuts of graphs, distances of points, lists of codes.

An edge, a point or a record more that moves what is asked as far as any can. Statistics are attacked by the
likelihood ratio of both tables, as in `verbs`; mechanisms by what they publish, their own plan and their own run, as
in `mechanisms`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from dualquery.audits.bounds import Claim
from dualquery.audits.case import Case, Sampled, Sampler, Tell
from dualquery.audits.pairs import Pair, pair
from dualquery.audits.verbs import measurements
from dualquery.counting.counter import MemoryCounter
from dualquery.mechanisms.distance_curves import factored
from dualquery.mechanisms.mechanism import Task
from dualquery.mechanisms.special import SPECIAL
from dualquery.privacy.budget import Accounting, Budget
from dualquery.privacy.curator import Curator
from dualquery.privacy.ledger import Ledger
from dualquery.privacy.neighbours import Neighbours
from dualquery.queries.countable import Countable
from dualquery.queries.cuts import Blocks, CoarseEdges, LikelyPairs, degrees
from dualquery.queries.distances import Knots, distances_to
from dualquery.queries.families import from_texts
from dualquery.queries.workload import Workload
from dualquery.randomness import Entropy
from dualquery.table.codes import codes_table
from dualquery.table.graph import graph_of
from dualquery.table.points import GRID, STEPS, points_of
from dualquery.types import silent

TRIANGLE = graph_of(("a", "b", "c"))
EDGE = pair(
    "an edge more, in every cut",
    Neighbours.ADD_REMOVE,
    [[0, 0]] * 9,
    [[0, 0]] * 9 + [[1, 2]],
    TRIANGLE,
)
OTHER_EDGE = pair("an edge and another", Neighbours.REPLACE, [[0, 1]], [[2, 0]], TRIANGLE)
SQUARE = points_of({"x": (0.0, 1.0), "y": (0.0, 1.0)})
FAR = pair(
    "a point more, as far as can be",
    Neighbours.ADD_REMOVE,
    [[0, 0]] * 9,
    [[0, 0]] * 9 + [[GRID, GRID]],
    SQUARE,
)
CORNERS = pair("a point and the opposite corner", Neighbours.REPLACE, [[0, 0]], [[GRID, GRID]], SQUARE)
CODES = codes_table({"code": (0, 9)})
LISTED = pair("a record more, in every list", Neighbours.ADD_REMOVE, [[0]] * 9, [[0]] * 9 + [[7]], CODES)

CUTS = from_texts(TRIANGLE, ["edges leaving {b}", "edges entering {c}", "edges from {b} to {c}"])
PLACES = Workload(SQUARE, (distances_to(SQUARE, np.array([[0, 0], [0, GRID], [GRID, 0]])),), "corners")
LOOK_UPS = from_texts(CODES, ["code = 7", "code = 0", "code = 3"])


@dataclass(frozen=True)
class SpecialSetting:
    """A mechanism of special tables, and options that let few runs tell much."""

    mechanism: str
    pair: Pair
    workload: Workload
    options: Mapping[str, object] = field(default_factory=dict)
    accounting: Accounting = Accounting.ZCDP

    @property
    def budget(self) -> Budget:
        delta = 0.0 if self.accounting is Accounting.PURE else 0.05
        return Budget(epsilon=2.0, delta=delta, neighbours=self.pair.neighbours, accounting=self.accounting)

    def case(self, quick: int, long: int) -> Case:
        return Case(self.mechanism, self.pair.words, runs_of(self), quick=quick, long=long)


def runs_of(setting: SpecialSetting) -> Sampler:
    """Plan once, as the public would; run as often as asked; the adversary asks what is free afterwards."""

    def sample(side: int, runs: int, entropy: Entropy, tell: Tell) -> Sampled:
        mechanism = SPECIAL[setting.mechanism]
        task = Task(setting.workload, setting.pair.public_rows, setting.budget)
        plan = mechanism.plan_for(task, setting.options)
        counter, claim = MemoryCounter(setting.pair.tables[side]), Claim(0.0)
        found: list[NDArray[np.float64]] = []
        for _ in range(runs):
            ledger = Ledger(setting.budget)
            outcome = mechanism.run(
                plan, Curator(counter, ledger, entropy), entropy.public_generator(), silent
            )
            answers = [outcome.artefact.fractions(group) for group in setting.workload.groups]
            found.append(np.concatenate([*answers, [float(len(ledger.events))]]))
            spent = ledger.spent()
            claim = max(claim, Claim(spent.epsilon, spent.delta), key=lambda each: each.epsilon)
            tell(1)
        columns = np.array(found).T
        names = [*(f"answer {i}" for i in range(len(columns) - 1)), "events"]
        return Sampled(dict(zip(names, columns, strict=True)), claim)

    return sample


def _measurements() -> list[tuple[str, Pair, Countable]]:
    tables = (Blocks(np.array([0, 1, 1]), 2), LikelyPairs(np.array([3, 0, 1]), np.array([1, 0, 2])))
    right = factored(64).right[:1]
    return [
        ("cuts", EDGE, CUTS.groups[0]),
        ("degrees", EDGE, CoarseEdges(TRIANGLE, degrees(3), (2, 2))),
        ("blocks and pairs", OTHER_EDGE, CoarseEdges(TRIANGLE, tables, (3, 1))),
        ("distances", FAR, PLACES.groups[0].take(np.zeros(1, np.int64))),
        ("knots", CORNERS, Knots((0, 1), (right, right), STEPS)),
        ("lists", LISTED, from_texts(CODES, ["code = 7"]).groups[0]),
    ]


def cases() -> list[Case]:
    """Every statistic of special tables, and every mechanism."""
    return [
        *measurements(_measurements()),
        SpecialSetting("coarsenings", EDGE, CUTS).case(0, 1000),
        SpecialSetting("frieze-kannan", EDGE, CUTS, {"rounds": 1}).case(240, 4000),
        SpecialSetting("distance-curves", FAR, PLACES).case(240, 4000),
        SpecialSetting("coordinate-wise", FAR, PLACES, {"rounds": 1}).case(240, 4000),
        SpecialSetting("noisy-cells", LISTED, LOOK_UPS).case(240, 4000),
        SpecialSetting("touched-weights", LISTED, LOOK_UPS, {"rounds": 1}).case(240, 4000),
    ]
