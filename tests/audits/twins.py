"""Broken twins: the real code with one fault each. An audit that misses one of them is not an audit."""

from __future__ import annotations

import csv
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from dualquery import audits as auditing
from dualquery.audits import curator, releases
from dualquery.audits.case import ALONE, BITS, DUPLICATES, REPLACED, Case, Claim, Pair, Sampled, Sampler
from dualquery.audits.curator import exact_hazard, exact_selection
from dualquery.counting import opening
from dualquery.errors import BudgetError
from dualquery.mechanisms import dual_query as dual_query_game
from dualquery.mechanisms.wishes import MECHANISMS
from dualquery.privacy.budget import Accounting, Neighbours
from dualquery.privacy.curator import Curator
from dualquery.privacy.ledger import Ledger
from dualquery.privacy.noise import Gaussian, Laplace, discrete_gaussian, discrete_laplace
from dualquery.privacy.scores import SignedErrors, selection_event
from dualquery.privacy.selection import draw
from dualquery.privacy.thresholds import FarSide, Found, HazardTest, Slot, SparseVector, Table, tabulate
from dualquery.queries.derived import number_of_records
from dualquery.queries.tables import Tables
from dualquery.randomness import SeededEntropy
from dualquery.releases import make
from dualquery.table import units
from dualquery.table.encoding import encode
from dualquery.table.schema import Schema

Patch = pytest.MonkeyPatch


@dataclass(frozen=True)
class Twin:
    """A fault, and the case that must catch it within so many runs."""

    name: str
    breaks: Callable[[Patch], None]
    case: Callable[[], Case]
    runs: int

    def __str__(self) -> str:
        return self.name


def sampled(sampler: Callable[[], Any]) -> Callable[[], Case]:
    return lambda: Case("a twin", "its pair", sampler())


# ── What the curator says ───────────────────────────────────────────────────────────────────────────────────────


def half_the_sensitivity(patch: Patch) -> None:
    patch.setattr(type(Neighbours.REPLACE), "largest", lambda self, *, alone, apart: alone)


def four_fifths_of_the_scale(patch: Patch) -> None:
    def narrow(self: Laplace, count: int, entropy: Any) -> Any:
        return discrete_laplace(count, scale=self.scale * Fraction(4, 5), entropy=entropy)

    patch.setattr(Laplace, "draw", narrow)


def four_fifths_of_the_deviation(patch: Patch) -> None:
    def narrow(self: Gaussian, count: int, entropy: Any) -> Any:
        return discrete_gaussian(count, variance=self.variance * Fraction(16, 25), entropy=entropy)

    patch.setattr(Gaussian, "draw", narrow)


def one_draw_charged(patch: Patch) -> None:
    def select(self: Curator, score: Any, *, rate: Any, draws: int = 1) -> Any:
        event = selection_event(score, self.neighbours, rate=rate, draws=1)
        assert event is not None
        self._ledger.charge(event)
        return draw(score.of(self._counter), rate=rate, draws=draws, entropy=self._entropy)

    patch.setattr(Curator, "select", select)


def normalised_by_the_private_count(patch: Patch) -> None:
    honest = SignedErrors.of

    def of(self: SignedErrors, counter: Any) -> Any:
        scored = honest(self, counter)
        offsets = np.asarray(scored.offsets) * counter.true_rows // self.public_rows
        return replace(scored, offsets=offsets.astype(np.int64), surplus=0)

    patch.setattr(SignedErrors, "of", of)


def the_same_seed_again(patch: Patch) -> None:
    def measure(self: Curator, statistic: Any, *, noise: Any) -> Any:
        self._ledger.charge(noise.event(self.neighbours.sensitivity(statistic.bound())))
        truth = self._counter.true_counts(statistic)
        return truth + noise.draw(len(truth), SeededEntropy(7))

    patch.setattr(Curator, "measure", measure)


def no_threshold(patch: Patch) -> None:
    patch.setattr("dualquery.privacy.curator.threshold", lambda noise, **named: 0)


SAID = [
    Twin(
        "texts shown without a threshold",
        no_threshold,
        sampled(lambda: curator.shown_texts(curator.NEW_TEXT)),
        1000,
    ),
    Twin(
        "sensitivity off by two",
        half_the_sensitivity,
        sampled(
            lambda: curator.measured(
                DUPLICATES, Tables(BITS, ((0, 1),)), curator.pure(DUPLICATES), curator.laplace
            )
        ),
        20_000,
    ),
    Twin(
        "scale off by a fifth",
        four_fifths_of_the_scale,
        sampled(
            lambda: curator.measured(ALONE, number_of_records(BITS), curator.pure(ALONE), curator.laplace)
        ),
        100_000,
    ),
    Twin(
        "scale off by a fifth, Gaussian",
        four_fifths_of_the_deviation,
        lambda: curator.gaussian_case(ALONE, Accounting.GAUSSIAN),
        100_000,
    ),
    Twin(
        "draws that are not charged",
        one_draw_charged,
        sampled(curator.eight_draws),
        20_000,
    ),
    Twin(
        "weights normalised by the private count",
        normalised_by_the_private_count,
        lambda: Case(
            "a twin",
            "its pair",
            exact=exact_selection(ALONE, curator.signed_errors(ALONE, curator.OPPOSED), curator.EPSILON),
        ),
        0,
    ),
    Twin(
        "a seed that is used again",
        the_same_seed_again,
        sampled(lambda: curator.twice(REPLACED, curator.OPPOSED)),
        20_000,
    ),
]


