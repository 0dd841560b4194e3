"""Public totals: rows meet them exactly, contradictions are refused; what is promised if they are of this table."""

from __future__ import annotations

from itertools import combinations_with_replacement, product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest

import dualquery
from dualquery import Budget, BudgetError, DataError, DualQueryError, Neighbours, Release
from dualquery.cli import run
from dualquery.errors import SchemaError
from dualquery.fitting.totals import Totals, whole_matrix
from dualquery.ledger.books import Books, create
from dualquery.privacy.budget import ReplaceWithin
from dualquery.queries.tables import Tables
from dualquery.releases import sentences
from dualquery.releases.verify import verify
from dualquery.table.domain import Categorical, Domain
from dualquery.table.records import Records

pytestmark = pytest.mark.usefixtures("few_rows")

SCHEMA: dict[str, Any] = {
    "attribute": [
        {"name": "sex", "values": ["f", "m"]},
        {"name": "age", "edges": [0, 20, 40, 60, 100]},
        {"name": "job", "values": ["none", "office", "field"]},
        {"name": "area", "values": ["a", "b", "c", "d"]},
    ]
}
BUDGET = Budget(1.0, 1e-6, Neighbours.ADD_REMOVE)
GIVEN: dict[str, Any] = {"schema": SCHEMA, "workload": "marginals:2", "check": 0, "synthetic_rows": None}


def people(number: int, seed: int) -> pa.Table:
    rng = np.random.default_rng(seed)
    age = rng.integers(0, 99, number)
    job = np.where(age < 20, "none", np.where(rng.random(number) < age / 120, "field", "office"))
    area = np.array([*"abcd"])[np.minimum(3, rng.geometric(0.4, number) - 1)]
    return pa.table({"sex": rng.choice(["f", "m"], number), "age": age, "job": job, "area": area})


TABLE = people(600, 1)


def counted(table: pa.Table, *names: str) -> pa.Table:
    found = table.group_by(list(names)).aggregate([([], "count_all")])
    return found.rename_columns([*names, "people"])


def made(**options: Any) -> Release:
    return dualquery.release(TABLE, **{**GIVEN, "budget": BUDGET, "seed": 3, **options})


def alike(one: pa.Table, other: pa.Table) -> bool:
    return sorted(map(str, one.to_pylist())) == sorted(map(str, other.to_pylist()))


@pytest.mark.parametrize(
    "cut", [[["area", "sex"]], [["area", "sex"], ["area", "job"], ["job"]], [["sex"], ["job"]]]
)
def test_rows_meet_the_totals_of_a_population_exactly(cut: list[list[str]], tmp_path: Path) -> None:
    """All of them, and those that people open: as many as the totals count."""
    population = people(1_700, 2)
    totals = [counted(population, *names) for names in cut]
    release = made(totals=totals)
    assert [list(each["attributes"]) for each in release.certificate["totals"]] == [
        [name for name in ("sex", "age", "job", "area") if name in names] for names in cut
    ]
    release.save(tmp_path / "released")
    opened = pa.parquet.read_table(tmp_path / "released" / "synthetic.parquet")
    assert opened.num_rows == 1_700
    whole = Release.load(tmp_path / "released").to_arrow()
    for names, wanted in zip(cut, totals, strict=True):
        assert alike(counted(opened, *names), wanted)
        times = whole.num_rows // 1_700
        assert alike(counted(pa.concat_tables([opened] * times), *names), counted(whole, *names))
    share = sum(row["people"] for row in totals[0].to_pylist() if row.get("sex") == "f") / 1_700
    if share:
        found = verify(tmp_path / "released") and Release.load(tmp_path / "released").answer("sex = f")
        assert found.value == pytest.approx(share)


def test_what_totals_do_not_say_is_learned_from_the_table() -> None:
    release = made(totals=counted(people(1_700, 2), "area"), budget=Budget(20, 1e-6, Neighbours.ADD_REMOVE))
    young = release.answer("job = none & age < 20").value / release.answer("age < 20").value
    assert young > 0.9


