"""The lines of docs/statistics.md for R, run by R: what they say is what a service and a release say here."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import dualquery
from dualquery import Budget, Release, example
from dualquery.cli import run
from dualquery.table.schema import parse_schema
from tests.service import small
from tests.service.conftest import running

R = shutil.which("Rscript")
PAGE = (Path(__file__).resolve().parents[2] / "docs" / "statistics.md").read_text(encoding="utf-8")
SERVICE, FOLDER, COMBINED = re.findall(r"^```r\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
needs_r = pytest.mark.skipif(
    R is None, reason="no R: apt-get install r-base-core r-cran-jsonlite r-cran-httr"
)


def in_r(code: str, folder: Path, **environment: str) -> dict[str, list[float]]:
    """What a script of R says in its last line."""
    program = folder / "bin" / "dualquery"
    program.parent.mkdir(exist_ok=True)
    program.write_text(
        f'#!/bin/sh\nunset LD_LIBRARY_PATH\nexec "{sys.executable}" -m dualquery "$@"\n', encoding="utf-8"
    )
    program.chmod(0o755)
    found = {**os.environ, "PATH": f"{program.parent}:{os.environ['PATH']}", **environment}
    source = str(Path(dualquery.__file__).resolve().parents[1])
    asked = [str(R), "-e", f"library(jsonlite)\n{code}"]
    done = subprocess.run(
        asked, cwd=folder, env={**found, "PYTHONPATH": source}, capture_output=True, text=True, check=False
    )
    if lacking := re.search(r"there is no package called .(jsonlite|httr)", done.stderr):
        pytest.skip(f"R has no {lacking[1]}: apt-get install r-cran-jsonlite r-cran-httr")
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout.splitlines()[-1]))


@pytest.fixture(scope="module")
def released(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("r")
    made = dualquery.release(
        example.survey(4_000),
        schema=parse_schema(example.SCHEMA, origin="the example"),
        workload=["regress:income ~ age + sex", "marginals:1"],
        budget=Budget(3, 1e-6),
    )
    made.save(folder / "released", csv=True)
    return folder


@pytest.mark.long
@needs_r
def test_a_release_is_read(released: Path) -> None:
    said = in_r(
        f'{FOLDER}\nfound <- answer("sex = female")\n'
        "cat(toJSON(list(answer = found$answer, error = found$error, rows = nrow(rows)), digits = 12))",
        released,
    )
    release = Release.load(released / "released")
    here = release.answer("sex = female")
    assert said["answer"] == [pytest.approx(here.value)]
    assert said["error"] == [pytest.approx(here.error)]
    assert said["rows"] == [4_000]


@pytest.mark.long
@needs_r
def test_imputations_are_combined_to_what_regress_says(released: Path) -> None:
    said = in_r(
        f"{COMBINED}\ncat(toJSON(list(estimate = combined[, 1], se = combined[, 2]), digits = 12))", released
    )
    rows = {
        row["name"]: row
        for row in Release.load(released / "released").regress("income ~ age + sex").to_dict("records")
    }
    here = rows["sex[male]"]
    assert abs(said["estimate"][2] - here["estimate"]) < 0.7 * here["population_se"]
    assert 0.5 < said["se"][2] / here["population_se"] < 1.8


@pytest.mark.long
@needs_r
def test_a_service_is_asked(tmp_path: Path) -> None:
    settings = small.begun(small.files(tmp_path / "service"))
    with running(settings, ada=1.0) as service:
        code = SERVICE.replace("http://127.0.0.1:8642", service.url).replace("sex = female", "colour = c0")
        code = code.replace('dataset = "people"', f'dataset = "{service.core.settings.dataset}"')
        said = in_r(
            f"{code}\ncat(toJSON(list(value = found$values, bar = found$bars_95), digits = 12))",
            tmp_path,
            DUALQUERY_TOKEN=service.tokens["ada"],
        )
        told = service.request("GET", "/v1/history?most=1")[1]["replies"][0]
    assert said["value"] == [pytest.approx(told["values"][0])]
    assert said["bar"] == [pytest.approx(told["bars_95"][0])]


def test_imputations_are_one_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = dualquery.release(
        example.survey(300).select(["sex", "smokes"]),
        schema={"attribute": [{"name": n, "values": list(example.VALUES[n])} for n in ("sex", "smokes")]},
        workload="marginals:2",
        budget=Budget(1, 1e-6),
        check=0.0,
    )
    made.save(tmp_path / "released")
    asked = ["imputations", str(tmp_path / "released"), "--number", "3", "--out"]
    assert run([*asked, str(tmp_path / "i.csv")]) == 0
    lines = (tmp_path / "i.csv").read_text(encoding="utf-8").splitlines()
    assert lines[0] == '".imp","sex","smokes"'
    assert len(lines) == 1 + 3 * 300
    assert {line.split(",")[0] for line in lines[1:]} == {"1", "2", "3"}
    assert run([*asked, str(tmp_path / "nowhere" / "i.csv")]) == 2
    assert run([*asked, str(tmp_path / "j.csv"), "--columns", "age"]) == 2
    assert capsys.readouterr().err.count("\n") == 2
