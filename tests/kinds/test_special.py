"""Graphs and points, from a file to an answer: what is counted, what leaves, what is refused before it costs."""

from __future__ import annotations

from collections import Counter as Multiset
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import dualquery
from dualquery import Budget, DataError, DualQueryError, Neighbours, QueryError, Release, SchemaError
from dualquery.beliefs.graphs import CutMatrix
from dualquery.cli import run as run_command
from dualquery.counting import MemoryCounter, SpilledCounter
from dualquery.game import Heard
from dualquery.mechanisms.cuts import COARSENINGS, excess
from dualquery.mechanisms.graphs import RectangleGraph
from dualquery.mechanisms.mechanism import Task
from dualquery.privacy.budget import Accounting
from dualquery.privacy.ledger import Ledger
from dualquery.queries.cuts import cuts_of
from dualquery.queries.distances import Knots, distances_to
from dualquery.queries.families import from_spec, from_texts
from dualquery.queries.workload import Workload
from dualquery.releases.evaluate import evaluate
from dualquery.table.domain import Categorical, Domain
from dualquery.table.encoding import encode, record_blocks
from dualquery.table.graph import Graph, graph_of
from dualquery.table.points import GRID, KNOTS, STEPS, Metric, points_of
from dualquery.table.records import Records, unpack_bits
from dualquery.table.schema import Schema, parse_schema, read_schema, schema_text

ADDED = Budget(epsilon=20, delta=1e-6, neighbours=Neighbours.ADD_REMOVE)

