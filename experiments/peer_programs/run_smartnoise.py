"""smartnoise-synth: MWEM and AIM."""

from __future__ import annotations

import random

import numpy as np
from protocol import Method, Task, asked_epsilon, serve
from snsynth.aim import AIMSynthesizer
from snsynth.base import Synthesizer
from snsynth.mwem import MWEMSynthesizer
from snsynth.transform import LabelTransformer, TableTransformer


def public_codes(task: Task) -> TableTransformer:
    """Labels learnt from rows that hold every code, so that nothing is learnt from the private table."""
    labels = TableTransformer([LabelTransformer(nullable=False) for _ in task.sizes])
    every = np.minimum(np.arange(max(task.sizes))[:, None], np.array(task.sizes) - 1)
    labels.fit(every.tolist())
    return labels


def synthesise(task: Task, synthesizer: Synthesizer) -> np.ndarray:
    """As many synthetic rows as there are real ones."""
    random.seed(task.seed)
    np.random.seed(task.seed)
    synthesizer.fit(task.rows, transformer=public_codes(task))
    return np.asarray(synthesizer.sample(len(task.rows)))


def aim(task: Task) -> np.ndarray:
    return synthesise(task, AIMSynthesizer(epsilon=asked_epsilon(task), delta=task.delta, degree=task.order))


def short_aim(task: Task) -> np.ndarray:
    """AIM with 48 rounds instead of 16 for each attribute; its 1,000 iterations after each are fixed."""
    settings = {"epsilon": asked_epsilon(task), "delta": task.delta, "degree": task.order}
    return synthesise(task, AIMSynthesizer(**settings, rounds=48))


def mwem(task: Task) -> np.ndarray:
    """Spends no δ. Takes the range of codes and the number of rows from the private table."""
    return synthesise(task, MWEMSynthesizer(epsilon=task.epsilon, marginal_width=task.order))


def mwem_in_splits(task: Task) -> np.ndarray:
    """MWEM on three attributes at a time, as its manual advises where the whole table is too large to hold."""
    synthesizer = MWEMSynthesizer(epsilon=task.epsilon, marginal_width=task.order, split_factor=3)
    return synthesise(task, synthesizer)


METHODS: dict[str, Method] = {
    "AIM": aim,
    "AIM 48": short_aim,
    "MWEM": mwem,
    "MWEM in splits": mwem_in_splits,
}

if __name__ == "__main__":
    serve(METHODS)
