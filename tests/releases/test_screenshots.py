"""Report and notebook in a real browser, light and dark: something is drawn, on the ground that was asked for."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tools import screenshots

STORED = Path(__file__).resolve().parents[2] / "docs" / "pictures"
NAMES = [f"{name}_{scheme}.png" for name in ("report", "notebook", "desk") for scheme in screenshots.SCHEMES]


def as_seen(picture: Path) -> None:
    """Most of it is ground, light or dark as it was asked for, and enough of it is not."""
    shade, drawn = screenshots.ink(picture)
    assert 0.03 < drawn < 0.7, picture.name
    assert (shade < 0.3) is picture.stem.endswith("dark"), picture.name


@pytest.mark.parametrize("name", NAMES)
def test_the_pictures_of_the_pages_are_not_blank(name: str) -> None:
    as_seen(STORED / name)
    assert (STORED / name).stat().st_size < 200_000


def test_a_browser_shows_report_and_notebook(tmp_path: Path) -> None:
    if screenshots.BROWSER is None:
        missing = "no chromium: apt-get install chromium"
        if os.environ.get("CI"):
            pytest.fail(missing)
        pytest.skip(missing)
    pytest.importorskip("playwright.sync_api")
    made = screenshots.screenshots(screenshots.survey_release(people=500), tmp_path)
    made += screenshots.desk_screenshots(tmp_path, people=500)
    assert sorted(each.name for each in made) == sorted(NAMES)
    for each in made:
        as_seen(each)