GRAPH = """
[graph]
source = "payer"
target = "payee"
vertices = "accounts.csv"

[[attribute]]
name = "region"
values = ["North", "South"]
"""
POINTS = """
[points]
[points.columns]
lat = [47, 55]
lon = [5, 15]
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("special")
    rng = np.random.default_rng(0)
    names = [f"k{i}" for i in range(40)]
    rows = "\n".join(f"{name},{('North', 'South')[i % 2]}" for i, name in enumerate(names))
    (folder / "accounts.csv").write_text(f"vertex,region\n{rows}\n")
    (folder / "graph.toml").write_text(GRAPH)
    weight = rng.gamma(1, size=40)
    drawn = rng.choice(1600, size=3000, p=np.outer(weight, weight).ravel() / weight.sum() ** 2)
    edges = "\n".join(f"{names[e // 40]},{names[e % 40]}" for e in drawn)
    (folder / "edges.csv").write_text(f"payer,payee\n{edges}\n")
    (folder / "points.toml").write_text(POINTS)
    held = rng.beta(2, 3, size=(2000, 2)) * [8, 10] + [47, 5]
    (folder / "points.csv").write_text(
        "lat,lon\n" + "\n".join(f"{a!r},{b!r}" for a, b in held.tolist()) + "\n"
    )
    return folder


def test_a_schema_of_a_special_table_comes_back(place: Path) -> None:
    for name in ("graph.toml", "points.toml"):
        schema = read_schema(place / name)
        assert parse_schema(schema_text(schema), origin="again") == schema
    numbered = graph_of(tuple(map(str, range(3, 103))), directed=False, weight="w", heaviest=7)
    assert "vertices = 100\nfirst = 3" in schema_text(numbered)
    assert parse_schema(schema_text(numbered), origin="again").domain == numbered


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[graph]\nvertices = 3\ncolour = 1", "means nothing here"),
        ("[graph]\nvertices = 1", "'vertices' must be"),
        ("[graph]\nvertices = ['a', 'a']", "stands twice"),
        ("[graph]\nvertices = 'no.csv'", "must list its vertices"),
        ("[graph]\nvertices = 3\nweight = 'w'", "give both or none"),
        ("[points]", "names no column"),
        ("[points]\n[points.columns]\nx = [1, 1]", "the lower first"),
        ("[points]\n[points.columns]\nx = 3", "needs its bounds"),
        ("[points]\n[points.columns]\nx = [0, 1]\n[graph]\nvertices = 3", "keep one"),
    ],
)
def test_what_a_schema_must_not_say(text: str, words: str) -> None:
    with pytest.raises(SchemaError, match=words):
        parse_schema(text, origin="it")


def brute(domain: Graph, rows: np.ndarray, workload: Workload) -> list[int]:
    """What crosses each cut, edge by edge."""
    group = workload.groups[0]
    number = len(domain.vertices)
    found = []
    for s, t in zip(unpack_bits(group.sources, number), unpack_bits(group.targets, number), strict=True):
        ways = [(0, 1)] if domain.directed else [(0, 1), (1, 0)]
        crossed = [any(s[edge[a]] and t[edge[b]] for a, b in ways) for edge in rows]
        found.append(
            sum(int(edge[2]) if len(edge) > 2 else 1 for edge, c in zip(rows, crossed, strict=True) if c)
        )
    return found


@pytest.mark.parametrize("directed", [True, False])
@pytest.mark.parametrize("heaviest", [None, 5])
def test_cuts_are_counted_edge_by_edge(directed: bool, heaviest: int | None) -> None:
    names = tuple("abcdefg")
    weighed = {} if heaviest is None else {"weight": "w", "heaviest": heaviest}
    domain = graph_of(names, directed=directed, **weighed)
    rng = np.random.default_rng(1)
    rows = rng.integers([7, 7] if heaviest is None else [7, 7, heaviest + 1], size=(60, 2 + bool(heaviest)))
    records = Records.from_rows(domain, rows)
    texts = [
        "edges from {a, b} to {b, c}",
        "edges leaving {c .. e}",
        "edges entering {a}",
        "edges within {everything}",
    ]
    for workload in (
        from_texts(domain, texts),
        from_spec(domain, "cuts:random:9"),
        from_spec(domain, "cuts:ranges:9"),
    ):
        assert workload.counts(records).tolist() == brute(domain, rows, workload)
        again = from_texts(domain, list(workload.texts()))
        assert again.digest() == workload.digest()
        group, one = workload.groups[0], np.zeros(workload.size, np.int32)
        group.add_answers(rows[0].astype(np.int32), one)
        assert one.tolist() == brute(domain, rows[:1], workload)
        most = max(
            np.count_nonzero(brute(domain, np.array([[u, v, 1]]), workload))
            for u in range(7)
            for v in range(7)
        )
        assert most <= group.most_satisfied() <= group.size


def test_sets_by_what_is_public_about_vertices(place: Path) -> None:
    domain = read_schema(place / "graph.toml").domain
    (group,) = from_texts(domain, ["edges from {region = North} to {k1, k3}"]).groups
    members = unpack_bits(group.sources, 40)[0]
    assert members.tolist() == [1, 0] * 20
    assert from_spec(domain, "cuts:region").size == 4


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("edges leaving {k99}", "not among the vertices"),
        ("edges from {k1}", "reads like"),
        ("edges leaving {}", "empty"),
        ("edges leaving {k3 .. k1}", "before the first"),
        ("edges leaving {colour = red}", "colour"),
        ("edges leaving {k1", "not closed"),
        ("payer = k1", "reads like"),
    ],
)
def test_cuts_that_cannot_be_read(place: Path, text: str, words: str) -> None:
    with pytest.raises(QueryError, match=words):
        from_texts(read_schema(place / "graph.toml").domain, [text])


def test_a_graph_from_its_file_to_an_answer(place: Path, tmp_path: Path) -> None:
    schema = read_schema(place / "graph.toml")
    made = dualquery.release(
        place / "edges.csv", schema=schema, workload="cuts:region + cuts:random:50", budget=ADDED
    )
    assert made.certificate["mechanism"] == "coarsenings"
    assert made.certificate["table"] == "graph"
    made.save(tmp_path / "out", csv=True)
    held = Release.load(tmp_path / "out")
    asked = from_spec(schema.domain, "cuts:region + cuts:random:30:5")
    for group in asked.groups:
        assert np.allclose(made.artefact.fractions(group), held.artefact.fractions(group), rtol=1e-12)
        assert np.allclose(made.artefact.bars(group), held.artefact.bars(group), rtol=1e-9)
    found = evaluate(held, place / "edges.csv", "cuts:region")
    assert found.mean_error < 0.003
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert "It protects one edge" in page
    assert "edges.parquet" in page
    answer = held.answer("edges from {region = North} to {region = South}")
    assert answer.error
    assert 0 < answer.value < 1
    edges = held.to_arrow()
    assert edges["weight"].to_numpy().sum() == pytest.approx(3000, rel=0.02)
    crossing = sum(
        w
        for s, t, w in zip(*(edges.column(i).to_pylist() for i in range(3)), strict=True)
        if int(s[1:]) % 2 == 0 and int(t[1:]) % 2 == 1
    )
    assert crossing / held.artefact.edges == pytest.approx(answer.value, rel=1e-6)


def test_a_released_graph_for_networkx(place: Path) -> None:
    pytest.importorskip("networkx")
    schema = read_schema(place / "graph.toml")
    made = dualquery.release(place / "edges.csv", schema=schema, workload="cuts:region", budget=ADDED)
    graph = made.to_networkx()
    assert graph.number_of_nodes() == 40
    assert graph.nodes["k1"]["region"] == "South"
    assert graph.size(weight="weight") == pytest.approx(3000, rel=0.02)


def test_edges_of_an_owner_are_capped(place: Path, tmp_path: Path) -> None:
    table = tmp_path / "owned.csv"
    table.write_text("payer,payee,owner\n" + "k1,k2,ann\n" * 500 + "k3,k4,bob\n" * 2 + "k5,k6,\n" * 300)
    schema = parse_schema(
        '[table]\nunit = "owner"\n' + schema_text(read_schema(place / "graph.toml")), origin="it"
    )
    records = encode(table, schema, records_per_person=3)
    assert records.rows == 3 + 2 + 300
    neighbours = Neighbours.named("person-add-remove", 3)
    budget = Budget(epsilon=5, delta=1e-6, neighbours=neighbours)
    made = dualquery.release(table, schema=schema, workload="cuts:region", budget=budget)
    assert made.certificate["budget"]["records_per_person"] == 3


@pytest.mark.parametrize("end", ["payer", "payee"])
def test_an_end_of_the_edges_may_own_them(end: str, tmp_path: Path) -> None:
    """Without one owner's edges, all others stay, and no statistic moves by more than is charged for."""
    domain, most = graph_of(("a", "b", "c"), source="payer", target="payee"), 2
    schema, rng = Schema(domain, unit=end), np.random.default_rng(1)
    neighbours = Neighbours.named("person-add-remove", most)
    cuts = from_spec(domain, "cuts:random:6").groups[0]
    allowed = neighbours.sensitivity(cuts.bound())
    for _ in range(20):
        spelt = rng.choice(["a", " a", "b", "b ", "c"], size=(int(rng.integers(1, 12)), 2))
        table = pa.table({"payer": spelt[:, 0], "payee": spelt[:, 1]})
        whole = encode(table, schema, records_per_person=most)
        place = 0 if end == "payer" else 1
        held = Multiset(map(tuple, whole.to_rows().tolist()))
        for code, owner in enumerate("abc"):
            rest = [each for each in table.to_pylist() if each[end].strip() != owner]
            left = encode(pa.Table.from_pylist(rest, table.schema), schema, records_per_person=most)
            kept = Multiset(map(tuple, left.to_rows().tolist()))
            mine = Multiset({edge: held[edge] for edge in held if edge[place] == code})
            assert held - kept == mine
            assert held == kept + mine
            assert mine.total() <= most
            moved = cuts.counts(whole) - cuts.counts(left)
            assert np.abs(moved).sum() <= allowed.l1
            assert (moved**2).sum() <= allowed.l2_squared
        blocks = list(record_blocks(table, schema, rows=2, records_per_person=most))
        assert Multiset(tuple(row) for block in blocks for row in block.to_rows().tolist()) == held
    path = tmp_path / "edges.csv"
    path.write_text("payer,payee\n" + "a,b\n" * 50 + "c,b\n")
    budget = Budget(epsilon=50, delta=1e-6, neighbours=neighbours)
    made = dualquery.release(path, schema=schema, workload="cuts:random:6", budget=budget)
    assert made.certificate["budget"]["records_per_person"] == most
    with pytest.raises(SchemaError, match="both the unit and an attribute"):
        Schema(Domain((Categorical("payer", ("a", "b")),)), unit="payer")


