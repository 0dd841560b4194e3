"""Every command by running it, and everything a user can get wrong: one sentence, exit code 2, nothing written."""

from __future__ import annotations

import gzip
import json
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

import dualquery
from dualquery import Accounting, Budget, Neighbours, Release, example
from dualquery.cli import run
from dualquery.errors import DualQueryError
from dualquery.ledger.books import Books
from dualquery.mechanisms.dual_query.parameters import Learning, dual_query_pure, dual_query_rho
from dualquery.mechanisms.wishes import MECHANISMS, WISHES, flags_of, options, size_in_bytes
from dualquery.privacy.conversion import rho_of
from dualquery.queries.families import from_texts
from dualquery.table.encoding import encode
from dualquery.table.schema import read_schema

pytestmark = pytest.mark.usefixtures("few_rows")

PEOPLE = 600
QUICK = ["--mechanism", "dualquery", "--learning-rate", "2", "--samples", "20", "--rounds", "8"]
COMMAND = [sys.executable, "-c", "from dualquery.cli import main; main()"]
SOURCE = str(Path(dualquery.__file__).resolve().parents[1])

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the survey, its schema, and a release of it."""
    place = tmp_path_factory.mktemp("cli")
    pyarrow.csv.write_csv(example.survey(PEOPLE), place / "survey.csv")
    (place / "schema.toml").write_text(example.SCHEMA, encoding="utf-8")
    code = run(release_arguments(place, place / "released", "--seed", "1", "--quiet"))
    assert code == 0
    return place


def release_arguments(place: Path, out: Path, *more: str, table: str = "survey.csv") -> list[str]:
    return [
        "release",
        str(place / table),
        "--schema",
        str(place / "schema.toml"),
        "--queries",
        "random:3:300",
        "--epsilon",
        "1",
        "--delta",
        "1e-6",
        "--out",
        str(out),
        *QUICK,
        *more,
    ]


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a command in this process: exit code, standard output, standard error."""

    def ran(*arguments: object) -> tuple[int, str, str]:
        capsys.readouterr()
        code = run([str(argument) for argument in arguments])
        out, err = capsys.readouterr()
        return code, out, err

    return ran


def refused(result: tuple[int, str, str], part: str) -> None:
    """Exit code 2, one sentence, no traceback, nothing on the standard output."""
    code, out, err = result
    assert code == 2, (out, err)
    assert out == ""
    assert part.lower() in err.lower()
    assert "Traceback" not in err
    assert err.startswith("Error: ")
    assert err.count("Error: ") == 1


