"""The commands of docs/service.md, as somebody types them: begin, give tokens, serve, ask, look, stop."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pytest

import dualquery
from dualquery import cli
from dualquery.errors import DualQueryError, QueryError
from dualquery.interactive import opening
from dualquery.interactive.answers import Badge
from dualquery.registry import KINDS
from dualquery.releases.release import Release
from dualquery.service import run as service_run
from dualquery.service.journal import LedgerJournal, ledger_status, log_of
from dualquery.service.run import opened, serve
from dualquery.service.settings import ServiceError, read_settings

SOURCE = str(Path(dualquery.__file__).resolve().parents[1])
PAGE = (Path(__file__).resolve().parents[2] / "docs" / "service.md").read_text(encoding="utf-8")


@pytest.fixture(autouse=True)
def _cheap_fires() -> None:
    """Here the rule is the real one: the server is a process of its own."""


def command(*arguments: str, **options: Any) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "dualquery", *arguments],
        env={**os.environ, "PYTHONPATH": SOURCE},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


def test_a_service_from_its_first_command_to_its_last(
    files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("people.csv", "schema.toml"):
        (tmp_path / name).write_bytes((files / name).read_bytes())

    def run(line: str) -> str:
        """A command of the page, as it stands there; what it printed."""
        assert line in PAGE, f"docs/service.md does not show: {line}"
        words = re.findall(r'"[^"]*"|\S+', line.split("   ")[0])
        code = cli.run([word.strip('"') for word in words[1:]])
        out, err = capsys.readouterr()
        assert code == 0, err
        return out

    run("dualquery serve init people.csv --schema schema.toml --epsilon 1 --out service.toml")
    assert (tmp_path / "service-release" / "certificate.json").exists()
    settings = read_settings("service.toml")
    assert settings.published == {"service-release": "service-release"}
    token = run("dualquery serve token add ada --quota 0.2").strip()
    assert cli.run(["serve", "token", "add", "eve", "--quota", "0.001"]) == 0
    said = capsys.readouterr().err
    assert "This quota buys no check" in said
    (enough,) = re.findall(r"A quota of (0\.\d+) buys one", said)
    assert cli.run(["serve", "token", "add", "eva", "--quota", enough]) == 0
    assert "This quota buys 1 paid check." in capsys.readouterr().err
    run("dualquery serve token add steward --owner")
    assert "ada" in run("dualquery serve token list")
    assert "fires" in run("dualquery serve status service.toml")

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = command("serve", "service.toml", "--port", str(port), cwd=tmp_path)
    try:
        assert server.stdout is not None
        assert f"http://127.0.0.1:{port}/" in server.stdout.readline()
        url = f"http://127.0.0.1:{port}"
        (tmp_path / "ada.token").write_text(token)
        asked = ["ask", url, "colour = c0 & size = s1", "--token-file", "ada.token"]
        until = time.monotonic() + 30
        while cli.run([*asked, "--quote"]) != 0 and time.monotonic() < until:
            time.sleep(0.1)
        assert "usually free, at most" in capsys.readouterr().out
        assert cli.run(asked) == 0
        assert "(95%)\nnot contradicted" in capsys.readouterr().out
        monkeypatch.setenv("DUALQUERY_TOKEN", token)
        assert cli.run(["ask", url, "colour by size", "--json"]) == 0
        assert len(json.loads(capsys.readouterr().out)["values"]) == 30
        assert cli.run(["ask", url, "colour = c0", "--dataset", "service-release"]) == 0
        assert "release" in capsys.readouterr().out
        assert cli.run(["ask", url, "colour = c0", "--buy", "0.02"]) == 0
        assert "bought" in capsys.readouterr().out
        assert cli.run(["ask", url, "colour = c1", "--free"]) == 0
        assert "not checked" in capsys.readouterr().out
        assert cli.run(["ask", url, "colour = "]) == 2
        assert "column 10" in capsys.readouterr().err.lower()
        assert cli.run(["serve", "run", "service.toml", "--port", str(port + 1)]) == 2
        assert "nother server has this ledger open" in capsys.readouterr().err
    finally:
        server.send_signal(signal.SIGTERM)  # as the machine does it; Ctrl-C is the same
        _, err = server.communicate(timeout=60)
    assert server.returncode == 0, err
    assert cli.run(["serve", "status", "service.toml", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert not found["running"]
    assert found["burned"] == 0
    assert found["answers"]["bought"] == 1
    assert found["spent_by"].keys() == {"ada"}
    run("dualquery serve token revoke ada")
    assert cli.run(["serve", "token", "revoke", "ada"]) == 2


def test_what_is_wrong_with_a_service_file_is_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "service.toml"
    for text, said in {
        "": "says nothing about: dataset",
        "x = 1": "'x' is not a setting",
        "dataset = 5": "wrong kind",
        "= 3": "is not well-formed TOML",
        "[http]\nquantum = true": "wrong kind",
        f"epsilon = {'9' * 5000}": "very many figures",
        f"epsilon = {10**400}": "wrong kind",
        f"epsilon = 0x{'f' * 5000}": "very many figures",
        f"x = {'[' * 5000}": "nests too deeply",
    }.items():
        path.write_text(text)
        with pytest.raises(ServiceError, match=said):
            read_settings(path)
    with pytest.raises(ServiceError, match="cannot be read"):
        read_settings(tmp_path / "nothing.toml")


def test_a_service_file_says_the_same_when_it_is_read_again(make: Any) -> None:
    made = make()
    path = made.folder / "again.toml"
    path.write_text(made.to_toml())
    assert read_settings(path) == made


def test_without_its_extra_there_is_a_sentence(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = make()
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    with pytest.raises(DualQueryError, match=r"dualquery\[service\]"):
        serve(settings)


def test_what_exists_is_not_overwritten(
    files: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    begin = [
        "serve",
        "init",
        str(files / "people.csv"),
        "--schema",
        str(files / "schema.toml"),
        "--epsilon",
        "1",
    ]
    out = tmp_path / "service.toml"
    out.write_text("")
    assert cli.run([*begin, "--out", str(out)]) == 2
    assert "exists already" in capsys.readouterr().err
    out.unlink()
    (tmp_path / "service.ledger").write_text("not a ledger")
    assert cli.run([*begin, "--out", str(out)]) == 2
    assert capsys.readouterr().err.startswith("Error: ")
    assert not (tmp_path / "service-release").exists()


STOPS = {
    "before the charge": (LedgerJournal, "append"),
    "after the charge": (opening, "make_release"),
    "before it was saved": (Release, "save"),
    "before it was opened": (service_run, "table_of"),
    "before the file": (service_run, "write_whole"),
}


@pytest.mark.parametrize("stop", STOPS)
def test_a_beginning_that_was_stopped_goes_on_without_another_charge(
    files: Path,
    tmp_path: Path,
    stop: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = tmp_path / "service.toml"
    begin = ["serve", "init", str(files / "people.csv"), "--schema", str(files / "schema.toml"), "--quiet"]
    begin += ["--epsilon", "1", "--out", str(out)]

    def stopped(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(*STOPS[stop], stopped)
        assert cli.run(begin) == 130
    assert not out.exists()
    capsys.readouterr()
    assert cli.run(begin) == 2
    assert "--resume" in capsys.readouterr().err
    for other in (["--epsilon", "2"], ["--dataset", "others"]):
        assert cli.run([*begin, *other, "--resume"]) == 2
        assert "same command" in capsys.readouterr().err
    assert cli.run([*begin, "--resume"]) == 0, capsys.readouterr().err
    found = ledger_status(read_settings(out))
    kinds = [row["kind"] for row in log_of(read_settings(out))]
    assert kinds.count("planned") == kinds.count("opened") == kinds.count("fixed") == 1
    assert found.spent == found.release + found.price
    assert found.burned == 0
    assert cli.run([*begin, "--resume"]) == 2
    assert "exists already" in capsys.readouterr().err


def test_a_beginning_that_was_killed_goes_on(files: Path, tmp_path: Path) -> None:
    """With a signal that nobody can catch, after the charge."""
    out = tmp_path / "service.toml"
    begin = ["serve", "init", str(files / "people.csv"), "--schema", str(files / "schema.toml"), "--quiet"]
    begin += ["--epsilon", "1", "--out", str(out)]
    program = (
        "import os, signal; from dualquery.interactive import opening; "
        "opening.make_release = lambda *a, **b: os.kill(os.getpid(), signal.SIGKILL); "
        "from dualquery.cli import main; main()"
    )
    killed = subprocess.run(
        [sys.executable, "-c", program, *begin], env={**os.environ, "PYTHONPATH": SOURCE}, timeout=300
    )
    assert killed.returncode == -signal.SIGKILL
    assert cli.run([*begin, "--resume"]) == 0
    assert [row["kind"] for row in log_of(read_settings(out))].count("planned") == 1


@pytest.mark.parametrize("wrong", [("--share", "2"), ("--tolerance", "2")])
def test_what_cannot_be_begun_leaves_nothing_behind(
    files: Path, tmp_path: Path, wrong: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    table, schema, out = files / "people.csv", files / "schema.toml", tmp_path / "service.toml"
    begin = ["serve", "init", str(table), "--schema", str(schema), "--epsilon", "1", "--out", str(out)]
    assert cli.run([*begin, *wrong]) == 2
    assert "between 0 and 1" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_service_names_its_test(files: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table, schema, out = files / "people.csv", files / "schema.toml", tmp_path / "service.toml"
    begin = ["serve", "init", str(table), "--schema", str(schema), "--epsilon", "1", "--out", str(out)]
    assert cli.run([*begin, "--test", "sparse"]) == 2
    assert "must be hazard or sparse-vector, got 'sparse'" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
    assert cli.run([*begin, "--test", "sparse-vector", "--epsilon", "0.01"]) == 2
    assert "can promise nothing of" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
    assert cli.run([*begin, "--test", "sparse-vector"]) == 0
    words = "of the truth, all of them together with probability 95%"
    assert words in " ".join(capsys.readouterr().out.split())
    assert 'test = "sparse-vector"' in out.read_text()
    assert not (tmp_path / "service-release").exists()
    assert cli.run(["serve", "status", str(out)]) == 0
    assert words in " ".join(capsys.readouterr().out.split())
    with opened(read_settings(out)) as service:
        said = service.known("people")["promise"]
        assert (said["test"]["name"], said["accuracy"]["questions"]) == ("sparse-vector", 2000)
        assert service.online.ask("colour = c0").badge is Badge.NOT_CONTRADICTED
        assert words in service.online.status().accuracy


@pytest.mark.parametrize(
    "ways",
    [("--buy", "0.1", "--free"), ("--buy", "0.1", "--tolerance", "0.1"), ("--free", "--tolerance", "1")],
)
def test_a_question_is_asked_in_one_way(ways: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["ask", "http://127.0.0.1:1", "sex = m", *ways]) == 2
    assert "name one of them" in capsys.readouterr().err


@pytest.mark.parametrize(
    "kind", ["codes", *(pytest.param(name, marks=pytest.mark.long) for name in ("graph", "points"))]
)
def test_cuts_distances_and_look_ups_are_asked_of_the_same_service(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the commands to the ledger: begun, opened, asked, bought, stopped, and verified."""
    made = KINDS[kind].example(tmp_path)
    for name, content in made.files.items():
        if isinstance(content, str):
            (tmp_path / name).write_text(content)
        else:
            pa.csv.write_csv(content, tmp_path / name)
    monkeypatch.chdir(tmp_path)
    begin = [
        "serve",
        "init",
        made.table,
        "--schema",
        "schema.toml",
        "--epsilon",
        "1",
        "--out",
        "service.toml",
    ]
    assert cli.run([*begin, "--quiet"]) == 0
    assert (tmp_path / "service-release").exists() == (kind != "codes")
    settings = read_settings(tmp_path / "service.toml")
    with opened(settings) as service:
        assert service.known(settings.dataset)["examples"]["question"]
        text = made.questions[0]
        answer = service.online.ask(text)
        assert answer.badge in (Badge.NOT_CONTRADICTED, Badge.MEASURED)
        assert service.online.buy(text, error=0.01).badge in (Badge.BOUGHT, Badge.MEASURED)
        if kind == "codes":
            with pytest.raises(QueryError, match="names its records itself"):
                service.online.ask(made.questions[1])
    status = ledger_status(settings)
    assert status.spent <= status.cap
    assert not status.running
