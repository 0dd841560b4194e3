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
from dualquery.counting import Counter, JoinedCounter
from dualquery.counting.opening import open_counter
from dualquery.privacy.curator import Curator
from dualquery.privacy.ledger import Ledger
from dualquery.randomness import Entropy
from dualquery.releases import certificate
from dualquery.table.schema import read_schema
from tests.house import HOUSEHOLDS

pytestmark = pytest.mark.usefixtures("few_rows")

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


def write_database(folder: Path, seed: int, number: int, share: float) -> None:
    """Households with a region that nobody knows or too many persons, and persons without a household."""
    rng = np.random.default_rng(seed)
    folder.mkdir()
    homes, persons, cars = ["hh,region,kind"], ["home,age,sex,kind"], ["hh,fuel"]
    for home in range(number):
        region = ("East", "West", "?")[int(rng.random() < share) + int(rng.random() < 0.1)]
        homes.append(f"{home},{region},{'abc'[int(rng.integers(3))]}")
        cars += [f"{home},petrol"] * int(rng.random() < share)
        for _ in range(int(rng.integers(0, 2 + int(6 * share)))):
            key = home if rng.random() < 0.95 else "nobody"
            persons.append(f"{key},{int(rng.integers(110))},{'fm'[int(rng.random() < share)]},x")
    for name, lines in (("household", homes), ("person", persons), ("car", cars)):
        (folder / f"{name}.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")


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
    (folder / "totals.csv").write_text("sex,people\nf,700\nm,800\n")
    for name, seed, number, share in (("decoys", 0, 300, 0.5), ("homes", 1, 300, 0.9), ("more", 2, 900, 0.2)):
        write_database(folder / name, seed, number, share)
    (folder / "database.toml").write_text(HOUSEHOLDS)
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
        (["--totals", "totals.csv", "--neighbours", "replace-within"], ("alike", "other")),
    ],
    ids=["replace", "small", "accept", "prior", "period", "pure", "fixed", "mwem", "persons", "totals"],
)
def test_other_records_and_the_same_answers_give_the_same_bytes(
    room: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    tables: tuple[str, ...],
) -> None:
    schema = "persons.toml" if "--records-per-person" in arguments else "schema.toml"
    period = arguments[arguments.index("--period") + 1] if "--period" in arguments else None
    most = 3 if "--records-per-person" in arguments else None
    monkeypatch.chdir(room)
    decoy = open_counter("decoy.csv", read_schema(schema).during(period), records_per_person=most)
    sources = [f"{table}.csv" for table in tables]
    assert len({*seen(monkeypatch, capsys, decoy, sources, ["--schema", schema, *arguments])}) == 1


@pytest.mark.long
@pytest.mark.parametrize("kind", ["several", "one person each", "whoever is named"])
def test_other_households_and_the_same_answers_give_the_same_bytes(
    room: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    """What was left out is told on the curator's screen alone, which --quiet silences."""
    monkeypatch.chdir(room)
    head, household, person, car = HOUSEHOLDS.split("[[table]]\n")
    single = person.replace("at_most = 3", "at_most = 1")
    tables = {
        "several": [household, person, car],
        "one person each": [household, single],
        "whoever is named": [person],
    }
    Path("database.toml").write_text("[[table]]\n".join([head, *tables[kind]]))
    decoy = open_counter("decoys", read_schema("database.toml"))
    arguments = ["--schema", "database.toml", *ADDED, "--synthetic-rows", "300", "--quiet"]
    queries = "marginals:2" if kind == "several" else "any:1"
    assert len({*seen(monkeypatch, capsys, decoy, ["homes", "more"], arguments, queries)}) == 1


def seen(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    decoy: Counter,
    sources: list[str],
    arguments: list[str],
    queries: str = "marginals:2",
) -> list[str]:
    """Of a release of each source, counted on the decoy: its exit code, its words, and the digests of its files."""
    monkeypatch.setattr(certificate, "datetime", Frozen)
    begin = Curator.__init__

    def given_the_decoy(self: Curator, counter: Counter, ledger: Ledger, entropy: Entropy) -> None:
        begin(self, counter if isinstance(counter, JoinedCounter) else decoy, ledger, entropy)

    monkeypatch.setattr(Curator, "__init__", given_the_decoy)
    found = []
    for source in sources:
        for name in ("table", "out"):
            shutil.rmtree(name, ignore_errors=True)
        place = "table" if Path(source).is_dir() else "table.csv"
        shutil.copytree(source, place) if place == "table" else shutil.copy(source, place)
        common = [
            "--queries",
            queries,
            "--epsilon",
            "2",
            "--delta",
            "1e-6",
            "--seed",
            "5",
            "--out",
            "out",
        ]
        code = run(["release", place, *common, *arguments])
        files = sorted(Path("out").iterdir())
        digests = [f"{each.name} {hashlib.sha256(each.read_bytes()).hexdigest()}" for each in files]
        assert Path("out/certificate.json") in files
        found.append(f"{code} {capsys.readouterr()} {digests}")
    return found
