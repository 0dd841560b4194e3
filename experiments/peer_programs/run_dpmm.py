"""dpmm: AIM, MST and PrivBayes, without its binning, for the table is encoded and its domain public."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
from dpmm.pipelines import AIMPipeline, MSTPipeline, PrivBayesPipeline
from dpmm.pipelines.base import MMPipeline
from protocol import Method, Task, asked_epsilon, serve

ROUNDS, ITERATIONS = 48, 100  # instead of 16 for each attribute, and 1,000 after each round
MODEL_MB = 8.0


def synthesise(task: Task, pipeline: type[MMPipeline], **settings: object) -> np.ndarray:
    """As many synthetic rows as there are real ones; the generator is told their number."""
    model = pipeline(
        epsilon=asked_epsilon(task), delta=task.delta, n_jobs=task.cores, disable_processing=True, **settings
    )
    domain = dict(zip(task.names, task.sizes, strict=True))
    model.fit(pd.DataFrame(task.rows, columns=task.names), domain=domain, random_state=task.seed)
    made = model.generate(n_records=len(task.rows), random_state=task.seed)
    return made[task.names].to_numpy()


def aim(task: Task) -> np.ndarray:
    return synthesise(task, AIMPipeline, gen_kwargs={"degree": task.order})


def short_aim(task: Task) -> np.ndarray:
    settings = {"degree": task.order, "rounds": ROUNDS, "n_iters": ITERATIONS}
    return synthesise(task, AIMPipeline, max_model_size=largest(task), gen_kwargs=settings)


def largest(task: Task) -> float | None:
    """Megabytes of a model; no limit where none can be larger, since testing each candidate in each round is slow."""
    return None if 8 * math.prod(task.sizes) <= MODEL_MB * 2**20 else MODEL_MB


def mst(task: Task) -> np.ndarray:
    return synthesise(task, MSTPipeline)


def priv_bayes(task: Task) -> np.ndarray:
    return synthesise(task, PrivBayesPipeline)


METHODS: dict[str, Method] = {
    "AIM": aim,
    "AIM 48 x 100": short_aim,
    "MST": mst,
    "PrivBayes": priv_bayes,
}

if __name__ == "__main__":
    serve(METHODS)