def test_rectangles_answer_as_the_matrix_that_they_are() -> None:
    domain = graph_of(tuple(map(str, range(70))))
    workload = from_spec(domain, "cuts:random:20")
    (cuts,) = workload.groups
    belief, matrix = CutMatrix(workload), np.zeros((70, 70))
    from_, to = (unpack_bits(each, 70).astype(float) for each in (cuts.sources, cuts.targets))
    seen = []
    for query, value in ((3, 0.4), (7, 0.1), (3, 0.5), (19, 0.9), (2, 0.2)):
        belief.hear(Heard(query, value))
        seen.append(belief.snapshot().told)
        matrix += (value - from_[query] @ matrix @ to[query]) * np.outer(from_[query], to[query]) / 35**2
    held = belief.snapshot()
    expected = np.einsum("qu,uv,qv->q", from_, matrix, to)
    assert np.allclose(held.told, expected, atol=1e-12)
    assert np.allclose(held.answers(workload), expected, atol=1e-12)
    assert np.allclose(held.mean_of_second_half().answers(workload), np.mean(seen[2:], axis=0), atol=1e-12)


def test_frieze_and_kannan_under_pure_epsilon(place: Path, tmp_path: Path) -> None:
    budget = Budget(epsilon=20, delta=0, neighbours=Neighbours.REPLACE, accounting=Accounting.PURE)
    schema = read_schema(place / "graph.toml")
    made = dualquery.release(place / "edges.csv", schema=schema, workload="cuts:region", budget=budget)
    assert made.certificate["mechanism"] == "frieze-kannan"
    assert evaluate(made, place / "edges.csv").mean_error < 0.02
    made.save(tmp_path / "out")
    (group,) = from_spec(schema.domain, "cuts:random:10").groups
    again = Release.load(tmp_path / "out").artefact.fractions(group)
    assert np.allclose(made.artefact.fractions(group), again)


