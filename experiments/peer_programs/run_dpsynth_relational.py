"""dpsynth's relational tables: households and persons by MST or AIM, with the settings of its own example.

    python run_dpsynth_relational.py FOLDER

FOLDER holds `task.json`, `households.npy` (codes, a row each) and `persons.npy` (the household of each, and codes);
the answer is two files like these, `made_households.npy` and `made_persons.npy`, with keys in the first column.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pandas as pd
from dpsynth.discrete_mechanisms import AIMConfig, MSTConfig
from dpsynth.domain import CategoricalAttribute
from dpsynth.relational.domain import ForeignKeyRelation
from dpsynth.relational.synthesizer import MultiTableConfig

MECHANISMS = {"MST": MSTConfig, "AIM": AIMConfig}
SLOTS, STRATEGY = 3, "size_sliced"  # with its default, "empty_token", hardly a household has a person


def main(folder: Path) -> None:
    task = json.loads((folder / "task.json").read_text())
    frames, domains = {}, {}
    for table in ("household", "person"):
        codes, sizes = np.load(folder / f"{table}s.npy"), task[table]
        names = [f"{table}{j}" for j in range(len(sizes))]
        frames[table] = pd.DataFrame(codes, columns=["key", *names])
        domains[table] = {
            name: CategoricalAttribute(possible_values=list(range(size)))
            for name, size in zip(names, sizes, strict=True)
        }
    config = MultiTableConfig(
        domains=domains,
        foreign_keys=[ForeignKeyRelation("household", "key", "person", "key", task["at_most"])],
        discrete_mechanism=MECHANISMS[task["method"]](),
        num_permutation_slots=SLOTS,
        exploration_strategy=STRATEGY,
    )
    # `calibrate` begins its search at no budget, which `configure` refuses.
    ready = config.configure(zcdp_rho=task["rho"])
    made = ready(np.random.default_rng(task["seed"]), frames).synthetic_tables
    for table, names in domains.items():
        np.save(folder / f"made_{table}s.npy", made[table][["key", *names]].to_numpy(np.int64))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
