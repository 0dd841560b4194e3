"""Peers: what programs and runner say to each other, what becomes of those that fail, and the metric.

Nothing is installed: the peers here are programs of the tests' own, run by this interpreter.
"""

from __future__ import annotations

import csv
import importlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations, product
from pathlib import Path

import numpy as np
import pytest

from dualquery.privacy.conversion import epsilon_of, tight_gaussian_epsilon
from dualquery.queries.tables import Tables
from dualquery.queries.workload import Workload
from dualquery.table.domain import Categorical, Domain
from experiments import environments, peer_page, peer_runs, peers
from experiments.data import Data
from experiments.harness import Kept, Row, Setting, Size, main, run
from experiments.peer_methods import (
    ADULT,
    CASES,
    DELTA,
    EXACT,
    OWN,
    PEERS,
    SMALLEST,
    SOURCE_NAMES,
    Case,
    Method,
    Peer,
    Release,
)
from experiments.peer_page import draw, find
from experiments.peer_runs import Terms, exact_rho, worth_another_try
from experiments.processes import DONE, run_within
from experiments.residual_planner import least_rms
from experiments.svd_bound import classical_variance, exact_variance, svd_bound
from tests.experiments.outputs import rows_after_run

FAKE = """
import json, math, subprocess, sys, time
from pathlib import Path
import numpy as np

folder = Path(sys.argv[1])
task, rows = json.loads((folder / "task.json").read_text()), np.load(folder / "rows.npy")
method = task["method"]
if method == "fails":
    raise ValueError("no such luck")
if method == "sleeps":
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    (Path(__file__).parent / "child").write_text(str(child.pid))
    time.sleep(60)
if method == "busy":
    while True:
        pass
if method == "silent":
    sys.exit(0)
if method == "greedy":
    np.ones(10**10)
answer = rows
if method == "nearly":
    answer = np.concatenate([rows, rows[:1]])
if method == "wrong":
    answer = rows + 1
if method == "fractions":
    sizes = [[task["sizes"][j] for j in table] for table in task["tables"]]
    cells = [np.ravel_multi_index(rows[:, t].T, s) for t, s in zip(task["tables"], sizes)]
    counts = [np.bincount(c, minlength=math.prod(s)) for c, s in zip(cells, sizes)]
    answer = np.concatenate(counts) / len(rows)
np.save(folder / "answer.npy", answer)
(folder / "seconds.txt").write_text("1.5")
"""
TOY = Case("nltcs", 2)


@pytest.fixture
def fake(tmp_path: Path) -> Peer:
    """A peer whose methods answer exactly, or fail in one way or another."""
    program = tmp_path / "fake.py"
    program.write_text(FAKE)
    return Peer("fake", str(program), (), methods("nearly", "fails"), quick=("nearly", "fails"))


def methods(*names: str) -> tuple[Method, ...]:
    return tuple(Method(name, 1, 1) for name in names)


def row_of(peer: Peer, method: str, data: Data, limit: float = 60.0) -> Row:
    return dict(peer_runs.measure(data, Release(TOY, peer, method, 1.0, 0), Terms(memory=8.0), limit))


@pytest.mark.parametrize("method", ["copies", "fractions"])
def test_an_exact_answer_has_no_error(fake: Peer, method: str, invented_data: Data) -> None:
    row = row_of(fake, method, invented_data)
    assert row["outcome"] == DONE
    assert row["l1"] == row["worst_table"] == row["max_cell"] == 0
    assert row["seconds"] == 1.5
    assert 0.01 < row["peak_gb"] < 1
    assert row["processor_seconds"] > 0


def test_noisy_tables_are_replaced_by_the_nearest_distribution(monkeypatch: pytest.MonkeyPatch) -> None:
    """Independent noise is given its fairest form: no other distribution may be nearer."""
    monkeypatch.syspath_prepend(str(peer_runs.PROGRAMS))
    nearest = importlib.import_module("run_dualquery").nearest_distribution
    rng = np.random.default_rng(0)
    for cells in (1, 2, 8):
        noisy = rng.normal(0.1, 0.3, cells)
        found = nearest(noisy)
        assert found.sum() == pytest.approx(1)
        assert (found >= 0).all()
        others = rng.dirichlet(np.full(cells, 0.5), 500)
        assert (((noisy - found) ** 2).sum() <= ((noisy - others) ** 2).sum(axis=1) + 1e-12).all()


