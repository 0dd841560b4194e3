"""Faults that would break the promise, each put into a copy of the source: some test must fail.

Whoever changes a line that stands here changes the list with it: the first test below fails until then. The others
take a few minutes and run with `pytest -m mutants`, two at a time.
"""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import TypeAlias

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = Path("src", "dualquery")
AT_ONCE = 2

STATISTICS = "tests/privacy/test_statistics.py"
EXCEEDS = "tests/privacy/test_exceeds.py"
ROUNDING = "tests/privacy/test_rounding.py"
ALLOWANCE = "tests/privacy/test_allowance.py"
IMPORTS = "tests/test_import_graph.py"


def moves(*cases: str) -> tuple[str, ...]:
    """Brute force over the neighbours, for some of its cases."""
    return tuple(f"{STATISTICS}::test_the_price_is_how_far_neighbours_move[{case}]" for case in cases)


def statistics(*tests: str) -> tuple[str, ...]:
    return tuple(f"{STATISTICS}::test_{test}" for test in tests)


def exceeds(*tests: str) -> tuple[str, ...]:
    return tuple(f"{EXCEEDS}::test_{test}" for test in tests)


def whole_tables(*tests: str) -> tuple[str, ...]:
    return tuple(f"tests/privacy/test_whole_tables.py::test_{test}" for test in tests)


def linking(*tests: str) -> tuple[str, ...]:
    return tuple(f"tests/table/test_linking.py::test_{test}" for test in tests)


def journals(*tests: str) -> tuple[str, ...]:
    return tuple(f"tests/interactive/test_journal.py::test_{test}" for test in tests)


def rounding(*tests: str) -> tuple[str, ...]:
    return tuple(f"{ROUNDING}::test_{test}" for test in tests)


def allowance(*tests: str) -> tuple[str, ...]:
    return tuple(f"{ALLOWANCE}::test_{test}" for test in tests)


def frequent(*tests: str) -> tuple[str, ...]:
    return tuple(f"tests/privacy/test_frequent.py::test_{test}" for test in tests)


def drafts(*tests: str) -> tuple[str, ...]:
    return tuple(f"tests/releases/test_private_draft.py::test_{test}" for test in tests)


def gaussian(*tests: str) -> tuple[str, ...]:
    return tuple(f"tests/privacy/test_gaussian_filter.py::test_{test}" for test in tests)


@dataclass(frozen=True)
class Mutant:
    """In this file, this text, which stands there once, becomes that text; one of these tests fails."""

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]

    def __str__(self) -> str:
        return self.name

    @property
    def path(self) -> Path:
        return PACKAGE / self.file


# ── The faults ──────────────────────────────────────────────────────────────────────────────────────────────────

_LARGEST = "    def largest(self, *, alone: int, apart: int) -> int:\n        return "

UNITS = [
    Mutant("units: rows dropped by those of another", "table/units.py",
           "places_of(at[order]) < child.at_most", "places_of(0 * at[order]) < child.at_most",
           linking("one_household_more_or_less_changes_one_unit")),
    Mutant("linking: of many rows of a unit the first in the file stay", "table/units.py",
           "by_tickets(Owners(at, units), columns, np.arange(len(at)))", "np.argsort(at, kind='stable')",
           linking("the_order_of_rows_changes_nothing")),
    Mutant("linking: of two rows with one key the first in the file stays", "table/units.py",
           "np.lexsort((*rows.columns[::-1], at))", "np.argsort(at, kind='stable')",
           linking("the_first_of_two_parents_is_so_by_its_codes_and_not_by_its_place")),
    Mutant("linking: orphans go to another unit", "table/units.py",
           "value_set=units).fill_null(-1)", "value_set=units).fill_null(0)",
           linking("one_household_more_or_less_changes_one_unit")),
    Mutant("linking: a key that a public table does not have names its first row", "table/units.py",
           "value_set=self.ids).fill_null(-1)", "value_set=self.ids).fill_null(0)",
           linking("a_row_that_names_no_row_of_a_public_table_is_dropped")),
    Mutant("linking: whether a unit stays depends on the others", "table/units.py",
           "each.sizes >= child.at_least", "each.sizes >= each.sizes.mean() // 1",
           linking("one_household_more_or_less_changes_one_unit")),
    Mutant("units: bins of rows do not follow their keys", "table/encoding.py",
           "place = bin_of(batch.column(key), key, len(bins))", "place = np.arange(batch.num_rows) % len(bins)",
           ("tests/counting/test_units.py::test_units_on_disk_are_those_in_memory",)),
    Mutant("units: rows are put into an order across units", "table/units.py",
           "np.lexsort((self.records.columns[attribute], self.owner))",
           "np.argsort(self.records.columns[attribute], kind='stable')",
           linking("rows_of_a_unit_stand_in_the_order_of_an_attribute")),
    Mutant("any: a row of one unit counts for another", "queries/views.py",
           "before[members.start[:-1]]", "before[np.maximum(members.start[:-1] - 1, 0)]",
           ("tests/queries/test_over_units.py::test_a_question_is_what_it_says",)),
    Mutant("views: one row of a unit is charged", "queries/views.py",
           "int((self.number * self.weights).max())", "int(self.weights.max())", moves("tables of rows-add-remove")),
    Mutant("views: a unit that becomes another is one record that does", "queries/views.py",
           "max(flat.alone[0], flat.apart[0]), max(flat.alone[1], flat.apart[1])",
           "flat.apart[0], flat.apart[1]", moves("the number of rows-replace")),
    Mutant("tallies: one cell of a unit is charged", "queries/views.py", "int((cells * weight**2).max())",
           "int((weight**2).max())", moves("tallies of two attributes-add-remove")),
]  # fmt: skip

RELATIONS = [
    Mutant("replacing is charged as adding", "privacy/budget.py", _LARGEST + "apart", _LARGEST + "alone",
           moves("tables-replace")),
    Mutant("adding is charged as replacing", "privacy/budget.py", _LARGEST + "alone", _LARGEST + "apart",
           moves("the number of records-add-remove")),
    Mutant("squared norms swapped", "privacy/budget.py", "return self.largest(alone=alone, apart=apart)",
           "return self.largest(alone=apart, apart=alone)", moves("tables-replace")),
    Mutant("squared norms of nothing but additions", "privacy/budget.py",
           "return self.largest(alone=alone, apart=apart)", "return alone", moves("tables-replace")),
]  # fmt: skip

