"""The desk in a real browser: from a file to a signed release in a few clicks, or by keyboard, on any screen."""

from __future__ import annotations

import json
import os
import shutil
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pytest

import dualquery
from dualquery import Neighbours, example
from dualquery.ledger.books import create
from dualquery.releases.seal import create_key
from dualquery.releases.verify import audit
from tests.desk.conftest import Sitting, sitting

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser")
HOSTILE = "<img src=x onerror=window.ran=1>"


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


class Curator:
    """Somebody at the desk, who counts clicks; and everything that the page said, or asked of elsewhere."""

    def __init__(self, browser: Any, here: Sitting, **options: Any) -> None:
        self.context = browser.new_context(**options)
        self.page, self.here, self.clicks = self.context.new_page(), here, 0
        self.page.set_default_timeout(120_000)
        self.said: list[str] = []
        self.elsewhere: list[str] = []
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("request", self._requested)
        self.page.goto(here.link)
        self.page.wait_for_selector("#desk:not([hidden])")

    def _requested(self, request: Any) -> None:
        if not request.url.startswith((self.here.url, "blob:")):
            self.elsewhere.append(request.url)

    def click(self, selector: str) -> None:
        self.page.click(selector)
        self.clicks += 1

    def tab_to(self, selector: str) -> None:
        """By keyboard: the next elements one after another until this one has the focus."""
        for _ in range(150):
            if self.page.evaluate("s => document.activeElement?.matches(s) ?? false", selector):
                return
            self.page.keyboard.press("Tab")
        raise AssertionError(f"{selector} cannot be reached by keyboard")

    def enter(self, selector: str) -> None:
        self.tab_to(selector)
        self.page.keyboard.press("Enter")

    def fits(self) -> None:
        """Nothing is wider than the screen."""
        assert self.page.evaluate("document.documentElement.scrollWidth <= innerWidth")

    def close(self) -> None:
        assert not [each for each in self.said if "status of 4" not in each], self.said
        assert not self.elsewhere, self.elsewhere
        assert self.page.evaluate("window.ran") is None
        self.context.close()


def test_from_a_file_to_a_signed_release_in_twelve_clicks(browser: Any, here: Sitting, folder: Path) -> None:
    sits = Curator(browser, here, viewport={"width": 1280, "height": 900}, accept_downloads=True)
    page = sits.page
    sits.click("#tables button")
    page.wait_for_selector("#columns li")
    assert "No row of the table is sent" in " ".join(page.inner_text("#private-note").split())
    sits.click("#all-public")
    sits.click("#save-schema")
    page.locator("#predicted", has_text="percentage points").wait_for()
    assert page.locator("svg.curve polyline").count() == 1
    sits.click("#ledger-form button")
    page.wait_for_selector("#ledger h3")
    sits.click("#make-key")
    page.locator("#key-words", has_text="signs").wait_for()
    page.locator("#release-command", has_text="--sign").wait_for()
    told = page.inner_text("#release-command")
    sits.click("#release")
    page.wait_for_selector("#result-step:not([hidden])")
    assert page.locator("#result details li", has_text="certificate.json").count() == 1
    with sits.context.expect_page() as opened:
        sits.click("#look")
    opened.value.wait_for_url("**/look/**")
    assert "private release" in opened.value.inner_text("h1")
    with page.expect_download() as kept:
        sits.click("#keep")
    assert sits.clicks <= 12
    names = zipfile.ZipFile(kept.value.path()).namelist()
    assert "released-1/certificate.json" in names
    assert "released-1/registry.json" in names

    found = dualquery.verify(folder / "released-1", folder / "steward.key.pub")
    assert found.signed
    assert found.key_given
    assert found.certificate.private
    assert told == (
        "dualquery release people.csv --schema people.schema.toml --queries marginals:2 --epsilon 1 "
        "--ledger people.ledger --sign steward.key --registry --out released-1 --json"
    )
    (statement,) = audit(folder / "people.ledger", [folder / "released-1"]).statements
    assert len(statement.charges) == 1
    assert "charge 1 of people" in page.inner_text("#result")
    assert "released-1" in page.inner_text("#releases")
    page.reload()  # what was begun is not begun again
    page.wait_for_selector("#releases .release")
    assert len(audit(folder / "people.ledger").statements[0].charges) == 1
    sits.close()


