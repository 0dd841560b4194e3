"""The weights of a selection on a graphics card: the same whole numbers as the processor's, and so the same draws.

A block of threads adds up the weights of a chunk of candidates in whole numbers, band by band; the order does not
matter. Doubles are used as in `selection.mantissa`, operation by operation, and products and sums are not joined. The
uniform integers come from the entropy of the curator; a card sees counts, scores and what is left of such an integer
inside a chunk. Counts that are asked again every round stay on the card, and so do the answers of replies to
conjunctions.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dualquery.card import Workplace, kernels
from dualquery.privacy.selection import LN2, POWERS, Answers, Scored, Weighing, Weights
from dualquery.queries.conjunctions import Conjunctions
from dualquery.queries.group import literal_truth
from dualquery.queries.workload import Workload
from dualquery.types import Integers, Ints, Words

SOURCE = Path(__file__).with_name("kernels.cu").read_text(encoding="utf-8")
THREADS, BLOCKS = 256, 528  # of a block; at most, in a search for the extremes
SEPARATE = ("--fmad=false",)


def kernel(name: str) -> Any:
    return kernels(SOURCE, SEPARATE).get_function(name)


class CardAnswers(Answers):
    """Of conjunctions, on the card. Replies are kept: should the card fail, the processor hears them all again."""

    def __init__(self, workload: Workload, weights: CardWeights) -> None:
        super().__init__(workload)
        self._weights, self._replies = weights, list[Ints]()
        self._asked: list[tuple[Any, ...]] = []
        self.held: Any = ()  # None: the processor has them
        self._on(self._begun)

    def _begun(self, cupy: Any) -> None:
        self.held = cupy.zeros(self._workload.size, cupy.int64)
        for group in self._workload.groups:
            assert isinstance(group, Conjunctions)
            flips = np.zeros(0, np.uint8) if group.complement is None else group.complement.view(np.uint8)
            literals = cupy.asarray(np.ascontiguousarray(group.literals.T))
            self._asked.append((literals, cupy.asarray(flips), np.int32(len(flips))))

    def _on(self, work: Callable[[Any], Any]) -> Any:
        """What the card makes of it; nothing as soon as it has failed."""
        return None if self.held is None else self._weights.tried(work, self._again)

    def _again(self) -> None:
        self.held = None
        for reply in self._replies:
            super().add(reply)

    def add(self, reply: Ints) -> None:
        def heard(cupy: Any) -> None:
            starts = self._workload.starts.tolist()
            for group, first, (literals, *flips) in zip(
                self._workload.groups, starts, self._asked, strict=False
            ):
                width, number = literals.shape
                truth = literal_truth(group.predicates, reply)
                shape = (np.int32(width), np.int64(number), np.int32(len(truth) - 1))
                given = (literals, *shape, cupy.asarray(truth), *flips, self.held[first : first + number])
                kernel("hear")((-(-number // THREADS),), (THREADS,), given)

        self._replies.append(reply)
        if self.held is None:
            super().add(reply)
        else:
            self._on(heard)

    def of(self, queries: Integers) -> Ints:
        found = self._on(lambda cupy: self.held[cupy.asarray(queries)].get().astype(np.int32))
        return super().of(queries) if found is None else found

    def __array__(self, *given: Any, **named: Any) -> NDArray[Any]:
        found = self._on(lambda cupy: self.held.get().astype(np.int32))
        return self._numbers if found is None else found


class CardWeights(Workplace, Weights):
    """Weighs candidates on the card."""

    instead = "weights were added up on the processor"

    def __init__(self) -> None:
        super().__init__()
        self._powers: Any = None
        self._held: tuple[Callable[[], Any], Any] = (lambda: None, None)  # the last counts, there
        self._offsets: tuple[Scored | None, Any] = (None, None)  # of these scores

    def answers(self, workload: Workload) -> Answers:
        asked_here = all(isinstance(group, Conjunctions) for group in workload.groups)
        return CardAnswers(workload, self) if asked_here else Answers(workload)

    def extremes(self, scored: Scored) -> tuple[int, int]:
        def on(cupy: Any) -> tuple[int, int]:
            blocks = min(BLOCKS, scored.chunks)
            low, high = (cupy.empty(blocks * THREADS // 32, cupy.int64) for _ in range(2))
            kernel("extremes")((blocks,), (THREADS,), (*self._scores(cupy, scored), low, high))
            return int(low.get().min()), int(high.get().max())

        return self.tried(on, lambda: Weights.extremes(self, scored))

    def sums(self, scored: Scored, law: Weighing) -> Words:
        def on(cupy: Any) -> Words:
            sums = cupy.empty((scored.chunks, law.bands), cupy.uint64)
            shared = 8 * law.bands * THREADS // 32
            given = (*self._scores(cupy, scored), *self._law(cupy, law), sums)
            kernel("sum_bands")((scored.chunks,), (THREADS,), given, shared_mem=shared)
            return np.asarray(sums.get())

        return self.tried(on, lambda: Weights.sums(self, scored, law))

    def found(
        self, scored: Scored, law: Weighing, chunk: Integers, band: Integers, residue: Words
    ) -> Integers:
        def on(cupy: Any) -> Integers:
            out = cupy.zeros(len(chunk), cupy.int64)
            draws = [cupy.asarray(each) for each in (chunk, band, residue)]
            given = (*self._scores(cupy, scored), *self._law(cupy, law), *draws, out)
            kernel("find_candidates")((len(chunk),), (THREADS,), given, shared_mem=8 * THREADS)
            return np.asarray(out.get())

        return self.tried(on, lambda: Weights.found(self, scored, law, chunk, band, residue))

    def _scores(self, cupy: Any, scored: Scored) -> tuple[Any, ...]:
        if self._held[0]() is not scored.counts:
            self._held = (weakref.ref(scored.counts), cupy.asarray(scored.counts.astype(np.int64)))
        offsets = scored.offsets
        if isinstance(offsets, CardAnswers) and offsets.held is not None:
            self._offsets = (scored, offsets.held)
        elif self._offsets[0] is not scored:
            self._offsets = (scored, cupy.asarray(np.asarray(offsets)).astype(cupy.int64))
        numbers = [np.int64(each) for each in (scored.repeats, scored.scale, scored.surplus)]
        return (
            self._held[1],
            self._offsets[1],
            *numbers,
            np.int32(scored.signed),
            np.int64(len(scored.counts)),
        )

    def _law(self, cupy: Any, law: Weighing) -> tuple[Any, ...]:
        if self._powers is None:
            self._powers = cupy.asarray(POWERS)
        step = np.float64(LN2 / np.float64(1 << law.shift))
        known = (np.int64(law.rate), np.int32(law.shift), np.int64(law.largest), np.int64(law.lowest))
        return (*known, self._powers, step, np.int64(law.low), np.int32(law.bands))