def shell(*arguments: object, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
    """Run the program as a user does."""
    environment = {**os.environ, "PYTHONPATH": SOURCE, "PYTHONUTF8": "1"}
    return subprocess.run(
        [*COMMAND, *map(str, arguments)],
        input=stdin,
        capture_output=True,
        text=True,
        encoding="utf-8",
        env=environment,
        check=False,
        timeout=300,
    )


# What a person does


def test_release_as_a_user_runs_it(place: Path, tmp_path: Path) -> None:
    """A real process, with system entropy, and a summary that says where everything is."""
    done = shell(*release_arguments(place, tmp_path / "out", "--csv"))
    assert done.returncode == 0, done.stderr
    assert "dualquery" in done.stdout
    assert "report.html" in done.stdout
    assert "Traceback" not in done.stderr
    files = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert files == ["certificate.json", "report.html", "synthetic.csv", "synthetic.parquet"]
    certificate = json.loads((tmp_path / "out" / "certificate.json").read_text())
    assert certificate["entropy"] == {"statement": "system entropy", "private": True}
    assert certificate["parameters"]["rounds"] == 8
    assert 0 < certificate["spent"]["epsilon"] <= 1
    asked = shell(
        "answer", tmp_path / "out", "-", stdin="sex = male\n# a comment\n\nage >= 55 & smokes = yes\n"
    )
    assert asked.returncode == 0
    assert [line.split("\t")[-1] for line in asked.stdout.splitlines()] == [
        "sex = male",
        "age >= 55 & smokes = yes",
    ]


def test_help_is_quick_and_complete() -> None:
    """No kernels are loaded to say what can be done. (Half a second on an idle machine.)"""
    probe = (
        "import sys; from dualquery.cli import run; code = run(['--help']); "
        "heavy = {'numpy', 'numba', 'pyarrow', 'duckdb', 'matplotlib', 'opendp'} & set(sys.modules); "
        "assert not heavy, heavy; sys.exit(code)"
    )
    environment = {**os.environ, "PYTHONPATH": SOURCE}
    done = subprocess.run(
        [sys.executable, "-c", probe],
        capture_output=True,
        text=True,
        encoding="utf-8",
        env=environment,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for name in ("schema", "plan", "release", "answer", "evaluate", "demo"):
        assert name in done.stdout


@pytest.mark.parametrize("mechanism", ["dualquery", "projection"])
def test_a_question_is_quick(place: Path, tmp_path: Path, mechanism: str) -> None:
    """To answer one nothing is compiled or loaded that was, and no package is imported that has nothing to do."""
    arguments = release_arguments(place, tmp_path / "out", "--seed", "1", "--quiet")
    if mechanism == "projection":  # with replicas
        arguments = [each for each in arguments if each not in QUICK]
    assert run(arguments) == 0
    probe = (
        "import sys; from dualquery.cli import run; code = run(sys.argv[1:]); "
        "idle = {'numba', 'llvmlite', 'pandas', 'scipy', 'pyarrow.dataset', 'sqlalchemy', 'matplotlib', "
        "'dualquery.privacy.curator', 'dualquery.mechanisms.mechanism', 'dualquery.releases.report'}; "
        "assert not idle & set(sys.modules), idle & set(sys.modules); sys.exit(code)"
    )
    for question in ("age >= 55 & smokes = yes", "sex = male | !(commute = car)"):
        done = subprocess.run(
            [sys.executable, "-c", probe, "answer", str(tmp_path / "out"), question],
            capture_output=True,
            text=True,
            encoding="utf-8",
            env={**os.environ, "PYTHONPATH": SOURCE},
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith("0.")


@pytest.mark.parametrize("name", ["release", "plan", "answer", "evaluate", "demo", "schema draft", "schema"])
def test_every_command_has_help(command: Run, name: str) -> None:
    code, out, _ = command(*name.split(), "--help")
    assert code == 0
    assert f"dualquery {name}" in " ".join(out.split())


@pytest.mark.parametrize("name", ["release", "plan"])
def test_help_names_the_default_neighbours(command: Run, name: str) -> None:
    _, out, _ = command(name, "--help")
    assert "[default: replace]" in " ".join(out.replace("│", " ").split())


def test_no_arguments_shows_help_and_version_the_version(command: Run) -> None:
    code, out, _ = command()
    assert code == 0
    assert "Usage: dualquery" in out
    assert command("--version") == (0, f"dualquery {dualquery.__version__}\n", "")


def test_schema_draft(command: Run, place: Path, tmp_path: Path) -> None:
    code, out, err = command("schema", "draft", place / "survey.csv", "--out", tmp_path / "draft.toml")
    assert (code, out) == (0, "")
    assert "read off the private table" in err
    assert "DRAFT" in (tmp_path / "draft.toml").read_text()
    assert dualquery.read_schema(tmp_path / "draft.toml").domain.width == 12
    refused(
        command("schema", "draft", place / "survey.csv", "--out", tmp_path / "draft.toml"), "exists already"
    )
    code, out, err = command("schema", "draft", place / "survey.csv", "--quiet")
    assert code == 0
    assert err == ""
    assert "DRAFT" in out
    arguments = release_arguments(place, tmp_path / "out", "--json")
    arguments[arguments.index("--schema") + 1] = str(tmp_path / "draft.toml")
    code, out, err = command(*arguments)
    assert code == 0, err
    assert any("draft" in warning for warning in json.loads(out)["warnings"])


def test_plan_needs_no_data(command: Run, place: Path) -> None:
    flags = [
        "plan",
        "--schema",
        place / "schema.toml",
        "--records",
        30162,
        "--queries",
        "random:3:300",
        "--epsilon",
        1,
    ]
    code, out, err = command(*flags, *QUICK)
    assert (code, err) == (0, "")
    for word in ("dualquery", "predicted error", "time", "memory", "rounds", "neighbours replace"):
        assert word in out
    code, out, err = command(*flags, *QUICK, "--json", "--delta", "1e-3")
    assert code == 0
    plan = json.loads(out)
    assert plan["parameters"]["rounds"] == 8
    assert plan["queries"] == 300
    assert plan["warnings"]
    assert set(plan) >= {"mechanism", "reason", "mean_error", "max_error", "seconds", "bytes"}
    code, out, _ = command(*flags, "--json")
    assert code == 0
    assert json.loads(out)["budget"]["delta"] == pytest.approx(1 / 30162**2)


def plan_arguments(place: Path, *more: object) -> list[object]:
    queries = ["--queries", "marginals:2", "--epsilon", 1]
    return ["plan", "--schema", place / "schema.toml", "--records", 30162, *queries, "--check", 0, *more]


def priced(out: str) -> dict[str, tuple[int, str, str]]:
    """The table of steps that `plan` prints: how often each, for which pure ε and which ρ in all."""
    _, _, table = out.partition("What the curator is asked, and what it costs")
    head, *rows = [line for line in table.splitlines() if line.strip()]
    assert head.split("\t") == ["step", "times", "pure ε", "ρ"]
    cells = [line.rsplit(maxsplit=3) for line in rows if not line.startswith("Note")]
    return {words.strip(): (int(times.replace(",", "")), pure, rho) for words, times, pure, rho in cells}


def test_plan_prints_the_price_of_each_step(command: Run, place: Path) -> None:
    flags = ["--mechanism", "mwem", "--rounds", 5, "--accounting", "pure", "--measured", "tables"]
    code, out, err = command(*plan_arguments(place, *flags))
    assert (code, err) == (0, "")
    assert priced(out) == {
        "choose what the distribution gets wrong": (5, "0.5", "0.00625"),  # 5 · 0.1²/8
        "measure it": (5, "0.5", "0.025"),  # 5 · 0.1²/2
    }
    by_zcdp, by_gaussian = float(rho_of(epsilon=1.0, delta=1e-6)), 0.02801
    for more, words in (
        (
            ["--mechanism", "projection"],
            ["measure 12 one-way", "measure pairs", "measure what is still", "measure means inside"],
        ),
        (["--mechanism", "gaussian"], ["measure every query"]),
    ):
        code, out, err = command(*plan_arguments(place, "--delta", "1e-6", *more, "--accounting", "zcdp"))
        assert (code, err) == (0, "")
        assert_priced(priced(out), words, by_zcdp)
        code, out, err = command(*plan_arguments(place, "--delta", "1e-6", *more))  # the tightest
        assert (code, err) == (0, "")
        assert "accounting gaussian (it is the tightest for a release that only adds Gaussian noise)" in out
        assert_priced(priced(out), words, by_gaussian)
    code, out, _ = command(*plan_arguments(place, "--mechanism", "zeros"))
    assert code == 0
    assert "What the curator is asked" not in out
    assert "costs nothing" in out


def assert_priced(steps: dict[str, tuple[int, str, str]], words: list[str], rho: float) -> None:
    """Steps that begin with these words, each once, none of them pure, and their ρ together."""
    assert all(step.startswith(begin) for step, begin in zip(steps, words, strict=True))
    assert {each[:2] for each in steps.values()} == {(1, "none")}
    assert sum(float(each) for _, _, each in steps.values()) == pytest.approx(rho, rel=1e-3)


def test_plan_shows_the_measurement_of_a_private_number_of_records(command: Run, place: Path) -> None:
    """1% of the budget by each theorem; where the number is declared, nothing."""
    private = ["--neighbours", "add-remove", "--delta", "1e-6", "--mechanism", "projection"]
    for accounting, rho in (("tightest", 0.02801), ("gaussian", 0.02801), ("zcdp", 0.02436)):
        arguments = plan_arguments(place, *private, "--accounting", accounting)
        arguments[arguments.index("--records")] = "--expected-records"
        code, out, err = command(*arguments)
        assert (code, err) == (0, "")
        steps = priced(out)
        assert steps["measure the number of records"] == (1, "none", f"{rho / 100:.4g}")
        assert sum(float(each) for _, _, each in steps.values()) == pytest.approx(rho, rel=1e-3)
    code, out, err = command(*plan_arguments(place, *private))
    assert (code, err) == (0, "")
    assert len(priced(out)) == 4  # the total is among the one-way tables


def test_plan_sums_up_steps_of_one_kind(command: Run, place: Path) -> None:
    """Of DualQuery every round has a price of its own; together they cost what the closed form says."""
    given: dict[str, Any] = {"learning_rate": 0.5, "samples": 20, "rounds": 8}
    flags = ["--learning-rate", 0.5, "--samples", 20, "--rounds", 8, "--free", "random"]
    code, out, err = command(*plan_arguments(place, "--mechanism", "dualquery", *flags))
    assert (code, err) == (0, "")
    ((words, (times, pure, rho)),) = priced(out).items()
    assert words == "draw queries that the records so far get wrong"
    assert times == 7  # the first round is free
    closed = (Learning(**given), 30162, Neighbours.REPLACE)
    assert float(pure) == pytest.approx(float(dual_query_pure(*closed)), rel=1e-3)
    assert float(rho) == pytest.approx(float(dual_query_rho(*closed)), rel=1e-3)


def test_steps_in_json(command: Run, place: Path) -> None:
    queries = place / "two.txt"
    queries.write_text("sex = male\nsmokes = yes\n")
    domain = place / "two.toml"
    domain.write_text(
        '[[attribute]]\nname = "sex"\nvalues = ["female", "male"]\n'
        '[[attribute]]\nname = "smokes"\nvalues = ["no", "yes"]\n'
    )
    asked = ["plan", "--schema", domain, "--records", 500, "--queries", queries, "--epsilon", 1]
    code, out, err = command(*asked, "--mechanism", "mwem", "--rounds", 5, "--start", "noisy", "--json")
    assert (code, err) == (0, "")
    steps = json.loads(out)["steps"]
    assert [(step["words"], step["event"], step["times"]) for step in steps] == [
        ("measure every cell, for a start", "gaussian noise", 1),
        ("choose what the distribution gets wrong", "selection", 5),
        ("measure it", "gaussian noise", 5),
    ]
    plan = dualquery.plan(
        dualquery.read_schema(domain),
        rows=500,
        workload=str(queries),
        budget=Budget(epsilon=1, delta=1e-6, neighbours=Neighbours.REPLACE, accounting=Accounting.ZCDP),
        mechanism="mwem",
        rounds=5,
        start="noisy",
    )
    assert steps == [
        {**step.event.to_json(), "words": step.words, "times": step.times} for step in plan.steps
    ]
    total = sum(step["times"] * float(step["rho"]) for step in steps)
    assert total == pytest.approx(float(rho_of(epsilon=1.0, delta=1e-6)), rel=1e-4)


def test_a_target_that_is_too_dear_is_refused_at_once(command: Run, place: Path) -> None:
    arguments = plan_arguments(place, "--mechanism", "dualquery", "--alpha")
    refused(command(*arguments, 0.02), "raise --alpha")  # compiles, where it must
    began = time.monotonic()
    refused(command(*arguments, 0.01), "raise --alpha")
    assert time.monotonic() - began < 1


@pytest.mark.parametrize("mechanism", WISHES)
def test_flags_of_other_mechanisms_are_refused(command: Run, place: Path, mechanism: str) -> None:
    """`plan` and `release` give every flag; a mechanism takes its own."""
    words = {"iterate": "last", "updates": "once", "start": "uniform", "measured": "queries", "memory": "1GB"}
    words |= {"free": "zeros", "oracle": "search", "means": "0.1"}
    foreign = [field for field in options() if field not in flags_of(WISHES[mechanism])]
    for field in foreign:
        flag = "--" + field.replace("_", "-")
        given = [flag, words.get(field, 3)]
        sentence = f"{flag} means nothing to the mechanism '{mechanism}'; leave it out"
        refused(command(*plan_arguments(place, "--mechanism", mechanism, *given)), sentence)
    # A release asks first whether the mechanism plays the table.
    said = (
        "plays tables of"
        if MECHANISMS[mechanism].plays not in (None, ("records",))
        else "means nothing to the mechanism"
    )
    flag = "--" + foreign[0].replace("_", "-")
    arguments = release_arguments(place, place / "nothing")[: -len(QUICK)]
    given = [flag, words.get(foreign[0], 3)]
    refused(command(*arguments, "--mechanism", mechanism, *given), said)
    assert not (place / "nothing").exists()


def test_release_json_and_quiet(command: Run, place: Path, tmp_path: Path) -> None:
    code, out, err = command(*release_arguments(place, tmp_path / "a", "--json"))
    assert (code, err) == (0, "")
    told = json.loads(out)
    assert told["private"] is True
    assert told["synthetic_rows"] == 8
    assert told["spent"]["epsilon"] <= told["budget"]["epsilon"]
    assert command(*release_arguments(place, tmp_path / "b", "--quiet")) == (0, "", "")
    assert (tmp_path / "b" / "report.html").exists()


def test_a_seed_repeats_and_warns(command: Run, place: Path, tmp_path: Path) -> None:
    for name in ("a", "b"):
        code, _, err = command(*release_arguments(place, tmp_path / name, "--seed", "5"))
        assert code == 0
        assert "not private" in err.lower()
    assert Release.load(tmp_path / "a").to_arrow().equals(Release.load(tmp_path / "b").to_arrow())
    assert "not private" in (tmp_path / "a" / "report.html").read_text(encoding="utf-8")


def test_delta_has_a_default_and_a_warning(command: Run, place: Path, tmp_path: Path) -> None:
    arguments = release_arguments(place, tmp_path / "a", "--json")
    at = arguments.index("--delta")
    code, out, _ = command(*arguments[:at], *arguments[at + 2 :])
    assert code == 0
    assert json.loads(out)["budget"]["delta"] == 1e-6
    code, _, err = command(*release_arguments(place, tmp_path / "b", "--delta", "0.01"))
    assert code == 0
    assert "Warning: Delta" in err


@pytest.mark.parametrize("accounting", ["zcdp", "theorem-4.3", "pure"])
@pytest.mark.parametrize("neighbours", ["replace", "add-remove"])
def test_accounting_and_neighbours(
    command: Run, place: Path, tmp_path: Path, accounting: str, neighbours: str
) -> None:
    more = ["--accounting", accounting, "--neighbours", neighbours, "--json", "--epsilon", "8"]
    arguments = release_arguments(place, tmp_path / "out", *more)
    if accounting == "pure":
        at = arguments.index("--delta")
        del arguments[at : at + 2]
    if neighbours == "add-remove":
        arguments += ["--records", "600"]
    code, out, err = command(*arguments)
    assert code == 0, err
    told = json.loads(out)
    assert told["budget"]["accounting"] == accounting
    assert told["budget"]["neighbours"] == neighbours
    assert 0 < told["spent"]["epsilon"] <= 8


def test_private_number_of_records_is_measured(command: Run, place: Path, tmp_path: Path) -> None:
    arguments = release_arguments(place, tmp_path / "out", "--neighbours", "add-remove", "--json")
    code, out, err = command(*arguments)
    assert code == 0, err
    told = json.loads(out)
    assert told["records"]["from"].startswith("measured")
    events = json.loads((tmp_path / "out" / "certificate.json").read_text())["events"]
    assert events[0]["event"] == "gaussian noise"
    arguments = release_arguments(place, tmp_path / "other", "--neighbours", "add-remove", "--rows", "100")
    code, _, err = command(*(each for each in arguments if each not in QUICK))
    assert code == 0, err
    certificate = json.loads((tmp_path / "other" / "certificate.json").read_text())
    assert certificate["mechanism"] == "projection"
    # the number, one-way tables, misfits of pairs, pairs or one-way tables again, means inside bins
    assert [event["times"] for event in certificate["events"]] == [1, 1, 1, 1, 1]
    assert certificate["events"][2]["sensitivity_squared"] == "66"  # a misfit of each pair
    assert certificate["check"]["share"] == 0
    assert certificate["budget"]["accounting"] == "gaussian"
    number = certificate["events"][0]
    times = math.isqrt(int(number["sensitivity_squared"]))  # the number, times a whole number
    assert times**2 == int(number["sensitivity_squared"])
    assert math.log2(times).is_integer()


def test_answer(command: Run, place: Path, tmp_path: Path) -> None:
    frame = Release.load(place / "released").to_pandas()
    text = "age >= 55 & sex = female & !(region = capital)"
    expected = ((frame["age"] >= 55) & (frame["sex"] == "female") & (frame["region"] != "capital")).mean()
    code, out, err = command("answer", place / "released", text)
    assert (code, err) == (0, "")
    assert float(out.split(" ± ")[0]) == pytest.approx(expected, abs=0.06)
    (tmp_path / "questions.txt").write_text(f"{text}\n\n# nothing\nsex = male\n")
    code, out, _ = command("answer", place / "released", "--file", tmp_path / "questions.txt", "--json")
    assert code == 0
    told = json.loads(out)
    assert [each["query"] for each in told] == [text, "sex = male"]
    assert told[0]["answer"] == pytest.approx(expected)
    code, out, _ = command("answer", place / "released", "sex = male", "sex = female")
    assert out.splitlines()[1].endswith("\tsex = female")


def test_answers_among_some(command: Run, place: Path) -> None:
    code, out, err = command("answer", place / "released", "sex = male", "--given", "age >= 55")
    assert (code, err) == (0, "")
    assert " ± " in out
    code, out, err = command("answer", place / "released", "sex = male", "--given", "nope = 1")
    assert code == 2
    assert "Given, column 1" in err


def test_sql_and_regress(command: Run, place: Path) -> None:
    code, out, err = command(
        "sql", place / "released", "select sex, avg(age) as a, max(age) as m from data group by 1"
    )
    assert code == 0
    assert " ± " in out
    assert "ask for quantiles" in err
    code, out, _ = command("sql", place / "released", "select count(*) as n from data", "--json")
    told = json.loads(out)
    assert code == 0
    assert told["rows"][0]["n"] == pytest.approx(PEOPLE)
    assert told["level"] == 0.95
    code, out, err = command("sql", place / "released", "drop table data")
    assert code == 2
    assert err.startswith("Error: Only SELECT") or "SELECT" in err
    for formula, part in (("income ~ nope", "unknown attribute"), ("income", "one ~")):
        code, out, err = command("regress", place / "released", formula)
        assert code == 2
        assert part.lower() in err.lower()
        assert "Traceback" not in err


def test_evaluate(command: Run, place: Path) -> None:
    code, out, err = command("evaluate", place / "released", place / "survey.csv")
    assert (code, err) == (0, "")
    assert "not private: internal, do not publish" in out
    code, out, err = command("evaluate", place / "released", place / "survey.csv", "--json")
    assert (code, err) == (0, "")
    told = json.loads(out)
    assert told["queries"] == 300
    assert told["rows"] == PEOPLE
    assert 0 <= told["mean_error"] <= told["rms_error"] <= told["max_error"] <= 1
    assert told["stamp"] == "not private: internal, do not publish"
    flags = ["--queries", "marginals:1", "-q", "marginals:2", "--json"]
    code, out, _ = command("evaluate", place / "released", place / "survey.csv", *flags)
    assert code == 0
    assert json.loads(out)["tables"]["tables"] == 12 + 66


def test_demo(command: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = example.survey
    monkeypatch.setattr(example, "survey", lambda: whole(2000))
    monkeypatch.setattr(example, "PEOPLE", 2000)
    code, out, err = command("demo", "--out", tmp_path / "demo")
    assert code == 0, err
    for part in ("dualquery release", "all 3-way tables", "report.html", "age >= 55 & sex = female"):
        assert part in out
    assert (tmp_path / "demo" / "release" / "report.html").exists()
    refused(command("demo", "--out", tmp_path / "demo"), "exists already")


def test_demo_of_a_series(command: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every error that is printed stands in the picture's place, and the ledger has one charge a quarter."""
    monkeypatch.setattr(example, "GROWING", 800)
    monkeypatch.setattr(example, "QUARTERS", example.QUARTERS[:2])
    place = tmp_path / "demo"
    code, out, err = command("demo", "--series", "--out", place)
    assert code == 0, err
    for part in ("dualquery series append", "2024-Q2", "so-far", "errors.svg", "do not publish"):
        assert part in out
    assert "2024-Q2" in (place / "errors.svg").read_text(encoding="utf-8")
    assert [each.named for each in Books(place / "survey.ledger").read().charges] == ["2024-Q1", "2024-Q2"]
    asked = "age >= 55 & sex = female"
    code, out, err = command("series", "ask", place / "series", asked, "--json")
    assert code == 0, err
    told = json.loads(out)
    assert told["periods"] == "2024-Q2"
    schema = read_schema(place / "schema.toml").during("2024-Q2")
    truth = from_texts(schema.domain, [asked]).fractions(encode(place / "survey.csv", schema))[0]
    assert abs(told["answers"][0]["value"] - truth) < 0.15
    refused(command("demo", "--series", "--kind", "graph", "--out", tmp_path / "other"), "table of records")


@pytest.mark.parametrize("form", ["csv.gz", "parquet", "arrow"])
def test_other_kinds_of_tables(command: Run, place: Path, tmp_path: Path, form: str) -> None:
    table = example.survey(PEOPLE)
    path = tmp_path / f"survey.{form}"
    if form == "csv.gz":
        path.write_bytes(gzip.compress((place / "survey.csv").read_bytes()))
    elif form == "parquet":
        pyarrow.parquet.write_table(table, path)
    else:
        with pa.ipc.new_file(path, table.schema) as writer:
            writer.write_table(table)
    arguments = release_arguments(place, tmp_path / "out", "--seed", "1", "--quiet")
    arguments[1] = str(path)
    assert command(*arguments) == (0, "", "")
    assert Release.load(tmp_path / "out").to_arrow().equals(Release.load(place / "released").to_arrow())


# What a person gets wrong


@pytest.mark.parametrize(
    ("change", "part"),
    [
        (["--epsilon", "0"], "psilon"),
        (["--epsilon", "-1"], "psilon"),
        (["--epsilon", "nan"], "psilon"),
        (["--epsilon", "much"], "--epsilon"),
        (["--epsilon", "1e-9"], "epsilon = 1e-09"),
        (["--epsilon", "1e10"], "at most 1e+09"),
        (["--delta", "0"], "elta"),
        (["--delta", "1"], "elta"),
        (["--delta", "-1e-6"], "elta"),
        (["--queries", "marginals:99"], "99"),
        (["--queries", "nonsense"], "nonsense"),
        (["--queries", "random:3"], "random:K:COUNT"),
        (["--mechanism", "nonsense"], "no mechanism 'nonsense'"),
        (["--accounting", "nonsense"], "--accounting"),
        (["--neighbours", "nonsense"], "--neighbours"),
        (["--rows", "0"], "--rows"),
        (["--rounds", "0"], "--rounds"),
        (["--memory", "lots"], "--memory"),
        (["--seed", "-1"], "--seed"),
        (["--free", "nonsense"], "--free"),
        (["--oracle", "nonsense"], "--oracle"),
        (["--iterate", "last"], "--iterate means nothing to the mechanism 'dualquery'"),
        (["--records", "5"], "declared number"),
        (["--means", "1"], "--means"),
        (["--means", "nan"], "--means"),
        (["--check", "2"], "--check"),
        (["--check", "nan"], "--check"),
        (["--threads", "0"], "--threads"),
        (["--engine", "opencl"], "--engine"),
        (["--accept", "nowhere.toml"], "nowhere.toml"),
        (["--prior-origin", "the census"], "name it with --prior"),
        (["--prior", __file__], "--prior-origin"),
        (["--prior", "nowhere.csv"], "no prior 'nowhere.csv'"),
        (["--nonsense"], "--nonsense"),
        (["--schema", "nowhere.toml"], "nowhere.toml"),
        (["--rounds", "100000"], "cost more than epsilon = 1"),
    ],
)
def test_bad_flags(command: Run, place: Path, tmp_path: Path, change: list[str], part: str) -> None:
    arguments = release_arguments(place, tmp_path / "out")
    if change[0] in arguments and change[0] != "--queries":
        at = arguments.index(change[0])
        arguments[at : at + 2] = change
    elif change[0] == "--queries":
        arguments[arguments.index("--queries") + 1] = change[1]
    else:
        arguments += change
    refused(command(*arguments), part)
    assert list(tmp_path.iterdir()) == []


def test_missing_flags_and_commands(command: Run, place: Path) -> None:
    refused(command("release", place / "survey.csv"), "--schema")
    refused(command("plan", "--schema", place / "schema.toml"), "--queries")
    without = ["plan", "--schema", place / "schema.toml", "--queries", "marginals:1", "--epsilon", 1]
    refused(command(*without), "--records")
    refused(command(*without, "--rows", 5), "--records")  # which are synthetic
    refused(command(*without, "--records", 5, "--expected-records", 5), "--records, or --expected-records")
    refused(command("nonsense"), "nonsense")
    refused(command("schema"), "ommand")
    refused(command("answer", place / "released"), "no query")
    refused(command("answer"), "DIR")


def test_other_words_for_two_flags(command: Run, place: Path) -> None:
    asked = ["plan", "--schema", place / "schema.toml", "--queries", "marginals:1", "--epsilon", 1, "--json"]
    told = command(*asked, "--records", 600, "--neighbours", "add-remove")
    assert told[0] == 0
    assert command(*asked, "--public-rows", 600, "--neighbors", "add-remove") == told


def test_private_rows_leave_delta_without_default(command: Run, place: Path, tmp_path: Path) -> None:
    arguments = release_arguments(place, tmp_path / "out", "--neighbours", "add-remove")
    at = arguments.index("--delta")
    refused(command(*arguments[:at], *arguments[at + 2 :]), "--delta")


@pytest.mark.parametrize(
    ("contents", "part"),
    [
        (None, "no file"),
        ("", "empty"),
        ("age,sex\n", ""),
        ("age\n30\n", "sex"),
        ("HEADER\n", "no rows"),
        ("HEADER\nnan,male,north,school,employed,1,single,1,owns,car,yes,good\n", "age"),
        ("HEADER\n30,other,north,school,employed,1,single,1,owns,car,yes,good\n", "sex"),
        ("HEADER\n30,,north,school,employed,1,single,1,owns,car,yes,good\n", "sex"),
        ("HEADER\n30,male,north\n", ""),
    ],
)
def test_bad_tables(command: Run, place: Path, tmp_path: Path, contents: str | None, part: str) -> None:
    header = (place / "survey.csv").read_text().splitlines()[0]
    path = tmp_path / "table.csv"
    if contents is not None:
        path.write_text(contents.replace("HEADER", header))
    arguments = release_arguments(place, tmp_path / "out")
    arguments[1] = str(path)
    result = command(*arguments)
    refused(result, part)
    assert "other" not in result[2].replace("another", "")  # a private value is not quoted
    assert not (tmp_path / "out").exists()


def test_truncated_files(command: Run, place: Path, tmp_path: Path) -> None:
    packed = gzip.compress((place / "survey.csv").read_bytes())
    (tmp_path / "t.csv.gz").write_bytes(packed[: len(packed) // 2])
    pyarrow.parquet.write_table(example.survey(50), tmp_path / "t.parquet")
    whole = (tmp_path / "t.parquet").read_bytes()
    (tmp_path / "t.parquet").write_bytes(whole[:-30])
    for name in ("t.csv.gz", "t.parquet"):
        arguments = release_arguments(place, tmp_path / "out")
        arguments[1] = str(tmp_path / name)
        refused(command(*arguments), name)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("schema", "part"),
    [
        ("", "no attribute"),
        ("not toml at all =", "TOML"),
        ('[[attribute]]\nname = "sex"\nvalues = []\n', "no values"),
        ('[[attribute]]\nname = ""\nvalues = ["a"]\n', "empty name"),
        (
            '[[attribute]]\nname = "sex"\nvalues = ["a"]\n[[attribute]]\nname = "sex"\nvalues = ["a"]\n',
            "twice",
        ),
        (
            '[[attribute]]\nname = "sex"\nvalues = ["a"]\n[[attribute]]\nname = "colour"\nvalues = ["red"]\n',
            "colour",
        ),
    ],
)
def test_bad_schemas(command: Run, place: Path, tmp_path: Path, schema: str, part: str) -> None:
    (tmp_path / "schema.toml").write_text(schema)
    arguments = release_arguments(place, tmp_path / "out")
    arguments[arguments.index("--schema") + 1] = str(tmp_path / "schema.toml")
    arguments[arguments.index("--queries") + 1] = "marginals:1"
    refused(command(*arguments), part)


@pytest.mark.parametrize(
    ("query", "part"),
    [
        ("colour = red", "colour"),
        ("sex = neither", "neither"),
        ("sex = male & sex = female", "no record"),
        ("sex = ", "olumn 7"),
        ("(sex = male", "olumn 12"),
        ("", "empty"),
    ],
)
def test_bad_queries(command: Run, place: Path, tmp_path: Path, query: str, part: str) -> None:
    refused(command("answer", place / "released", query), part)
    if query:
        (tmp_path / "queries.txt").write_text(f"sex = male\n{query}\n")
        code, out, err = command("answer", place / "released", "--file", tmp_path / "queries.txt")
        assert code == 1  # the others are answered
        assert out.endswith("\tsex = male\n")
        assert "line 2" in err
        arguments = release_arguments(place, tmp_path / "out")
        arguments[arguments.index("--queries") + 1] = str(tmp_path / "queries.txt")
        refused(command(*arguments), "line 2")


def test_bad_releases(command: Run, place: Path, tmp_path: Path) -> None:
    refused(command("answer", tmp_path / "nowhere", "sex = male"), "does not exist")
    refused(command("answer", place, "sex = male"), "not a release")
    refused(command("evaluate", place, place / "survey.csv"), "not a release")
    refused(command("answer", place / "released", "--file", tmp_path / "nowhere.txt"), "nowhere.txt")
    refused(command(*release_arguments(place, place / "released")), "already holds a release")
    refused(command(*release_arguments(place, place)), "not empty")
    refused(command(*release_arguments(place, place / "survey.csv")), "is a file")
    assert Release.load(place / "released")


def test_an_occupied_folder_is_noticed_before_the_table_is_read(
    command: Run, place: Path, tmp_path: Path
) -> None:
    arguments = release_arguments(place, place / "released")
    arguments[1] = str(tmp_path / "nowhere.csv")
    refused(command(*arguments), "already holds a release")


def test_a_budget_too_small_for_one_round(command: Run, place: Path, tmp_path: Path) -> None:
    arguments = release_arguments(place, tmp_path / "out")
    arguments[arguments.index("--epsilon") + 1] = "1e-9"
    refused(command(*arguments), "epsilon = 1e-09")
    assert not (tmp_path / "out").exists()
    drowned = command(*arguments[: -len(QUICK)])  # projection runs, and says what to expect of it
    assert drowned[0] == 0, drowned[2]
    assert "expect little" in " ".join(drowned[1].split())


@pytest.mark.skipif(os.name != "posix", reason="signals")
@pytest.mark.parametrize(
    "after",
    ["import time; time.sleep(30)", "raise AttributeError('half imported')"],
    ids=["at once", "swallowed by a library"],
)
def test_interrupt_is_clean(place: Path, tmp_path: Path, after: str) -> None:
    """Ctrl-C in the middle: exit code 130, no traceback, nothing left; also where a library swallows it and fails."""
    swallow = after.startswith("raise")
    script = (
        "import dualquery.releases.make as making, contextlib, os, signal\n"
        "def slow(*a, **k):\n"
        f"    with contextlib.suppress({'KeyboardInterrupt' if swallow else ''}):\n"
        "        os.kill(os.getpid(), signal.SIGINT); [None for _ in range(1000)]\n"
        f"    {after}\n"
        "making.plan_checked = slow\n"
        "from dualquery.cli import main; main()"
    )
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", script, *release_arguments(place, tmp_path / "out")],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": SOURCE},
        check=False,
        timeout=120,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    assert done.returncode == 130, done.stderr
    assert done.stderr.strip() == "Interrupted."
    assert time.monotonic() - began < 60
    assert list(tmp_path.iterdir()) == []


READING_AHEAD = """
import io, sys, time, pyarrow.csv

class Slow(io.RawIOBase):
    read_before = False
    def readable(self):
        return True
    def read(self, count=-1):
        if self.read_before:
            time.sleep(0.3)
        self.read_before = True
        return b"a,b\\n" + b"1,2\\n" * 300_000

reader = pyarrow.csv.open_csv(Slow(), read_options=pyarrow.csv.ReadOptions(block_size=1 << 20))
next(iter(reader))
from dualquery.cli import main
main()
"""


def test_a_thread_that_reads_ahead_keeps_no_command_from_ending() -> None:
    """The end of the interpreter stops it in the middle: the process then hung, or died of it."""
    done = subprocess.run(
        [sys.executable, "-c", READING_AHEAD, "--version"],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": SOURCE},
        check=False,
        timeout=60,
    )
    assert (done.returncode, done.stdout.split()[0]) == (0, "dualquery"), done.stderr


def test_sizes_in_bytes() -> None:
    assert [size_in_bytes(text) for text in ("2GB", "500 MB", "1.5kb", "7", "3b")] == [
        2 * 10**9,
        500 * 10**6,
        1500,
        7,
        3,
    ]
    for text in ("", "GB", "2XB", "-1GB", "nan"):
        with pytest.raises(DualQueryError):
            size_in_bytes(text)


def test_bars_show_stages_on_a_terminal(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    from numba.core import event

    from dualquery.cli.output import COMPILING, ProgressBars

    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("FORCE_COLOR", "1")
    with ProgressBars(wanted=True) as progress:
        progress("counting", 1, 2)
        with event.trigger_event("numba:compile", data={}):
            pass
        assert COMPILING in progress._tasks
        progress("counting", 2, 2)
        progress("reading: 1 row a second", 1, 2)
        progress("reading: 2 rows a second", 2, 2)
    assert list(progress._tasks)[-2:] == [COMPILING, "reading"]
    with ProgressBars(wanted=False) as progress:
        progress("counting", 1, 2)
    assert not progress._tasks


def test_check_and_acceptance(command: Run, place: Path, tmp_path: Path) -> None:
    """`plan` says what will be known; what is not good enough is written, marked, and exit code 3."""
    plan = [
        "plan",
        "--schema",
        place / "schema.toml",
        "--records",
        30162,
        "--queries",
        "marginals:2",
        "--epsilon",
        1,
    ]
    code, out, err = command(*plan, "--delta", "1e-6")
    assert (code, err) == (0, "")
    assert "with 1% of the budget the release measures its own error" in out
    assert "check the release" in out
    code, out, _ = command(*plan, "--delta", "1e-6", "--check", 0)
    assert code == 0
    assert "none: it was left out" in out
    wanted = tmp_path / "acceptance.toml"
    wanted.write_text("[[criterion]]\ntables = 1\nmean = 0.0001\n", encoding="utf-8")
    code, _, err = command(*plan, "--accept", wanted)
    assert code == 2
    assert "below what could be told" in err
    wanted.write_text("[[criterion]]\ntables = 3\nworst = 0.3\n", encoding="utf-8")
    arguments = [
        "release",
        place / "survey.csv",
        "--schema",
        place / "schema.toml",
        "--queries",
        "marginals:1",
    ]
    spend = ["--epsilon", 100, "--delta", "1e-6", "--mechanism", "mwem", "--rounds", 1, "--accept", wanted]
    code, out, err = command(*arguments, *spend, "--out", tmp_path / "out")
    assert code == 3, err
    assert "fail" in out
    assert "not accepted" in err.lower()
    assert dualquery.Release.load(tmp_path / "out").certificate["accepted"]["verdict"] == "fail"