def test_what_is_undecided_is_found_privately_and_used_again(browser: Any, folder: Path) -> None:
    """One column is marked public, the ledger is charged, the rest is found: twelve clicks to a signed release."""
    pyarrow.csv.write_csv(example.survey(20_000), folder / "people.csv")
    create_key(folder / "steward.key")
    with sitting(folder) as here:
        sits = Curator(browser, here, viewport={"width": 400, "height": 900}, color_scheme="dark")
        page = sits.page
        sits.click("#tables button")
        page.wait_for_selector("#columns li")
        sits.click("#columns li:first-child input")
        first = page.inner_text("#columns li:first-child b")
        sits.click("#private-draft summary")
        page.locator("#private-command", has_text="--known people.known.toml").wait_for()
        assert page.is_disabled("#find")
        sits.click("#ledger-first")
        sits.click("#ledger-form button")
        page.wait_for_selector("#ledger h3")
        page.locator("#find:not([disabled])").wait_for()
        sits.fits()
        sits.click("#find")
        page.locator("#undecided", has_text="Every column is public").wait_for()
        assert (
            "dualquery schema draft people.csv --epsilon 0.3 --ledger people.ledger --known people.known.toml "
            "--out people.schema.toml" in page.inner_text("#private-job")
        )
        found = dualquery.read_schema(folder / "people.schema.toml")
        certificate = json.loads((folder / "people.schema.certificate.json").read_text(encoding="utf-8"))
        assert not found.draft
        assert certificate["stated"] == [first]
        assert certificate["private"]
        assert dualquery.read_schema(folder / "people.read-off.toml").draft
        assert page.is_hidden("#private-draft")
        assert here.request("GET", "/v1/desk")[1]["tables"][0]["name"] == "people.csv"
        assert page.locator("#tables button").count() == 1
        sits.click("#save-schema")
        page.locator("#release-command", has_text="--draft people.schema.certificate.json").wait_for()
        sits.click("#release")
        page.wait_for_selector("#result-step:not([hidden])")
        assert sits.clicks <= 12
        made = dualquery.verify(folder / "released-1", folder / "steward.key.pub").certificate
        assert made.private
        assert made["draft"]["seal"] == certificate["seal"]
        (statement,) = audit(folder / "people.ledger").statements
        assert [each.what.split(":")[0] for each in statement.charges] == ["private draft", "release"]
        sits.close()


def test_a_private_draft_that_is_refused_leaves_the_schema_and_the_ledger(
    browser: Any, here: Sitting, folder: Path
) -> None:
    """Of 300 rows a value in fewer than a hundred would not be seen: nothing is charged, and the marks stay."""
    create(folder / "people.ledger", name="people", epsilon=3.0, delta=1e-6, neighbours=Neighbours.REPLACE)
    sits = Curator(browser, here)
    sits.click("#tables button")
    sits.page.wait_for_selector("#columns li")
    sits.click("#columns li:first-child input")
    sits.click("#private-draft summary")
    sits.page.locator("#find:not([disabled])").wait_for()
    sits.click("#find")
    sits.page.locator("#private-job .fault", has_text="nothing was charged").wait_for()
    sits.page.locator("#columns li:first-child input:checked").wait_for()
    assert dualquery.read_schema(folder / "people.schema.toml").draft
    assert not audit(folder / "people.ledger").statements[0].charges
    assert sits.page.is_visible("#private-draft")
    sits.close()


@pytest.mark.parametrize(("width", "scheme"), [(400, "dark"), (1280, "light")])
def test_by_keyboard_on_any_screen(browser: Any, folder: Path, width: int, scheme: str) -> None:
    """Up to the button that releases, with labels that are HTML, and all values of one column looked at."""
    table = example.survey(300).select(["age", "sex", "health"]).to_pandas()
    table[HOSTILE] = [HOSTILE, "b"] * 150
    name = "<b onclick=alert(1)>people.csv"
    (folder / "people.csv").unlink()
    pyarrow.csv.write_csv(pa.Table.from_pandas(table), folder / name)
    create_key(folder / "steward.key")
    with sitting(folder) as here:
        sits = Curator(browser, here, viewport={"width": width, "height": 800}, color_scheme=scheme)
        page = sits.page
        sits.enter("#tables button")
        page.wait_for_selector("#columns li")
        assert page.inner_text("h1") == name
        assert HOSTILE in page.inner_text("#columns")
        assert page.locator("#columns img, #columns b[onclick]").count() == 0
        page.locator("#columns summary").last.focus()
        page.keyboard.press("Enter")
        page.wait_for_selector(".chip")
        sits.enter(".chip:last-child")
        assert page.locator(".chip[aria-pressed=false]").count() == 1
        sits.fits()
        page.locator("#all-public").focus()
        page.keyboard.press("Enter")
        sits.enter("#save-schema")
        page.locator("#predicted", has_text="percentage points").wait_for()
        page.focus("#slider")
        for _ in range(4):
            page.keyboard.press("ArrowLeft")
        assert float(page.input_value("#epsilon")) < 1
        sits.enter("#ledger-form button")
        page.wait_for_selector("#ledger h3")
        page.locator("#release-command", has_text="--epsilon 0.63").wait_for()
        sits.tab_to("#release")
        sits.fits()
        light = [
            sum(
                map(
                    int,
                    page.evaluate(f"getComputedStyle(document.body).{what}").strip("rgba()").split(",")[:3],
                )
            )
            for what in ("backgroundColor", "color")
        ]
        assert (light[0] > light[1]) == (scheme == "light")
        schema = (folder / "_b_onclick_alert_1__people.schema.toml").read_text(encoding="utf-8")
        assert 'unknown = "other"' in schema
        assert "draft" not in schema
        sits.close()