def test_without_directions_a_rectangle_is_both_ways_and_a_pair_counts_once() -> None:
    """Pair by pair: S×T ∪ T×S, with sets that meet, loops among the pairs."""
    number, rng = 6, np.random.default_rng(3)
    domain = graph_of(tuple("abcdef"), directed=False)
    sets = rng.random((2, 12, number)) < 0.5
    sets[:, 0] = True
    workload = Workload(domain, (cuts_of(domain, *sets),), "some cuts")
    belief = CutMatrix(workload)
    for query, value in zip(rng.integers(12, size=9).tolist(), rng.random(9).tolist(), strict=True):
        belief.hear(Heard(query, value))
        assert belief.snapshot().told[query] == pytest.approx(value)
    held = belief.snapshot()
    pairs = [(u, v) for u in range(number) for v in range(u, number)]
    from_, to = sets[0].astype(int), sets[1].astype(int)
    lies = np.array(
        [[max(from_[q, u] * to[q, v], from_[q, v] * to[q, u]) for u, v in pairs] for q in range(12)]
    )
    known = {
        unpacked.tobytes() + other.tobytes(): q for q, (unpacked, other) in enumerate(zip(*sets, strict=True))
    }
    rows = [
        known[(a > 0).tobytes() + (b > 0).tobytes()]
        for a, b in zip(unpack_bits(held.sources, number), unpack_bits(held.targets, number), strict=True)
    ]
    weight = held.heights @ lies[rows]
    assert np.allclose(held.told, lies @ weight)
    assert np.allclose(held.answers(workload), lies @ weight)
    graph = RectangleGraph(domain, held, 1.0, 0.1).to_arrow()
    listed = {
        (s, t): w for s, t, w in zip(*(graph[name].to_pylist() for name in graph.column_names), strict=True)
    }
    expected = {("abcdef"[u], "abcdef"[v]): w for (u, v), w in zip(pairs, weight, strict=True) if w > 1e-9}
    assert listed == pytest.approx(expected)


