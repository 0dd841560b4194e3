"""Loops that numba compiles, and numba itself only when the first of them is called.

    from dualquery.compiled import njit

is used as numba's own. Loops let go of the interpreter, and whoever calls them shares their work out (`pool`): those
that numba itself runs on several threads (`parallel`) must not be called from two at once, and take very long to
compile. Importing numba takes longer than a question takes to answer, so nothing of it is loaded before a loop runs:
what stands under a loop's name is a promise, which is kept on the first call. A loop finds its helpers by name in its
module, where numba must see the real ones: there they take the promise's place.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import update_wrapper
from threading import RLock
from typing import Any

_MAKING = RLock()  # one loop is made at a time, by whoever comes first


class Later:
    """Something of numba's, made once, when it is first needed."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make
        self._made: Any = None

    @property
    def made(self) -> Any:
        with _MAKING:
            if self._made is None:
                self._made = self._make()
            return self._made

    def __call__(self, *arguments: Any) -> Any:
        return self.made(*arguments)


def njit(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """numba's decorator of the same name, later; the loop lets go of the interpreter."""

    def promise(function: Callable[..., Any]) -> Later:
        def make() -> Any:
            import numba

            known = function.__globals__
            for name in function.__code__.co_names:
                if isinstance(known.get(name), Later):
                    known[name] = known[name].made
            loop = numba.njit(nogil=True, **options)(function)
            known[function.__name__] = loop
            return loop

        later = Later(make)
        update_wrapper(later, function)
        return later

    return promise


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


def _add_up() -> Any:
    """gain[begin + l] = Σ_v cells[places[v] + begin + l] for l < LANES, in this order and within one register.

    A compiler adds so few values one by one. What is read must lie inside the arrays, whoever calls it.
    """
    from llvmlite import ir
    from numba import types
    from numba.core import cgutils
    from numba.extending import intrinsic

    vector = ir.VectorType(ir.FloatType(), LANES)

    def add_up(_context, cells, places, gain, number, begin):  # type: ignore[no-untyped-def]
        assert {cells.layout, places.layout, gain.layout} == {"C"}, "values lie side by side"

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            values, starts, out = (
                context.make_array(kind)(context, builder, array).data
                for kind, array in zip(signature.args[:3], arguments[:3], strict=True)
            )

            def lanes(array: Any, place: Any) -> Any:
                return builder.bitcast(builder.gep(array, [place]), vector.as_pointer())

            total = cgutils.alloca_once_value(builder, ir.Constant(vector, [0.0] * LANES))
            with cgutils.for_range(builder, arguments[3]) as view:
                place = builder.add(builder.load(builder.gep(starts, [view.index])), arguments[4])
                here = builder.load(lanes(values, place), align=4)
                builder.store(builder.fadd(builder.load(total), here), total)
            builder.store(builder.load(total), lanes(out, arguments[4]), align=4)
            return context.get_dummy_value()

        return types.void(cells, places, gain, number, begin), generate

    return intrinsic(add_up)


def _four_sums() -> Any:
    """Σ_k left[4k + l] · right[4k + l] for l = 0 to 3, k below a number, in this order and within one register."""
    from llvmlite import ir
    from numba import types
    from numba.core import cgutils
    from numba.extending import intrinsic

    vector = ir.VectorType(ir.DoubleType(), 4)

    def four_sums(_context, left, right, number):  # type: ignore[no-untyped-def]
        assert {left.layout, right.layout} == {"C"}, "values lie side by side"

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            one, other = (
                builder.bitcast(context.make_array(kind)(context, builder, array).data, vector.as_pointer())
                for kind, array in zip(signature.args[:2], arguments[:2], strict=True)
            )
            total = cgutils.alloca_once_value(builder, ir.Constant(vector, [0.0] * 4))
            with cgutils.for_range(builder, arguments[2]) as k:
                both = [builder.load(builder.gep(each, [k.index]), align=8) for each in (one, other)]
                builder.store(builder.fadd(builder.load(total), builder.fmul(*both)), total)
            sums = builder.load(total)
            lanes = [builder.extract_element(sums, ir.IntType(32)(lane)) for lane in range(4)]
            return context.make_tuple(builder, signature.return_type, lanes)

        return types.UniTuple(types.float64, 4)(left, right, number), generate

    return intrinsic(four_sums)


LANES = 8  # floats that are added at once
add_up = Later(_add_up)
four_sums = Later(_four_sums)
popcount = Later(_popcount)  # the number of ones in a 64-bit word
lowest_bit = Later(_lowest_bit)  # the place of the lowest one in a 64-bit word that is not zero
