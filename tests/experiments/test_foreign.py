"""Foreign tables: what needs no tool is computed as its name says, peers are judged alike, and losses stand first."""

from __future__ import annotations

import gzip
import sys
from collections.abc import Callable
from itertools import combinations, product
from pathlib import Path

import numpy as np
import pytest

from dualquery.table.domain import Categorical, Domain
from dualquery.table.records import Records
from experiments import foreign
from experiments.coverage import natural_questions
from experiments.data import FOREIGN, Data
from experiments.foreign_page import INDEPENDENCE, NOISE, OURS, draw, find, lowest
from experiments.harness import Row, Setting, Size
from experiments.peer_methods import DELTA, Case, Method, Peer
from experiments.peer_methods import Release as Asked
from experiments.peer_runs import Terms, tables_of
from experiments.processes import DONE
from tests.experiments.outputs import rows_after_run

PAIRS = Case("nltcs", 2)


def test_ours_and_what_needs_no_tool_are_judged_alike(invented_data: Data, tmp_path: Path) -> None:
    rows = rows_after_run(foreign.EXPERIMENT, Setting(invented_data, Size.TOY), tmp_path)
    found = {row["method"]: row for row in rows}
    assert set(found) == {OURS, INDEPENDENCE, NOISE}
    assert found[OURS]["l1"] < min(found[INDEPENDENCE]["l1"], found[NOISE]["l1"])
    assert found[OURS]["questions"] < found[INDEPENDENCE]["questions"], "two kinds of record: far from it"
    assert 0.8 < found[OURS]["coverage"] <= 1
    assert found[NOISE].get("questions", "") == found[NOISE].get("coverage", "") == ""


