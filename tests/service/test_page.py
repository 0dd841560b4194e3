"""The web page in a real browser: Debian's chromium, driven by Playwright, with nothing fetched from elsewhere."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from dualquery.asking import rule
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


def test_an_answer_has_its_badge_and_two_error_bars(visit: Any) -> None:
    looking = visit().sign_in("ada")
    looking.ask("colour in {c0, c1} & size = s0")
    page = looking.page
    page.wait_for_selector("#answer .value")
    assert page.inner_text("#answer .badge") in ("verified", "measured")
    assert page.locator("#answer svg line.typical").count() == 1
    assert page.locator("#answer svg line.bound").count() == 1
    assert "guaranteed: off by at most" in page.inner_text("#answer")
    assert "fires" in page.inner_text("#answer")
    page.wait_for_selector("#history tbody tr")
    assert "colour" in page.inner_text("#history")
    assert page.locator("#budget svg rect").count() == 3
    page.click("#history .history-question >> nth=0")
    assert page.locator("#answer .value").count() == 1


def test_tables_are_drawn_as_heat_maps_bars_and_tables(visit: Any) -> None:
    looking = visit().sign_in("ada")
    page = looking.page
    looking.ask("colour by shape")
    page.wait_for_selector("#answer svg rect.cell")
    assert page.locator("#answer svg rect.cell").count() == 24
    looking.ask("by colour")
    page.wait_for_selector("#answer svg rect.bar")
    assert page.locator("#answer svg rect.bar").count() == 6
    looking.ask("colour by shape by size")
    page.wait_for_selector("#answer table")
    assert page.locator("#answer tbody tr").count() == 120


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
    page.locator("#quote", has_text="free if easy, at most").wait_for()
    page.check("input[name=how][value=buy]")
    page.fill("#error", "0.01")
    page.locator("#quote", has_text="of the budget").wait_for()
    page.click("#ask button[type=submit]")
    page.wait_for_selector("#answer .badge.bought")
    assert "cost" in page.inner_text("#answer")


def test_a_quota_that_is_exhausted_is_said_and_what_is_not_tested_is_free(visit: Any) -> None:
    looking = visit().sign_in("bob")
    looking.ask("age = a7 & shape = s3")
    page = looking.page
    page.wait_for_selector("#question-fault:not(:empty)")
    assert "quota" in page.inner_text("#question-fault")
    page.check("input[name=how][value=free]")
    page.click("#ask button[type=submit]")
    page.wait_for_selector("#answer .badge.unverified")
    page.select_option("#which", "stale")
    looking.ask("colour = c0")
    page.wait_for_selector("#answer .badge.release")
    assert "free" in page.inner_text("#answer")
    assert page.is_hidden("#owner")


def test_an_owner_sees_analysts_and_charges(visit: Any) -> None:
    page = visit().sign_in("steward").page
    page.wait_for_selector("#owner tbody tr")
    assert "ada" in page.inner_text("#analysts")
    assert "prepaid" in page.inner_text("#charges")


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
    page.wait_for_selector("#answer svg")
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
