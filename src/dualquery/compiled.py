"""Loops that numba compiles, and numba itself only when the first of them is called.

    from dualquery.compiled import njit, prange

are used as numba's own. Importing numba takes longer than a question takes to answer, so nothing of it is loaded
before a loop runs: what stands under a loop's name is a promise, which is kept on the first call. A loop finds its
helpers (and `prange`) by name in its module, where numba must see the real ones: there they take the promise's place.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, update_wrapper
from typing import Any


class Later:
    """Something of numba's, made when it is first needed. (By two threads at once: twice, and either one is used.)"""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make

    @cached_property
    def made(self) -> Any:
        return self._make()

    def __call__(self, *arguments: Any) -> Any:
        return self.made(*arguments)


def njit(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """numba's decorator of the same name, later."""

    def promise(function: Callable[..., Any]) -> Later:
        def make() -> Any:
            import numba

            known = function.__globals__
            for name in function.__code__.co_names:
                if isinstance(known.get(name), Later):
                    known[name] = known[name].made
            loop = numba.njit(**options)(function)
            known[function.__name__] = loop
            return loop

        later = Later(make)
        update_wrapper(later, function)
        return later

    return promise


def _prange() -> Any:
    import numba

    return numba.prange


def _popcount() -> Any:
    return _instruction("llvm.ctpop.i64")


def _lowest_bit() -> Any:
    return _instruction("llvm.cttz.i64", True)  # of zero it may say anything


def _instruction(name: str, *flags: bool) -> Any:
    """A function of a 64-bit word that is one instruction of the processor."""
    from llvmlite import ir
    from numba import types
    from numba.core import cgutils
    from numba.extending import intrinsic

    word, flag = ir.IntType(64), ir.IntType(1)

    def instruction(_context: Any, _word: Any) -> tuple[Any, Callable[..., Any]]:
        def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
            function = cgutils.get_or_insert_function(
                builder.module, ir.FunctionType(word, [word, *[flag] * len(flags)]), name
            )
            return builder.call(function, [*arguments, *[ir.Constant(flag, each) for each in flags]])

        return types.uint64(types.uint64), generate

    return intrinsic(instruction)


prange = Later(_prange)
popcount = Later(_popcount)  # the number of ones in a 64-bit word
lowest_bit = Later(_lowest_bit)  # the place of the lowest one in a 64-bit word that is not zero


def threads() -> int:
    import numba

    return int(numba.get_num_threads())
