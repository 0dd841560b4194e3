"""A declared number of records that no table has: a sentence before anything is charged, or a release."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import dualquery
from dualquery import Accounting, Budget, DualQueryError, Neighbours, Records
from dualquery.mechanisms.artefact import FEWEST_ROWS, MOST_ROWS
from dualquery.mechanisms.mechanism import Task, synthetic_rows
from dualquery.mechanisms.wishes import MECHANISMS
from dualquery.privacy.accounting import GaussianSum
from dualquery.privacy.ledger import Ledger
from dualquery.privacy.scores import MOST_PUBLIC_ROWS
from dualquery.queries.families import from_spec

OF_RECORDS = [name for name, each in MECHANISMS.items() if each.plays is None or "records" in each.plays]

WIDE = ["independent-gaussian", "mwem", "dualquery"]


@pytest.mark.parametrize("mechanism", sorted(OF_RECORDS))
@pytest.mark.parametrize("rows", [MOST_PUBLIC_ROWS + 1, 10**16, 10**19, 10**300])
def test_too_many_declared_records_are_refused_before_a_charge(
    records: Records,
    budget: Callable[..., Budget],
    monkeypatch: pytest.MonkeyPatch,
    mechanism: str,
    rows: int,
) -> None:
    charged: list[object] = []
    monkeypatch.setattr(Ledger, "charge", lambda self, *events: charged.extend(events))
    with pytest.raises(DualQueryError, match="--records"):
        dualquery.release(
            records,
            budget=budget(neighbours=Neighbours.ADD_REMOVE, accounting=Accounting.ZCDP),
            workload="marginals:2",
            mechanism=mechanism,
            public_rows=rows,
            seed=1,
        )
    assert charged == []


@pytest.mark.parametrize("mechanism", WIDE)
@pytest.mark.parametrize("rows", [1, 3, 10**12, MOST_PUBLIC_ROWS])
def test_any_other_number_gives_a_release_or_a_sentence(
    records: Records, budget: Callable[..., Budget], mechanism: str, rows: int
) -> None:
    """A wrongly declared number spoils the answers, never the arithmetic."""
    options: dict[str, object] = {} if mechanism == "independent-gaussian" else {"rounds": 2}
    if mechanism == "mwem":
        options["synthetic_rows"] = 200
    try:
        made = dualquery.release(
            records,
            budget=budget(neighbours=Neighbours.ADD_REMOVE, accounting=Accounting.ZCDP),
            workload="marginals:2",
            mechanism=mechanism,
            public_rows=rows,
            seed=1,
            **options,
        )
    except DualQueryError as refused:
        assert str(refused).count("\n") == 0  # noqa: PT017
    else:
        assert made.certificate["mechanism"] == mechanism


def test_theorem_4_3_never_measures_the_number_of_records_first(
    records: Records, budget: Callable[..., Budget]
) -> None:
    """It wants the sizes of all events fixed beforehand; a plan that follows a measured n fixes them after.

    (docs/privacy.md, "The ledger as a filter".) So with this accounting the number is public or declared.
    """
    with pytest.raises(DualQueryError, match="must be declared as public"):
        dualquery.release(
            records,
            budget=budget(neighbours=Neighbours.ADD_REMOVE, accounting=Accounting.THEOREM_4_3),
            workload="marginals:2",
            seed=1,
        )


def test_gaussian_accounting_is_a_filter_where_the_number_of_records_is_measured_first(
    records: Records, budget: Callable[..., Budget], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sizes that follow a measured n meet the filter; a theorem for fixed sizes is never asked."""

    def never(*_: object) -> None:
        raise AssertionError("sizes are not fixed")

    monkeypatch.setattr(GaussianSum, "after", never)
    made = dualquery.release(
        records,
        budget=budget(neighbours=Neighbours.ADD_REMOVE, accounting=Accounting.GAUSSIAN),
        workload="marginals:2",
        seed=1,
        synthetic_rows=200,
    )
    assert made.certificate["spent"]["epsilon"] == made.certificate["budget"]["epsilon"]


def test_no_more_rows_by_default_than_a_computer_holds(
    records: Records, budget: Callable[..., Budget]
) -> None:
    workload = from_spec(records.domain, "marginals:1")
    rows = [synthetic_rows(Task(workload, n, budget()), None) for n in (1, 10**6, 10**12)]
    assert rows == [FEWEST_ROWS, 10**6, MOST_ROWS]
    assert synthetic_rows(Task(workload, 10**12, budget()), 2 * MOST_ROWS) == 2 * MOST_ROWS