def test_frieze_and_kannan_without_directions(place: Path) -> None:
    """An edge is one record: it was advised to list it both ways, which is two and costs twice."""
    text = (place / "graph.toml").read_text().replace("[graph]", "[graph]\ndirected = false", 1)
    (place / "mutual.toml").write_text(text)
    budget = Budget(epsilon=20, delta=0, neighbours=Neighbours.REPLACE, accounting=Accounting.PURE)
    made = dualquery.release(
        place / "edges.csv",
        schema=read_schema(place / "mutual.toml"),
        workload="cuts:region",
        budget=budget,
        mechanism="frieze-kannan",
    )
    assert made.certificate["records"]["rows"] == 3000
    assert evaluate(made, place / "edges.csv").mean_error < 0.02


def test_a_class_of_queries_that_a_mechanism_cannot_play_costs_nothing(place: Path) -> None:
    schema = read_schema(place / "graph.toml")
    with pytest.raises(DualQueryError, match="plays tables of records"):
        dualquery.release(
            place / "edges.csv", schema=schema, workload="cuts:region", budget=ADDED, mechanism="mwem"
        )


@pytest.mark.parametrize("accounting", [Accounting.ZCDP, Accounting.GAUSSIAN])
def test_both_steps_of_coarsenings_are_paid_for_before_the_first(place: Path, accounting: Accounting) -> None:
    schema = read_schema(place / "graph.toml")
    workload = from_spec(schema.domain, "cuts:region")
    budget = Budget(epsilon=1, delta=1e-6, neighbours=Neighbours.REPLACE, accounting=accounting)
    plan = COARSENINGS.plan_for(Task(workload, 3000, budget), {})
    ledger = Ledger(budget)
    ledger.charge(*(step.event for step in plan.steps))
    assert 0.999 < ledger.spent().epsilon <= 1
    assert MemoryCounter(encode(place / "edges.csv", schema)).true_rows == 3000


def test_shrinkage_keeps_what_stands_out() -> None:
    rng = np.random.default_rng(0)
    truth = np.zeros(20_000)
    truth[:50] = 10.0 ** rng.uniform(2, 5, 50)
    found = excess(truth + rng.normal(0, 5, 20_000), np.zeros(20_000), 5.0)
    assert np.abs(found[:50] - truth[:50]).max() < 25
    assert np.abs(found[50:]).mean() < 0.3


# Points


def test_distances_are_sums_over_columns() -> None:
    domain = points_of({"x": (0.0, 1.0), "y": (0.0, 3.0), "z": (-1.0, 1.0)})
    rng = np.random.default_rng(2)
    rows = rng.integers(GRID + 1, size=(50, 3))
    records = Records.from_rows(domain, rows)
    texts = ["distance to (x = 0.25, y = 3)", "distance to (z = 0)", "distance to (x = 1, y = 0.3, z = -1)"]
    workload = from_texts(domain, texts)
    asked = [{0: 0.25, 1: 3.0}, {2: 0.0}, {0: 1.0, 1: 0.3, 2: -1.0}]
    values = np.array([[0.0, 0.0, -1.0]]) + np.array([[1.0, 3.0, 2.0]]) * rows / GRID
    for count, point in zip(workload.counts(records), asked, strict=True):
        width = sum((1.0, 3.0, 2.0)[j] for j in point)
        true = np.mean([sum(abs(row[j] - y) for j, y in point.items()) for row in values]) / width
        assert count / (workload.unit * 50) == pytest.approx(true, abs=1e-4)
    assert from_texts(domain, list(workload.texts())).digest() == workload.digest()
    one = np.zeros(3, np.int32)
    workload.groups[0].add_answers(rows[0].astype(np.int32), one)
    assert np.abs(one - workload.counts(records.take(np.zeros(1, np.int64)))).max() <= 1