@pytest.mark.parametrize(
    ("totals", "words"),
    [
        ([counted(TABLE, "sex"), counted(people(601, 1), "job")], "do not agree how many there are"),
        ([counted(TABLE, "sex", "job"), counted(people(600, 9), "sex", "area")], "how many have which sex"),
        (
            [counted(TABLE, "sex", "job"), counted(TABLE, "job", "area"), counted(TABLE, "area", "sex")],
            "round in a circle",
        ),
        (pa.table({"sex": ["f", "x"], "people": [300, 300]}), "table 1 of the totals"),
        (pa.table({"sex": ["f", "m"], "people": [300, -1]}), "whole numbers"),
        (pa.table({"sex": ["f", "m"], "people": [300.5, 1]}), "whole numbers"),
        (pa.table({"sex": ["f", "m"], "people": ["300", None]}), "whole numbers"),
        (pa.table({"sex": ["f", "m"]}), "one more, with whole numbers"),
        (pa.table({"height": [1], "people": [2]}), "one more, with whole numbers"),
        (pa.table({"sex": ["f", "m"], "people": [0, 0]}), "count nobody"),
        ("gone.csv", "gone.csv"),
        (TABLE, "the private table itself"),
    ],
)
def test_refusals(totals: Any, words: str) -> None:
    with pytest.raises(DualQueryError, match=words):
        made(totals=totals)


def test_totals_that_the_rules_of_the_schema_exclude() -> None:
    schema = {**SCHEMA, "rule": [{"says": "age < 20 => job = none"}]}
    bad = pa.table({"age": [10, 10, 30], "job": ["none", "office", "field"], "people": [5, 1, 9]})
    with pytest.raises(DataError, match="contradict the schema"):
        made(schema=schema, totals=bad)
    one = pa.table({"age": [10, 30], "people": [5, 9]})
    other = pa.table({"job": ["none", "field"], "people": [4, 10]})
    with pytest.raises((DataError, SchemaError), match="keeps the rules"):
        made(schema=schema, totals=[one, other])
    found = made(
        schema=schema, totals=[one, pa.table({"job": ["none", "field"], "people": [6, 8]})]
    ).to_arrow()
    assert not [row for row in found.to_pylist() if row["age"] < 20 and row["job"] != "none"]


def test_what_does_not_go_together(tmp_path: Path) -> None:
    totals = counted(TABLE, "sex")
    with pytest.raises(DualQueryError, match="leave out --synthetic-rows"):
        made(totals=totals, synthetic_rows=100)
    with pytest.raises(DualQueryError, match="leave out --totals"):
        made(totals=totals, mechanism="gaussian")
    create(tmp_path / "l", name="l", epsilon=1, delta=1e-6, neighbours=Neighbours.ADD_REMOVE)
    with pytest.raises(DualQueryError, match="leave out --totals"):
        made(totals=totals, mechanism="gaussian", ledger=tmp_path / "l", seed=None)
    assert Books(tmp_path / "l").read().charges == ()
    release = made(totals=totals)
    with pytest.raises(DualQueryError, match="meets public totals"):
        dualquery.refit(release, prior=people(50, 5), prior_origin="sample")


# Totals of this very table.

WITHIN = Budget(1.0, 1e-6, ReplaceWithin())


def test_totals_of_this_very_table_are_said_to_be_public() -> None:
    release = made(totals=[counted(TABLE, "area", "sex")], budget=WITHIN, seed=None)
    said = release.certificate
    assert said["budget"]["neighbours"] == "replace-within"
    assert "not in sex and area" in said["budget"]["neighbours_words"]
    promised = " ".join(sentences.promise(said))
    assert "any other with the same sex and area" in promised
    assert "nothing is promised about them" in promised
    assert "the synthetic records, 600 of them, meet them exactly" in " ".join(sentences.public(said))
    again = dualquery.Release(said, release.domain, release.artefact, release.replicas, release.measured)
    assert sentences.relation(again.certificate) == ReplaceWithin(("sex", "area"))


def test_totals_that_may_be_of_this_very_table_are_doubted() -> None:
    """Their number is compared with the public number of records, and nothing else of them with the table."""
    budget = Budget(1.0, 1e-6)
    for table, doubted in ((TABLE, True), (people(600, 7), True), (people(900, 7), False)):
        said = made(totals=[counted(table, "sex")], budget=budget, seed=None).certificate
        assert any("replace-within" in each for each in said["warnings"]) == doubted
    assert not made(totals=[counted(TABLE, "sex")], budget=WITHIN, seed=None).certificate["warnings"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "name them with --totals"),
        ({"totals": [counted(people(601, 1), "sex")]}, "not totals of this very table"),
        ({"totals": [counted(TABLE, "sex")], "ledger": "some.ledger"}, "leave one out"),
    ],
)
def test_refusals_of_the_relation(options: dict[str, Any], words: str) -> None:
    with pytest.raises((BudgetError, DataError), match=words):
        made(budget=WITHIN, **options)


def test_the_relation_prices_nothing_without_attributes() -> None:
    with pytest.raises(BudgetError, match="--totals"):
        Neighbours.named("replace-within").largest(alone=1, apart=2)