@pytest.mark.parametrize("blind", [True, False])
def test_a_release_that_never_saw_the_workload_is_judged_on_tables_of_every_order(
    fake: Peer, blind: bool, invented_data: Data
) -> None:
    peer = replace(fake, methods=(Method("copies", 1, 1, blind=blind),))
    pairs, triples = (
        peer_runs.measure(
            invented_data, Release(Case("nltcs", order), peer, "copies", 1.0, 0), Terms(memory=8.0), 60
        )
        for order in (2, 3)
    )
    assert pairs["outcome"] == triples["outcome"] == DONE
    assert pairs["l1"] == triples["l1"] == 0
    assert (pairs["process_seconds"] == triples["process_seconds"]) == blind, "the same process"


@pytest.mark.parametrize(
    ("method", "words"),
    [
        ("fails", "failed: ValueError: no such luck"),
        ("silent", "failed: no answer that can be read"),
        ("wrong", "failed: rows with values that are not in the domain"),
    ],
)
def test_a_failure_is_a_row_that_says_so(fake: Peer, method: str, words: str, invented_data: Data) -> None:
    row = row_of(fake, method, invented_data)
    assert row["outcome"] == words
    assert "l1" not in row


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="memory is limited on Linux only")
def test_memory_is_limited(fake: Peer, invented_data: Data) -> None:
    assert "Unable to allocate" in row_of(fake, "greedy", invented_data)["outcome"]


def test_the_limit_stops_a_peer_and_what_it_started(fake: Peer, invented_data: Data) -> None:
    row = row_of(fake, "sleeps", invented_data, limit=0.3)
    assert row["outcome"] == "stopped after 0.3 processor seconds"
    assert row["limit"] == 0.3
    assert 3 <= row["process_seconds"] < 20, "ten times the limit by the clock"
    assert gone(int((Path(fake.program).parent / "child").read_text()))


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="processor time is read on Linux only")
def test_the_limit_is_one_of_processor_seconds(fake: Peer, invented_data: Data) -> None:
    row = row_of(fake, "busy", invented_data, limit=1)
    assert row["outcome"] == "stopped after 1 processor seconds"
    assert 0.9 <= row["processor_seconds"] < 2


def gone(process: int) -> bool:
    """Whether a process has ended; one that nobody has waited for yet has."""
    for _ in range(100):
        try:
            os.kill(process, 0)
            state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
        except (ProcessLookupError, FileNotFoundError):
            return True
        if state == "Z":
            return True
        time.sleep(0.05)
    return False


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="cores are assigned on Linux only")
def test_a_process_is_held_to_its_cores(tmp_path: Path) -> None:
    told = tmp_path / "told"
    say = "import os, time; time.sleep(0.2); n = len(os.sched_getaffinity(0)); "
    say += f"open({str(told)!r}, 'w').write(f\"{{n}} {{os.environ['OMP_NUM_THREADS']}}\")"
    assert run_within([sys.executable, "-c", say], 60, cores=1, memory=8).outcome == DONE
    assert told.read_text() == "1 1"


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="memory is read on Linux only")
def test_peak_memory_is_that_of_the_process_and_not_ours() -> None:
    ours = np.ones(10**8, np.uint8)
    small, large = (
        run_within([sys.executable, "-c", f"x = b'1' * {size}; import time; time.sleep(0.3)"], 60, 1, 8)
        for size in (10**6, 2 * 10**8)
    )
    assert ours.sum() == 10**8
    assert small.peak_gb < 0.05
    assert 0.2 < large.peak_gb < 0.25


def test_errors_are_those_of_counting_by_hand() -> None:
    domain = Domain(tuple(Categorical(f"a{j}", tuple("wxyz"[:size])) for j, size in enumerate((2, 3, 4))))
    rng = np.random.default_rng(3)
    real, made = (rng.integers(0, [2, 3, 4], (n, 3)) for n in (50, 40))
    tables = Tables(domain, tuple(combinations(range(3), 2)))

    def cells(rows: np.ndarray, members: tuple[int, ...]) -> list[float]:
        kinds = product(*(range(int(domain.sizes[j])) for j in members))
        return [float((rows[:, members] == kind).all(axis=1).mean()) for kind in kinds]

    truth = np.concatenate([cells(real, members) for members in tables.sets])
    distances = [np.abs(np.subtract(cells(made, t), cells(real, t))) for t in tables.sets]
    wanted = {
        "l1": np.mean([d.sum() for d in distances]),
        "worst_table": max(d.sum() for d in distances),
        "max_cell": max(d.max() for d in distances),
        "rms": np.sqrt(np.square(np.concatenate(distances)).mean()),
    }
    assert peer_runs.errors_of(made, tables, truth) == pytest.approx(wanted)
    fractions = np.concatenate([cells(made, members) for members in tables.sets])
    assert peer_runs.errors_of(fractions, tables, truth) == pytest.approx(wanted)