def haversine(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Arcs in kilometres between latitudes and longitudes in degrees."""
    a, b = np.radians(a), np.radians(b)
    half = np.sin((a - b) / 2) ** 2
    return (
        2
        * 6371.0088
        * np.arcsin(np.sqrt(half[..., 0] + np.cos(a[..., 0]) * np.cos(b[..., 0]) * half[..., 1]))
    )


@pytest.mark.parametrize(
    ("metric", "bounds", "within"),
    [
        ("euclidean", [(0, 1), (0, 3)], 2e-4),
        ("euclidean", [(-2, 1)], 1e-4),
        ("euclidean", [(0, 1), (0, 3), (-1, 1)], 2e-3),
        ("euclidean", [(0, 1), (0, 3), (-1, 1), (5, 6), (0, 2)], 2e-2),
        ("great-circle", [(47, 55), (6, 15)], 5e-3),
        ("great-circle", [(-50, 70), (-170, 175)], 1e-2),
    ],
)
def test_distances_along_directions_are_those_of_the_metric(
    metric: str, bounds: list[tuple[float, float]], within: float
) -> None:
    """All records at one place, so that errors of directions cannot cancel, against the formula in floats."""
    domain = points_of({f"c{j}": each for j, each in enumerate(bounds)}, metric=Metric(metric))
    rng, low, wide = np.random.default_rng(4), *np.array([(a, b - a) for a, b in bounds]).T
    asked = rng.integers(GRID + 1, size=(40, len(bounds)))
    workload = Workload(domain, (distances_to(domain, asked),), "points")
    for place in rng.integers(GRID + 1, size=(5, len(bounds))):
        records = Records.from_rows(domain, np.tile(place, (3, 1)))
        found = domain.axes.diameter * workload.counts(records) / (3 * workload.unit)
        here, there = low + wide * place / GRID, low + wide * asked / GRID
        true = (
            haversine(there, here) if metric == "great-circle" else np.sqrt(((there - here) ** 2).sum(axis=1))
        )
        near = true < (15_000 if metric == "great-circle" else np.inf)
        assert np.abs(found - true)[near].max() < within * max(true[near].max(), 0.05 * domain.axes.diameter)
        assert (np.abs(found - true)[~near] < 0.1 * true[~near]).all()


@pytest.mark.parametrize("metric", ["euclidean", "great-circle"])
def test_points_of_another_metric_from_their_file_to_an_answer(
    place: Path, tmp_path: Path, metric: str
) -> None:
    text = (place / "points.toml").read_text().replace("[points]", f'[points]\nmetric = "{metric}"', 1)
    (place / "turned.toml").write_text(text)
    schema = read_schema(place / "turned.toml")
    made = dualquery.release(
        place / "points.csv", schema=schema, workload="points:random:60", budget=ADDED, seed=1
    )
    assert any("told as fractions of" in note for note in made.certificate["notes"])
    found = evaluate(made, place / "points.csv")
    assert found.mean_error < 3 * found.predicted_mean_error < 0.002
    made.save(tmp_path / "out")
    held = Release.load(tmp_path / "out")
    assert held.artefact.domain == schema.domain
    question = "distance to (lat = 51.2, lon = 6.8)"
    assert held.answer(question).value == pytest.approx(made.answer(question).value, rel=1e-9)
    with pytest.raises(QueryError, match=f"a {metric} distance is one over all columns; name 'lon' too"):
        held.answer("distance to (lat = 51.2)")
    workload = from_spec(schema.domain, "points:random:5")
    assert from_texts(schema.domain, list(workload.texts())).digest() == workload.digest()


def test_the_coordinate_wise_learner_along_directions(place: Path) -> None:
    text = (place / "points.toml").read_text().replace("[points]", '[points]\nmetric = "euclidean"', 1)
    schema = parse_schema(text, origin="here")
    pure = Budget(epsilon=20, delta=0, neighbours=Neighbours.REPLACE, accounting=Accounting.PURE)
    learned = dualquery.release(
        place / "points.csv",
        schema=schema,
        workload="points:random:20",
        budget=pure,
        mechanism="coordinate-wise",
        rounds=4,
    )
    assert evaluate(learned, place / "points.csv").mean_error < 0.05


@pytest.mark.parametrize(
    ("section", "words"),
    [
        ('metric = "taxi"\n[points.columns]\nx = [0, 1]', "'metric' is one of l1, euclidean, great-circle"),
        ('metric = "great-circle"\n[points.columns]\nx = [0, 1]', "takes two columns, first the latitude"),
        ('metric = "great-circle"\n[points.columns]\nlon = [5, 150]\nlat = [40, 50]', "first the latitude"),
    ],
)
def test_metrics_that_cannot_be_read(section: str, words: str) -> None:
    with pytest.raises(SchemaError, match=words):
        parse_schema(f"[points]\n{section}\n", origin="here")


def test_points_from_their_file_to_an_answer(place: Path, tmp_path: Path) -> None:
    schema = read_schema(place / "points.toml")
    made = dualquery.release(
        place / "points.csv", schema=schema, workload="points:random:60", budget=ADDED, seed=1
    )
    assert made.certificate["mechanism"] == "distance-curves"
    found = evaluate(made, place / "points.csv")
    assert found.mean_error < 3 * found.predicted_mean_error < 0.002
    made.save(tmp_path / "out", csv=True)
    held = Release.load(tmp_path / "out")
    question = "distance to (lat = 51.2, lon = 6.8)"
    assert held.answer(question).value == pytest.approx(made.answer(question).value, rel=1e-9)
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert "It protects one point" in page
    assert "Mean distance to each place of lat" in page
    (tmp_path / "ask.csv").write_text("lat\n50\n51.5\n")
    assert held.answer_all(["distance to (lat = 50)"])[0].value == pytest.approx(
        held.artefact.fractions(from_spec(schema.domain, f"points:{tmp_path / 'ask.csv'}").groups[0])[0]
    )


def test_the_coordinate_wise_learner_under_pure_epsilon(place: Path) -> None:
    budget = Budget(epsilon=20, delta=0, neighbours=Neighbours.REPLACE, accounting=Accounting.PURE)
    schema = read_schema(place / "points.toml")
    made = dualquery.release(place / "points.csv", schema=schema, workload="points:random:60", budget=budget)
    assert made.certificate["mechanism"] == "coordinate-wise"
    assert evaluate(made, place / "points.csv").mean_error < 0.01


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("distance to (lat = 60)", "outside the bounds"),
        ("distance to (lat = 50, lat = 51)", "twice"),
        ("distance to (height = 50)", "height"),
        ("distance to (lat = north)", "needs a number"),
        ("lat = 50", "reads like"),
    ],
)
def test_distances_that_cannot_be_read(place: Path, text: str, words: str) -> None:
    with pytest.raises(QueryError, match=words):
        from_texts(read_schema(place / "points.toml").domain, [text])


@pytest.mark.parametrize(
    ("schema", "table", "words"),
    [
        ("graph.toml", "payer,payee\nk1,k99\n", "outside the declared set"),
        ("points.toml", "lat,lon\n50,99\n", "outside its bounds"),
    ],
)
def test_what_lies_outside_is_refused_with_code_2(
    place: Path, tmp_path: Path, schema: str, table: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "bad.csv").write_text(table)
    with pytest.raises(DataError, match=words):
        encode(tmp_path / "bad.csv", read_schema(place / schema))
    spec = "cuts:region" if schema == "graph.toml" else "points:random:5"
    given = ["release", str(tmp_path / "bad.csv"), "--schema", str(place / schema), "-q", spec, "-e", "1"]
    assert run_command([*given, "--delta", "1e-6", "--out", str(tmp_path / "out")]) == 2
    assert words in capsys.readouterr().err.replace("\n", " ")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("rows", [1, 7, 1000])
def test_points_are_counted_in_parts(rows: int) -> None:
    """Sums are rounded once, over all parts, wherever these begin."""
    domain = parse_schema(POINTS, origin="test").domain
    records = Records.from_rows(domain, np.random.default_rng(3).integers(GRID + 1, size=(60, domain.width)))
    workload = from_spec(domain, "points:random:20")
    factor = np.arange(2 * (KNOTS + 1)).reshape(2, -1) - 100
    parts = SpilledCounter(domain, iter([records]), rows=rows)
    for asked in (workload, Knots((0, 1), (factor, factor), STEPS, total=5)):
        assert np.array_equal(parts.true_counts(asked), asked.counts(records))
