"""The desk without a browser: who may speak to it, which commands its buttons are, how a schema is edited."""

from __future__ import annotations

import shutil
from http.client import HTTPConnection
from pathlib import Path
from threading import Event
from typing import Any
from urllib.request import url2pathname

import pandas as pd
import pytest
import typer.main

import dualquery
from dualquery.cli import run as cli
from dualquery.cli.app import app
from dualquery.desk import bound, columns, commands, shown_by_browser
from dualquery.desk.columns import Edited, EditedSchema
from dualquery.desk.commands import (
    ACCEPT,
    DeskJob,
    Jobs,
    Released,
    WantedDraft,
    WantedLedger,
    WantedPrivateDraft,
    WantedTable,
    written,
)
from dualquery.errors import DualQueryError, SchemaError
from dualquery.releases.certificate import Certificate
from dualquery.releases.seal import sealed
from dualquery.service.settings import ProblemError
from dualquery.table.draft import schema_draft
from dualquery.table.schema import DRAFT_LINE, MARK, parse_schema
from tests.desk.conftest import KEY, Sitting

HOSTILE = "<img src=x onerror=alert(1)>.csv"


def test_nobody_without_the_token_and_no_other_page_is_answered(here: Sitting) -> None:
    assert here.request("GET", "/v1/desk")[0] == 200
    for token in ("", "wrong", "é"):
        status, said, _ = here.request("GET", "/v1/desk", token=token.encode().decode("latin-1"))
        assert (status, said["error"]["code"]) == (401, "no_token")
    for headers in (
        {"Host": "evil.example"},
        {"Host": f"evil.example:{here.port}"},
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": f"http://127.0.0.1:{here.port + 1}"},
    ):
        for path in ("/", "/v1/desk"):
            assert here.request("GET", path, **headers)[0] == 403, (headers, path)
    assert here.request("GET", "/v1/desk", Origin=here.url)[0] == 200


def test_it_listens_on_this_machine_alone() -> None:
    with bound(0) as one:
        assert one.getsockname()[0] == "127.0.0.1"
        one.listen()
        with pytest.raises(DualQueryError, match="--port"):
            bound(one.getsockname()[1])


