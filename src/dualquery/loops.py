"""One pool of threads for all work that has independent parts: replicas, chains, tables, columns, questions.

Parts run at the same time where they let go of the interpreter: in numpy, in Arrow, and in compiled loops that say
`nogil`. Whoever asks for parts to be done works on them too, and idle threads join in, so that parts may have parts
of their own and nobody waits for a thread that is not there. No more threads work than are allowed (`limited`), and
none is started for work that is not there.

What a part is never depends on the number of threads where the sum of parts would: the same seed gives the same bytes
on any number of them.

*Loops that numba compiles*, and numba itself only when the first of them is called.

    from dualquery.loops import njit

is used as numba's own. Loops let go of the interpreter, and whoever calls them shares their work out: those
that numba itself runs on several threads (`parallel`) must not be called from two at once, and take very long to
compile. Importing numba takes longer than a question takes to answer, so nothing of it is loaded before a loop runs:
what stands under a loop's name is a promise, which is kept on the first call. A loop finds its helpers by name in its
module, where numba must see the real ones: there they take the promise's place.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from functools import cache, update_wrapper
from itertools import pairwise
from threading import Condition, Lock, RLock
from typing import Any, Generic, TypeVar

from dualquery.errors import DualQueryError

Item = TypeVar("Item")
Made = TypeVar("Made")

_LIMIT: ContextVar[int | None] = ContextVar("threads", default=None)


def cores() -> int:
    """The cores that this process may use; NUMBA_NUM_THREADS says fewer, as it does to numba's own loops."""
    affinity = getattr(os, "sched_getaffinity", None)
    there = len(affinity(0)) if affinity else os.cpu_count() or 1
    wanted = os.environ.get("NUMBA_NUM_THREADS", "")
    return max(1, min(there, int(wanted))) if wanted.isdecimal() and int(wanted) else there


def threads() -> int:
    """How many threads may work at once for whoever asks."""
    return _LIMIT.get() or cores()


@contextmanager
def limited(number: int | None) -> Iterator[None]:
    """At most so many threads inside, the one that asks counted; None leaves it as it is."""
    if number is None:
        yield
        return
    if number < 1:
        raise DualQueryError("threads must be a whole number, and at least 1")
    before = _LIMIT.set(number)
    try:
        yield
    finally:
        _LIMIT.reset(before)


def together(
    function: Callable[[Item], Made],
    items: Sequence[Item],
    done: Callable[[int], None] = lambda number: None,
) -> list[Made]:
    """The function of every item, in their order; `done` hears how many are done, one call at a time.

    What fails first, by the order of items, is raised when no part runs any more.
    """
    job = _Job(function, [(item,) for item in items], threads(), done)
    job.work()
    return job.results()


def in_shares(loop: Callable[..., Any], number: int, *arguments: Any, least: int = 1) -> None:
    """loop(first, last, *arguments) over shares of range(number), of at least so many each.

    For loops that add up whole numbers, or whose places share nothing: how many shares there are follows the threads.
    """
    workers = threads()
    shares = min(4 * workers, number // least) if workers > 1 else 1
    if shares <= 1:
        loop(0, number, *arguments)
        return
    edges = [number * i // shares for i in range(shares + 1)]
    job = _Job(loop, [(first, last, *arguments) for first, last in pairwise(edges)], workers)
    job.work()
    job.results()


@contextmanager
def plain_algebra() -> Iterator[None]:
    """Linear algebra by one thread of its own library inside, whoever else is inside; as it was afterwards.

    For many small matrices, for parts that already share the cores, and for the same sums on any machine.
    """
    _ONE_THREAD.enter()
    try:
        yield
    finally:
        _ONE_THREAD.leave()


class _OneThread:
    """The libraries have one setting for all threads: who comes first changes it, who leaves last restores it."""

    def __init__(self) -> None:
        self._inside, self._lock = 0, Lock()
        self._before: Any = None

    def enter(self) -> None:
        with self._lock:
            if self._inside == 0:
                self._before = _libraries().limit(limits=1, user_api="blas")
            self._inside += 1

    def leave(self) -> None:
        with self._lock:
            self._inside -= 1
            if self._inside == 0:
                self._before.restore_original_limits()


_ONE_THREAD = _OneThread()


@cache
def _libraries() -> Any:
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()  # looks at what is loaded: once


class _Job(Generic[Made]):
    """Calls of a function that several threads take one after another: idle ones, and whoever works on it."""

    def __init__(
        self,
        function: Callable[..., Made],
        calls: Sequence[tuple[Any, ...]],
        number: int,
        done: Callable[[int], None] = lambda number: None,
    ) -> None:
        self._function, self._calls, self._tell = function, calls, done
        self._made: dict[int, Made] = {}
        self._failed: dict[int, BaseException] = {}
        self._next = self._running = 0
        self._changed = Condition()
        for _ in range(min(number, len(calls)) - 1):
            _helpers(number).submit(copy_context().run, self.work)

    def work(self) -> None:
        """Do what nobody has taken yet."""
        while (place := self._take()) is not None:
            try:
                made = self._function(*self._calls[place])
                with self._changed:
                    self._made[place] = made
                    self._tell(len(self._made))
            except BaseException as problem:  # raised by whoever asked
                with self._changed:
                    self._failed[place] = problem
            finally:
                with self._changed:
                    self._running -= 1
                    self._changed.notify_all()

    def _take(self) -> int | None:
        with self._changed:
            if self._failed or self._next == len(self._calls):
                return None
            self._next, self._running = self._next + 1, self._running + 1
            return self._next - 1

    def results(self) -> list[Made]:
        with self._changed:
            try:
                while self._running:
                    self._changed.wait()
            finally:
                self._next = len(self._calls)  # whoever was interrupted wants no more of them
        if self._failed:
            raise self._failed[min(self._failed)]
        return [self._made[place] for place in range(len(self._calls))]


@cache
def _helpers(number: int) -> ThreadPoolExecutor:
    """One fewer than may work: whoever asks is one of them. Threads start when there is work for them."""
    return ThreadPoolExecutor(number - 1, f"dualquery-{number}")


if hasattr(os, "register_at_fork"):  # a child has none of the threads
    os.register_at_fork(after_in_child=_helpers.cache_clear)


_MAKING = RLock()  # one loop is made at a time, by whoever comes first


class Later:
    """Something of numba's, made once, when it is first needed."""

    def __init__(self, make: Callable[[], Any], needs: Callable[..., Any] | None = None) -> None:
        self._make = make
        self._known: dict[str, Any] = {} if needs is None else needs.__globals__
        self._needed = () if needs is None else needs.__code__.co_names
        self._made: Any = None

    @property
    def made(self) -> Any:
        with _MAKING:
            if self._made is None:
                for name in self._needed:
                    if isinstance(self._known.get(name), Later):
                        self._known[name] = self._known[name].made
                self._made = self._make()
            return self._made

    def __call__(self, *arguments: Any) -> Any:
        return self.made(*arguments)


def njit(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """numba's decorator of the same name, later; the loop lets go of the interpreter."""

    def promise(function: Callable[..., Any]) -> Later:
        def make() -> Any:
            import numba

            loop = numba.njit(nogil=True, **options)(function)
            function.__globals__[function.__name__] = loop
            return loop

        later = Later(make, needs=function)
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
