"""The bar of an answer: it holds the truth as often as it says, is nowhere zero, and survives the folder."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dualquery
from dualquery import Accounting, Budget, Neighbours, Records, Release, ReleaseError
from dualquery.fitting.fitter import REPLICAS
from dualquery.queries.families import from_texts
from dualquery.releases.certificate import FORMAT, Certificate, PredictedError
from dualquery.table.domain import Categorical, Domain, Numeric

Make = Callable[..., Release]
COVERED = (0.92, 0.995)  # where an honest share of some thousand dependent bars lies

DOMAIN = Domain(
    (
        Numeric("age", (0.0, 20.0, 40.0, 60.0, 80.0)),
        Categorical("sex", ("f", "m")),
        Categorical("job", ("none", "office", "field", "other")),
        Categorical("ill", ("no", "yes")),
        Categorical("region", ("n", "e", "s", "w", "nowhere")),
    )
)
QUESTIONS = [
    "age >= 40",
    "sex = m",
    "job in {office, other}",
    "ill = yes",
    "region != s",
    "age < 40 & ill = yes",
    "sex = f & job = office",
    "job = none | region = n",
    "ill = yes & region in {n, e}",
    "age >= 60 & job = field",
    "age >= 20 & sex = m & region = w",
    "age < 60 & job != none & ill = no",
    "sex = m & job = office & ill = no & region != n",
    "age >= 40 | sex = f | ill = yes",
    "age in [20, 60) & sex = f & job = office & region = e",
]


def people(rows: int = 4_000, seed: int = 3) -> Records:
    """Everything hangs on age, and nobody lives nowhere."""
    rng = np.random.default_rng(seed)
    age = rng.choice(4, rows, p=[0.2, 0.3, 0.3, 0.2])
    sex = rng.random(rows) < 0.5
    job = np.where(age == 0, 0, np.where(rng.random(rows) < 0.3 + 0.2 * sex, 1, rng.integers(0, 4, rows)))
    ill = rng.random(rows) < 0.05 + 0.15 * age
    region = np.minimum((rng.random(rows) * 4 + 0.3 * ill).astype(int), 3)
    return Records.from_rows(DOMAIN, np.column_stack([age, sex, job, ill, region]))


PEOPLE = people()
TRUTH = from_texts(DOMAIN, QUESTIONS).fractions(PEOPLE)


def released(seed: int, *, epsilon: float = 1.0, **changes: Any) -> Release:
    budget = Budget(epsilon=epsilon, delta=1e-6, neighbours=Neighbours.ADD_REMOVE, accounting=Accounting.ZCDP)
    arguments: dict[str, Any] = {"workload": "marginals:2", "budget": budget, "seed": seed, **changes}
    return dualquery.release(PEOPLE, **arguments)


def test_bars_hold_the_truth_as_often_as_they_say() -> None:
    """Inside and outside of the workload; with bars half as wide (the negative control) they would not."""
    off, bars = [], []
    for seed in range(12):
        answers = released(seed, synthetic_rows=4_000).answer_all(QUESTIONS)
        off.append(np.abs([answer.value for answer in answers] - TRUTH))
        bars.append([answer.error for answer in answers])
    errors, widths = np.array(off), np.array(bars, np.float64)
    assert COVERED[0] <= np.mean(errors <= widths) <= COVERED[1]
    assert np.mean(errors <= widths / 2) < COVERED[0]
    assert 0.7 < 0.8 * np.mean(widths) / 2.306 / np.mean(errors) < 1.5


@pytest.mark.parametrize("mechanism", ["gaussian", "laplace"])
def test_bars_of_bare_answers_are_those_of_their_noise(mechanism: str) -> None:
    accounting, delta = {"gaussian": (Accounting.ZCDP, 1e-6), "laplace": (Accounting.PURE, 0.0)}[mechanism]
    budget = Budget(epsilon=20, delta=delta, neighbours=Neighbours.ADD_REMOVE, accounting=accounting)
    workload = dualquery.from_spec(DOMAIN, "random:2:4000")
    truth = workload.fractions(PEOPLE)
    inside = (truth > 0.15) & (truth < 0.85)  # where no answer is cut off at 0 or 1
    made = dualquery.release(PEOPLE, workload=workload, budget=budget, mechanism=mechanism, seed=1)
    values, bars = (made.to_arrow()[name].to_numpy() for name in ("answer", "bar"))
    off = np.abs(values - truth)
    assert 0.93 < np.mean(off[inside] <= bars[inside]) < 0.97
    assert np.mean(off[inside] <= bars[inside] / 2) < 0.85
    assert made.answer(workload.text(0)).error == pytest.approx(bars[0], rel=0.01)


def test_no_bar_is_zero() -> None:
    made = released(2, epsilon=50.0, synthetic_rows=4_000)
    rare = [
        f"age < 20 & job = {job} & sex = {sex} & region = nowhere"
        for job in ("office", "field")
        for sex in "fm"
    ]
    answers = made.answer_all([*rare, *(f"!({text})" for text in rare)])
    assert {0.0, 1.0} <= {answer.value for answer in answers}
    for answer in answers:
        assert answer.error is not None
        assert answer.error >= 1 / made.certificate["records"]["rows"]
        assert str(answer).endswith(" (95%)")
        assert float(str(answer).split()[2]) > 0


def test_answers_and_bars_survive_the_folder(tmp_path: Path) -> None:
    made = released(1, synthetic_rows=3_001)
    made.save(tmp_path / "release")
    again = Release.load(tmp_path / "release")
    assert again.answer_all(QUESTIONS) == made.answer_all(QUESTIONS)
    assert len(again.replicas) == REPLICAS
    assert "replicas.parquet" in again.certificate["files"]
    assert again.certificate["predicted_error"]["level"] == 0.95
    assert again.certificate.predicted_error == made.certificate.predicted_error


@pytest.mark.parametrize("harm", ["changed", "missing"])
def test_harm_to_the_replicas_is_found(make: Make, tmp_path: Path, harm: str) -> None:
    make(mechanism="replicated").save(tmp_path / "release")
    file = tmp_path / "release" / "replicas.parquet"
    if harm == "missing":
        file.unlink()
    else:
        data = bytearray(file.read_bytes())
        data[len(data) // 2] ^= 1
        file.write_bytes(bytes(data))
    with pytest.raises(ReleaseError, match=r"replicas\.parquet"):
        Release.load(tmp_path / "release")


def test_the_seed_of_the_replicas_is_sealed(make: Make, tmp_path: Path) -> None:
    make(mechanism="replicated").save(tmp_path / "release")
    file = tmp_path / "release" / "certificate.json"
    data = json.loads(file.read_text())
    data["replicas"]["seed"] += 1
    file.write_text(json.dumps(data))
    with pytest.raises(ReleaseError, match="sealed"):
        Release.load(tmp_path / "release")


def test_a_folder_of_the_format_before_bars_is_refused_in_a_sentence(make: Make, tmp_path: Path) -> None:
    make(mechanism="replicated").save(tmp_path / "release")
    data = json.loads((tmp_path / "release" / "certificate.json").read_text())
    assert data["format"] == FORMAT == 4
    data["format"] = 3
    with pytest.raises(ReleaseError, match="another version of dualquery"):
        Certificate.from_json(json.dumps(data))


def test_replicas_change_neither_the_rows_nor_what_is_spent(make: Make) -> None:
    with_bars, without = make(mechanism="replicated"), make(mechanism="independent")
    assert with_bars.to_arrow() == without.to_arrow()
    for field in ("spent", "events", "budget", "records"):
        assert with_bars.certificate[field] == without.certificate[field]
    assert len(with_bars.replicas) == with_bars.certificate["replicas"]["number"] == REPLICAS
    assert len(without.replicas) == without.certificate["replicas"]["number"] == 0
    assert without.answer("sex = male").error == pytest.approx(0.0125 * 2.4564, rel=1e-3)


def test_predictions_survive_the_certificate() -> None:
    made = released(4, synthetic_rows=2_000)
    predicted = made.certificate.predicted_error
    assert PredictedError.from_json(json.loads(json.dumps(predicted.to_json()))) == predicted
    assert sum(predicted.counts) > 0
    assert len(predicted.edges) == len(predicted.counts) + 1
    assert predicted.edges[0] >= 0
    assert PredictedError(None, None) == PredictedError.from_json(PredictedError(None, None).to_json())