DOMAIN = Domain(tuple(Categorical(name, ("0", "1")) for name in "abc"))
SETS = ((0,), (1,), (2,), (0, 1), (0, 2), (1, 2), (0, 1, 2))


def test_what_a_neighbour_moves_by_brute_force() -> None:
    """All tables of three records, a and b kept: sets inside do not move, and no set more than its price."""
    relation, universe = ReplaceWithin(("a", "b")), list(product((0, 1), repeat=3))
    names, farthest = list(DOMAIN.names()), dict.fromkeys(SETS, 0)
    for table in combinations_with_replacement(universe, 3):
        for place, record in enumerate(table):
            for other in universe:
                if other[:2] != record[:2]:
                    continue
                neighbour = (*table[:place], other, *table[place + 1 :])
                for members in SETS:
                    tables = Tables(DOMAIN, (members,))
                    moved = tables.counts(_records(table)) - tables.counts(_records(neighbour))
                    farthest[members] = max(farthest[members], int((moved**2).sum()))
    for members, moved in farthest.items():
        inside = not relation.moves(names[j] for j in members)
        assert (moved == 0) == inside
        assert moved in (0, relation.sensitivity(Tables(DOMAIN, (members,)).bound()).l2_squared)


def _records(rows: tuple[tuple[int, ...], ...]) -> Records:
    return Records.from_rows(DOMAIN, np.array(rows, np.int32))


# Rounding.


def test_whole_matrices_have_their_sums() -> None:
    rng = np.random.default_rng(0)
    for _ in range(200):
        shape = tuple(rng.integers(1, 6, 2))
        true = rng.poisson(rng.choice([0.3, 3.0]), shape)
        possible = (true > 0) | (rng.random(shape) < 0.5)
        near = np.where(possible, true * rng.uniform(0.2, 1.8, shape), 0.0)
        found = whole_matrix(near, possible, true.sum(axis=1), true.sum(axis=0), rng)
        assert (found >= 0).all()
        assert not found[~possible].any()
        assert (found.sum(axis=1) == true.sum(axis=1)).all()
        assert (found.sum(axis=0) == true.sum(axis=0)).all()


def test_sums_that_no_matrix_has_are_refused() -> None:
    possible = np.array([[True, False], [True, False]])
    with pytest.raises(DataError, match="leave no table"):
        whole_matrix(possible * 1.0, possible, np.array([1, 1]), np.array([1, 1]), np.random.default_rng(0))


def test_raking_keeps_what_totals_do_not_say() -> None:
    """Of two attributes, where one is raked, the odds between values of the other stay."""
    totals = Totals.of(DOMAIN, [((0,), np.array([30, 70]))])
    rows = _records(tuple((0, 0, c) for c in (0, 0, 0, 1)) * 50 + tuple((1, 0, c) for c in (0, 1)) * 50)
    found = totals.met(rows, np.random.default_rng(0))
    tables = Tables(DOMAIN, ((0, 2),))
    share = tables.counts(found).reshape(2, 2) / found.rows
    assert share.sum(axis=1) == pytest.approx([0.3, 0.7])
    assert share[0, 0] / 0.3 == pytest.approx(0.75, abs=0.05)
    assert share[1, 0] / 0.7 == pytest.approx(0.5, abs=0.05)


def test_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from dualquery.table.schema import parse_schema, schema_text

    pa.csv.write_csv(TABLE, tmp_path / "people.csv")
    pa.csv.write_csv(counted(TABLE, "area", "sex"), tmp_path / "population.csv")
    text = schema_text(parse_schema(SCHEMA, origin="here"))
    (tmp_path / "schema.toml").write_text(text)
    given = [
        "release",
        str(tmp_path / "people.csv"),
        "--schema",
        str(tmp_path / "schema.toml"),
        "-q",
        "marginals:1",
    ]
    given += ["--epsilon", "1", "--delta", "1e-6", "--out", str(tmp_path / "out"), "--check", "0"]
    assert run([*given, "--neighbours", "replace-within"]) == 2
    assert "name them with --totals" in capsys.readouterr().err.replace("Name", "name")
    within = ["--totals", str(tmp_path / "population.csv"), "--neighbours", "replace-within"]
    assert run([*given, *within]) == 0
    assert "ε = 1 of 1" in capsys.readouterr().out
    assert "Together with these totals nothing is promised" in (tmp_path / "out" / "report.html").read_text()
    assert run(["verify", str(tmp_path / "out")]) == 0
