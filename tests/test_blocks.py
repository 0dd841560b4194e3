"""Every block of code on every page is run: commands, Python, schemas, queries; what a page shows is compared.

A page is read from top to bottom in a folder of its own, in which the files that it names lie: the invented survey
as `people.csv`, and so on. Numbers differ from release to release, so what is shown is compared with all numbers
masked. `…` stands for flags that the page named before, and `TABLE`, `BASKETS` and `DIR` for names. Whatever is not
run stands in `NOT_HERE` or `NO_CODE`, with the reason.
"""

from __future__ import annotations

import contextlib
import io
import re
import shlex
import shutil
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.csv
import pyarrow.parquet
import pytest

import dualquery
from dualquery import Budget, Neighbours, example
from dualquery.cli import run
from dualquery.errors import QueryError
from dualquery.queries.language.reader import parse
from dualquery.releases.acceptance import read_acceptance
from dualquery.table.schema import parse_schema, schema_text

pytestmark = pytest.mark.usefixtures("few_rows")

ROOT = Path(__file__).resolve().parents[1]
PAGES = ["README.md", *(f"docs/{path.name}" for path in sorted((ROOT / "docs").glob("*.md")))]
FENCE = re.compile(r"^```([^\n]*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
PEOPLE, SMALL = 400, ("age", "sex", "region", "smokes")

# Lines that begin so are not run here.
NOT_HERE = {
    "make ": "makes an environment; .ci/run runs `make check`, `make site` and `make test`",
    "pip install": "needs a network; tests/distribution/test_wheel.py installs a wheel",
    "export ": "a token is made by the service; tests/service/test_serve_commands.py sets it",
    "dualquery desk": "runs until it is stopped; tests/desk/test_desk_page.py goes the whole path in a browser",
    "dualquery serve": "runs until it is stopped; tests/service/test_serve_commands.py runs these lines",
    "dualquery ask": "needs a running service; tests/service/test_serve_commands.py asks in each of these ways",
    "dualquery audit": "a minute; tests/releases/test_audit.py",
    "dualquery demo": "tests/cli/test_cli.py, tests/kinds/test_special.py and tests/mechanisms/test_lists.py",
    "dualquery release postgresql:": "needs a server; tests/table/test_postgresql.py has one",
    "dualquery release 'parts/*.parquet' … --engine spark": "starts Java; tests/counting/test_spark.py",
}
# Blocks that hold nothing to run, or that another test runs as a whole.
NO_CODE = {
    (
        "README.md",
        1,
    ): "what `make demo` prints; `test_the_demonstration_prints_what_the_page_shows` compares it",
    ("docs/contributing.md", 1): "of tests/plugins, whose tests install and run it",
    ("docs/how_it_works.md", 0): "a drawing",
    ("docs/schema.md", 6): "no attribute; tests/table/test_schema_check.py adds one",
    ("docs/schema.md", 9): "a table; tests/privacy/test_persons.py reads it",
    ("docs/schema.md", 11): "a table; tests/privacy/test_persons.py reads it",
    ("docs/schema.md", 17): "Spark; tests/counting/test_spark.py releases a Spark DataFrame",
    ("docs/service.md", 2): "needs a running service; tests/service/test_http.py has one and its client",
}
WHOLE_PAGES = {"docs/tutorial.md": "a notebook; tests/test_pages.py runs it and compares every output"}
NAMED = re.compile(r"# (\w+\.toml)\n")  # the first line of a schema that is saved under this name
LANGUAGE = """
[[attribute]]
name = "age"
low = 0
high = 100
bins = 20
integer = true
[[attribute]]
name = "sex"
values = ["Female", "Male"]
[[attribute]]
name = "workclass"
values = ["Private", "Local-gov"]
missing = "?"
[[attribute]]
name = "education"
values = ["Bachelors", "Masters", "HS-grad"]
[[attribute]]
name = "hours-per-week"
low = 0
high = 100
bins = 10
[[attribute]]
name = "native-country"
values = ["Trinadad&Tobago", "Outlying-US(Guam-USVI-etc)", "Peru"]
[[attribute]]
name = "admitted"
from = "2023-01"
to = "2025-12"
by = "month"
[[attribute]]
name = "smoker"
values = ["0", "1"]
[[attribute]]
name = "income"
values = [">50K", "<=50K"]
[[attribute]]
name = "surname"
values = ["O'Brien", "Smith"]
[[attribute]]
name = "item"
count = 5000
[[attribute]]
name = "my item"
count = 20
"""


@dataclass
class Stage:
    """The folder of a page, what was printed so far, and the names that its Python knows."""

    page: str
    folder: Path
    names: dict[str, Any]
    released: int = 0
    printed: list[str] = field(default_factory=list)

    def call(self, line: str) -> str:
        """Run a command as it stands on the page; what it printed."""
        line = self.spelled(line)
        if line.startswith("dualquery schema draft"):
            (self.folder / "schema.toml").unlink(missing_ok=True)
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            code = run(shlex.split(line)[1:])
        assert code == 0, f"{self.page}: {line}: {out.getvalue()}"
        if line.startswith("dualquery schema draft"):  # somebody edits it
            (self.folder / "schema.toml").write_text(example.SCHEMA, encoding="utf-8")
        return out.getvalue()

    def spelled(self, line: str) -> str:
        """A command without the comment behind it, with what its abbreviations stand for."""
        line = re.sub(r"\s+#.*", "", line)
        if "BASKETS" in line:
            line = line.replace("s.toml", "baskets.toml").replace("BASKETS", "baskets.txt")
        line = line.replace("TABLE", "small.csv")
        kind = "visits" if "visits.csv" in line and "…" in line else "schema"
        line = line.replace("…", f"--schema {kind}.toml --queries marginals:2 --epsilon 1 --delta 1e-6")
        if line.startswith("dualquery release"):
            self.released += 1
            if "--out" not in line:
                line += f" --out released-{self.released}"
            line = re.sub(r"\bDIR\b", f"dir-{self.released}", line)
            if "--sign" not in line and self.page in ("README.md", "docs/cli.md"):
                line += " --sign steward"  # which these pages verify
        return re.sub(r"\bDIR\b", f"dir-{self.released}", line)


def masked(text: str) -> str:
    """Words alone: every number, and how it is padded, looks the same."""
    numbers = re.sub(r"[-+]?\d[\d,.]*(?:e-?\d+)?[⁰¹²³⁴⁵⁶⁷⁸⁹⁻]*", "N", text)
    return re.sub(r"[\s─]+", " ", numbers).strip()


def survey_frame() -> pd.DataFrame:
    return example.survey(PEOPLE).to_pandas()


@pytest.fixture
def stage(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stage:
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    people = example.survey(PEOPLE)
    pyarrow.csv.write_csv(people, "people.csv")
    pyarrow.parquet.write_table(people, "people.parquet")
    pyarrow.csv.write_csv(people.select(SMALL), "small.csv")
    Path("parts").mkdir()
    for part in range(2):
        pyarrow.parquet.write_table(
            people.slice(part * PEOPLE // 2, PEOPLE // 2), f"parts/part-{part}.parquet"
        )
    Path("schema.toml").write_text(example.SCHEMA, encoding="utf-8")
    whole = parse_schema(example.SCHEMA, origin="the example")
    small = dualquery.Domain(tuple(each for each in whole.domain.columns if each.name in SMALL))
    Path("s.toml").write_text(schema_text(small), encoding="utf-8")
    Path("baskets.toml").write_text('[[attribute]]\nname = "item"\ncount = 30\n', encoding="utf-8")
    baskets = rng.random((PEOPLE, 30)) < 0.1
    Path("baskets.txt").write_text("".join(f"{' '.join(map(str, np.flatnonzero(b) + 1))}\n" for b in baskets))
    _special_tables(rng)
    if page in ("README.md", "docs/cli.md"):
        assert run(["key", "create", "steward", "--quiet"]) == 0
    names = {
        "frame": survey_frame(),
        "table": people,
        "schema": whole,
        "domain": parse_schema(LANGUAGE, origin="the test").domain,
        "budget": Budget(1, 1e-6),
        "dualquery": dualquery,
        "Budget": Budget,
        "Neighbours": Neighbours,
    }
    return Stage(page, tmp_path, names)


def _special_tables(rng: np.random.Generator) -> None:
    """What the pages about graphs, distances, codes and persons name."""
    accounts = [f"A{i:03}" for i in range(40)]
    pd.DataFrame({"vertex": accounts, "region": ["North", "South"] * 20}).to_csv("accounts.csv", index=False)
    pairs = pd.DataFrame({"payer": rng.choice(accounts, 600), "payee": rng.choice(accounts, 600)})
    pairs[pairs.payer != pairs.payee].drop_duplicates().to_csv("payments.csv", index=False)
    where = {"lat": rng.uniform(47.2, 55.1, 300).round(3), "lon": rng.uniform(5.8, 15.1, 300).round(3)}
    pd.DataFrame(where).to_csv("customers.csv", index=False)
    codes = {
        "icd": rng.choice(["C71.9", "I10", "E11.9"], 300),
        "district": rng.choice(["04103", "10115"], 300),
        "born": rng.integers(1920, 2005, 300),
    }
    asked = pd.DataFrame({"icd": ["C71.9"], "district": ["04103"], "born": [1984]})
    register = pd.concat([asked, pd.DataFrame(codes)])
    register.to_csv("register.csv", index=False)
    register.drop_duplicates().head(40).to_csv("lookups.csv", index=False)
    register.drop_duplicates().head(10).to_csv("watched.csv", index=False)
    visits = {
        "patient_id": np.repeat(np.arange(100), 2),
        "ward": rng.choice(["births", "heart", "surgery"], 200),
        "stay": rng.choice(["short", "long"], 200),
        "received": [f"2024-{1 + n % 12:02}-{1 + n % 28:02}" for n in range(200)],
    }
    pd.DataFrame(visits).to_csv("visits.csv", index=False)
    page = (ROOT / "docs" / "schema.md").read_text(encoding="utf-8")
    toml = page.partition("# visits.toml\n")[2].partition("```")[0]
    Path("visits.toml").write_text(toml, encoding="utf-8")


@pytest.mark.parametrize("page", [page for page in PAGES if page not in WHOLE_PAGES])
def test_every_block_is_run(stage: Stage) -> None:
    text = (ROOT / stage.page).read_text(encoding="utf-8")
    for number, (kind, block) in enumerate(FENCE.findall(text)):
        if (stage.page, number) in NO_CODE:
            continue
        if kind == "toml":
            run_schema(stage, block)
        elif kind == "r":
            assert stage.page == "docs/statistics.md", (
                "tests/inference/test_from_r.py runs those of that page"
            )
        elif kind == "python":
            run_python(stage, block)
        elif stage.page == "docs/queries.md" and not block.startswith("dualquery "):
            run_queries(stage, block)
        else:
            assert kind == "", f"{stage.page}, block {number}: nobody runs '{kind}'"
            run_commands(stage, block)


def run_schema(stage: Stage, block: str) -> None:
    if "[[criterion]]" in block:
        assert read_acceptance(tomllib.loads(block), stage.names["schema"].domain)
        return
    parse_schema(block, origin=stage.page, folder=stage.folder)
    if named := NAMED.match(block):
        (stage.folder / named[1]).write_text(block, encoding="utf-8")


def run_python(stage: Stage, block: str) -> None:
    """Run it; each comment with a number ± a number is what was printed."""
    if stage.page == "docs/queries.md" and "marginals" in block:
        stage.names["domain"] = stage.names["schema"].domain  # thousands of items would be too many tables
    if 'save("released")' in block:  # whoever goes on from the commands would name another
        shutil.rmtree(stage.folder / "released")
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(block, stage.page, "exec"), stage.names)
    for said in re.findall(r"# (\d[^\n]* ± [^\n]*)", block):
        assert masked(said) in masked(out.getvalue()), f"{stage.page}: {said}"


def run_queries(stage: Stage, block: str) -> None:
    """Lines of the query language, or the error that one of them gives."""
    domain = stage.names["domain"]
    if block.startswith("column "):
        with pytest.raises(QueryError) as caught:
            parse(block.splitlines()[1].strip(), domain)
        assert str(caught.value).strip() == block.strip()
        return
    for line in block.splitlines():
        parse(line, domain)


def run_commands(stage: Stage, block: str) -> None:
    lines = block.replace("\\\n", " ").splitlines()
    prompted = any(line.startswith("$ ") for line in lines)
    place = 0
    while place < len(lines):
        line = lines[place].removeprefix("$ ")
        place += 1
        if not line.strip() or line.startswith(tuple(NOT_HERE)):
            continue
        assert line.startswith("dualquery "), f"{stage.page}: '{line}' is neither run nor in NOT_HERE"
        printed = stage.call(line)
        said = re.search(r"# (\d[^\n,]* ± [^\n,]*)", line)
        if said:
            assert masked(said[1]) in masked(printed), f"{stage.page}: {said[1]}"
        if prompted:
            shown = []
            while place < len(lines) and not lines[place].startswith("$ "):
                shown.append(lines[place])
                place += 1
            assert masked(printed) == masked("\n".join(shown)), f"{stage.page}: {line}"


def test_what_is_not_run_is_there() -> None:
    """A reason whose block or line has gone is taken off the lists."""
    blocks = {
        (page, number): block
        for page in PAGES
        for number, (_, block) in enumerate(FENCE.findall((ROOT / page).read_text(encoding="utf-8")))
    }
    assert set(NO_CODE) <= set(blocks)
    assert set(WHOLE_PAGES) <= set(PAGES)
    lines = [line for block in blocks.values() for line in block.splitlines()]
    for beginning in NOT_HERE:
        assert any(line.startswith(beginning) for line in lines), beginning


def test_the_demonstration_prints_what_the_page_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["demo", "--out", "demo-release"]) == 0
    shown = FENCE.findall((ROOT / "README.md").read_text(encoding="utf-8"))[1][1]
    assert masked(shown) in masked(capsys.readouterr().out)
