"""The quality page: it tells copies, drift and attacks where there are some, and none where there are none."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.csv
import pytest

import dualquery
from dualquery import Budget, QueryError, Records, Release, example
from dualquery.cli import run
from dualquery.mechanisms.artefact import SyntheticRecords
from dualquery.queries.tables import Tables, attribute_codes, centred
from dualquery.releases.quality import _area, _attack, _nearest, quality, quality_page
from dualquery.table.domain import Categorical, Domain
from dualquery.table.encoding import encode
from dualquery.table.schema import parse_schema

SCHEMA = parse_schema(example.SCHEMA, origin="the example")
PEOPLE = example.survey(4_500)


def released(epsilon: float, rows: int = 1_500, **options: Any) -> Release:
    return dualquery.release(
        PEOPLE.slice(0, rows),
        schema=SCHEMA,
        workload="marginals:2",
        budget=Budget(epsilon, 1e-6),
        check=0.0,
        **options,
    )


@pytest.fixture(scope="module")
def release() -> Release:
    return released(2.0)


def with_rows(release: Release, records: Records) -> Release:
    return Release(release.certificate, release.domain, SyntheticRecords(records), (), release.measured)


def test_other_people_of_the_same_town_are_near_and_copies_are_found(release: Release) -> None:
    """Against truths that are known: a second sample of the survey, the table itself, independent columns."""
    table = PEOPLE.slice(0, 1_500)
    second, itself = (encode(each, SCHEMA) for each in (PEOPLE.slice(1_500, 1_500), table))
    rng = np.random.default_rng(0)
    codes = attribute_codes(itself, list(range(itself.domain.width))).T.astype(np.int64)
    flat = Records.from_rows(
        release.domain, np.stack([rng.permutation(c[:1]).repeat(1_500) for c in codes.T], axis=1)
    )
    found = {
        name: quality(with_rows(release, records), table, target="income", holdout=PEOPLE.slice(3_000))
        for name, records in (("second", second), ("itself", itself), ("flat", flat))
    }
    assert 0.5 < found["second"].pmse < 2, "two samples of one law"
    assert found["flat"].pmse > 10
    assert found["itself"].pairs[0].l1 == 0
    assert found["second"].pairs[0].l1 > 0
    assert found["itself"].copied[0] == 1
    assert found["second"].copied[0] < 0.3
    assert found["itself"].holdout > 0.9, "copies give members away"
    assert found["second"].holdout == pytest.approx(0.5, abs=0.1)
    trained = {name: each.trained for name, each in found.items()}
    assert trained["second"].synthetic == pytest.approx(trained["second"].real, abs=0.1)
    assert trained["flat"].synthetic < trained["second"].synthetic - 0.2


def test_the_attack_is_as_strong_as_gaussian_noise_allows_and_no_stronger() -> None:
    """One table with noise of known size: right with chance Φ(‖c(x) − c(x')‖ / 2σ); twice without noise: always."""
    domain = Domain((Categorical("a", tuple("pqrs")), Categorical("b", ("0", "1"))))
    rng = np.random.default_rng(3)
    private = Records.from_rows(domain, rng.integers(0, [4, 2], (4_000, 2)))

    class Made:
        pass

    for sd in (0.7, 2.0, 1e-3):
        told, group = [], Tables(domain, ((0,), (1,), (0, 1)))
        noise_seen = []
        for seed in range(12):
            noise = np.random.default_rng(seed)
            told = [
                dualquery.fitting.measured.Measured(
                    s, centred(c.astype(float) + noise.normal(0, sd, c.shape)), sd**2
                )
                for s, c in zip(group.sets, group.split(group.counts(private)), strict=True)
            ]
            fake = Made()
            fake.domain = domain  # type: ignore[attr-defined]
            fake.measured = [dualquery.fitting.measured.Measured((), np.array(4_000.0), 0.0), *told]  # type: ignore[attr-defined]
            fake.certificate = {  # type: ignore[attr-defined]
                "budget": {"epsilon": 1.0, "delta": 0.0, "accounting": "zcdp", "neighbours": "replace"},
                "several": {"2": 2.0},
            }
            noise_seen.append(_attack(fake, private, np.random.default_rng(seed)).right)  # type: ignore[arg-type,union-attr]
        codes = attribute_codes(private, [0, 1]).astype(int)
        pairs = np.random.default_rng(0).integers(0, 4_000, (2, 20_000))
        square = np.zeros(20_000)
        for members, sizes in (((0,), [4]), ((1,), [2]), ((0, 1), [4, 2])):
            same = [codes[j, pairs[0]] == codes[j, pairs[1]] for j in members]
            own = math.prod((k - 1) / k for k in sizes)
            square += 2 * (own - np.prod([s - 1 / k for s, k in zip(same, sizes, strict=True)], axis=0))
        square = square[square > 1e-9]
        wanted = np.mean([0.5 * (1 + math.erf(math.sqrt(x) / (2 * sd) / math.sqrt(2))) for x in square])
        assert np.mean(noise_seen) == pytest.approx(wanted, abs=0.06)


def test_the_bound_is_that_of_epsilon_and_holds(release: Release) -> None:
    found = _attack(release, encode(PEOPLE.slice(0, 1_500), SCHEMA), np.random.default_rng(0))
    assert found is not None
    assert found.bound == pytest.approx((math.exp(2) + 1e-6) / (1 + math.exp(2)))
    assert 0.5 < found.right < found.bound


def test_distances_by_brute_force() -> None:
    rng = np.random.default_rng(0)
    one, other = rng.integers(0, 3, (40, 5)), rng.integers(0, 3, (60, 5))
    brute = sorted(min(int((a != b).sum()) for b in other) for a in one)
    assert sorted(_nearest(one, other, rng).tolist()) == brute
    own = sorted(min(int((a != b).sum()) for j, b in enumerate(one) if i != j) for i, a in enumerate(one))
    assert sorted(_nearest(one, one, rng, apart=True).tolist()) == own
    assert _area(np.array([0, 1]), np.array([1, 2])) == 0.875


def test_the_page_is_stamped_private_and_needs_no_network(release: Release, tmp_path: Path) -> None:
    table, schema = tmp_path / "people.csv", tmp_path / "schema.toml"
    pyarrow.csv.write_csv(PEOPLE.slice(0, 1_500), table)
    schema.write_text(example.SCHEMA, encoding="utf-8")
    release.save(tmp_path / "released")
    out = tmp_path / "quality.html"
    asked = [
        "evaluate",
        str(tmp_path / "released"),
        str(table),
        "--html",
        str(out),
        "--target",
        "smokes",
        "--quiet",
    ]
    assert run(asked) == 0
    text = out.read_text(encoding="utf-8")
    assert "do not publish" in text
    assert out.stat().st_mode & 0o077 == 0, "for its owner alone"
    assert "<script" not in text
    assert "src=" not in text
    for said in ("pMSE", "accuracy of smokes", "truth", "Nearest records", "knows every record but one"):
        assert said in text
    assert text.count("<figure>") == len(SCHEMA.domain.columns) + 12


@pytest.mark.parametrize(
    ("asks", "sentence"),
    [
        (["--target", "smokes"], "--html"),
        (["--html", "q.html", "--target", "smoke"], "attribute 'smoke'"),
        (["--html", "nowhere/q.html"], "cannot be written"),
        (["--html", "q.html", "--holdout", "nowhere.csv"], "nowhere.csv"),
    ],
)
def test_mistakes_are_one_sentence(
    release: Release,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    asks: list[str],
    sentence: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    pyarrow.csv.write_csv(PEOPLE.slice(0, 1_500), "people.csv")
    release.save("released")
    assert run(["evaluate", "released", "people.csv", "--quiet", *asks]) == 2
    said = capsys.readouterr().err
    assert sentence in said
    assert said.count("\n") == 1


def test_answers_alone_have_no_page() -> None:
    bare = released(1.0, mechanism="gaussian")
    with pytest.raises(QueryError, match="no rows"):
        quality(bare, PEOPLE)
    assert quality_page
