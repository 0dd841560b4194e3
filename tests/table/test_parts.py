"""The parts of a table: which files count, and that no part decides how another is read."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from dualquery.errors import DataError
from dualquery.table.domain import Domain, equal_width
from dualquery.table.encoding import encode, record_blocks
from dualquery.table.schema import Schema

NUMBERS = Domain((equal_width("x", 0.0, 1.0, 4, missing="none"),))


def written(folder: Path, *columns: pa.Array) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for number, column in enumerate(columns):
        pa.parquet.write_table(pa.table({"x": column}), folder / f"part-{number}.parquet")
    return folder


def codes(place: Path | str) -> list[int]:
    at_once = encode(place, NUMBERS).to_rows()[:, 0]
    in_blocks = [block.to_rows()[:, 0] for block in record_blocks(place, Schema(NUMBERS), rows=1)]
    np.testing.assert_array_equal(at_once, np.concatenate(in_blocks))
    return [int(code) for code in at_once]


def test_what_is_hidden_or_half_written_is_no_part(tmp_path: Path) -> None:
    folder = written(tmp_path / "table", pa.array([0.1, 0.6]))
    for hidden in ("_temporary/0", ".ipynb_checkpoints", "year=2020/_attempt"):
        written(folder / hidden, pa.array([0.9]))
    assert codes(folder) == [0, 2]


@pytest.mark.parametrize("given", ["folder", "pattern"])
def test_a_part_without_a_cell_decides_nothing(tmp_path: Path, given: str) -> None:
    single = pa.array([0.1], pa.float32())
    folder = written(tmp_path / "one", pa.nulls(1), single)
    place = folder if given == "folder" else str(folder / "*.parquet")
    missing = int(NUMBERS.sizes[0]) - 1
    assert codes(place) == [missing, codes(written(tmp_path / "alone", single))[0]]
    written(folder, pa.nulls(1), single, pa.array([0.5], pa.float64()))
    with pytest.raises(DataError, match="holds double there and float in the parts before it"):
        encode(place, NUMBERS)


def test_parts_of_different_types_are_refused_without_a_cell(tmp_path: Path) -> None:
    private = 2**53 + 1
    folder = written(tmp_path / "table", pa.nulls(1), pa.array([private]), pa.array([0.5]))
    with pytest.raises(DataError) as refused:
        encode(folder, NUMBERS)
    assert str(private) not in str(refused.value)