STATISTIC_PRICES = [
    Mutant("counts: norms of one record swapped", "queries/group.py",
           "Bound((alone * unit, alone * unit**2)", "Bound((alone * unit**2, alone * unit)",
           moves("graded queries-add-remove")),
    Mutant("counts: norms of two records swapped", "queries/group.py",
           "(apart * unit, apart * unit**2)", "(apart * unit**2, apart * unit)",
           moves("graded queries-replace")),
    Mutant("counts: unit forgotten", "queries/group.py", "unit, alone, apart = self.unit, ",
           "unit, alone, apart = 1, ", moves("graded queries-replace")),
    Mutant("counts: two records differ where one satisfies", "queries/group.py",
           "self.most_satisfied(), self.most_differing()",
           "self.most_satisfied(), self.most_satisfied()", moves("tables-replace")),
    Mutant("counts: one record satisfies where two differ", "queries/group.py",
           "self.most_satisfied(), self.most_differing()",
           "self.most_differing(), self.most_differing()", moves("the number of records-add-remove")),
    Mutant("tables: two records differ in one cell each", "queries/tables.py",
           "return 2 * int((np.diff(self.starts) > 1).sum())", "return int((np.diff(self.starts) > 1).sum())",
           moves("tables-replace")),
    Mutant("tables: one is not counted", "queries/tables.py", "return len(self.sets)\n",
           "return len(self.sets) - 1\n", moves("tables-add-remove")),
    Mutant("queries one by one: a record satisfies one fewer", "queries/group.py",
           "one record satisfies, or an upper bound of it.\"\"\"\n        return self.size\n",
           "one record satisfies, or an upper bound of it.\"\"\"\n        return self.size - 1\n",
           moves("conjunctions-add-remove", "parities of one-add-remove")),
    Mutant("queries one by one: two records differ in one fewer", "queries/group.py",
           "two records differ, or an upper bound of it.\"\"\"\n        return self.size\n",
           "two records differ, or an upper bound of it.\"\"\"\n        return self.size - 1\n",
           moves("a mean-replace", "distance to a corner-replace")),
    Mutant("balance: not squared", "queries/derived.py", "(2 * unit, (2 * unit) ** 2)",
           "(2 * unit, 2 * unit)", moves("balance-replace", "balance of a grade-replace")),
    Mutant("balance: two records as one", "queries/derived.py", "(2 * unit, (2 * unit) ** 2)",
           "(unit, unit**2)", moves("balance-replace")),
    Mutant("balance: unit of one record forgotten", "queries/derived.py",
           "Bound((unit, unit**2), (2 * unit",
           "Bound((1, 1), (2 * unit", moves("balance of a grade-add-remove")),
    Mutant("balance: records not subtracted", "queries/derived.py",
           " - self.workload.unit * rows", "", moves("balance-add-remove")),
    Mutant("cells of a table: two records in one cell", "queries/statistics.py", "Bound((1, 1), (2, 2), 1)",
           "Bound((1, 1), (1, 1), 1)", moves("cells of a table-replace")),
]  # fmt: skip

_JUST_SHORT = moves("just short attribute-add-remove", "just short attribute-replace")

INTERACTIONS = [
    Mutant("interaction: SHORT off by one in L1", "queries/derived.py",
           "prod(2 * (k - 1) for k in sizes if k <= SHORT)", "prod(2 * (k - 1) for k in sizes if k < SHORT)",
           _JUST_SHORT),
    Mutant("interaction: SHORT off by one in the scale", "queries/derived.py",
           "prod(k for k in sizes if k <= SHORT)", "prod(k for k in sizes if k < SHORT)",
           statistics("interactions_divided_by_their_scale_are_centred_tables[just short attribute]")),
    Mutant("interaction: SHORT off by one in the length", "queries/derived.py",
           "prod(k * (k - 1) for k in sizes if k <= SHORT)", "prod(k * (k - 1) for k in sizes if k < SHORT)",
           _JUST_SHORT),
    Mutant("interaction: SHORT off by one in the distance", "queries/derived.py", "(1, 0) if k > SHORT",
           "(1, 0) if k >= SHORT", _JUST_SHORT),
    Mutant("interaction: SHORT off by one in the integers", "queries/derived.py", "if size <= SHORT:",
           "if size < SHORT:", _JUST_SHORT),
    Mutant("interaction: sign of the inner product", "queries/derived.py", "(k * (k - 1), -k)",
           "(k * (k - 1), k)", moves("interaction of two values-replace")),
    Mutant("interaction: not centred", "queries/derived.py",
           "size * table - table.sum(axis=axis, keepdims=True)", "size * table",
           moves("interaction of three values-add-remove")),
    Mutant("signed tables: two records move one entry by one", "queries/derived.py",
           "apart = (2, 4 if", "apart = (1, 4 if", moves("signed table of three values-replace")),
    Mutant("signed tables: L1 of the last set only", "queries/statistics.py", "_sum(self.alone, other.alone)",
           "other.alone", moves("signed tables side by side-add-remove")),
    Mutant("signed tables: no sign", "queries/tables.py", "table = one - other", "table = one + 2 * other",
           moves("signed table of two values-add-remove")),
    Mutant("signed tables: opposite signs as two entries", "queries/derived.py", "4 if 2 in sizes else 2",
           "2 if 2 in sizes else 2", moves("signed table of two values-replace")),
    Mutant("interactions: multiplier forgotten in L1", "queries/statistics.py", "(m * self.alone[0],",
           "(self.alone[0],", moves("interactions side by side-add-remove")),
    Mutant("interactions: multiplier of one record not squared", "queries/statistics.py", "m**2 * self.alone[1]",
           "m * self.alone[1]", moves("interactions side by side-add-remove")),
    Mutant("interactions: distance of the last set only", "queries/statistics.py", "_sum(self.apart, other.apart)",
           "other.apart", moves("interactions side by side-replace")),
    Mutant("interactions: multiplier not squared", "queries/statistics.py",
           "m**2 * self.apart[1]", "m * self.apart[1]",
           moves("interactions side by side-replace")),
    Mutant("interactions: two records as one in L1", "queries/derived.py", "(2 * l1, interaction_distance",
           "(l1, interaction_distance", moves("interactions side by side-replace")),
]  # fmt: skip

ITEMS = [
    Mutant("items: two records as one", "queries/binary.py", "min(2 * alone, self.items)",
           "min(alone, self.items)", moves("items-replace")),
    Mutant("items: a limit beyond the items", "queries/binary.py",
           "alone = min(self.limit, self.items)", "alone = self.limit",
           moves("items, fewer than the limit-add-remove")),
    Mutant("pairs: an item with itself", "queries/binary.py", "most * (most - 1) // 2", "most * most // 2",
           moves("pairs-add-remove")),
    Mutant("pairs: an item fewer", "queries/binary.py", "most * (most - 1) // 2",
           "(most - 1) * (most - 2) // 2", moves("pairs-add-remove")),
    Mutant("pairs: two records as one", "queries/binary.py", "(2 * alone, 2 * alone)",
           "(alone, alone)", moves("pairs-replace")),
    Mutant("items kept: one beyond the limit", "queries/binary.py", "min(number, limit)",
           "min(number, limit + 1)", moves("items-add-remove", "pairs-add-remove")),
]  # fmt: skip

_BINARY = "tests/queries/test_binary.py"

