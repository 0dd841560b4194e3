"""The web page in a real browser: Debian's chromium, driven by Playwright, with nothing fetched from elsewhere."""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from dualquery.interactive import rule
from tests.service import small
from tests.service.conftest import Running, running

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    if BROWSER is None:
        missing = "no chromium: apt-get install chromium"
        if os.environ.get("CI"):
            pytest.fail(missing)
        pytest.skip(missing)
    api = pytest.importorskip("playwright.sync_api")
    with api.sync_playwright() as driver:
        made = driver.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        yield made
        made.close()


@pytest.fixture(scope="module")
def service(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("page") / "service"
    shutil.copytree(request.getfixturevalue("files"), folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rule, "EACH", Fraction(1, 1000))
        made = small.begun(folder)
        made = replace(made, published={"stale": "stale"}, http=replace(made.http, quantum=0.005))
        with running(made, ada=1.0, bob=0.0, steward="owner") as found:
            yield found


class Visit:
    """A page that somebody looks at, and everything that it said or asked for meanwhile."""

    def __init__(self, browser: Any, service: Running, **options: Any) -> None:
        self.context = browser.new_context(**options)
        self.page = self.context.new_page()
        self.page.set_default_timeout(60_000)
        self.said: list[str] = []
        self.elsewhere: list[str] = []
        self.service = service
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("request", self._requested)
        self.page.goto(service.url)

    def _requested(self, request: Any) -> None:
        if not request.url.startswith(self.service.url):
            self.elsewhere.append(request.url)

    def sign_in(self, who: str) -> Visit:
        self.page.fill("#token", self.service.tokens.get(who, who))
        self.page.press("#token", "Enter")
        return self

    def ask(self, question: str) -> None:
        """By keyboard alone."""
        self.page.wait_for_selector("#service:not([hidden])")
        self.page.fill("#question", question)
        self.page.press("#question", "Escape")
        self.page.press("#question", "Control+Enter")

    def close(self) -> None:
        refusals = [each for each in self.said if "status of 4" not in each]  # 401, 422: meant
        assert not refusals, refusals
        assert not self.elsewhere, self.elsewhere
        self.context.close()


@pytest.fixture
def visit(browser: Any, service: Running) -> Iterator[Any]:
    made: list[Visit] = []

    def new(**options: Any) -> Visit:
        made.append(Visit(browser, service, **options))
        return made[-1]

    yield new
    for each in made:
        each.close()


def test_a_wrong_token_is_said_so(visit: Any) -> None:
    page = visit().sign_in("wrong").page
    page.wait_for_selector("#sign-in-fault:not(:empty)")
    assert "token" in page.inner_text("#sign-in-fault")
    assert page.is_hidden("#service")


JARGON = ("fires", "free if easy", "tested", "verified", "typical", "hypothesis", "Rényi", "quantum")


def test_an_answer_is_percent_and_a_count_with_95_percent_around_it(visit: Any) -> None:
    looking = visit().sign_in("ada")
    looking.ask("colour in {c0, c1} & size = s0")
    page = looking.page
    page.wait_for_selector("#answer .value")
    assert page.inner_text("#answer .badge") in ("not contradicted", "measured")
    assert page.locator("#answer svg line.plus-minus").count() == 1
    assert page.locator("#answer svg rect.guaranteed").count() == 1
    words = page.inner_text("#answer")
    percent, points, count, around = re.search(
        r"([\d.]+)%\s+± ([\d.]+) percentage points\s+About ([\d,]+) of 20,000 records \(± ([\d,]+)\)", words
    ).groups()
    told = looking.service.request("GET", "/v1/history?most=1")[1]["replies"][0]
    assert float(percent) / 100 == pytest.approx(told["values"][0], abs=told["bars_95"][0] / 5)
    assert float(points) / 100 == pytest.approx(told["bars_95"][0], rel=0.4)
    assert int(count.replace(",", "")) == pytest.approx(
        20_000 * told["values"][0], abs=4_000 * told["bars_95"][0]
    )
    assert int(around.replace(",", "")) == pytest.approx(20_000 * told["bars_95"][0], rel=0.4)
    assert re.search(r"Guaranteed\s+Between [\d.]+% and [\d.]+%, with 95% confidence", words)
    assert "in 19 of 20 cases (95%)" in words
    page.wait_for_selector("#history tbody tr")
    assert "colour" in page.inner_text("#history")
    assert page.locator("#budget svg rect").count() == 3
    page.click("#history .history-question >> nth=0")
    assert page.locator("#answer .value").count() == 1


def test_the_page_speaks_plainly(visit: Any) -> None:
    looking = visit().sign_in("steward")
    looking.ask("age = a2 & shape = s0")
    page = looking.page
    page.wait_for_selector("#answer .value")
    page.wait_for_selector("#charges tbody tr")
    words = page.inner_text("body")
    assert not [each for each in JARGON if each.lower() in words.lower()]
    assert page.inner_text("h1") == "people"
    assert len(page.inner_text("header")) < 100, "the header is a title, not a theorem"
    assert "paid check" in page.inner_text("#budget")
    options = page.locator("#tolerance option").all_inner_texts()
    assert len(options) <= 3
    assert all(re.fullmatch(r"[a-z, ]+: from [\d.]+ points on", each) for each in options)
    assert "the usual" in page.locator("#tolerance option:checked").inner_text()


def test_every_cell_has_its_bar_and_the_table_can_be_kept(visit: Any) -> None:
    looking = visit(accept_downloads=True).sign_in("ada")
    page = looking.page
    for question, cells, heads in (
        ("colour by shape", 24, 2),
        ("by colour", 6, 1),
        ("colour by shape by size", 120, 3),
    ):
        looking.ask(question)
        page.locator("#answer svg.cell-bar").nth(cells - 1).wait_for(state="attached")
        assert page.locator("#answer svg.cell-bar rect.bar").count() == cells
        assert page.locator("#answer svg.cell-bar line.whisker").count() == cells
        words = page.inner_text("#answer table")
        assert words.count("%") == cells
        assert words.count("about ") == cells
        with page.expect_download() as waiting:
            page.click("#save-table")
        assert waiting.value.suggested_filename == "people.csv"
        rows = list(csv.DictReader(Path(waiting.value.path()).read_text(encoding="utf-8").splitlines()))
        told = looking.service.request("GET", "/v1/history?most=1")[1]["replies"][0]
        assert list(rows[0])[heads:] == ["share", "share_plus_minus_95", "count", "count_plus_minus_95"]
        assert [float(row["share"]) for row in rows] == told["values"]
        assert [float(row["share_plus_minus_95"]) for row in rows] == told["bars_95"]
        assert [list(row.values())[:heads] for row in rows] == told["labels"]
        assert float(rows[-1]["count"]) == pytest.approx(20_000 * told["values"][-1])


def test_no_earlier_answer_stays_below_an_error(visit: Any) -> None:
    looking = visit().sign_in("ada")
    page = looking.page
    looking.ask("shape = s0")
    page.wait_for_selector("#answer .value")
    looking.ask("shape = s0 & siz = s1")
    page.wait_for_selector("#question-fault:not(:empty)")
    assert page.inner_text("#answer") == ""
    page.click("#history .history-question >> nth=0")
    page.wait_for_selector("#answer .value")
    assert page.inner_text("#question-fault") == ""


def test_the_placeholder_and_the_examples_can_be_asked(visit: Any) -> None:
    looking = visit().sign_in("ada")
    page = looking.page
    page.wait_for_selector("#service:not([hidden])")
    looking.ask(page.get_attribute("#question", "placeholder"))
    page.wait_for_selector("#answer .value")
    page.click("#help button >> nth=1")
    page.click("#ask button[type=submit]")
    page.wait_for_selector("#answer table")
    assert page.inner_text("#question-fault") == ""


def test_a_choice_of_what_a_check_notices_fits_every_question(visit: Any) -> None:
    """The smallest number depends on how many cells are asked: the choice is a word, and the number follows."""
    looking = visit().sign_in("ada")
    page = looking.page
    page.wait_for_selector("#tolerance option", state="attached")
    page.select_option("#tolerance", index=0)
    for question in ("shape = s1 & age = a4", "size by age"):
        looking.ask(question)
        page.wait_for_selector("#answer h3")
        assert page.inner_text("#question-fault") == ""


def test_certificate_and_report_can_be_kept(visit: Any) -> None:
    looking = visit(accept_downloads=True).sign_in("ada")
    page = looking.page
    page.wait_for_selector("#documents button")
    kept = {}
    for button in page.locator("#documents button").all():
        with page.expect_download() as waiting:
            button.click()
        kept[waiting.value.suggested_filename] = Path(waiting.value.path()).read_bytes()
    folder = looking.service.core.settings.path("stale")
    assert kept.keys() == {"people-certificate.json", "stale-certificate.json", "stale-report.html"}
    assert kept["stale-report.html"] == (folder / "report.html").read_bytes()
    assert kept["stale-certificate.json"] == (folder / "certificate.json").read_bytes()
    assert json.loads(kept["people-certificate.json"])["epsilon"] == 1.0


def test_an_error_points_at_the_mistake(visit: Any) -> None:
    looking = visit().sign_in("ada")
    looking.ask("colour = c0 & siz = s1")
    looking.page.wait_for_selector("#question-fault:not(:empty)")
    words = looking.page.inner_text("#question-fault p")
    assert words.startswith("column 15: unknown attribute 'siz'")
    text, caret = looking.page.inner_text("#question-fault pre").splitlines()
    assert caret.index("^") == text.index("siz")
    assert looking.page.get_attribute("#question", "aria-invalid") == "true"


def test_completion_by_keyboard(visit: Any) -> None:
    page = visit().sign_in("ada").page
    page.wait_for_selector("#service:not([hidden])")
    page.focus("#question")
    page.keyboard.type("col")
    page.wait_for_selector("#suggestions li")
    assert page.get_attribute("#question", "aria-expanded") == "true"
    page.keyboard.press("Tab")
    assert page.input_value("#question") == "colour "
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    assert page.input_value("#question") == "colour = "
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowUp")
    page.keyboard.press("Enter")
    assert page.input_value("#question") == "colour = c0 "
    page.keyboard.press("Escape")
    page.keyboard.press("Control+Enter")
    page.wait_for_selector("#answer .value")
    assert "colour = c0" in page.inner_text("#answer")


def test_the_price_is_quoted_before_asking_and_a_purchase_is_made(visit: Any) -> None:
    page = visit().sign_in("ada").page
    page.wait_for_selector("#service:not([hidden])")
    page.fill("#question", "age = a5 & shape = s3")
    page.locator("#quote", has_text="usually free, at most").wait_for()
    page.check("input[name=how][value=buy]")
    page.fill("#error", "2")
    page.locator("#quote", has_text="of the budget").wait_for()
    page.click("#ask button[type=submit]")
    page.wait_for_selector("#answer .badge.bought")
    assert "± 2 percentage points" in page.inner_text("#answer"), "what was asked for, 95%"
    assert "of the budget" in page.inner_text("#answer")


def test_a_quota_that_is_exhausted_is_said_and_what_is_not_checked_is_free(visit: Any) -> None:
    looking = visit().sign_in("bob")
    looking.ask("age = a7 & shape = s3")
    page = looking.page
    page.wait_for_selector("#question-fault:not(:empty)")
    assert "quota" in page.inner_text("#question-fault")
    page.check("input[name=how][value=free]")
    page.click("#ask button[type=submit]")
    page.wait_for_selector("#answer .badge.not-checked")
    page.select_option("#which", "stale")
    looking.ask("colour = c0")
    page.wait_for_selector("#answer .badge.release")
    assert "Free." in page.inner_text("#answer")
    assert page.is_hidden("#owner")


def test_an_owner_sees_analysts_and_charges(visit: Any) -> None:
    page = visit().sign_in("steward").page
    for part in ("#analysts", "#charges"):  # each is fetched by itself
        page.wait_for_selector(f"{part} tbody tr")
    assert "ada" in page.inner_text("#analysts")
    assert "paid in advance" in page.inner_text("#charges")


def test_nothing_inline_runs_and_nothing_comes_from_elsewhere(visit: Any) -> None:
    looking = visit()
    page = looking.page
    response = page.reload()
    policy = response.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert page.locator("[style], style, script:not([src]), [onclick]").count() == 0
    inline = "{textContent: 'window.ran = 1'}"
    page.evaluate(f"document.body.append(Object.assign(document.createElement('script'), {inline}))")
    assert page.evaluate("window.ran") is None
    looking.said = [each for each in looking.said if "Content Security Policy" not in each]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_phone_shows_everything_without_scrolling_sideways(visit: Any, scheme: str) -> None:
    looking = visit(
        viewport={"width": 360, "height": 740}, is_mobile=True, has_touch=True, color_scheme=scheme
    )
    looking.sign_in("ada")
    looking.ask("colour by shape")
    page = looking.page
    page.wait_for_selector("#answer table")
    assert page.evaluate("document.documentElement.scrollWidth <= 360")
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    ink = page.evaluate("getComputedStyle(document.body).color")
    light = [sum(map(int, each.strip("rgba()").split(",")[:3])) for each in (ground, ink)]
    assert (light[0] > light[1]) == (scheme == "light")
    looking.ask("colour = c0 & siz = s1")
    page.wait_for_selector("#question-fault:not(:empty)")
    words = page.locator("#question-fault p")
    assert words.evaluate("each => each.scrollWidth <= each.clientWidth"), (
        "a long sentence is broken, not cut"
    )


def test_everything_can_be_reached_by_keyboard(visit: Any) -> None:
    page = visit().sign_in("ada").page
    page.wait_for_selector("#service:not([hidden])")
    page.focus("#sign-out")
    reached = set()
    for _ in range(40):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("document.activeElement.id || document.activeElement.tagName"))
    assert {"which", "question", "BUTTON", "SUMMARY"} <= reached
    unnamed = page.evaluate(
        "[...document.querySelectorAll('button, input, select, textarea')].filter(each => !each.labels?.length"
        " && !each.textContent.trim() && !each.getAttribute('aria-label')).length"
    )
    assert unnamed == 0