def test_independence_is_the_product_of_its_columns(
    invented_data: Data, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cells and questions, held against the joint distribution written out."""
    sizes = (2, 3, 4)
    domain = Domain(tuple(Categorical(f"a{j}", tuple("wxyz"[:size])) for j, size in enumerate(sizes)))
    rng = np.random.default_rng(4)
    columns = [rng.dirichlet(np.ones(size)) for size in sizes]
    records = Records.from_rows(domain, rng.integers(0, sizes, (60, 3)))
    joint = {
        cell: float(np.prod([column[code] for column, code in zip(columns, cell, strict=True)]))
        for cell in product(*map(range, sizes))
    }
    monkeypatch.setattr(Case, "records", lambda self, data: records)
    monkeypatch.setattr(foreign, "one_way", lambda *_: columns)
    _, cells = foreign.independence(invented_data, PAIRS, 1.0, 0)
    wanted = [
        sum(share for cell, share in joint.items() if tuple(cell[j] for j in table) == kind)
        for table in combinations(range(3), 2)
        for kind in product(*(range(sizes[j]) for j in table))
    ]
    assert cells == pytest.approx(wanted)
    for query in natural_questions(domain, 50, rng):
        held = sum(share for cell, share in joint.items() if query.holds(cell))
        assert foreign.of_independent_columns(query, columns) == pytest.approx(held)


COPY = """
import json, sys
from pathlib import Path
import numpy as np
folder = Path(sys.argv[1])
assert json.loads((folder / "task.json").read_text())["rho"] > 0
np.save(folder / "answer.npy", np.load(folder / "rows.npy"))
(folder / "seconds.txt").write_text("1")
"""


def test_an_exact_peer_has_no_error_and_one_that_fails_is_a_row(invented_data: Data, tmp_path: Path) -> None:
    program = tmp_path / "copy.py"
    program.write_text(COPY)
    peer = Peer("copy", str(program), (), (Method("copies", 1, 1),))
    row = foreign.measure_peer(invented_data, Asked(PAIRS, peer, "copies", 1.0, 0), Terms(memory=8.0), 60)
    assert (row["outcome"], row["l1"], row["questions"]) == (DONE, 0, 0)
    program.write_text("raise ValueError('no such luck')")
    row = foreign.measure_peer(invented_data, Asked(PAIRS, peer, "copies", 1.0, 1), Terms(memory=8.0), 60)
    assert row["outcome"] == "failed: ValueError: no such luck"
    skipped = foreign.measure_peer(invented_data, Asked(PAIRS, peer, "copies", 1.0, 1), Terms(skip="why"), 60)
    assert skipped == {"outcome": "not started: why", "limit": 60}
    assert foreign.measure(invented_data, PAIRS, 1.0, 0, OURS, "why") == {"outcome": "not started: why"}


def test_a_foreign_table_is_encoded_by_its_own_draft(tmp_path: Path) -> None:
    name = "vocab"
    path = tmp_path / FOREIGN[name]
    path.parent.mkdir()
    with gzip.open(path, "wt") as file:
        file.write("sex,words\n" + "".join(f"{'MF'[i % 2]},{i % 7}\n" for i in range(200)))
    records = Data(tmp_path).records(name)
    assert records.rows == 200
    assert [records.domain.name(j) for j in range(2)] == ["sex", "words"]
    assert tables_of(records, Case(name, 2)).size == int(np.prod(records.domain.sizes))


def test_the_full_size_has_everybody_everywhere(invented_data: Data) -> None:
    full = foreign.EXPERIMENT.points(Setting(invented_data, Size.FULL))
    methods = {OURS, INDEPENDENCE, NOISE, "SWIFT", "SWIFT 1e5", "AIM-GDP", "MST"}
    for name in (*FOREIGN, "adult", "nltcs", "kddcup99"):
        asked = {point.key["method"] for point in full if point.key["data"] == name}
        assert asked == methods - ({"SWIFT 1e5"} if name in {"nwtco", "slid", "vocab"} else set())
    ours = [point.key["run"] for point in full if (point.key["data"], point.key["method"]) == ("adult", OURS)]
    assert set(ours) == set(range(5))
    peers = [point for point in full if point.key["method"] == "SWIFT"]
    assert min(peers, key=lambda point: point.turn).key["epsilon"] == 1
    assert max(peers, key=lambda point: point.turn).key["data"] in {"nltcs", "adult"}


# The page


def made_row(method: str, **measured: object) -> Row:
    key = {"data": "slid", "tables": "all 2-way", "epsilon": 1, "method": method, "run": 0, "outcome": DONE}
    errors = {"l1": 0.2, "worst_table": 0.5, "max_cell": 0.01, "questions": 0.003, "coverage": 0.95}
    return {**key, **errors, **measured}


@pytest.mark.parametrize("what", [find, draw])
def test_the_page_can_be_made_of_anything(what: Callable[[list[Row]], object]) -> None:
    assert what([made_row(OURS)])


def test_losses_stand_first_the_widest_before_the_others() -> None:
    rows = [
        made_row(OURS, l1=0.3),
        made_row(OURS, l1=0.1, run=1),
        made_row("SWIFT", l1=0.1, worst_table=0.4),
        made_row(INDEPENDENCE, coverage=""),
        made_row(OURS, outcome="not started: why", l1="", worst_table="", max_cell="", questions="", run=2),
        made_row("MST", outcome="stopped after 9 processor seconds", l1="", worst_table="", max_cell=""),
    ]
    page = find(rows)
    wide = "- slid, all 2-way, ε = 1, mean L1 of a table: SWIFT 0.1 (1), ours 0.2 (2): 2.00 times as much."
    less = "- slid, all 2-way, ε = 1, L1 of the worst table: SWIFT 0.4 (1), ours 0.5 (2): 1.25 times as much."
    places = [page.index(words) for words in ("## Where another is better", wide, less, "## Bars", "## All")]
    assert places == sorted(places)
    assert "- MST stopped after 9 processor seconds (slid, all 2-way, ε = 1)." in page
    assert "not started" not in page, "one run answered"
    assert "independence 0.2" not in page, "as good is not better"
    assert "| slid, all 2-way | 1 | 0.2 (2) | 0.2 (1) |  | 0.1 (1) |  |  |  |" in page


def test_lowest_counts_the_points_of_ours_and_who_is_below_it() -> None:
    rows = [
        made_row(OURS),
        made_row("SWIFT", l1=0.1),
        made_row("MST", l1=0.15),
        made_row(OURS, data="chile"),
        made_row(INDEPENDENCE, data="chile", l1=0.21),
        made_row("MST", data="fair", l1=0.01),
    ]
    assert lowest(rows, "l1") == (2, {"SWIFT": 1})
    assert lowest(rows, "max_cell") == (2, {}), "as good is not lower"


def test_bars_that_hold_too_seldom_are_named() -> None:
    page = find([made_row(OURS, coverage=0.9), made_row(OURS, coverage=0.94, run=1)])
    assert "- slid, ε = 1: 0.920 (2)." in page
    assert "Nowhere." in find([made_row(OURS)])


def test_flags_are_those_of_peers(tmp_path: Path) -> None:
    given = foreign.arguments_of(["--limit", "7", "--python", sys.executable, "--not-started", "no time"])
    terms = foreign.terms_of_flags(given)
    assert (terms.limit, terms.python, terms.skip) == (7, sys.executable, "no time")
    assert foreign.DELTA == DELTA
