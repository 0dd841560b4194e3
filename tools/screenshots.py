"""Pictures of what people look at, in a real browser, light and dark: the report, a release in a notebook, the desk.

    python tools/screenshots.py docs/pictures        # makes a release of the survey and writes six PNG files

The browser is Debian's chromium, driven by Playwright. A notebook is a page that shows what cells hand out
(`_repr_html_`, a frame, a picture) on the ground that notebooks have. `ink` is what tests hold against a blank page.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np

import dualquery
from dualquery import Budget, Release, example
from dualquery.table.schema import parse_schema

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser")
SCHEMES = ("light", "dark")
GROUNDS = {"light": ("#ffffff", "#1f2328"), "dark": ("#111111", "#e6e6e6")}  # of JupyterLab
WIDTH, HEIGHT = 820, 1000
CELL = '<pre style="opacity:.7;margin:18px 0 6px">{}</pre>{}'


@contextmanager
def a_browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        try:
            yield browser
        finally:
            browser.close()


def survey_release(people: int = example.PEOPLE) -> Release:
    return dualquery.release(
        example.survey(people),
        schema=parse_schema(example.SCHEMA, origin="the example"),
        workload="marginals:2",
        budget=Budget(1, 1e-9),
    )


def notebook_page(release: Release, scheme: str) -> str:
    """What cells show, on the ground of a notebook."""
    ground, ink = GROUNDS[scheme]
    table = release.table(["smokes"]).to_html(index=False, border=0, float_format="{:.6g}".format)
    shown = {
        "release": release._repr_html_(),
        'release.table(["smokes"])': f'<div class="frame">{table}</div>',
        'release.plot("region")': release.plot("region")._repr_html_(),
    }
    style = (
        f"body{{background:{ground};color:{ink};font:14px system-ui,sans-serif;margin:16px}}"
        ".frame th,.frame td{padding:3px 10px;text-align:right}"
    )
    cells = "".join(CELL.format(source, html) for source, html in shown.items())
    return f'<!doctype html><meta charset="utf-8"><style>{style}</style>{cells}'


def take(browser: Any, page: Path, scheme: str, out: Path) -> None:
    """A picture of the first screen of a page; nothing may be fetched from elsewhere."""
    context = browser.new_context(color_scheme=scheme, viewport={"width": WIDTH, "height": HEIGHT})
    try:
        shown = context.new_page()
        elsewhere: list[str] = []
        shown.on("request", lambda asked: elsewhere.append(asked.url))
        shown.goto(page.as_uri())
        shown.screenshot(path=str(out))
        if [url for url in elsewhere if not url.startswith(("file:", "data:"))]:
            raise RuntimeError(f"{page.name} fetches {elsewhere}")
    finally:
        context.close()


def screenshots(release: Release, out: Path) -> list[Path]:
    """Report and notebook, light and dark."""
    out.mkdir(parents=True, exist_ok=True)
    made = []
    with tempfile.TemporaryDirectory() as place, a_browser() as browser:
        release.save(Path(place) / "released")
        for scheme in SCHEMES:
            page = Path(place) / f"{scheme}.html"
            page.write_text(notebook_page(release, scheme), encoding="utf-8")
            for name, shown in (("report", Path(place) / "released" / "report.html"), ("notebook", page)):
                made.append(out / f"{name}_{scheme}.png")
                take(browser, shown, scheme, made[-1])
    return made


@contextmanager
def a_desk(people: int) -> Iterator[str]:
    """The link of a desk that listens in this process, in a folder with the survey."""
    import pyarrow.csv
    import uvicorn

    from dualquery.desk import bound
    from dualquery.desk.app import Desk, application

    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "survey-2025"
        folder.mkdir()
        pyarrow.csv.write_csv(example.survey(people), folder / "people.csv")
        desk, listening = Desk(folder), bound(0)
        port = listening.getsockname()[1]
        config = uvicorn.Config(application(desk, lambda: port), log_level="error", ws="none")
        server = uvicorn.Server(config)
        thread = Thread(target=server.run, args=([listening],))
        thread.start()
        while not server.started:
            time.sleep(0.01)
        try:
            yield f"http://127.0.0.1:{port}/#{desk.token}"
        finally:
            server.should_exit = True
            thread.join()


def desk_screenshots(out: Path, people: int = example.PEOPLE) -> list[Path]:
    """The desk: what is public, in light; the budget and its curve, in dark."""
    out.mkdir(parents=True, exist_ok=True)
    made = [out / f"desk_{scheme}.png" for scheme in SCHEMES]
    with a_desk(people) as link, a_browser() as browser:
        for scheme, picture in zip(SCHEMES, made, strict=True):
            size = {"width": 1100, "height": 900}
            context = browser.new_context(color_scheme=scheme, viewport=size, reduced_motion="reduce")
            page = context.new_page()
            page.set_default_timeout(120_000)
            page.goto(link)
            page.click("#tables button")
            page.wait_for_selector("#columns li")
            if scheme == "light":
                page.click("#columns summary >> nth=2")
                page.locator("#schema-step").evaluate("each => each.scrollIntoView()")
            else:
                page.click("#all-public")
                page.click("#save-schema")
                page.locator("#predicted", has_text="percentage points").wait_for()
                page.locator("#budget-step").evaluate("each => each.scrollIntoView()")
            page.screenshot(path=str(picture))
            context.close()
    return made


def ink(path: Path) -> tuple[float, float]:
    """How light the commonest shade of a picture is (0 to 1), and which share of the pixels is another."""
    from matplotlib.image import imread

    grey = np.round(imread(path)[:, :, :3].mean(axis=2) * 255).astype(np.int64)
    counts = np.bincount(grey.ravel(), minlength=256)
    return int(counts.argmax()) / 255, 1 - float(counts.max() / counts.sum())


if __name__ == "__main__":
    place = Path(sys.argv[1] if len(sys.argv) > 1 else "docs/pictures")
    for each in (*screenshots(survey_release(), place), *desk_screenshots(place)):
        print(each, *(f"{number:.2f}" for number in ink(each)))
