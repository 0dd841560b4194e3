"""Compiled loops that add up whole numbers over bit columns: along records, and along attributes.

`bits[j, r // 64]` holds in bit r % 64 whether record r has attribute j. Everything is a whole number, so that the
order of adding, and how many threads share it, changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, prange, types
from numba.core import cgutils
from numba.extending import intrinsic

from dualquery.queries.kernels import popcount

LINE = 8  # words that lie in one line of the cache


@intrinsic
def lowest_bit(_context: Any, _word: Any) -> tuple[Any, Callable[..., Any]]:
    """The place of the lowest one in a 64-bit word that is not zero, as the processor's own instruction."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        word, flag = ir.IntType(64), ir.IntType(1)
        function = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(word, [word, flag]), "llvm.cttz.i64"
        )
        return builder.call(function, [*arguments, ir.Constant(flag, 1)])

    return types.uint64(types.uint64), generate


@njit(cache=True, parallel=True)
def count_ones(bits, counts):  # type: ignore[no-untyped-def]
    """counts[j] += the number of records that have attribute j."""
    for j in prange(bits.shape[0]):
        total = np.uint64(0)
        for w in range(bits.shape[1]):
            total += popcount(bits[j, w])
        counts[j] += np.int64(total)


@njit(cache=True, parallel=True)
def add_along_attributes(bits, group, values, sums):  # type: ignore[no-untyped-def]
    """sums[r] += Σ_j values[j, group[r]] over the attributes j that record r has."""
    attributes, words = bits.shape
    for block in prange((words + LINE - 1) // LINE):
        for j in range(attributes):
            for w in range(block * LINE, min(block * LINE + LINE, words)):
                word = bits[j, w]
                while word:
                    r = 64 * w + np.int64(lowest_bit(word))
                    sums[r] += values[j, group[r]]
                    word &= word - np.uint64(1)


@njit(cache=True, parallel=True)
def add_along_records(bits, group, weights, sums):  # type: ignore[no-untyped-def]
    """sums[j, group[r]] += weights[r] for every record r that has attribute j."""
    attributes, words = bits.shape
    for j in prange(attributes):
        for w in range(words):
            word = bits[j, w]
            while word:
                r = 64 * w + np.int64(lowest_bit(word))
                sums[j, group[r]] += weights[r]
                word &= word - np.uint64(1)
