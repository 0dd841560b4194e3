"""dpsynth: SWIFT, AIM-GDP and MST on a table of codes, by its own wrapper for discrete tables, with its defaults."""

from __future__ import annotations

import sys
from pathlib import Path

import jax
import numpy as np
from dpsynth.api import MechanismConfig
from dpsynth.discrete_mechanisms import AIMGDPConfig, DiscreteConfig, MSTConfig, SWIFTConfig
from mbi import Dataset, Domain
from protocol import Method, Task, serve

LEAST_RHO = 1e-12


def synthesise(task: Task, mechanism: MechanismConfig) -> np.ndarray:
    """Synthetic rows, as many as the mechanism makes of its own measurement of their number."""
    config = DiscreteConfig(mechanism=mechanism)
    ready = config.configure(zcdp_rho=own_rho(task, config) if task.rho is None else task.rho)
    columns = {name: task.rows[:, j].astype(np.int64) for j, name in enumerate(task.names)}
    data = Dataset(columns, Domain(tuple(task.names), tuple(task.sizes)))
    made = ready(np.random.default_rng(task.seed), data).synthetic_data.to_dict()
    return np.stack([np.asarray(made[name], np.int64) for name in task.names], axis=1)


def own_rho(task: Task, config: DiscreteConfig) -> float:
    """What `calibrate` finds. It begins its search at ρ = 0, by which the mechanisms divide."""
    return config._find_optimal_rho(
        lambda rho: config.configure(zcdp_rho=max(rho, LEAST_RHO)).dp_event, task.epsilon, task.delta
    )


def workload(task: Task) -> list[tuple[str, ...]]:
    return [tuple(task.names[j] for j in members) for members in task.tables]


def swift(task: Task) -> np.ndarray:
    return synthesise(task, SWIFTConfig(workload=workload(task)))


def swift_of_smaller_cliques(task: Task) -> np.ndarray:
    """Cliques of at most 100,000 cells instead of ten million, which is what its manual names for less computing."""
    return synthesise(task, SWIFTConfig(workload=workload(task), max_clique_size=1e5))


def aim_gdp(task: Task) -> np.ndarray:
    return synthesise(task, AIMGDPConfig(workload=workload(task)))


def mst(task: Task) -> np.ndarray:
    return synthesise(task, MSTConfig())


METHODS: dict[str, Method] = {
    "SWIFT": swift,
    "SWIFT 1e5": swift_of_smaller_cliques,
    "AIM-GDP": aim_gdp,
    "MST": mst,
}

if __name__ == "__main__":
    serve(METHODS)
    (Path(sys.argv[1]) / "card.txt").write_text(jax.devices()[0].device_kind + "\n")