def two_columns_and_a_ledger(folder: Path) -> None:
    (folder / "people.schema.toml").write_text(
        '[[attribute]]\nname = "sex"\nvalues = ["female", "male"]\n\n'
        '[[attribute]]\nname = "health"\nvalues = ["poor", "fair", "good", "very good"]\n',
        encoding="utf-8",
    )
    create(folder / "people.ledger", name="people", epsilon=3.0, delta=1e-6, neighbours=Neighbours.REPLACE)


def test_two_windows_charge_nothing_twice(browser: Any, here: Sitting, folder: Path) -> None:
    """Both press the button at once: one begins, the other is told; the ledger has one charge."""
    two_columns_and_a_ledger(folder)
    windows = [Curator(browser, here) for _ in range(2)]
    for each in windows:
        each.page.click("#tables button")
        each.page.locator("#release-command", has_text="--ledger").wait_for()
    for each in windows:
        each.page.click("#release", no_wait_after=True)
    windows[0].page.wait_for_selector("#result-step:not([hidden])")
    said = windows[1].page.locator("#release-job .fault", has_text="another window")
    said.wait_for()
    assert "dualquery release people.csv " in said.inner_text()
    assert not windows[1].page.inner_text("#fault")  # once is enough
    assert len(audit(folder / "people.ledger").statements[0].charges) == 1
    for each in windows:
        each.close()


def test_pressed_again_after_the_desk_did_not_answer_the_same_release_goes_on(
    browser: Any, here: Sitting, folder: Path
) -> None:
    """A machine that slept: nobody knows whether the release is done, and it must not be charged twice."""
    two_columns_and_a_ledger(folder)
    sits = Curator(browser, here)
    sits.page.click("#tables button")
    sits.page.locator("#release-command", has_text="--ledger").wait_for()
    sits.page.route("**/v1/jobs/*", lambda route: route.abort())
    sits.page.click("#release", no_wait_after=True)
    sits.page.locator("#release-job .fault", has_text="does not answer").wait_for()
    while any(each.code is None for each in here.desk.jobs._known.values()):
        sits.page.wait_for_timeout(50)
    sits.page.unroute("**/v1/jobs/*")
    sits.page.locator("#release:not([disabled])").wait_for()
    sits.page.click("#release", no_wait_after=True)
    sits.page.wait_for_selector("#result-step:not([hidden])")
    assert len(audit(folder / "people.ledger").statements[0].charges) == 1
    sits.context.close()


def test_a_hundred_columns_stay_usable(browser: Any, here: Sitting, folder: Path) -> None:
    lines = [f'[[attribute]]\nname = "column {j}"\nvalues = ["a", "b"]\n' for j in range(250)]
    (folder / "people.schema.toml").write_text("\n".join(["draft = true", *lines]), encoding="utf-8")
    sits = Curator(browser, here)
    sits.click("#tables button")
    sits.page.wait_for_selector("#columns li")
    assert sits.page.locator("#columns li").count() == 100
    assert "201 to 250" in sits.page.inner_text("#pages")
    sits.page.fill("#filter", "column 24")
    assert sits.page.locator("#columns li").count() == 11
    sits.close()


def test_a_stale_link_is_one_sentence(browser: Any, here: Sitting) -> None:
    page = browser.new_context().new_page()
    for link in (f"{here.url}/", f"{here.url}/#{'x' * 30}"):
        page.goto("about:blank")
        page.goto(link)
        page.locator("#fault", has_text="dualquery desk").wait_for()
        assert page.is_hidden("#desk")
    assert json.dumps(here.desk.token) not in page.content()
