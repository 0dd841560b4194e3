"""Who counts and fits a release: this machine's processor, or its graphics card as well.

A card that cannot be used, or that fails on the way, costs time and nothing else: the processor does the work, and
one sentence says why. The sentence is for the screen of whoever holds the table (how much memory a count takes tells
how many records there are), and stands in no release.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from dualquery.card import CardError
from dualquery.counting.counter import counting_with
from dualquery.counting.cuda import Cuda
from dualquery.errors import DualQueryError
from dualquery.fitting.cuda import CudaFitter
from dualquery.fitting.fitter import fitting_with, usual_fitter

ENGINES = ("local", "cuda")
ONE_AFTER_ANOTHER = (
    "rows were fitted on a GPU, where many move at once: the same seed does not give the same rows again"
)


def notes_of_machines() -> tuple[str, ...]:
    """What a certificate says of who fitted."""
    return (ONE_AFTER_ANOTHER,) if isinstance(usual_fitter(), CudaFitter) else ()


@contextmanager
def working_on(engine: str | None, say: Callable[[str], None] = lambda sentence: None) -> Iterator[None]:
    """Counters and fits inside are the engine's; `say` hears why a card was not used."""
    if engine not in (None, *ENGINES):
        raise DualQueryError(f"engine must be one of {', '.join(ENGINES)}, got '{engine}'")
    with ExitStack() as stack:
        if engine == "cuda":
            try:
                counts, fits = Cuda(), CudaFitter()
            except CardError as problem:
                say(f"{problem}; the processor does the work")
            else:
                stack.enter_context(counting_with(counts))
                stack.enter_context(fitting_with(fits))
                stack.callback(_say_all, say, counts.said, fits.said)
        yield


def _say_all(say: Callable[[str], None], *said: list[str]) -> None:
    for sentence in itertools.chain(*said):
        say(sentence)
