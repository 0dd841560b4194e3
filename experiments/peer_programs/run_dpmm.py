"""dpmm: AIM, MST and PrivBayes, without its binning, for the table is encoded and its domain public."""

from __future__ import annotations

import numpy as np
import pandas as pd
from dpmm.pipelines import AIMPipeline, MSTPipeline, PrivBayesPipeline
from dpmm.pipelines.base import MMPipeline
from protocol import Method, Task, serve

QUOTED = {"degree": 3, "n_iters": 500}  # of the figure that the page quotes, with a model of at most 8 MB


def synthesise(task: Task, pipeline: type[MMPipeline], **settings: object) -> np.ndarray:
    """As many synthetic rows as there are real ones; the generator is told their number."""
    model = pipeline(
        epsilon=task.epsilon, delta=task.delta, n_jobs=task.cores, disable_processing=True, **settings
    )
    domain = dict(zip(task.names, task.sizes, strict=True))
    model.fit(pd.DataFrame(task.rows, columns=task.names), domain=domain, random_state=task.seed)
    made = model.generate(n_records=len(task.rows), random_state=task.seed)
    return made[task.names].to_numpy()


def aim(task: Task) -> np.ndarray:
    return synthesise(task, AIMPipeline, gen_kwargs={"degree": task.order})


def aim_as_quoted(task: Task) -> np.ndarray:
    return synthesise(task, AIMPipeline, max_model_size=8, gen_kwargs=QUOTED)


def mst(task: Task) -> np.ndarray:
    return synthesise(task, MSTPipeline)


def priv_bayes(task: Task) -> np.ndarray:
    return synthesise(task, PrivBayesPipeline)


METHODS: dict[str, Method] = {
    "AIM": aim,
    "AIM as quoted": aim_as_quoted,
    "MST": mst,
    "PrivBayes": priv_bayes,
}

if __name__ == "__main__":
    serve(METHODS)
