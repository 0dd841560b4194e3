"""A certificate's claim, added up again from its events: as it was made, and where somebody changed it."""

from __future__ import annotations

import json
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

import dualquery
from dualquery import Accounting, Neighbours, Records, Release, ReleaseError
from dualquery.releases.certificate import Certificate
from dualquery.releases.verify import MOST_EVENTS, recounted
from tests.house import budget

Make = Callable[..., Release]

KINDS: list[tuple[str, Accounting, dict[str, Any]]] = [
    ("projection", Accounting.TIGHTEST, {"synthetic_rows": 100}),
    ("gaussian", Accounting.GAUSSIAN, {}),
    ("projection", Accounting.ZCDP, {"synthetic_rows": 100}),
    ("dualquery", Accounting.THEOREM_4_3, {"rounds": 4, "samples": 3, "free": "random"}),
    ("dualquery", Accounting.PURE, {"rounds": 4, "samples": 3, "free": "random"}),
    ("laplace", Accounting.TIGHTEST, {}),
    ("zeros", Accounting.ZCDP, {"synthetic_rows": 10}),
]


@pytest.mark.parametrize(("mechanism", "accounting", "options"), KINDS)
@pytest.mark.parametrize("rows", [None, 400], ids=["measured", "declared"])
def test_what_was_released_adds_up(
    records: Records, mechanism: str, accounting: Accounting, options: dict[str, Any], rows: int | None
) -> None:
    if rows is None and accounting is Accounting.THEOREM_4_3:
        return  # which measures no number of records
    made = dualquery.release(
        records,
        workload="marginals:2",
        budget=budget(neighbours=Neighbours.ADD_REMOVE, accounting=accounting),
        mechanism=mechanism,
        public_rows=rows,
        seed=1,
        **options,
    )
    found = recounted(made.certificate)
    assert found.epsilon == made.certificate["spent"]["epsilon"]
    assert found.delta == made.certificate["spent"]["delta"]


def changed(certificate: Certificate, change: Callable[[dict[str, Any]], None]) -> Certificate:
    data = json.loads(certificate.to_json())
    change(data)
    return Certificate.of(data)


@pytest.fixture(params=[None, 400], ids=["measured", "declared"])
def certificate(request: pytest.FixtureRequest, records: Records) -> Certificate:
    return dualquery.release(
        records,
        workload="marginals:2",
        budget=budget(neighbours=Neighbours.ADD_REMOVE, accounting=Accounting.TIGHTEST),
        mechanism="gaussian",
        public_rows=request.param,
        seed=1,
    ).certificate


def test_five_percent_less_noise_than_was_paid_for_is_found(certificate: Certificate) -> None:
    def quieter(data: dict[str, Any]) -> None:
        for event in data["events"]:
            event["variance"] = str(Fraction(event["variance"]) * Fraction(95, 100))

    with pytest.raises(ReleaseError, match="cost more than its budget"):
        recounted(changed(certificate, quieter))


def test_a_claim_of_less_is_found(certificate: Certificate) -> None:
    def cheaper(data: dict[str, Any]) -> None:
        data["spent"]["epsilon"] *= 0.999

    def for_several(data: dict[str, Any]) -> None:
        data["several"]["5"] *= 0.99

    for change in (cheaper, for_several):
        with pytest.raises(ReleaseError, match="claims to have spent less"):
            recounted(changed(certificate, change))


def test_an_event_more_is_found(certificate: Certificate) -> None:
    def again(data: dict[str, Any]) -> None:
        data["events"].append(data["events"][0] | {"variance": "1000000"})

    with pytest.raises(ReleaseError, match="cost more than its budget"):
        recounted(changed(certificate, again))


def test_a_measured_number_makes_the_whole_budget_the_claim(records: Records) -> None:
    """Little may have been paid for on this path; what is promised is the limit."""
    made = dualquery.release(
        records,
        workload="marginals:2",
        budget=budget(neighbours=Neighbours.ADD_REMOVE),
        mechanism="zeros",
        seed=1,
    ).certificate

    def less(data: dict[str, Any]) -> None:
        data["spent"]["epsilon"] = 0.2

    assert recounted(made).epsilon == 1
    with pytest.raises(ReleaseError, match="claims to have spent less"):
        recounted(changed(made, less))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("event", "nonsense"),
        ("variance", "0"),
        ("variance", "1/0"),
        ("variance", "1e5"),
        ("variance", 5),
        ("variance", None),
        ("variance", "9" * 100_000),
        ("times", MOST_EVENTS + 1),
    ],
)
def test_events_that_there_are_not_are_refused_in_a_sentence(
    certificate: Certificate, field: str, value: object
) -> None:
    def strange(data: dict[str, Any]) -> None:
        data["events"][0][field] = value

    with pytest.raises(ReleaseError, match=r"uses? of the table"):
        recounted(changed(certificate, strange))


@pytest.mark.parametrize(
    ("field", "value"), [("accounting", "best"), ("accounting", "tightest"), ("epsilon", 0), ("delta", 1)]
)
def test_a_budget_that_is_none_is_refused_in_a_sentence(
    certificate: Certificate, field: str, value: object
) -> None:
    def strange(data: dict[str, Any]) -> None:
        data["budget"][field] = value

    with pytest.raises(ReleaseError, match="the certificate states no valid budget"):
        recounted(changed(certificate, strange))


def test_verify_adds_up(make: Make, tmp_path: Path) -> None:
    wide = budget(neighbours=Neighbours.ADD_REMOVE, accounting=Accounting.GAUSSIAN)
    make(budget=wide, mechanism="gaussian", workload="marginals:2").save(tmp_path / "out")
    found = dualquery.verify(tmp_path / "out")
    assert found.recounted.epsilon == found.certificate["spent"]["epsilon"] == 1
    assert "by gaussian" in found.facts()["added up again"]
    assert found.to_json()["recounted"] == {"epsilon": 1, "delta": 1e-6}