WIDE = [
    Mutant("wide: two records differ by one", "queries/binary.py", "(2 * d, 4 * d)",
           "(d, d)", moves("one-way balances-replace")),
    Mutant("wide: lengths of two records in one cell", "queries/statistics.py", "Bound((1, 1), (2, 2), 1)",
           "Bound((1, 1), (1, 1), 1)", moves("lengths-replace")),
    Mutant("wide: moments not squared", "queries/binary.py", "Bound((l1, longest**2 // 2)",
           "Bound((l1, longest)", moves("moments-add-remove")),
    Mutant("wide: two vectors as far apart as one is long", "queries/binary.py", "count**2 + 4 * longest",
           "count**2 + longest", moves("totals-replace")),
    Mutant("wide: the count of a class is free", "queries/binary.py",
           "l1, l2 = count + _l1(longest, numbers), count**2 + longest",
           "l1, l2 = _l1(longest, numbers), longest", moves("class sums-add-remove")),
    Mutant("wide: the squares are free", "queries/binary.py",
           "(l1 + squares, l2 + squares**2)", "(l1, l2)",
           moves("centre sums-add-remove")),
    Mutant("wide: axes are not clipped", "queries/binary.py",
           "self.clip.longest * self.axes_clip.longest", "self.clip.longest",
           moves("cross sums-add-remove")),
    Mutant("wide: a weight too many", "queries/binary.py", "w = w - over", "return w",
           (f"{_BINARY}::test_weights_are_the_largest_that_fit",)),
    Mutant("wide: the room is overdrawn", "mechanisms/shares.py",
           "math.isqrt(self.shares.room // max(1, moved))", "math.isqrt(self.shares.room // max(1, moved)) + 1",
           ("tests/mechanisms/test_wide.py::test_the_same_seed_gives_the_same_rows",)),
]  # fmt: skip

SCORES = [
    Mutant("signed range: replacing as adding", "privacy/scores.py", "apart=2 * moved", "apart=moved",
           moves("signed errors-replace")),
    Mutant("signed range: adding is free", "privacy/scores.py", "alone=moved,", "alone=0,",
           moves("signed errors-add-remove")),
    Mutant("absolute errors: one unit instead of two", "privacy/scores.py",
           "twice = 2 * self.repeats", "twice = self.repeats", moves("absolute errors-add-remove")),
    Mutant("signed errors: unit forgotten", "privacy/scores.py",
           "signed_range(neighbours, self.repeats * self.workload.unit)", "signed_range(neighbours, self.repeats)",
           moves("signed errors of grades-replace")),
    Mutant("signed errors: repeats forgotten", "privacy/scores.py",
           "signed_range(neighbours, self.repeats * self.workload.unit)",
           "signed_range(neighbours, self.workload.unit)", moves("signed errors-replace")),
    Mutant("signed errors: surplus dropped", "privacy/scores.py",
           "self.repeats * self.workload.unit * (counter.true_rows - self.public_rows)", "0",
           moves("signed errors-add-remove")),
    Mutant("signed errors: surplus not repeated", "privacy/scores.py",
           "self.repeats * self.workload.unit * (counter", "self.workload.unit * (counter",
           moves("signed errors-add-remove")),
    Mutant("whole tables: added records only make worse", "privacy/scores.py", "alone=2 * FINE", "alone=FINE",
           moves("whole tables-add-remove")),
    Mutant("whole tables: exchanged records only make worse", "privacy/scores.py", "apart=4 * FINE",
           "apart=2 * FINE", moves("whole tables-replace")),
    Mutant("selection: rounding of the weights is free", "privacy/scores.py", "width * rate.nats + SLACK, draws",
           "width * rate.nats, draws",
           statistics("a_selection_is_charged_its_range_before_anything_is_read[signed errors-replace]")),
    Mutant("selection: draws forgotten in the event", "privacy/scores.py", "+ SLACK, draws)", "+ SLACK, 1)",
           statistics("a_selection_is_charged_its_range_before_anything_is_read[signed errors-replace]")),
    Mutant("selection: a rate without room for rounding", "privacy/scores.py",
           "(price.selection_range() - SLACK)", "price.selection_range()",
           rounding("what_a_price_buys_costs_no_more_than_the_price")),
    Mutant("selection: negations without the surplus", "privacy/selection.py",
           "scored.scale, scored.surplus, scored.signed)", "scored.scale, 0, scored.signed)",
           statistics("the_kernel_weighs_what_the_reference_says")),
]  # fmt: skip

_SELECT = "a_selection_is_charged_its_range_before_anything_is_read[signed errors-replace]"
_MEASURE = "a_measurement_is_charged_its_sensitivity_before_anything_is_read[tables-replace]"

VERBS = [
    Mutant("select is free", "privacy/curator.py", "            self._ledger.charge(event)\n",
           "            pass\n", statistics(_SELECT)),
    Mutant(
        "select is charged after it drew",
        "privacy/curator.py",
        "        if event is not None:\n"
        "            self._ledger.charge(event)\n"
        "            self._ledger.begin()\n"
        "        return draw(score.of(self._counter), rate=rate, draws=draws, entropy=self._entropy)\n",
        "        drawn = draw(score.of(self._counter), rate=rate, draws=draws, entropy=self._entropy)\n"
        "        if event is not None:\n"
        "            self._ledger.charge(event)\n"
        "        return drawn\n",
        statistics(_SELECT),
    ),
    Mutant("measure is free", "privacy/curator.py",
           "        self._pay(noise.event(self.neighbours.sensitivity(what.bound())), within)\n", "",
           statistics(_MEASURE)),
    Mutant(
        "measure is charged after it read",
        "privacy/curator.py",
        "        self._pay(noise.event(self.neighbours.sensitivity(what.bound())), within)\n"
        "        self._ledger.begin()\n"
        "        truth = self._counter.true_counts(what)\n",
        "        truth = self._counter.true_counts(what)\n"
        "        self._pay(noise.event(self.neighbours.sensitivity(what.bound())), within)\n"
        "        self._ledger.begin()\n",
        statistics(_MEASURE),
    ),
    Mutant("allow is free", "privacy/curator.py", "        self._ledger.charge(*events)\n", "",
           allowance("allowances_are_paid_for_all_at_once_or_not_at_all")),
    Mutant("an allowance is never used up", "privacy/ledger.py", "self._used.acquire(blocking=False)", "True",
           allowance("an_allowance_is_used_once")),
    Mutant("an allowance serves anybody", "privacy/ledger.py", "user is self._owner", "True",
           allowance("an_allowance_serves_whoever_paid_for_it")),
    Mutant("an allowance of any sensitivity", "privacy/ledger.py",
           "event.moved <= self._event.moved", "True",
           allowance("a_larger_sensitivity_is_refused")),
    Mutant("an allowance of any variance", "privacy/ledger.py", "event.same_noise(self._event)", "True",
           allowance("another_variance_is_refused_even_at_the_same_ratio")),
    Mutant("measure tells the truth", "privacy/curator.py", "truth + noise.draw(len(truth), self._entropy)",
           "truth", statistics("noise_is_fresh_and_around_the_truth")),
    Mutant(
        "exceeds asks its slot after it read",
        "privacy/curator.py",
        "        drawn = slot.begin(test, self._ledger, noise.event(moved))\n"
        "        self._ledger.begin()\n"
        "        numbers = self._counter.true_counts(questions)\n",
        "        numbers = self._counter.true_counts(questions)\n"
        "        drawn = slot.begin(test, self._ledger, noise.event(moved))\n"
        "        self._ledger.begin()\n",
        whole_tables("no_test_after_the_fire"),
    ),
    Mutant("exceeds hears questions that move too far", "privacy/curator.py",
           "if self.neighbours.each(bound) > test.sensitivity:",
           "if self.neighbours.each(bound) > 2 * test.sensitivity:",
           exceeds("a_question_that_moves_too_far_is_refused")),
    Mutant("exceeds tells the truth", "privacy/curator.py",
           "numbers + noise.draw(len(numbers), self._entropy)", "numbers", exceeds("the_measured_number_is_fresh")),
    Mutant("a slot's measurement is free", "privacy/thresholds.py", "ledger.charge(fire, follow_up)",
           "ledger.charge(fire)", exceeds("a_fire_leaves_itself_and_its_measurement")),
    Mutant("a slot's fire is free", "privacy/thresholds.py", "ledger.charge(fire, follow_up)",
           "ledger.charge(follow_up)", exceeds("a_fire_leaves_itself_and_its_measurement")),
    Mutant("a slot measures with noise of another kind", "privacy/thresholds.py",
           "type(follow_up) is type(self._follow_up) and ", "",
           exceeds("an_epoch_that_was_paid_by_pure_epsilon_is_followed_by_laplace_noise")),
    Mutant("a slot for fixed sizes", "privacy/thresholds.py", "require(not fixed, ", "require(True, ",
           exceeds("accountings_of_fixed_sizes_pay_for_no_slot")),
    Mutant("hazard: priced for one record", "privacy/thresholds.py",
           "Fire(self.epsilon, self.sensitivity, self.order)", "Fire(self.epsilon, 1, self.order)",
           exceeds("a_law_for_two_records_hears_the_balance_and_charges_for_two")),
    Mutant("sparse vector: threshold noise halved", "privacy/thresholds.py",
           "return 2 * self.sensitivity / self.epsilon", "return self.sensitivity / self.epsilon",
           exceeds("the_scales_of_an_epoch")),
    Mutant("sparse vector: test noise halved", "privacy/thresholds.py",
           "return 4 * self.sensitivity / self.epsilon", "return 2 * self.sensitivity / self.epsilon",
           exceeds("the_scales_of_an_epoch")),
    Mutant("an epoch never closes", "privacy/thresholds.py", "        self._closed = True\n", "        pass\n",
           exceeds("a_new_epoch_opens_after_an_above")),
]  # fmt: skip