def test_every_answer_has_the_policy_and_nothing_is_inline(here: Sitting) -> None:
    for path in ("/", "/page/desk.js", "/page/page.css", "/v1/desk", "/nowhere"):
        headers = here.request("GET", path)[2]
        policy = {name.lower(): value for name, value in headers.items()}["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
    page = here.request("GET", "/")[1].decode()
    assert "<style" not in page
    assert " style=" not in page
    assert page.count("<script") == page.count('<script type="module" src="/page/')


def test_a_report_opens_once_and_runs_nothing(here: Sitting, folder: Path) -> None:
    schema = folder / "s.toml"
    schema.write_text('[[attribute]]\nname = "sex"\nvalues = ["female", "male"]\n', encoding="utf-8")
    asked = ["--schema", str(schema), "--queries", "marginals:1", "--epsilon", "1", "--quiet"]
    assert cli(["release", str(folder / "people.csv"), *asked, "--out", str(folder / "made")]) == 0
    address = here.post("/v1/look", {"release": "made", "name": "report.html"})[1]["address"]
    status, page, headers = here.request("GET", address, token="")
    assert status == 200
    assert b"private release" in page
    assert "script-src" not in headers["content-security-policy"]
    assert "sandbox" in headers["content-security-policy"]
    assert here.request("GET", address)[0] == 404
    assert here.post("/v1/look", {"release": "made", "name": "synthetic.parquet"})[0] == 404
    for release, name in (("made", "../people.csv"), ("..", "people.csv"), ("made", "people.csv")):
        assert here.post("/v1/look", {"release": release, "name": name})[0] == 404
    assert here.request("GET", "/v1/files/made/..%2Fpeople.csv")[0] == 404
    assert here.request("GET", "/v1/files/made/certificate.json")[0] == 200
    assert here.request("GET", "/v1/folders/made")[1][:2] == b"PK"
    (folder / "made" / "certificate.json").write_text("{}", encoding="utf-8")
    assert here.request("GET", "/v1/desk")[1]["releases"] == []


ASKED = {"table": "people.csv", "queries": ["marginals:2"], "epsilon": 1}
BUTTONS = [
    commands.draft(WantedDraft(table="people.csv", encoding="latin-1")),
    commands.draft(WantedDraft(table="-rf.csv")),
    commands.private_draft(
        WantedPrivateDraft(
            table="people.csv",
            known=True,
            epsilon=0.3,
            delta=1e-7,
            neighbours="person-replace",
            records_per_person=3,
        ),
        unit="id",
        encoding="latin-1",
    ),
    commands.check(WantedTable(table="people.csv")),
    commands.ledger(WantedLedger(table="people.csv", dataset="--people", epsilon=3.0, delta=1e-6)),
    commands.ledger(
        WantedLedger(
            table="x", dataset="d", epsilon=3.0, delta=1e-6, neighbours="person-replace", records_per_person=3
        )
    ),
    commands.key(),
    commands.release(
        Released(
            table="postgresql://me@host/db",
            named="people",
            queries=["tables:a*b", "regress:'a b' ~ c"],
            epsilon=0.5,
            delta=1e-7,
            neighbours="person-add-remove",
            records_per_person=2,
            limit=0.05,
            ledger=True,
            draft=True,
            sign=True,
            registry=True,
        ),
        "released-1",
    ),
]


@pytest.mark.parametrize("arguments", BUTTONS, ids=lambda each: " ".join(each[:2]))
def test_what_a_button_runs_is_a_command_with_its_flags(arguments: list[str]) -> None:
    """Parsed by the command line itself, and not run; no name of a file or dataset becomes a flag."""
    command, rest = typer.main.get_command(app), list(arguments)
    while hasattr(command, "commands"):
        command = command.commands[rest.pop(0)]
    context = command.make_context("test", rest)
    named = {value for value in context.params.values() if isinstance(value, str)}
    assert not any(value.startswith("-") for value in named)
    assert written(arguments).startswith("dualquery ")


@pytest.mark.parametrize(
    ("table", "file"),
    [
        ("people.csv", "people.schema.toml"),
        ("people.csv.gz", "people.schema.toml"),
        ("visits.2023.csv", "visits.2023.schema.toml"),
        ("visits.2024.csv", "visits.2024.schema.toml"),
        (".hidden.csv", "hidden.schema.toml"),
        ("people", "people.schema.toml"),
        ("clinic.xlsx#patients", "clinic.schema.toml"),
        ("../other/people.parquet", "people.schema.toml"),
        (HOSTILE, "_img_src_x_onerror_alert_1__.schema.toml"),
        ("..", "table.schema.toml"),
        ("postgresql://me@host/db", "database.schema.toml"),
    ],
)
def test_files_that_go_with_a_table_stay_in_the_folder(table: str, file: str) -> None:
    assert commands.WantedTable(table=table).file(commands.SCHEMA) == file


def test_two_tables_of_one_database_do_not_share_their_files() -> None:
    here, there = (WantedTable(table="postgresql://me@host/db", named=name) for name in ("people", "../jobs"))
    assert here.file(commands.SCHEMA) == "people.schema.toml"
    assert there.file(commands.LEDGER) == "_jobs.ledger"


def test_tables_are_found_and_ours_are_not(here: Sitting, folder: Path) -> None:
    for name in (
        HOSTILE,
        "-x.csv",
        "b.parquet",
        "people.schema.toml",
        "people.ledger",
        "notes.pdf",
        ".hidden.csv",
    ):
        (folder / name).write_bytes(b"a,b\n1,2\n")
    found = [each["name"] for each in here.request("GET", "/v1/desk")[1]["tables"]]
    assert sorted(found) == sorted(["people.csv", HOSTILE, "-x.csv", "b.parquet"])


def test_one_key_is_one_job_and_one_job_runs_at_a_time(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Two windows: what is asked twice is begun once, and nothing begins beside what runs."""
    begun, go = [], Event()

    def run(self: Jobs, job: DeskJob, failed: object) -> None:
        begun.append(job.arguments)
        go.wait(10)
        job.code = 0

    monkeypatch.setattr(Jobs, "_run", run)
    jobs = Jobs(tmp_path)
    first = jobs.start("a" * 16, ["release", "x"])
    assert jobs.start("a" * 16, ["release", "x"]) is first
    with pytest.raises(ProblemError, match="another window"):
        jobs.start("b" * 16, ["release", "x"])
    go.set()
    while first.code is None:
        pass
    assert jobs.start("a" * 16, ["release", "x"]) is first
    assert len(begun) == 1
    jobs.start("b" * 16, ["release", "y"])
    with pytest.raises(ProblemError, match="no such job"):
        jobs.of("c" * 16)


def test_a_desk_that_ends_puts_back_what_was_moved_for_a_job(tmp_path: Path) -> None:
    schema, aside = tmp_path / "schema", tmp_path / "aside"
    schema.touch()
    jobs = Jobs(tmp_path)
    job = jobs.start("a" * 16, ["desk"], lambda: schema.replace(aside), lambda: aside.replace(schema))
    while jobs._process is None:
        pass
    jobs.stop()
    assert job.code
    assert schema.exists()


def test_a_refusal_of_a_command_is_one_sentence(here: Sitting, folder: Path) -> None:
    (folder / "broken.csv").write_bytes(b'a,b\n"1,2\n\x00\xff')
    status, job = here.post("/v1/draft", {"table": "broken.csv"})
    assert status == 200
    ended = here.end(job)
    assert ended["code"] == 2
    assert "\n" not in ended["problem"]
    assert "broken.csv" in ended["problem"]
    assert not (folder / "broken.schema.toml").exists()


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/release", {**ASKED, "epsilon": 0}),
        ("/v1/release", {**ASKED, "epsilon": "1"}),
        ("/v1/release", {**ASKED, "queries": []}),
        ("/v1/release", {**ASKED, "shell": "rm"}),
        ("/v1/ledger", {"table": "people.csv"}),
        ("/v1/columns", {"table": "nowhere.csv"}),
        ("/v1/curve", {**ASKED, "table": "nowhere.csv"}),
    ],
)
def test_a_body_that_does_not_fit_is_refused_and_begins_nothing(here: Sitting, path: str, body: Any) -> None:
    status, said = here.post(path, body)
    assert status == 422
    assert said["error"]["message"]
    assert here.request("GET", f"/v1/jobs/{KEY}")[0] == 404


@pytest.fixture
def drafted(folder: Path) -> Path:
    path = folder / "people.schema.toml"
    schema_draft(folder / "people.csv").save(path)
    return path


def edit(path: Path, **of_sex: Any) -> str:
    found = columns.shown(path)
    edits = [
        Edited(**{"name": each["name"], "public": True, **(of_sex if each["name"] == "sex" else {})})
        for each in found["columns"]
    ]
    return columns.edited(EditedSchema(table="people.csv", digest=found["digest"], columns=edits), path)


def test_a_draft_loses_its_marks_column_by_column(drafted: Path) -> None:
    found = columns.shown(drafted)
    assert found["draft"]
    assert not any(each["public"] for each in found["columns"])
    some = edit(drafted, public=False)
    assert parse_schema(some, origin="x").draft
    assert next(part for part in some.split("[[attribute]]")[1:] if MARK in part).count('"sex"') == 1
    drafted.write_text(some, encoding="utf-8")
    again = columns.shown(drafted)
    assert [each["name"] for each in again["columns"] if not each["public"]] == ["sex"]
    whole = edit(drafted)
    assert MARK not in whole
    assert not parse_schema(whole, origin="x").draft


def test_a_value_that_is_private_goes_to_other(drafted: Path) -> None:
    schema = parse_schema(edit(drafted, values=["female"], other=True), origin="x")
    sex = next(each for each in schema.domain.columns if each.name == "sex")
    assert sex.values == ("female", "other")
    assert sex.unknown == "other"
    left = parse_schema(edit(drafted, use=False), origin="x")
    assert "sex" not in [each.name for each in left.domain.columns]


def test_another_window_has_saved_meanwhile(drafted: Path) -> None:
    found = columns.shown(drafted)
    asked = EditedSchema(table="people.csv", digest=found["digest"], columns=[Edited(name="sex")])
    drafted.write_text(edit(drafted), encoding="utf-8")
    with pytest.raises(ProblemError, match="another window") as raised:
        columns.edited(asked, drafted)
    assert raised.value.status == 409


@pytest.mark.parametrize(
    ("columns_", "sentence"),
    [
        ([Edited(name="nobody")], "no column 'nobody'"),
        ([Edited(name="sex", use=False)], "at least one column"),
        ([Edited(name="sex", values=[])], "no values"),
        ([Edited(name="age", edges=[5.0, 1.0])], "age"),
    ],
)
def test_edits_that_make_no_schema_are_one_sentence(
    drafted: Path, columns_: list[Edited], sentence: str
) -> None:
    asked = EditedSchema(table="x", digest=columns.shown(drafted)["digest"], columns=columns_)
    with pytest.raises(SchemaError, match=sentence) as raised:
        columns.edited(asked, drafted)
    assert "\n" not in str(raised.value)


def test_a_hundred_columns_are_shown_and_ten_thousand_refused(tmp_path: Path) -> None:
    path = tmp_path / "wide.schema.toml"
    for number, fits in ((100, True), (10_000, False)):
        lines = (f'[[attribute]]\nname = "c{j}"\nvalues = ["a", "b"]\n' for j in range(number))
        path.write_text("\n".join(lines), encoding="utf-8")
        if fits:
            assert len(columns.shown(path)["columns"]) == number
        else:
            with pytest.raises(SchemaError, match="use the commands"):
                columns.shown(path)


def test_marks_stay_where_somebody_deleted_the_line_draft(drafted: Path) -> None:
    """By hand, and without going through the columns: the desk must not make them public by saving."""
    drafted.write_text(drafted.read_text("utf-8").replace(DRAFT_LINE, ""), encoding="utf-8")
    found = columns.shown(drafted)
    assert not found["draft"]
    assert not any(each["public"] for each in found["columns"])
    assert parse_schema(edit(drafted, public=False), origin="x").draft


def test_a_second_window_does_not_change_what_a_running_release_is_judged_by(
    here: Sitting, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go = Event()

    def run(self: Jobs, job: DeskJob, failed: object) -> None:
        go.wait(10)
        job.code = 0

    monkeypatch.setattr(Jobs, "_run", run)
    assert here.post("/v1/release", {**ASKED, "limit": 0.25}, "a" * 16)[0] == 200
    before = (folder / WantedTable(table="people.csv").file(ACCEPT)).read_text("utf-8")
    assert "0.25" in before
    status, said = here.post("/v1/release", {**ASKED, "limit": 1.5}, "b" * 16)
    assert (status, said["error"]["code"]) == (409, "busy")
    assert (folder / WantedTable(table="people.csv").file(ACCEPT)).read_text("utf-8") == before
    go.set()


def test_a_body_of_unknown_length_is_refused(here: Sitting) -> None:
    connection = HTTPConnection("127.0.0.1", here.port, timeout=60)
    connection.request("POST", "/v1/columns", iter([b"{}"] * 3), encode_chunked=True, headers={
        "Transfer-Encoding": "chunked", "Content-Type": "application/json"
    })  # fmt: skip
    assert connection.getresponse().status == 413
    connection.close()


def test_a_folder_whose_schema_is_no_schema_hides_no_other(here: Sitting, folder: Path) -> None:
    """Sealed, but by somebody who wrote it by hand."""
    dualquery.release(
        pd.DataFrame({"a": ["x", "y"] * 50}),
        schema={"attribute": [{"name": "a", "values": ["x", "y"]}]},
        workload="marginals:1",
        budget=1.0,
        check=0,
    ).save(folder / "made")
    shutil.copytree(folder / "made", folder / "forged")
    certificate = Certificate.from_json((folder / "forged" / "certificate.json").read_text("utf-8"))
    forged = {name: value for name, value in certificate.plain().items() if name != "seal"}
    text = sealed(Certificate.of({**forged, "schema": "no schema"}), None).to_json()
    (folder / "forged" / "certificate.json").write_text(text, encoding="utf-8")
    status, said, _ = here.request("GET", "/v1/desk")
    assert status == 200
    assert [each["name"] for each in said["releases"]] == ["made"]


def test_the_browser_is_called_without_the_token(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever else works on the machine sees what programs are called with."""
    called: list[str] = []
    monkeypatch.setattr("webbrowser.open", called.append)
    with shown_by_browser("http://127.0.0.1:1/#secret"):
        path = Path(url2pathname(called[0].removeprefix("file://")))
        assert "secret" not in called[0]
        assert "#secret" in path.read_text("ascii")
        assert path.parent.stat().st_mode & 0o077 == 0
    assert not path.exists()