# ── Mechanisms ──────────────────────────────────────────────────────────────────────────────────────────────────


def free_values_look_at_the_truth(patch: Patch) -> None:
    honest = MECHANISMS["dualquery"]

    def run(plan: Any, curator: Curator, rng: Any, progress: Any) -> Any:
        truth = curator._counter.true_counts(Tables(BITS, ((1,),)))
        record = np.array([0, int(truth.argmax())], np.int32)
        patch.setattr(dual_query_game, "zeros", lambda domain: lambda rng: record)
        return honest.run(plan, curator, rng, progress)

    patch.setitem(MECHANISMS, "dualquery", replace(honest, run=run))


def a_stop_looks_at_the_true_error(patch: Patch) -> None:
    honest = MECHANISMS["mwem"]

    def run(plan: Any, curator: Curator, rng: Any, progress: Any) -> Any:
        truth = curator._counter.true_counts(Tables(BITS, ((0,),)))
        error = abs(truth[1] / plan.task.rows - 0.5)
        rounds = plan.parameters.rounds if error >= 0.45 else 1
        return honest.run(
            replace(plan, parameters=replace(plan.parameters, rounds=rounds)), curator, rng, progress
        )

    patch.setitem(MECHANISMS, "mwem", replace(honest, run=run))


PLAYED = [
    Twin(
        "free values that look at the truth",
        free_values_look_at_the_truth,
        sampled(
            lambda: releases.runs_of(
                "dualquery",
                REPLACED,
                options={"rounds": 2, "samples": 1, "free": "zeros"},
                workload=releases.ONE_ATTRIBUTE,
            )
        ),
        400,
    ),
    Twin(
        "a stop that looks at the true error",
        a_stop_looks_at_the_true_error,
        sampled(lambda: releases.runs_of("mwem", DUPLICATES, options={"rounds": 2, "synthetic_rows": 100})),
        400,
    ),
]


# ── Files ───────────────────────────────────────────────────────────────────────────────────────────────────────


def rows_are_dropped_from_a_public_number(patch: Patch) -> None:
    patch.setattr(make, "refuse_dropping", lambda schema, neighbours: None)


def a_reader_that_swallows(patch: Patch) -> None:
    """Reads as many programs do: a quote that nobody closes takes the rest of the file with it."""

    def lax(table: Any, schema: Schema, records_per_person: int | None = None) -> Any:
        with open(table, newline="", encoding="utf-8") as file:
            header, *rows = csv.reader(file)
        rows = [[*row, ""][: len(header)] for row in rows if row]
        columns = {name: pa.array([row[i] for row in rows], pa.string()) for i, name in enumerate(header)}
        return encode(pa.table(columns), schema)

    patch.setattr(opening, "encode", lax)


def others_decide_who_stays(patch: Patch) -> None:
    """Where one household has more persons than count, every other keeps its first person alone."""
    honest = units.places_of

    def places_of(owner: Any) -> Any:
        places = honest(owner)
        return places * (1 if places.max() < 4 else 4)

    patch.setattr(units, "places_of", places_of)


def households(large: bool) -> Any:
    """Nine couples, and perhaps a household of five, of whom four count."""
    houses = [*range(9), *([9] if large else [])]
    persons = [*(house for house in range(9) for _ in range(2)), *([9] * 5 if large else [])]
    return units.units_in(
        {
            "house": pa.table({"hh": houses, "region": ["east"] * len(houses)}),
            "person": pa.table({"hh": persons, "age": ["old"] * len(persons)}),
        },
        curator.HOUSES,
    )


def sizes_of_households() -> Case:
    pair = Pair("a household of five more", Neighbours.ADD_REMOVE, (households(False), households(True)), 10)
    sizes = Tables(curator.HOUSES, ((1,),))
    return Case("a twin", pair.words, curator.measured(pair, sizes, curator.pure(pair), curator.laplace))


READ = [
    Twin(
        "rows of a household dropped by those of another",
        others_decide_who_stays,
        sizes_of_households,
        20_000,
    ),
    Twin(
        "rows dropped from a number that is public",
        rows_are_dropped_from_a_public_number,
        lambda: releases.DROPPED_IN_PUBLIC.case(60, 60),
        60,
    ),
    Twin("the unclosed quote", a_reader_that_swallows, lambda: releases.UNCLOSED.case(60, 60), 60),
]


# ── Threshold tests ─────────────────────────────────────────────────────────────────────────────────────────────


def no_cap_on_fires(patch: Patch) -> None:
    honest = Ledger.charge
    patch.setattr(Ledger, "charge", lambda self, *events: None if self.events else honest(self, *events))