_BY_HAND = rounding("prices_of_events_by_hand")
_LAST_UNIT = rounding("a_ledger_pays_to_the_last_unit_and_not_one_more")
_FITS = ("tests/releases/test_check.py::test_a_check_and_its_plan_fit_the_budget",)
_CLOSED_FORMS = rounding("the_closed_forms_are_sums_over_the_scores_of_the_rounds")

PRICES = [
    Mutant("selection: draws forgotten in rho", "privacy/events.py", "self.draws * self.range**2 / 8",
           "self.range**2 / 8", _BY_HAND),
    Mutant("selection: rho halved", "privacy/events.py", "self.draws * self.range**2 / 8",
           "self.draws * self.range**2 / 16", _BY_HAND),
    Mutant("selection: draws forgotten in pure", "privacy/events.py", "return self.draws * self.range\n",
           "return self.range\n", _BY_HAND),
    Mutant("gaussian: the two of 2σ² dropped", "privacy/events.py",
           "self.sensitivity_squared / (2 * self.variance)", "self.sensitivity_squared / self.variance", _BY_HAND),
    Mutant("gaussian: rho halved", "privacy/events.py", "self.sensitivity_squared / (2 * self.variance)",
           "self.sensitivity_squared / (4 * self.variance)", _BY_HAND),
    Mutant("pure: rho halved", "privacy/events.py", "self.pure**2 / 2", "self.pure**2 / 4", _BY_HAND),
    Mutant("laplace: scale squared", "privacy/events.py", "return self.sensitivity / self.scale",
           "return self.sensitivity / self.scale**2", _BY_HAND),
    Mutant("rényi: order forgotten", "privacy/events.py", "return order * self.rho", "return self.rho", _BY_HAND),
    Mutant("a cost rounded down", "privacy/conversion.py", "return math.ceil(cost * UNITS)",
           "return math.floor(cost * UNITS)", rounding("a_cost_is_rounded_up_to_units")),
    Mutant("the limit of rho rounded up", "privacy/conversion.py",
           "largest_units(lambda cost: epsilon_of(cost, delta=delta) <= epsilon)",
           "largest_units(lambda cost: epsilon_of(cost, delta=delta) <= epsilon) + 1",
           rounding("the_limits_are_the_last_units_that_keep_the_promise")),
    Mutant("the cap rounded up", "privacy/conversion.py",
           "largest_units(lambda cost: renyi_epsilon(cost, order=order, delta=delta) <= epsilon)",
           "largest_units(lambda cost: renyi_epsilon(cost, order=order, delta=delta) <= epsilon) + 1",
           rounding("the_limits_are_the_last_units_that_keep_the_promise")),
    Mutant("a fire rounded down", "privacy/conversion.py", "largest_units(too_cheap) + 2",
           "largest_units(too_cheap)", rounding("a_fire_costs_a_unit_more_than_its_formula_rounded_up")),
    Mutant("a fire without the unit for its table", "privacy/conversion.py", "largest_units(too_cheap) + 2",
           "largest_units(too_cheap) + 1", rounding("a_fire_costs_a_unit_more_than_its_formula_rounded_up")),
    Mutant("a double below the cost", "privacy/conversion.py",
           "nearest if nearest >= value else math.nextafter(nearest, math.inf)", "nearest",
           rounding("a_cost_that_no_double_holds_is_converted_from_the_next_one_above")),
    Mutant("a share in whole units rounded up", "privacy/ledger.py", "cost * UNITS // 1 - 1",
           "-(-cost * UNITS // 1)", rounding("equal_prices_together_cost_no_more_than_their_share")),
    Mutant("a share that is the whole", "privacy/ledger.py", "decimal(budget.epsilon) * share / events",
           "decimal(budget.epsilon) / events", rounding("equal_prices_together_cost_no_more_than_their_share")),
    Mutant("a root rounded up", "privacy/ledger.py", "(1 - Fraction(1, 10**10))", "(1 + Fraction(1, 10**10))",
           rounding("what_a_price_buys_costs_no_more_than_the_price")),
    Mutant("half the noise for a price", "privacy/ledger.py", "sensitivity.l2_squared / (2 * self.rho)",
           "sensitivity.l2_squared / (4 * self.rho)", rounding("what_a_price_buys_costs_no_more_than_the_price")),
    Mutant("Laplace noise for the wrong norm", "privacy/ledger.py", "Laplace(sensitivity.l1 / self.pure)",
           "Laplace(sensitivity.l2_squared / self.pure)",
           rounding("what_a_price_buys_costs_no_more_than_the_price")),
    Mutant("Laplace noise charged for the wrong norm", "privacy/noise.py",
           "LaplaceMeasurement(Fraction(sensitivity.l1)", "LaplaceMeasurement(Fraction(sensitivity.l2_squared)",
           rounding("what_a_price_buys_costs_no_more_than_the_price")),
    Mutant("Gaussian noise charged for the wrong norm", "privacy/noise.py",
           "GaussianMeasurement(Fraction(sensitivity.l2_squared)", "GaussianMeasurement(Fraction(sensitivity.l1)",
           rounding("what_a_price_buys_costs_no_more_than_the_price")),
    Mutant("a rate rounded up", "privacy/selection.py", "Rate(math.floor(bits * (1 << shift)), shift)",
           "Rate(math.ceil(bits * (1 << shift)), shift)", rounding("a_rate_never_exceeds_what_was_asked_for")),
    Mutant("ln 2 rounded down", "privacy/selection.py", "Fraction(6931471805599454, 10**16)",
           "Fraction(6931471805599453, 10**16)", rounding("ln_2_is_bounded_from_above")),
]  # fmt: skip

