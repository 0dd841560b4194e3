"""Whatever leaves comes from the curator's answers: other records, the same answers, the same bytes.

The curator is given the counter of another table, a public decoy. A release with a seed is then a function of the
arguments and of the decoy. Tables that share nothing with each other (but their length, where that is public) must
give the same folder and the same words on the screen: no stop, tie, default, warning or file follows the records.
"""

from __future__ import annotations

import hashlib
import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dualquery.cli import run
from dualquery.counting.counter import Counter
from dualquery.counting.opening import open_counter
from dualquery.privacy.curator import Curator
from dualquery.privacy.ledger import Ledger
from dualquery.randomness import Entropy
from dualquery.releases import certificate
from dualquery.table.schema import read_schema

SCHEMA = """
[table]
period = "received"
calendar = "quarter"
UNIT
[[attribute]]
name = "ward"
values = ["heart", "lung", "skin"]

[[attribute]]
name = "sex"
values = ["f", "m"]

[[attribute]]
name = "age"
edges = [0, 10, 20, 40, 60, 100]
clamp = true

[[attribute]]
name = "pay"
edges = [0, 1, 50, 500, 5000]
clamp = true
"""
ACCEPTED = (
    '[[criterion]]\ntables = 2\nmean = 0.3\n\n[[criterion]]\nmean_of = "age"\nby = ["sex"]\nerror = 30\n'
)
ADDED = ["--neighbours", "add-remove"]
PERSONS = ["--neighbours", "person-add-remove", "--records-per-person", "3"]


def write(path: Path, seed: int, number: int, share: float) -> None:
    rng = np.random.default_rng(seed)
    lines = ["who,received,ward,sex,age,pay"]
    for _ in range(number):
        ward = ("heart", "lung", "skin")[int(rng.random() < share) + int(rng.random() < share)]
        when = "2024-02-01" if rng.random() < 0.6 else "2024-05-05"
        age, pay = rng.random() * 150 * share, rng.exponential(300 * share)
        lines.append(
            f"{rng.integers(number // 3)},{when},{ward},{'fm'[int(rng.random() < share)]},{age:.2f},{pay:.2f}"
        )
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


@pytest.fixture(scope="module")
def room(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("curator")
    for name, seed, number, share in (
        ("decoy", 0, 1_500, 0.5),
        ("alike", 1, 1_500, 0.9),
        ("other", 2, 1_500, 0.1),
        ("larger", 3, 4_000, 0.2),
        ("public", 4, 800, 0.6),
    ):
        write(folder / f"{name}.csv", seed, number, share)
    (folder / "schema.toml").write_text(SCHEMA.replace("UNIT", ""))
    (folder / "persons.toml").write_text(SCHEMA.replace("UNIT", 'unit = "who"'))
    (folder / "accept.toml").write_text(ACCEPTED)
    return folder


class Frozen(datetime):
    @classmethod
    def now(cls, tz: Any = None) -> Frozen:
        return cls(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("arguments", "tables"),
    [
        (["--registry", "--csv"], ("alike", "other")),
        (["--epsilon", "0.1"], ("alike", "other")),
        ([*ADDED, "--accept", "accept.toml", "--check", "0.1"], ("alike", "larger")),
        ([*ADDED, "--prior", "public.csv", "--prior-origin", "a sample"], ("other", "larger")),
        ([*ADDED, "--period", "2024-Q1"], ("alike", "larger")),
        ([*ADDED, "--accounting", "pure", "--delta", "0"], ("alike", "larger")),
        ([*ADDED, "--shares", "fixed"], ("alike", "larger")),
        ([*ADDED, "--mechanism", "mwem"], ("alike", "larger")),
        (PERSONS, ("alike", "larger")),
    ],
    ids=["replace", "small", "accept", "prior", "period", "pure", "fixed", "mwem", "persons"],
)
def test_other_records_and_the_same_answers_give_the_same_bytes(
    room: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    tables: tuple[str, ...],
) -> None:
    monkeypatch.chdir(room)
    monkeypatch.setattr(certificate, "datetime", Frozen)
    schema = "persons.toml" if "--records-per-person" in arguments else "schema.toml"
    period = arguments[arguments.index("--period") + 1] if "--period" in arguments else None
    most = 3 if "--records-per-person" in arguments else None
    decoy = open_counter("decoy.csv", read_schema(schema).during(period), records_per_person=most)
    begin = Curator.__init__

    def given_the_decoy(self: Curator, counter: Counter, ledger: Ledger, entropy: Entropy) -> None:
        begin(self, decoy, ledger, entropy)

    monkeypatch.setattr(Curator, "__init__", given_the_decoy)
    seen = []
    for table in tables:
        shutil.copy(f"{table}.csv", "table.csv")
        shutil.rmtree("out", ignore_errors=True)
        common = ["--schema", schema, "--queries", "marginals:2", "--epsilon", "2", "--delta", "1e-6"]
        code = run(["release", "table.csv", *common, "--seed", "5", "--out", "out", *arguments])
        files = {each.name: hashlib.sha256(each.read_bytes()).hexdigest() for each in Path("out").iterdir()}
        seen.append((code, capsys.readouterr(), dict(sorted(files.items()))))
    assert "certificate.json" in seen[0][2]
    assert seen[0] == seen[1]