def tests_after_the_last_fire(patch: Patch) -> None:
    """The ledger is asked, and its refusal is not heard."""
    honest = Ledger.charge

    def charge(self: Ledger, *events: Any) -> None:
        with suppress(BudgetError):
            honest(self, *events)

    patch.setattr(Ledger, "charge", charge)


@cache
def _doubled_table(epsilon: Fraction, threshold: int) -> Table:
    return tabulate(2 * epsilon, threshold)


class Doubled(HazardTest):
    """Draws with twice the ε that it is charged for."""

    def draw(self, x: Any, entropy: Any) -> Found | None:
        (number,) = x.tolist()
        table = _doubled_table(self.epsilon, self.threshold)
        row = min(abs(number), table.last)
        chance = entropy.below(1 << 128, 1)[0]
        if chance >= table.fires[row]:
            return None
        return Found(
            0, FarSide.TOO_LOW if (chance < table.nearer[row]) == (number >= 0) else FarSide.TOO_HIGH
        )


IN_FLIGHT = HazardTest(Fraction(1, 5), threshold=8, order=2)


def ten_in_flight(at_once: int) -> Sampler:
    """Questions at the threshold, so many at once against one slot, until no other slot is paid for."""

    def sample(side: int, runs: int, entropy: Any, tell: Any) -> Sampled:
        fires = []
        for _ in range(runs):
            ledger, fired, found = Ledger(auditing.HAZARD_BUDGET), 0, [True]
            for _ in range(60):
                try:
                    if any(found):
                        ledger.charge(IN_FLIGHT.event)
                except BudgetError:
                    break
                found = [IN_FLIGHT.draw(np.array([10 + side]), entropy) is not None for _ in range(at_once)]
                fired += sum(found)
            fires.append(float(fired))
            tell(1)
        return Sampled(
            {"fires": np.array(fires)},
            Claim(auditing.HAZARD_BUDGET.epsilon, auditing.HAZARD_BUDGET.delta),
        )

    return sample


def an_epoch_that_does_not_close(patch: Patch) -> None:
    patch.setattr(Slot, "close", lambda self: None)


def no_query_noise(patch: Patch) -> None:
    def draw(self: SparseVector, x: Any, entropy: Any, noise: int) -> Found | None:
        return Found(0, FarSide.FAR) if abs(int(x[0])) >= self.threshold + noise else None

    patch.setattr(SparseVector, "draw", draw)


VECTOR = SparseVector(Fraction(4), threshold=1)


def tested_value(reused: bool) -> Sampler:
    """An epoch of four questions that a record moves up and one that it moves down, a whole sample at a time.

    Reused, the number that was compared with the threshold is the answer; else nothing is answered but "above".
    """

    def sample(side: int, runs: int, entropy: Any, tell: Any) -> Sampled:
        threshold = 1 + discrete_laplace(runs, scale=VECTOR.threshold_scale, entropy=entropy)
        truth = np.array([side] * 4 + [1 - side])
        noise = discrete_laplace(5 * runs, scale=VECTOR.query_scale, entropy=entropy).reshape(runs, 5)
        tested = truth + noise
        above = tested >= threshold[:, None]
        first = np.where(above.any(axis=1), above.argmax(axis=1), 5)
        values = tested[np.arange(runs), np.minimum(first, 4)] if reused else np.zeros(runs, np.int64)
        seen = np.array(
            [f"{place} {value}" for place, value in zip(first.tolist(), values.tolist(), strict=True)]
        )
        return Sampled({"session": seen}, Claim(float(VECTOR.epsilon)))

    return sample


def nothing(patch: Patch) -> None:
    """The fault is in the case itself."""


ASKED = [
    Twin("no cap on fires", no_cap_on_fires, sampled(auditing.hazard_session().sampler), 500),
    Twin(
        "tests after the last fire",
        tests_after_the_last_fire,
        sampled(auditing.hazard_session().sampler),
        500,
    ),
    Twin(
        "epsilon of the test doubled",
        nothing,
        lambda: Case("a twin", "its pair", exact=exact_hazard(Doubled(Fraction(1, 5), 4, 2))),
        0,
    ),
    Twin(
        "ten tests in flight against one slot",
        nothing,
        sampled(lambda: ten_in_flight(10)),
        1500,
    ),
    Twin(
        "an epoch that does not close",
        an_epoch_that_does_not_close,
        sampled(auditing.epoch_session(REPLACED, ((0, 0),) * 80 + ((1, 0),) * 80, 1).sampler),
        600,
    ),
    Twin(
        "no query noise",
        no_query_noise,
        sampled(auditing.epoch_session(REPLACED, auditing.UP_AND_DOWN, 1).sampler),
        2000,
    ),
    Twin("the tested value is the answer", nothing, sampled(lambda: tested_value(reused=True)), 300_000),
]

# What the twins whose fault is in the case itself look like without it.
HONEST = [
    Twin("one test at a time", nothing, sampled(lambda: ten_in_flight(1)), 1500),
    Twin("the tested value is kept", nothing, sampled(lambda: tested_value(reused=False)), 300_000),
]

TWINS = [*SAID, *PLAYED, *READ, *ASKED]