LEDGERS = [
    Mutant("ledger: nothing is refused", "privacy/ledger.py", "if not after.affordable:", "if False:", _LAST_UNIT),
    Mutant("ledger: a unit of rho too many", "privacy/accounting.py", "return self.total <= self.limit",
           "return self.total - 1 <= self.limit", _LAST_UNIT),
    Mutant("ledger: the last unit of rho is lost", "privacy/accounting.py", "return self.total <= self.limit",
           "return self.total < self.limit", _LAST_UNIT),
    Mutant("ledger: a unit of epsilon too many", "privacy/accounting.py", "return self.total <= decimal(",
           "return self.total - 1 <= decimal(", _LAST_UNIT),
    Mutant("ledger: the last unit of epsilon is lost", "privacy/accounting.py", "return self.total <= decimal(",
           "return self.total < decimal(", _LAST_UNIT),
    Mutant("ledger: a unit of the cap too many", "privacy/accounting.py", "return self.total <= cap",
           "return self.total - 1 <= cap", _LAST_UNIT),
    Mutant("ledger: the last unit of the cap is lost", "privacy/accounting.py", "return self.total <= cap",
           "return self.total < cap", _LAST_UNIT),
    Mutant("ledger: the theorem's last epsilon is lost", "privacy/accounting.py",
           "return self.epsilon <= self.budget.epsilon", "return self.epsilon < self.budget.epsilon",
           rounding("advanced_composition_counts_every_draw")),
    Mutant("ledger: the theorem counts one draw each", "privacy/accounting.py", "self.draws + draws",
           "self.draws + 1", rounding("advanced_composition_counts_every_draw")),
    Mutant("filter: real noise instead of discrete", "privacy/accounting.py", "event.mu_squared(ROUNDING)",
           "event.mu_squared(Fraction(0))", gaussian("sizes_at_a_fixed_ratio_are_not_all_the_same_to_a_ledger")),
    Mutant("filter: a unit too many", "privacy/accounting.py", "and self.total <= self.limit",
           "and self.total - 1 <= self.limit", gaussian("the_limit_is_the_last_unit_that_keeps_the_promise")),
    Mutant("filter: any number of cells", "privacy/accounting.py", "self.cells <= MOST_CELLS", "True",
           gaussian("the_constants_of_the_filter")),
    Mutant("filter: noise narrower than its rounding", "privacy/accounting.py", "not self.too_narrow", "True",
           gaussian("sizes_at_a_fixed_ratio_are_not_all_the_same_to_a_ledger")),
    Mutant("filter: several records as one", "privacy/accounting.py",
           "records**2 * mu_squared", "records * mu_squared",
           gaussian("a_filter_covers_an_adversary_who_chooses_sizes")),
    Mutant("ledger: sizes that follow a draw as if fixed", "privacy/ledger.py",
           "return total.filtered if self._begun and isinstance(total, GaussianSum) else total", "return total",
           gaussian("once_something_was_drawn_a_charge_is_held_against_the_filter")),
    Mutant("selection: as good as Gaussian noise of its rho", "privacy/conversion.py", "PI = Fraction(355, 113)",
           "PI = Fraction(2)", gaussian("bounded_range_is_gaussian_differential_privacy")),
    Mutant("what was paid on one path is promised on all", "privacy/accounting.py",
           "            return Spent(self.limit, self.budget.epsilon, self.budget.delta)\n",
           "            pass\n", gaussian("adaptive_ledgers_of_other_theorems_promise_their_limits")),
    Mutant("check: a sum of misfits for the price of one", "queries/derived.py",
           "return self.times * FINE * (1 if self.largest else self.number)", "return self.times * FINE",
           moves("summed misfits of three tables-add-remove")),
    Mutant("check: exchanging as adding", "queries/derived.py",
           "Bound((once, squared), (2 * once, 4 * squared))", "Bound((once, squared), (once, squared))",
           moves("summed misfits-replace")),
    Mutant("check: misfits side by side as one", "queries/derived.py",
           "once, squared = sum(reaches), sum(reach**2 for reach in reaches)",
           "once, squared = max(reaches), max(reach**2 for reach in reaches)",
           moves("summed misfits-add-remove")),
    Mutant("products: exchanging as adding", "queries/derived.py",
           "(2 * differ * one, 4 * differ * one**2)", "(pairs * one, pairs * one**2)",
           moves("products of three scores-replace")),
    Mutant("products: of scores of any size", "queries/derived.py",
           "any(np.abs(each).max(initial=0) > self.HIGHEST for each in self.scores.values())", "False",
           ("tests/privacy/test_statistics.py::test_scores_beyond_their_bound_are_refused",)),
    Mutant("check: rows of a unit count in full", "queries/views.py",
           "yield self._records(units, members, owner, place), self.weights[sizes[owner]]",
           "yield self._records(units, members, owner, place), np.full(len(owner), WHOLE)",
           moves("summed misfits of units, rows and pairs-add-remove")),
    Mutant("check: what rows weigh is taken for records", "queries/derived.py",
           "(errors.max() if self.largest else errors.sum()) // self.whole",
           "(errors.max() if self.largest else errors.sum())",
           moves("summed misfits of units, rows and pairs-add-remove")),
    Mutant("check: weights of any size", "queries/derived.py", "np.abs(self.weights).max(initial=0) > WEIGHT",
           "False", ("tests/releases/test_check.py::test_a_weight_is_at_most_one",)),
    Mutant("check: what is set aside is not taken off the budget", "releases/check.py",
           "reserved = Reserved(kept, numbers, share, replace(task, budget=kept.left))",
           "reserved = Reserved(kept, numbers, share, task)", _FITS),
    Mutant("check: noise for a share that is twice as large", "privacy/ledger.py",
           "noise, times = _fine(moved, price * (1 - MARGIN))", "noise, times = _fine(moved, 2 * price)", _FITS),
    Mutant("check: priced for one number only", "releases/check.py",
           "moved = task.budget.neighbours.sensitivity(misfit_bound([REACH] * numbers))",
           "moved = task.budget.neighbours.sensitivity(misfit_bound([REACH]))", _FITS),
    Mutant("check: paid for when it is measured, and not before", "releases/make.py",
           "allowed = () if isinstance(reserved, Unchecked) else curator.allow(reserved.event)",
           "allowed = () if isinstance(reserved, Unchecked) else (None,)",
           ("tests/releases/test_check.py::test_the_check_is_paid_for_before_anything_is_drawn",)),
    Mutant("the number of records for half its price", "privacy/ledger.py", "rest = whole - units(price)",
           "rest = whole - units(price) // 2",
           ("tests/releases/test_number_of_records.py::test_gaussian_budget_splits_into_the_number_of_records_and_the_rest",)),
    Mutant("ledger: only the first of several events is paid", "privacy/ledger.py",
           "self._interpreter = self._paid(*events)", "self._interpreter = self._paid(events[0])",
           rounding("several_events_are_paid_all_or_none")),
    Mutant("DualQuery: replacing as adding", "mechanisms/dual_query/parameters.py",
           "signed_range(neighbours, 1) * decimal(learning.learning_rate)", "decimal(learning.learning_rate)",
           _CLOSED_FORMS),
    Mutant("DualQuery: rho halved", "mechanisms/dual_query/parameters.py",
           "slack**2 * (rounds - 1)) / 8", "slack**2 * (rounds - 1)) / 16",
           _CLOSED_FORMS),
    Mutant("DualQuery: a round fewer", "mechanisms/dual_query/parameters.py", "return rounds * (rounds - 1) // 2",
           "return (rounds - 1) * (rounds - 2) // 2", _CLOSED_FORMS),
    Mutant("DualQuery: samples forgotten", "mechanisms/dual_query/parameters.py",
           "return learning.samples * (step * _first_powers(rounds)", "return (step * _first_powers(rounds)",
           _CLOSED_FORMS),
    Mutant("DualQuery: a plan without the slack", "mechanisms/dual_query/parameters.py",
           " + slack * (rounds - 1))", ")", rounding("the_ledger_pays_for_the_largest_number_of_rounds")),
]  # fmt: skip

