"""The graphics card, where there is one and cupy (extra `cuda`) can use it: found once and tried out, or why not.

Kernels are CUDA C++, compiled when they are first asked for. What goes wrong on a card (too little memory, a driver
that gives up) is a `CardError`, whose one sentence says what to do; whoever asked then works on the processor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from threading import Lock, local
from typing import Any, TypeVar

from dualquery.errors import DualQueryError

ARCHITECTURE = 70  # Volta: the oldest whose warps wait for each other as our kernels do

Worked = TypeVar("Worked")
_MINE = local()


class CardError(DualQueryError):
    """The card cannot be used, or no longer."""


@cache
def card() -> Any:
    """cupy, once a kernel of ours has counted right with it."""
    try:
        import cupy
    except Exception as problem:  # a broken installation may raise anything
        raise CardError(
            "cupy is not installed, and without it no GPU can be used: pip install 'dualquery[cuda]'"
        ) from problem
    try:
        devices = cupy.cuda.runtime.getDeviceCount()
    except Exception as problem:
        raise CardError(
            "no GPU can be used: there is none, or its driver is missing or older than cupy wants; see nvidia-smi"
        ) from problem
    if not devices:
        raise CardError("no GPU is there; leave --engine cuda out")
    if int(cupy.cuda.Device().compute_capability) < ARCHITECTURE:
        raise CardError("the GPU is too old (compute capability 7.0 is needed); leave --engine cuda out")
    try:
        right = _tried_out(cupy)
    except Exception as problem:
        raise CardError(
            "the GPU's driver cannot run our kernels; install a newer driver, or the cupy made for this one"
        ) from problem
    if not right:
        raise CardError("the GPU counts wrongly, and is not used; have it looked at")
    return cupy


_TRIAL = r"""
extern "C" __global__ void trial(const unsigned long long* words, int* ones) {
    atomicAdd(ones, __popcll(words[blockIdx.x * blockDim.x + threadIdx.x]));
}
"""


def _tried_out(cupy: Any) -> bool:
    """Whether 1,024 words have as many ones as their number says."""
    words = cupy.arange(1024, dtype=cupy.uint64)
    ones = cupy.zeros(1, cupy.int32)
    cupy.RawKernel(_TRIAL, "trial")((4,), (256,), (words, ones))
    return int(ones[0]) == sum(number.bit_count() for number in range(1024))


@contextmanager
def on_card() -> Iterator[Any]:
    """cupy, inside the stream of this thread; whatever goes wrong there is a `CardError`."""
    cupy = card()
    try:
        if not hasattr(_MINE, "stream"):
            _MINE.stream = cupy.cuda.Stream(non_blocking=True)
        with _MINE.stream as stream:
            yield cupy
            stream.synchronize()
    except cupy.cuda.memory.OutOfMemoryError as problem:
        raise CardError("the GPU has too little memory free for this") from problem
    except (cupy.cuda.runtime.CUDARuntimeError, cupy.cuda.driver.CUDADriverError) as problem:
        raise CardError(f"the GPU gave up ({str(problem).splitlines()[0]})") from problem


class Workplace:
    """Whose work is done on the card, and on the processor where that fails; `said` then has a sentence for it."""

    instead: str  # what the processor did

    def __init__(self) -> None:
        card()  # or why not
        self.said: list[str] = []
        self._lock = Lock()

    def tried(self, work: Callable[[Any], Worked], otherwise: Callable[[], Worked]) -> Worked:
        try:
            with self._lock, on_card() as cupy:
                return work(cupy)
        except CardError as problem:
            sentence = f"{problem}; {self.instead}"
            if sentence not in self.said:
                self.said.append(sentence)
        return otherwise()


@cache
def kernels(source: str, options: tuple[str, ...] = ()) -> Any:
    module = card().RawModule(code=source, options=("-std=c++17", *options))
    try:
        module.compile()
    except Exception as problem:  # of the compiler, which says many lines
        raise CardError(f"its kernels cannot be compiled: {str(problem).strip().splitlines()[0]}") from None
    return module


def free_bytes() -> int:
    cupy = card()
    free, _ = cupy.cuda.runtime.memGetInfo()
    return int(free) + int(cupy.get_default_memory_pool().free_bytes())


def name() -> str:
    found = card().cuda.runtime.getDeviceProperties(card().cuda.Device().id)["name"]
    return found.decode() if isinstance(found, bytes) else str(found)
