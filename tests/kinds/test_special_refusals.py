"""What special tables must not be given: one sentence, exit code 2, and a ledger from which nothing was taken."""

from __future__ import annotations

from pathlib import Path

import pytest

from dualquery.cli import run as run_command

GRAPH = '[graph]\nsource = "payer"\ntarget = "payee"\nvertices = ["a", "b", "c"]\n'
POINTS = "[points]\n[points.columns]\nlat = [47, 55]\nlon = [5, 15]\n"
CODES = "[codes.columns]\nicd = {text = 5}\nborn = {from = 1900, to = 2030}\n"
ITEMS = "".join(f'[[attribute]]\nname = "{name}"\nvalues = ["no", "yes"]\n' for name in "pqrs")
EDGES, PLACES, PATIENTS = (
    "payer,payee\na,b\nb,c\n",
    "lat,lon\n50,10\n51,11\n",
    "icd,born\nC71.9,1984\nA00,1950\n",
)
BASKETS = "p,q,r,s\nyes,no,no,yes\nno,yes,no,no\n"
WIDE = "p = yes | q = yes | r = yes"
MANY, FEW = "[graph]\nvertices = 500\n", "source,target\n1,2\n3,499\n"
CASES = [
    (GRAPH, "payer,payee\na,z\n", "edges leaving {a}", [], "outside the declared set"),
    (GRAPH, EDGES, "edges leaving {z}", [], "z"),
    (GRAPH, EDGES, "edges leaving {a}", ["--mechanism", "mwem"], "mwem"),
    (POINTS, "lat,lon\n50,99\n", "distance to (lat = 50)", [], "outside its bounds"),
    (POINTS, PLACES, "distance to (lat = 99)", [], "outside the bounds"),
    (POINTS, PLACES, "distance to (lat = 50)", ["--mechanism", "coarsenings"], "coarsenings"),
    (CODES, "icd,born\nmuchtoolong,1984\n", "icd = C71.9 & born = 1984", [], "icd"),
    (CODES, PATIENTS, "icd = C71.9 & born = 1800", [], "cannot occur"),
    (CODES, PATIENTS, "record in list('codes.csv')", [], "cannot occur"),
    (CODES, PATIENTS, "icd = C71.9 & born = 1984", ["--mechanism", "projection"], "projection"),
    # What only the plan refuses, which follows a number of records that is still to be measured.
    (GRAPH, EDGES, "edges leaving {a}", ["--mechanism", "coarsenings", "--rounds", "5"], "--rounds"),
    (POINTS, PLACES, "distance to (lat = 50)", ["--rounds", "0"], "round"),
    (
        POINTS,
        PLACES,
        "distance to (lat = 50)",
        ["--mechanism", "distance-curves", "--widest", "2"],
        "--widest",
    ),
    (
        CODES,
        PATIENTS,
        "icd = C71.9 & born = 1984",
        ["--mechanism", "noisy-cells", "--rounds", "5"],
        "--rounds",
    ),
    (CODES, PATIENTS, "icd = C71.9 & born = 1984", ["--accounting", "renyi"], "renyi"),
    (ITEMS, BASKETS, WIDE, ["--mechanism", "parities", "--widest", "2"], "wider than 2"),
    (ITEMS, BASKETS, WIDE, ["--mechanism", "monomials", "--widest", "2"], "wider than 2"),
    (ITEMS, BASKETS, WIDE, ["--mechanism", "gaussian", "--rounds", "5"], "--rounds"),
    (ITEMS, BASKETS, WIDE, ["--mechanism", "mwem", "--memory", "1B"], "smallest query"),
]


@pytest.mark.parametrize(("schema", "table", "question", "options", "words"), CASES)
def test_a_refusal_is_one_sentence_and_costs_nothing(
    schema: str,
    table: str,
    question: str,
    options: list[str],
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, text in (("schema.toml", schema), ("table.csv", table), ("asked.txt", question + "\n")):
        Path(name).write_text(text)
    Path("codes.csv").write_text("icd,born\nC71.9-and-more,1984\n")
    book = ["--epsilon", "2", "--delta", "1e-5", "--neighbours", "add-remove"]
    assert run_command(["ledger", "create", "book.ledger", "--dataset", "people", *book]) == 0
    before = Path("book.ledger").read_bytes()
    given = ["release", "table.csv", "--schema", "schema.toml", "--queries", "asked.txt", "--out", "out"]
    paid = ["--epsilon", "1", "--delta", "1e-6", "--neighbours", "add-remove", "--ledger", "book.ledger"]
    capsys.readouterr()
    assert run_command([*given, *paid, *options]) == 2
    said = capsys.readouterr().err.strip()
    assert words in " ".join(said.split())
    assert "Traceback" not in said
    assert Path("book.ledger").read_bytes() == before
    assert not Path("out").exists()


def test_errors_of_distances_are_of_the_diameter_and_a_long_cut_is_shortened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, text in (
        ("points.toml", POINTS),
        ("places.csv", PLACES),
        ("graph.toml", MANY),
        ("edges.csv", FEW),
    ):
        Path(name).write_text(text)
    paid = ["--epsilon", "1", "--delta", "1e-6"]
    of_points = ["places.csv", "--schema", "points.toml", "--queries", "points:random:5", "--out", "far"]
    assert run_command(["release", *of_points, *paid]) == 0
    assert "fractions of the diameter" in " ".join(capsys.readouterr().out.split())
    of_graph = ["edges.csv", "--schema", "graph.toml", "--queries", "cuts:random:3", "--out", "cut"]
    assert run_command(["release", *of_graph, *paid]) == 0
    assert "fractions of the table" in " ".join(capsys.readouterr().out.split())
    assert run_command(["evaluate", "cut", "edges.csv"]) == 0
    said = capsys.readouterr().out
    assert " … " in said
    assert len(said) < 2000