_FUTURE = "from __future__ import annotations\n"
_CURATOR = _FUTURE + "\nfrom dualquery.privacy.curator import Curator  # noqa: F401\n"

WALLS = [
    Mutant("a data player meets the curator", "game/__init__.py", _FUTURE, _CURATOR, (IMPORTS,)),
    Mutant("a distribution meets the curator", "beliefs/multiplicative_weights.py", _FUTURE, _CURATOR,
           (IMPORTS,)),
]  # fmt: skip

SLOTS = [
    Mutant("a table tells the truth", "privacy/curator.py", "numbers + noise.draw(len(numbers), self._entropy)",
           "numbers", whole_tables("a_fire_says_where_and_gives_all_cells_with_fresh_noise")),
    Mutant("a table may move too far", "privacy/curator.py",
           "if self.neighbours.each(bound) > test.sensitivity:",
           "if self.neighbours.each(bound) > 2 * test.sensitivity:",
           whole_tables("a_question_that_moves_too_far_is_refused_before_it_is_read")),
    Mutant("counts: how far each moves where records are replaced", "privacy/budget.py",
           "self.largest(alone=bound.each, apart=bound.each)",
           "self.largest(alone=bound.each, apart=0)", whole_tables("each_is_how_far_one_count_moves")),
    Mutant("a slot serves after its fire", "privacy/thresholds.py", "require(not self._closed, ", "require(True, ",
           whole_tables("no_test_after_the_fire")),
    Mutant("a slot serves two tests at once", "privacy/thresholds.py", "require(self._busy.acquire(blocking=False), ",
           "require(self._busy.acquire(blocking=False) or True, ", whole_tables("one_slot_one_test_in_flight")),
    Mutant("a slot pays for any measurement", "privacy/thresholds.py", "follow_up.rho <= self._follow_up.rho",
           "follow_up.rho <= 2 * self._follow_up.rho",
           whole_tables("a_slot_pays_for_nothing_dearer_and_nothing_else")),
    Mutant("a slot pays for any test", "privacy/thresholds.py", "test.event == self._fire", "True",
           whole_tables("a_slot_pays_for_nothing_dearer_and_nothing_else")),
    Mutant("an earlier release of several records", "privacy/events.py", "EarlierRelease(records**2 * self.cost)",
           "EarlierRelease(records * self.cost)", whole_tables("an_earlier_release_costs_its_rho")),
    Mutant("a purchase is counted before it is written down", "interactive/online.py",
           "self._sync(self._append(charged))", "self._append(charged)",
           journals("nothing_is_read_before_the_payment_is_durable_nor_told_before_the_outcome_is")),
    Mutant("an unclean stop burns nothing", "interactive/opening.py",
           "state.open_slot is not None and (lost or state.account.serving)", "False",
           journals("a_clean_stop_burns_nothing_and_an_unclean_one_a_single_fire")),
    Mutant("an epoch goes on with another noise of its threshold", "interactive/opening.py",
           "state.account.tested and state.rule.test_name == PROMISED", "False",
           ("tests/interactive/test_online.py::"
            "test_an_epoch_that_was_tested_ends_with_the_process_and_another_is_paid",)),
    Mutant("an epoch draws the noise of its threshold for every test", "privacy/thresholds.py",
           "if self._noise is None:", "if True:", whole_tables("a_slot_draws_the_law_of_an_epoch")),
]  # fmt: skip


def growing(test: str) -> tuple[str, ...]:
    return (f"tests/ledger/test_periods.py::test_{test}",)


def running(test: str) -> tuple[str, ...]:
    return (f"tests/releases/test_running.py::test_{test}",)


PERIODS = [
    Mutant("periods: all records are read", "table/encoding.py",
           "        table = table.filter(pa.array(kept(stamps, schema.within, columns)))\n", "",
           ("tests/table/test_periods.py::test_only_the_records_of_the_period_are_read",)),
    Mutant("periods: records of another calendar are charged by this one", "ledger/book.py",
           "if span.calendar != self.periods:", "if False:",
           growing("the_calendar_of_a_book_is_that_of_its_releases")),
    Mutant("periods: what covers all of them is forgotten", "ledger/periods.py",
           "return self.whole + (", "return (", growing("the_most_is_that_of_the_largest_periods_by_definition")),
    Mutant("periods: a person pays for one of them", "ledger/periods.py",
           "sum(heapq.nlargest(self.periods, largest))", "max(largest, default=0)",
           growing("a_person_in_so_many_periods_has_the_cap")),
    Mutant("periods: a charge replaces the one before it", "ledger/periods.py",
           "self.cells.update(cost.parts)", "self.cells = Counter(cost.parts)",
           growing("what_covers_a_period_adds_up_there")),
    Mutant("periods: nothing is charged", "releases/series.py", '"ledger": self._ledger,',
           '"ledger": None,',
           ("tests/releases/test_series.py::test_a_year_of_quarters",)),
    Mutant("periods: a person in a sum of them pays for the dearest", "releases/sums.py",
           "elif len(releases) > 1 and ", "elif len(releases) > 2 and ",
           ("tests/releases/test_series.py::test_a_person_pays_for_each_of_the_periods_that_are_added_up",)),
    Mutant("periods: one is summed up twice", "releases/sums.py", "raise DualQueryError(\"two of the",
           "str(\"two of the",
           ("tests/releases/test_series.py::test_periods_of_a_series_come_one_by_one_and_count_once",)),
    Mutant("running totals: parts as whole records", "privacy/budget.py", "return PARTS**2 * alone",
           "return PARTS * alone", running("a_record_moves_each_step_as_it_is_charged")),
    Mutant("running totals: an earlier record pays a fourth power", "table/persons.py",
           "-(-units * w**2 // self.whole**2)", "-(-units * w**4 // self.whole**4)",
           running("a_record_moves_each_step_as_it_is_charged")),
    Mutant("running totals: the budget for each step", "releases/series.py",
           "units = whole * PARTS**2 // sum(w * w for w in weights)", "units = whole",
           running("all_steps_together_cost_no_record_more_than_the_budget")),
    Mutant("running totals: between neighbours who know no parts", "releases/make.py",
           "    refuse_parts(schema, neighbours)\n", "",
           running("a_running_span_is_released_between_neighbours_that_know_its_parts")),
]  # fmt: skip

