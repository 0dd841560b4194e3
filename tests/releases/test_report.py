"""The page: complete, self-contained, well formed, and honest about seeds."""

from __future__ import annotations

import json
import math
import re
import tomllib
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dualquery
from dualquery import Budget, Items, Neighbours, Records, Release, SchemaError, example, plots
from dualquery.releases import sentences as words
from dualquery.releases.report import heat_maps, histograms, information, report_html
from dualquery.table.schema import parse_schema

pytestmark = pytest.mark.usefixtures("few_rows")

Make = Callable[..., Release]
VOID = {"meta", "br", "link", "img", "hr", "input"}


class Page(HTMLParser):
    """Checks that tags close in order, and gathers what a reader would see."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.words: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


def page(release: Release) -> Page:
    return Page(report_html(release, release.certificate))


def test_the_page_needs_nothing_from_elsewhere(make: Make) -> None:
    release = make(seed=None)
    html = report_html(release, release.certificate)
    for tag, attributes in Page(html).tags:
        assert tag not in ("script", "link", "iframe", "object")
        for name in ("src", "href"):
            assert name not in attributes, f"{tag} {name}"
    assert "url(" not in html
    assert "@import" not in html
    assert 'name="viewport"' in html


def test_the_page_says_what_a_steward_needs(make: Make) -> None:
    release = make(seed=None)
    text = page(release).text
    for part in (
        "What is promised",
        "What is not promised",
        "How it was paid for",
        "exp(ε) = 2.72",
        "δ = 10⁻⁶",
        "system entropy",
        "dualquery answer",
        "The test asked for it.",
        release.certificate["workload"]["digest"],
        '"neighbours": "replace"',
    ):
        assert part in text
    assert "Do not publish" not in text
    for column in release.domain.columns:
        assert column.name in text


@pytest.mark.parametrize("epsilon", [1.0, 5.5, 9.99, 10.0, 40.0, 1e8])
def test_a_large_epsilon_is_not_called_almost_the_same(
    make: Make, budget: Callable[..., Budget], epsilon: float
) -> None:
    release = make(seed=None, budget=budget(epsilon=epsilon))
    text = page(release).text
    assert ("almost the same probability" in text) == (epsilon < 10)
    assert ("promises very little" in text) == (epsilon >= 10)
    assert any("is large" in warning for warning in release.certificate["warnings"]) == (epsilon > 5)


def test_a_seed_is_shouted(make: Make) -> None:
    text = page(make(seed=1)).text
    assert "Do not publish this" in text
    assert "Nothing is promised" in text


def test_pure_privacy_has_no_exception(make: Make, budget: Callable[..., Budget]) -> None:
    limits = budget(delta=0, neighbours=Neighbours.ADD_REMOVE, accounting=dualquery.Accounting.PURE)
    text = page(make(budget=limits, seed=None)).text
    assert "without exception" in text
    assert "left out of the table" in text
    assert "a table of about" in text


def test_names_from_the_schema_cannot_write_html(make: Make) -> None:
    nasty = "<script>alert('x')</script>"
    domain = dualquery.Domain(
        (dualquery.Categorical(nasty, ("<b>", "a & b", "$x$")), dualquery.Categorical("b", ("1", "2")))
    )
    rng = np.random.default_rng(0)
    shared = rng.integers(0, 2, 300)
    records = Records.from_rows(domain, np.stack([shared, shared], axis=1))
    release = make(table=records, workload="marginals:2")
    html = report_html(release, release.certificate)
    assert "<script" not in html
    assert nasty in page(release).text


def test_answers_alone_make_a_page(make: Make) -> None:
    text = page(make(mechanism="bare")).text
    assert "answers.parquet" in text
    assert "attribute by attribute" not in text
    assert "The mechanism predicts the mean error" in text


def test_replicas_are_drawn_and_bars_have_a_level(make: Make) -> None:
    text = page(make(mechanism="replicated")).text
    assert "The errors that replicas of the release make" in text
    assert "95% bar" in text
    assert "replicas.parquet" in text


def test_wide_blocks_show_their_most_frequent_items() -> None:
    domain = dualquery.Domain((Items("item", 500),))
    bits = np.zeros((200, 500), np.int64)
    bits[:, 41] = 1
    bits[:50, 7] = 1
    (picture,) = histograms(Records.from_rows(domain, bits))
    assert picture.caption == "the 30 most frequent of 500 items"
    labels = re.findall(r">(\d+)</text>", picture.svg)
    assert labels[:2] == ["42", "8"]
    assert len(labels) == 30


def test_pairs_are_shown_strongest_first() -> None:
    rng = np.random.default_rng(0)
    a = rng.integers(0, 3, 4000)
    b = np.where(rng.random(4000) < 0.5, a, rng.integers(0, 3, 4000))
    c = a.copy()
    columns = tuple(dualquery.Categorical(name, ("x", "y", "z")) for name in "abc")
    found = heat_maps(Records.from_rows(dualquery.Domain(columns), np.stack([a, b, c], axis=1)))
    assert {*found[0].title.split(" × ")} == {"a", "c"}
    assert found[0].caption.endswith("bits in common")
    assert float(found[0].caption.split()[0]) == pytest.approx(math.log2(3), abs=0.01)


def test_information_by_hand() -> None:
    bias = 1 / (2 * 100 * math.log(2))
    assert information(np.array([[50, 0], [0, 50]])) == pytest.approx(1 - bias)
    assert information(np.array([[25, 25], [25, 25]])) == 0
    assert information(np.array([[100, 0], [0, 0]])) == 0
    assert information(np.zeros((2, 2), np.int64)) == 0
    # 0.8 log₂ 1.6 + 0.2 log₂ 0.4
    table = np.array([[40, 10], [10, 40]])
    assert information(table) == pytest.approx(0.8 * math.log2(1.6) + 0.2 * math.log2(0.4) - bias)


def test_information_of_independent_attributes_is_nearly_none() -> None:
    rng = np.random.default_rng(0)
    found = []
    for _ in range(200):
        table = np.zeros((5, 4), np.int64)
        np.add.at(table, (rng.integers(0, 5, 300), rng.integers(0, 4, 300)), 1)
        found.append(information(table))
    assert np.mean(found) < 12 / (2 * 300 * math.log(2)) / 2  # half of the bias that is corrected


@given(st.floats(1e-9, 1e9), st.integers(4, 10))
def test_ticks_are_round_and_within(most: float, number: int) -> None:
    found = plots.ticks(most, number)
    assert found[0] == 0
    assert found[-1] <= most * (1 + 1e-6)
    assert 2 <= len(found) <= number + 1


@pytest.mark.parametrize(
    ("x", "text"),
    [
        (1, "1"),
        (0.5, "0.5"),
        (1e-6, "10⁻⁶"),
        (2.5e-9, "2.5 · 10⁻⁹"),
        (20000, "20,000"),
        (0.9994644, "0.9995"),
    ],
)
def test_numbers_in_words(x: float, text: str) -> None:
    assert words.number(x) == text


@given(st.floats(1e-3, 100))
def test_costs_are_rounded_up(x: float) -> None:
    assert float(words.number_above(x).replace(",", "")) >= x * (1 - 1e-8)


def test_percentages() -> None:
    assert [plots.percentage(x) for x in (0, 1, 0.123, 0.0034, 0.000056)] == [
        "0%",
        "100.0%",
        "12.3%",
        "0.34%",
        "0.0056%",
    ]


ABOUT = {
    "dataset": "Survey <b>2025</b>",
    "steward": "Data office",
    "purpose": "research on housing",
    "source": "the questionnaire",
}


@pytest.fixture(scope="module")
def described() -> Release:
    said = {"about": ABOUT, **tomllib.loads(example.SCHEMA)}
    return dualquery.release(example.survey(300), schema=said, workload="marginals:2", budget=Budget(1, 1e-6))


def test_the_report_says_whose_data_it_is_and_shows_bars(described: Release) -> None:
    html = report_html(described, described.certificate)
    text = Page(html).text
    for said in ABOUT.values():
        assert said in text
    assert "<b>2025" not in html
    assert parse_schema(described.certificate["schema"], origin="x").about.entries() == ABOUT
    column = html.partition("attribute by attribute")[2].partition("<h2>")[0]
    values = sum(len(each.labels) for each in described.domain.columns)
    assert column.count("<line") == values, "one whisker per value"
    assert "Appendix: parameters" in text


def test_the_register_follows_the_certificate(described: Release, tmp_path: Path) -> None:
    described.save(tmp_path / "out", registry=True)
    found = json.loads((tmp_path / "out" / "registry.json").read_text(encoding="utf-8"))
    certificate = Release.load(tmp_path / "out").certificate
    assert found["about"] == ABOUT
    assert found["guarantee"]["epsilon"] == certificate["budget"]["epsilon"]
    assert found["guarantee"]["holds"] is True
    assert found["unit"]["relation"] == "replace"
    assert found["mechanism"]["uses_of_the_table"] == certificate.plain()["events"]
    asked = Page((tmp_path / "out" / "registry.html").read_text(encoding="utf-8")).text
    assert asked.count("?") >= 16
    assert asked.count("For the steward to answer.") == 4
    assert "charged to no ledger" in asked
    assert "beyond the ends of the schema" in asked


@pytest.mark.parametrize(
    ("about", "sentence"),
    [
        ({"owner": "x"}, "key 'owner'"),
        ({"dataset": 3}, "a text in quotes"),
        ({"dataset": " "}, "printable characters"),
        ({"purpose": "a\nb"}, "on one line"),
        ({"purpose": "x" * 501}, "500"),
        ("words", "must be a section"),
    ],
)
def test_mistakes_in_about_are_one_sentence(about: object, sentence: str) -> None:
    with pytest.raises(SchemaError, match=sentence):
        parse_schema({"about": about, **tomllib.loads(example.SCHEMA)}, origin="the schema")