def test_our_own_program_is_run_the_same_way(invented_data: Data, tmp_path: Path) -> None:
    rows = rows_after_run(peers.EXPERIMENT, Setting(invented_data, Size.TOY), tmp_path)
    assert {(row["peer"], row["outcome"]) for row in rows} == {
        ("dualquery", DONE),
        ("independent noise", DONE),
    }
    for row in rows:
        assert 0 < row["l1"] < 0.2
        assert row["max_cell"] < row["worst_table"]
        assert 0 < row["seconds"] < row["process_seconds"]


@pytest.fixture
def no_index(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A package index that holds nothing."""
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))


@pytest.mark.usefixtures("no_index")
def test_a_peer_without_a_wheel_is_a_row_and_the_rest_continues(
    fake: Peer, invented_data: Data, tmp_path: Path
) -> None:
    absent = Peer("absent", "run_absent.py", ("no-such-package==1.0",), methods("AIM"), quick=("AIM",))
    terms = Terms(data=("nltcs",), environments=tmp_path / "environments")
    experiment = peers.experiment(terms, (absent, fake))
    arguments = peers.arguments_of(["--data", str(invented_data.folder), "--out", str(tmp_path / "out")])
    main(experiment, arguments)
    with (tmp_path / "out" / "peers.csv").open() as file:
        written = {row["method"]: row["outcome"] for row in csv.DictReader(file)}
    assert written["AIM"].startswith("not started: absent cannot be installed for Python")
    assert "No matching distribution found for no-such-package==1.0" in written["AIM"]
    assert written["nearly"] == DONE
    assert written["fails"] == "failed: ValueError: no such luck"
    page = (tmp_path / "out" / "peers.md").read_text()
    assert "absent AIM not started: absent cannot be installed" in page


def test_gpu_packages_are_refused_before_they_are_fetched(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked: list[Sequence[str]] = []

    def pip(command: Sequence[str]) -> str:
        asked.append(command)
        return "Would install torch-9 nvidia-cublas-13\n" if "--dry-run" in command else ""

    monkeypatch.setattr(environments, "run_quietly", pip)
    problem = environments.environment_problem("torn", ("torn",), tmp_path, "torch==9")
    assert problem is not None
    assert "torch would bring GPU packages; name a CPU build of PyTorch with --torch" in problem
    assert [command[-1] for command in asked if "install" in command] == ["--dry-run"]


def test_an_environment_is_made_once_and_again_for_other_requirements(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked: list[Sequence[str]] = []

    def make(command: Sequence[str]) -> str:
        asked.append(command)
        (tmp_path / "kind").mkdir(exist_ok=True)
        return ""

    monkeypatch.setattr(environments, "run_quietly", make)
    for version, commands in (("1", 2), ("1", 2), ("2", 4)):
        environments.environment_problem.cache_clear()
        assert environments.environment_problem("kind", (f"kind=={version}", "more"), tmp_path, None) is None
        assert len(asked) == commands
    assert asked[-1][-4:] == ["--only-binary", "kind", "kind==2", "more"]


def test_the_full_size_asks_everybody_everything(invented_data: Data) -> None:
    full = [point.key for point in peers.EXPERIMENT.points(Setting(invented_data, Size.FULL))]
    assert {(key["data"], key["tables"]) for key in full} == {(case.data, case.tables) for case in CASES}
    for case in CASES:
        mine = [key for key in full if (key["data"], key["tables"]) == (case.data, case.tables)]
        for epsilon in case.epsilons:
            asked = {
                (key["peer"], key["method"], key["accounting"]) for key in mine if key["epsilon"] == epsilon
            }
            assert asked == {
                (peer.name, method.name, accounting)
                for peer in case.peers
                for method in peer.methods
                for accounting in method.accountings
            }
    assert len({tuple(key.values()) for key in full}) == len(full)
    assert {case.peers for case in CASES if case.rows is None} == {PEERS}
    first = min(peers.EXPERIMENT.points(Setting(invented_data, Size.FULL)), key=lambda point: point.turn)
    assert (first.key["epsilon"], first.key["run"]) == (1, 0)
    ours = [key for key in full if key["peer"] == "dualquery" and key["data"] == "nltcs"]
    assert {key["run"] for key in ours} == set(range(5))


def test_small_tables_are_rows_of_the_large_one(invented_data: Data) -> None:
    whole, part = ADULT.records(invented_data), SMALLEST.records(invented_data)
    assert (part.rows, part.domain) == (1000, whole.domain)
    assert np.array_equal(part.to_rows(), SMALLEST.records(invented_data).to_rows())
    kinds = {tuple(row) for row in whole.to_rows().tolist()}
    assert all(tuple(row) in kinds for row in part.to_rows().tolist())


def test_only_what_came_to_nothing_for_want_of_time_or_package_is_tried_again(
    fake: Peer, invented_data: Data, tmp_path: Path
) -> None:
    for outcome, limit, expected in (
        (DONE, 5, False),
        ("failed: ValueError", 5, False),
        ("stopped after 5 processor seconds", 5, True),
        ("stopped after 10 processor seconds", 10, False),
        ("not started: no time", 10, True),
    ):
        row = {"outcome": outcome, "limit": str(limit)}
        assert worth_another_try(row, Terms(), 10) is expected
        assert not worth_another_try(row, Terms(skip="no time"), 10)
    setting, out = Setting(invented_data, Size.QUICK), tmp_path / "out"
    for skip, outcomes in (
        ("no time", {"not started: no time"}),
        (None, {DONE, "failed: ValueError: no such luck"}),
    ):
        experiment = peers.experiment(Terms(data=("nltcs",), skip=skip), (fake,))
        assert run(experiment, setting, out) == []
        rows = Kept(out / "peers.csv", Size.QUICK).rows(experiment.points(setting))
        assert {row["outcome"] for row in rows} == outcomes
        with (out / "peers.csv").open() as file:
            assert len(list(csv.DictReader(file))) == len(rows) == 4, "a row is replaced"


def test_flags_are_checked_and_become_terms(capsys: pytest.CaptureFixture[str]) -> None:
    given = peers.arguments_of(["--only", "adult", "--limit", "5", "--torch", "torch==1"])
    terms = peers.terms_given(given)
    assert (terms.data, terms.limit, terms.torch) == (("adult",), 5, "torch==1")
    assert Terms().limit_of(Size.FULL) == 1200
    for wrong in (["--limit", "0"], ["--limit", "soon"], ["--only", "mildew"], ["--cores", "0"]):
        with pytest.raises(SystemExit):
            peers.arguments_of(wrong)
    assert "is no positive number" in capsys.readouterr().err


def made_row(peer: str, method: str, **measured: object) -> Row:
    key = {"data": "adult", "tables": "all 3-way", "epsilon": 1, "peer": peer, "method": method, "run": 0}
    key["accounting"] = OWN
    cost = {"process_seconds": 10, "processor_seconds": 5, "peak_gb": 1, "delta": 0.001, "cores": 1}
    errors = {"worst_table": 0.5, "max_cell": 0.004} if "l1" in measured else {}
    return {**key, **cost, **errors, "outcome": DONE, **measured}


def test_a_better_peer_and_a_late_one_are_named() -> None:
    ours = [made_row("dualquery", "release", l1=l1, processor_seconds=4) for l1 in (0.05, 0.07)]
    worse = made_row("opendp", "MST", l1=0.2, max_cell=0.003, processor_seconds=100)
    better = made_row("dpmm", "AIM", l1=0.05, worst_table=0.4, processor_seconds=1000)
    late = made_row("smartnoise-synth", "AIM", outcome="stopped after 900 processor seconds")
    idle = made_row("smartnoise-synth", "MWEM", outcome="not started: no time", processor_seconds="")
    said = find([*ours, worse, better, late, idle])
    assert (
        "dualquery 0.06 ± 0.014 in 4.0 s (2 runs); **lower errors:** dpmm AIM 0.05 in 1,000.0 s (1 run)."
        in said
    )
    assert "**Lower in the worst table** (ours 0.5): dpmm AIM 0.4." in said
    assert "smartnoise-synth AIM stopped after 900 processor seconds (adult, all 3-way, ε = 1)." in said
    assert "smartnoise-synth MWEM not started: no time (adult, all 3-way, ε = 1)." in said
    assert "δ = 0.001" in said
    beside = "of 1 that answered beside us (1 gave no answer) the best is opendp MST 0.2 in 100.0 s (1 run)."
    assert f"{beside} **Lower in the worst cell** (ours 0.004): opendp MST 0.003." in find(
        [*ours, worse, late]
    )
    assert "nobody else gave an answer" in find([*ours, late])
    assert "nobody gave an answer" in find([idle])
    again = made_row("opendp", "MST", outcome="not started: no time", processor_seconds="")
    assert "not started" not in find([*ours, worse, again]), "one run answered"


def test_answers_are_drawn_with_their_range_and_those_who_were_stopped_are_marked() -> None:
    rows = [
        made_row("dualquery", "release", l1=0.06, processor_seconds=4),
        made_row("dualquery", "release", l1=0.08, processor_seconds=6),
        made_row("opendp", "MST", l1=0.2, processor_seconds=100),
        made_row("dpmm", "AIM", outcome="stopped after 900 processor seconds", processor_seconds=900),
        made_row("dpmm", "MST", outcome="not started: no time", processor_seconds=""),
    ]
    picture = draw(rows)
    (axes,) = picture.axes
    bars = [container.lines for container in axes.containers]
    drawn = [(float(data.get_xdata()[0]), float(data.get_ydata()[0])) for data, _, _ in bars]
    assert drawn == [(5, pytest.approx(0.07)), (100, 0.2)]
    (low, high) = bars[0][2][0].get_segments()[0][:, 1]
    assert (low, high) == (pytest.approx(0.06), pytest.approx(0.08))
    crosses = [line for line in axes.lines if line.get_marker() == "x"]
    assert [float(cross.get_xdata()[0]) for cross in crosses] == [900]
    assert axes.get_xscale() == axes.get_yscale() == "log"
    names = [text.get_text() for text in picture.legends[0].get_texts()]
    assert names == ["dualquery", "opendp MST", "dpmm AIM", "stopped without an answer"]
    assert draw(rows[4:]).axes, "a picture of nothing is still a picture"


def test_last_words_are_where_complaints_end() -> None:
    assert environments.last_words("Traceback\nKeyError: 'x'\n\")\n  ^^^\n") == "KeyError: 'x'"
    assert (
        environments.last_words("ERROR: No matching distribution found\n") == "No matching distribution found"
    )
    assert environments.last_words("") == ""
    assert len(environments.last_words("x" * 1000)) < 200


def test_missing_data_are_a_sentence(fake: Peer, tmp_path: Path) -> None:
    setting = Setting(Data(tmp_path), Size.QUICK)
    problems = run(peers.experiment(Terms(data=("adult",)), (fake,)), setting, tmp_path / "out")
    assert len(problems) == 1
    assert "adult.csv.gz" in problems[0]


# Packages that are on no index


def package(folder: Path, name: str) -> Path:
    (folder / name).mkdir(parents=True)
    (folder / name / "__init__.py").write_text(f"WHO = {name!r}\n")
    return folder


def test_sources_are_folders_that_hold_the_package(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = SOURCE_NAMES
    plain, nested = package(tmp_path / "a", first), package(tmp_path / "b" / "src", second)
    flags = ["--source", f"{first}={plain}", "--source", f"{second}={nested.parent}"]
    terms = peers.terms_given(peers.arguments_of(flags))
    assert dict(terms.sources) == {first: plain, second: nested}
    for wrong, words in (
        (f"{first}={tmp_path}", f"'{tmp_path}' is no source folder of {first}: it holds neither"),
        (f"{first}=", "'' is no source folder"),
        (first, "'' is no source folder"),
        (f"pandas={plain}", f"is not NAME=DIR with one of {first}, {second}"),
    ):
        with pytest.raises(SystemExit):
            peers.arguments_of(["--source", wrong])
        assert words in capsys.readouterr().err


def test_an_environment_imports_from_named_folders(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nothing is installed: a folder is used as it lies there, and another one makes another environment."""
    monkeypatch.setattr(environments, "install", lambda *_, **__: None)
    sources = package(tmp_path / "a", "one"), package(tmp_path / "b", "two")
    homes = tmp_path / "homes"
    assert environments.environment_problem("kind", ("one",), homes, None, sys.executable, sources) is None
    command = [
        str(environments.python_in(homes / "kind")),
        "-E",
        "-s",
        "-c",
        "import one, two; print(one.WHO, two.WHO)",
    ]
    assert environments.run_quietly(command) == "one two\n"
    missing = environments.environment_problem("gone", ("one",), homes, None, str(tmp_path / "no-python"))
    assert missing is not None
    assert missing.startswith("gone cannot be installed for Python")
    assert "no-python cannot be run: No such file or directory" in missing


def test_a_peer_without_its_sources_is_a_row_that_names_the_flags(fake: Peer, invented_data: Data) -> None:
    absent = replace(fake, requirements=("x",), sources=SOURCE_NAMES)
    named = Terms(memory=8.0, sources=((SOURCE_NAMES[0], Path("somewhere")),))
    release = Release(TOY, absent, "copies", 1.0, 0)
    outcome = peer_runs.measure(invented_data, release, named, 60)["outcome"]
    assert outcome == (
        f"not started: fake is on no package index; name where its sources lie with --source {SOURCE_NAMES[1]}=DIR"
    )


def test_a_peer_may_answer_on_another_machine(fake: Peer, invented_data: Data, tmp_path: Path) -> None:
    absent = replace(fake, requirements=("x",))
    terms, release = Terms(memory=8.0, elsewhere=tmp_path / "tasks"), Release(TOY, absent, "copies", 1.0, 0)
    row = peer_runs.measure(invented_data, release, terms, 60)
    assert str(row["outcome"]).startswith("not started: its task waits for another machine")
    (folder,) = (tmp_path / "tasks").iterdir()
    subprocess.run([sys.executable, absent.program, str(folder)], check=True)
    (folder / "card.txt").write_text("a card\n")
    row = peer_runs.measure(invented_data, release, terms, 60)
    assert (row["outcome"], row["l1"], row["card"], row["card_seconds"]) == (DONE, 0.0, "a card", 1.5)
    assert "processor_seconds" not in row
    assert "in 1.5 s on a card (a card) (1 run)" in peer_page.told(
        [{**release.key, **row, "name": "fake"}], "fake"
    )


# Accounting


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 10.0])
def test_exact_rho_is_what_gaussian_noise_alone_may_spend(
    epsilon: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    rho = exact_rho(epsilon)
    assert tight_gaussian_epsilon(rho, delta=DELTA) == pytest.approx(epsilon, rel=1e-6)
    assert epsilon_of(rho, delta=DELTA) > 1.04 * epsilon, "zero-concentrated privacy grants less"
    monkeypatch.syspath_prepend(str(peer_runs.PROGRAMS))
    protocol = importlib.import_module("protocol")
    task = protocol.Task(np.zeros((1, 1)), ["a"], [2], [[0]], epsilon, DELTA, "AIM", 0, 1)
    assert protocol.asked_epsilon(task) == epsilon
    asked = protocol.asked_epsilon(replace(task, rho=rho))
    assert asked == pytest.approx(epsilon_of(rho, delta=DELTA), rel=1e-6), "of which a peer makes this ρ"


def test_the_task_has_rho_where_accounting_is_exact(fake: Peer, invented_data: Data, tmp_path: Path) -> None:
    records = TOY.records(invented_data)
    told = {}
    for accounting in (OWN, EXACT):
        peer_runs.write_task(tmp_path, Release(TOY, fake, "copies", 1.0, 0, accounting), records, 1)
        told[accounting] = json.loads((tmp_path / "task.json").read_text())["rho"]
    assert told == {OWN: None, EXACT: exact_rho(1.0)}


# ResidualPlanner


@pytest.mark.parametrize(("sizes", "order"), [((2, 2, 2), 2), ((2, 3, 4), 2), ((5, 3), 1), ((2, 3, 2, 2), 3)])
def test_the_closed_form_is_the_bound_by_singular_values(sizes: tuple[int, ...], order: int) -> None:
    domain = Domain(tuple(Categorical(f"a{j}", tuple("uvwxyz"[:size])) for j, size in enumerate(sizes)))
    tables = Tables(domain, tuple(combinations(range(len(sizes)), order)))
    squared = svd_bound(Workload(domain, (tables,), "tables"), epsilon=1.0, delta=DELTA)
    exact = squared * exact_variance(1.0, DELTA) / classical_variance(1.0, DELTA)
    assert least_rms(sizes, order, epsilon=1.0, delta=DELTA) ** 2 == pytest.approx(exact, rel=1e-6)