PLACES = [
    Mutant("means: exchanged in one bin as in two", "queries/statistics.py", "4 * number * HALF**2",
           "2 * number * HALF**2", moves("sums inside bins-replace")),
    Mutant("means: one column pays for all", "queries/statistics.py", "(number * HALF, number * HALF**2)",
           "(HALF, HALF**2)", moves("sums inside bins-add-remove")),
    Mutant("means: places beyond the bin", "table/records.py", "int(each.max()) > MOST", "False",
           ("tests/table/test_places.py::test_places_that_would_move_farther_than_is_charged_are_refused",)),
]  # fmt: skip

PRIORS = [
    Mutant("a prior may be the private table", "releases/public.py", "        refuse_same(each, table)\n", "",
           ("tests/releases/test_priors.py::test_refusals",)),
    Mutant("a prior may be a release that promises nothing", "releases/public.py",
           "if not release.certificate.private:", "if False:",
           ("tests/releases/test_priors.py::test_a_release_is_a_prior_by_itself",)),
    Mutant("a verdict outlives the rows that it was on", "releases/refit.py",
           '("seal", "signature", "check", "accepted")', '("seal", "signature")',
           ("tests/releases/test_priors.py::test_a_refit_leaves_the_verdict_on_rows_that_are_gone",)),
    Mutant("a release passes that is as wrong as its limit", "releases/acceptance.py",
           "if error + noise.size_within(2 * LEVEL - 1) * one <= limit:", "if error <= limit:",
           ("tests/releases/test_check.py::test_false_passes_are_at_most_five_in_a_hundred_and_half_the_limit_passes",)),
]  # fmt: skip

FREQUENT_TEXTS = [
    Mutant("a text of one table is shown as easily as half of one", "privacy/curator.py",
           "    return max(\n        times * held", "    return min(\n        times * held",
           frequent("what_only_one_table_holds_is_shown_with_the_probability_charged")),
    Mutant("a threshold forgets how often a record counts", "privacy/curator.py", "times * held +", "held +",
           frequent("what_only_one_table_holds_is_shown_with_the_probability_charged")),
    Mutant("a threshold forgets that all records of a person may be one text", "privacy/curator.py",
           "((records, failure),", "((1, failure),",
           frequent("what_only_one_table_holds_is_shown_with_the_probability_charged")),
    Mutant("frequent texts are free", "privacy/curator.py",
           "        self._ledger.charge(noise.event(self.neighbours.sensitivity(what.bound())))\n", "",
           frequent("the_measurement_is_charged_as_a_histogram")),
    Mutant("a person is one record to a threshold", "privacy/curator.py",
           "moving = self.neighbours.records_per_person or 1", "moving = 1",
           frequent("the_threshold_is_that_of_the_relation")),
    Mutant("risks do not add up", "privacy/ledger.py", "            self._risked += failure\n",
           "            self._risked = failure\n", frequent("risks_add_up")),
    Mutant("texts that do not occur get noise", "privacy/curator.py", "occur = np.flatnonzero(truth)",
           "occur = np.arange(len(truth))", frequent("texts_that_do_not_occur_get_no_noise")),
    Mutant("another record brings a text and takes none", "queries/statistics.py", "Bound((1, 1), (1, 1), 1)",
           "Bound((1, 1), (0, 0), 1)", moves("distinct texts-replace")),
    Mutant("one record more is no text more", "queries/statistics.py", "Bound((1, 1), (1, 1), 1)",
           "Bound((0, 0), (1, 1), 1)", moves("distinct texts-add-remove")),
    Mutant("a book keeps nothing aside for failures", "ledger/book.py",
           "return self._cap_without(before) - self._cap_without(before + failure)", "return 0",
           ("tests/ledger/test_book.py::test_failures_are_reserved_for_in_what_may_be_spent",)),
    Mutant("a book forgets the failures before", "ledger/books.py",
           "units += before.book.reserve(before.failures, failure)",
           "units += before.book.reserve(Fraction(0), failure)",
           ("tests/ledger/test_book.py::test_failures_are_reserved_for_in_what_may_be_spent",)),
    Mutant("a book adds up rows and persons", "ledger/books.py", "            _refuse_other_unit(before, unit)\n", "",
           ("tests/ledger/test_book.py::test_one_unit_for_the_life_of_a_book",)),
    Mutant("a draft of persons is charged as one of rows", "releases/private_draft.py",
           'whom = protected(None if moving is None else unit)', 'whom = "row"',
           ("tests/releases/test_private_draft.py::test_the_book_knows_whom_a_draft_protects",)),
    Mutant("a risk is taken before the book is charged", "ledger/book.py",
           "    def risk(self, failure: Fraction) -> None:\n        self.prepay()\n",
           "    def risk(self, failure: Fraction) -> None:\n",
           ("tests/ledger/test_book.py::test_a_prepaid_ledger_reserves_for_what_it_may_risk",)),
    Mutant("measurements of a draft have all of delta", "releases/private_draft.py",
           "kept = float(decimal(given.delta) - failure)\n"
           "        while decimal(kept) + failure > decimal(given.delta):\n"
           "            kept = math.nextafter(kept, 0.0)\n", "kept = given.delta\n",
           drafts("what_is_charged_is_what_was_promised")),
    Mutant("a draft is priced as one column", "releases/private_draft.py",
           "sum([one] * (columns - 1), one)", "one", drafts("what_is_charged_is_what_was_promised")),
    Mutant("a draft looks at the number of records where it is private", "releases/private_draft.py",
           "rows = read.num_rows if relation.size_is_public else", "rows = read.num_rows if True else",
           drafts("the_plan_looks_at_no_cell")),
    Mutant("all rows of a person are read", "releases/private_draft.py",
           "unit=unit, records_per_person=moving", "unit=unit, records_per_person=None",
           drafts("a_person_has_no_more_records_than_allowed")),
]  # fmt: skip

