"""How numbers are written in texts: `1234.5`, and where the schema says so `1.234,50 €` or `$1,234.50`.

With `decimal_comma` the comma stands before the decimals, and points, apostrophes or blanks may stand between
thousands. With `currency` that sign may stand before or behind the number, and commas between thousands. Thousands
have three figures each: what is written otherwise is no number, because nobody knows which.
"""

from __future__ import annotations

import re

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dualquery.table.cells import numbers_of
from dualquery.table.columns import Numeric

_BLANKS = "\u00a0\u202f\u2009"  # that stand between thousands, and are no ordinary blanks
_COMMA = re.compile(r"[+-]?(?:\d{1,3}(?:[.' ]\d{3})+|\d+)(?:,\d+)?")
_POINT = re.compile(r"[+-]?(?:\d{1,3}(?:[,' ]\d{3})+|\d+)(?:\.\d+)?")


def numbers_written(
    column: Numeric, texts: list[str | None]
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Each text as a number, NaN where it is empty, and whether it is no number at all."""
    if column.decimal_comma or column.currency is not None:
        texts = [None if text is None else _plain(column, text) for text in texts]
    return numbers_of(pa.array(texts, pa.large_string()), column.name)


def _plain(column: Numeric, text: str) -> str:
    """The number without its dress, blank where there is none; what is written otherwise is a question mark."""
    bare = text.translate(str.maketrans(_BLANKS, " " * len(_BLANKS))).strip()
    if column.currency:
        sign = bare[:1] if bare[:1] in ("-", "+") else ""
        dressed = bare[len(sign) :].strip()
        bare = sign + dressed.removeprefix(column.currency).removesuffix(column.currency).strip()
    if not bare or not (_COMMA if column.decimal_comma else _POINT).fullmatch(bare):
        return "?" if bare else ""
    figures = bare.replace("'", "").replace(" ", "")
    return figures.replace(".", "").replace(",", ".") if column.decimal_comma else figures.replace(",", "")
