"""docs/certificate.md explains every field, and no field that does not exist."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any, get_args

import pytest

from dualquery import Accounting, Release
from dualquery.privacy import events
from dualquery.releases.certificate import FIELDS
from dualquery.releases.seal import create_key

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "certificate.md").read_text(encoding="utf-8")
EXPLAINED = re.findall(r"^- `([^`]+)`: [\w`]", PAGE, re.MULTILINE)
OPEN = ("parameters", "versions", "files", "predicted_error.histogram")  # whose names are not ours to list

Make = Callable[..., Release]


def written(data: Any, path: str = "") -> Iterator[str]:
    """The path of every field of a certificate that holds a value, a list of values, or names of its own."""
    if isinstance(data, dict) and path not in OPEN:
        for name, value in data.items():
            yield from written(value, f"{path}.{name}" if path else name)
    elif isinstance(data, list) and data and all(isinstance(each, dict) for each in data):
        yield path
        for each in data:
            for name in each:
                yield f"{path}[].{name}"
    else:
        yield path


def paths(shape: Any, path: str = "") -> Iterator[str]:
    """Every field of a shape; those of the entries of a list as `list[].field`."""
    if isinstance(shape, dict):
        for name, inner in shape.items():
            yield from paths(inner, f"{path}.{name}".lstrip(".").removesuffix("?"))
    else:
        yield path
        if isinstance(shape, list):
            yield from paths(shape[0], f"{path}[]")


def test_every_field_is_explained_once() -> None:
    kinds = get_args(events.Event)
    kinds = [each for kind in kinds for each in (get_args(kind) or (kind,))]
    known = {*paths(FIELDS), "signature", "versions.dualquery", "events[].rho", "events[].cost"}
    known |= {f"events[].{field.name}" for kind in kinds for field in fields(kind)}
    assert set(EXPLAINED) == known
    assert len(EXPLAINED) == len(set(EXPLAINED))
    for kind in kinds:
        assert f"`{kind.kind}`" in PAGE


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"mechanism": "bare"},
        {"mechanism": "uniform"},
        {"mechanism": "gaussian"},
        {"mechanism": "laplace", "accounting": Accounting.PURE, "delta": 0},
        {"mechanism": "mwem", "rounds": 2},
        {"mechanism": "dualquery", "learning_rate": 2.0, "samples": 5, "rounds": 2},
    ],
)
def test_what_is_written_is_explained(
    make: Make, budget: Callable[..., Any], tmp_path: Path, changes: dict[str, Any]
) -> None:
    given = {name: changes[name] for name in ("accounting", "delta") if name in changes}
    others = {name: value for name, value in changes.items() if name not in given}
    create_key(tmp_path / "key")
    make(budget=budget(**given), **others).save(tmp_path / "out", sign=tmp_path / "key")
    data = json.loads((tmp_path / "out" / "certificate.json").read_text(encoding="utf-8"))
    assert set(written(data)) <= set(EXPLAINED)