DRAFTS = [
    Mutant("drafts: a text of one record is shown as often as any", "privacy/curator.py",
           "times * held + math.ceil(", "math.ceil(",
           ("tests/privacy/test_frequent.py::test_what_only_one_table_holds_is_shown_with_the_probability_charged",)),
    Mutant("drafts: one text of a person for all of theirs", "privacy/curator.py", "(1, failure / records)",
           "(1, failure)",
           ("tests/privacy/test_frequent.py::test_what_only_one_table_holds_is_shown_with_the_probability_charged",)),
    Mutant("drafts: the failure is not accounted for", "privacy/curator.py",
           "        self._ledger.risk(failure)\n", "",
           ("tests/privacy/test_frequent.py::test_nothing_is_counted_that_is_not_paid_for",)),
    Mutant("drafts: what lies at the threshold is shown", "privacy/curator.py", "if y > least}", "if y >= least}",
           ("tests/privacy/test_frequent.py::test_a_text_that_lies_at_the_threshold_is_not_shown",)),
    Mutant("drafts: a seeded one is public", "releases/private_draft.py", "draft=not entropy.private", "draft=False",
           ("tests/releases/test_private_draft.py::test_a_draft_with_a_seed_is_not_public",)),
    Mutant("drafts: a book forgets what may fail", "ledger/books.py",
           "            units += before.book.reserve(before.failures, failure)\n", "",
           ("tests/ledger/test_book.py::test_failures_are_reserved_for_in_what_may_be_spent",)),
    Mutant("totals of this very table under a promise of whole records", "releases/public.py",
           "if not alike or isinstance(budget.neighbours, ReplaceWithin):", "if True:",
           ("tests/releases/test_totals.py::test_totals_that_may_be_of_this_very_table_are_doubted",)),
]  # fmt: skip

MUTANTS = [
    *UNITS,
    *FREQUENT_TEXTS,
    *RELATIONS, *STATISTIC_PRICES, *INTERACTIONS, *ITEMS, *WIDE, *SCORES, *VERBS, *PRICES, *LEDGERS, *WALLS, *SLOTS,
    *PERIODS, *PLACES, *PRIORS, *DRAFTS,
]  # fmt: skip


# ── The copies ──────────────────────────────────────────────────────────────────────────────────────────────────


class Copy:
    """A copy of source and tests, in which one fault at a time stands.

    Files keep their times, and what numba compiled comes along, so that only the kernels of a changed file are
    compiled again. Python's own compiled files stay behind: they tell a file by its size and its second.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for part in ("src", "tests"):
            shutil.copytree(ROOT / part, folder / part, ignore=shutil.ignore_patterns("*.pyc", ".*"))
        shutil.copy2(ROOT / "pyproject.toml", folder)

    @contextmanager
    def with_fault(self, mutant: Mutant) -> Iterator[None]:
        path = self.folder / mutant.path
        original, times = path.read_text(encoding="utf-8"), path.stat()
        assert original.count(mutant.old) == 1
        path.write_text(original.replace(mutant.old, mutant.new), encoding="utf-8")
        try:
            yield
        finally:
            path.write_text(original, encoding="utf-8")
            os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        environment = {
            name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")
        } | {
            "PYTHONPATH": str(self.folder / "src"),
            "PYTHONDONTWRITEBYTECODE": "1",
            "NUMBA_NUM_THREADS": "1",
        }
        return subprocess.run(
            [sys.executable, *arguments],
            cwd=self.folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=600,
            check=False,
        )

    def tested(self, *tests: str) -> subprocess.CompletedProcess[str]:
        return self.run("-m", "pytest", "-x", "-p", "no:cacheprovider", "-p", "no:xdist", *tests)


Verdict: TypeAlias = subprocess.CompletedProcess[str]


class Court:
    """Two copies, and whoever is to be tried in one of them."""

    def __init__(self, folder: Path) -> None:
        self._free: SimpleQueue[Copy] = SimpleQueue()
        for number in range(AT_ONCE):
            self._free.put(Copy(folder / str(number)))
        self._pool = ThreadPoolExecutor(AT_ONCE)
        self._verdicts: dict[str, Future[Verdict]] = {}
        self.innocent: list[Future[Verdict]] = []

    def summon(self, mutant: Mutant) -> Future[Verdict]:
        """Asked twice, tried once."""
        if mutant.name not in self._verdicts:
            self._verdicts[mutant.name] = self._pool.submit(
                self._in_a_copy, lambda copy: self._trial(copy, mutant)
            )
        return self._verdicts[mutant.name]

    def acquit(self, *tests: str) -> list[Future[Verdict]]:
        """The source as it is: where its modules come from, and what its tests say."""
        return [
            self._pool.submit(self._in_a_copy, work)
            for work in (
                lambda copy: copy.run("-c", "import dualquery.errors as e; print(e.__file__)"),
                lambda copy: copy.tested(*tests),
            )
        ]

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)

    def _in_a_copy(self, work: Callable[[Copy], Verdict]) -> Verdict:
        copy = self._free.get()
        try:
            return work(copy)
        finally:
            self._free.put(copy)

    @staticmethod
    def _trial(copy: Copy, mutant: Mutant) -> Verdict:
        with copy.with_fault(mutant):
            return copy.tested(*mutant.tests)


@pytest.fixture(scope="module")
def court(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Court]:
    """The source as it is first, then all mutants that were asked for, two at a time."""
    court = Court(tmp_path_factory.mktemp("mutants"))
    court.innocent = court.acquit(*dict.fromkeys(test for mutant in MUTANTS for test in mutant.tests))
    for item in request.session.items:
        if (
            item.get_closest_marker("mutants")
            and isinstance(item, pytest.Function)
            and hasattr(item, "callspec")
        ):
            court.summon(item.callspec.params["mutant"])
    yield court
    court.close()


def rotten(mutant: Mutant) -> Iterator[str]:
    """What of a fault is no longer so."""
    source = (ROOT / mutant.path).read_text(encoding="utf-8")
    if source.count(mutant.old) != 1:
        yield f"{mutant}: the text stands {source.count(mutant.old)} times in {mutant.path}"
    ast.parse(source.replace(mutant.old, mutant.new))
    for test in mutant.tests:
        file, _, function = test.partition("::")
        if f"def {function.partition('[')[0]}(" not in (ROOT / file).read_text(encoding="utf-8") and function:
            yield f"{mutant}: there is no {test}"


def test_the_list_of_faults_is_up_to_date() -> None:
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)
    assert [sentence for mutant in MUTANTS for sentence in rotten(mutant)] == []


@pytest.mark.mutants
def test_without_a_fault_the_tests_pass(court: Court) -> None:
    place, passed = (verdict.result() for verdict in court.innocent)
    assert "mutants" in place.stdout, "the copy is not what was tested"
    assert passed.returncode == 0, passed.stdout[-3000:]


@pytest.mark.mutants
@pytest.mark.parametrize("mutant", MUTANTS, ids=str)
def test_a_fault_is_found(court: Court, mutant: Mutant) -> None:
    """A test fails; that none could be collected is no failure of this kind."""
    verdict = court.summon(mutant).result()
    assert verdict.returncode == pytest.ExitCode.TESTS_FAILED, verdict.stdout[-3000:]
