"""How good the predictions of plans are, and whether the ε that they find for a wanted error is the right one.

    python -m benchmarks.planning [--wanted] [TABLE]...

Predicted over true mean error of all 2-way and of all 3-way tables, δ = 10⁻⁶, a record is replaced, exact Gaussian
accounting, ε = .1, .3, 1, 3 and 10; one run a point, two of tables below 10,000 records. The schemas of Adult and
NLTCS are those of experiments/schemas, all others drafts. With --wanted: true mean error over the wanted one, which
is what is predicted at ε = .5 and at ε = 5, in one figure; the ε is found by `dualquery plan --error`, which aims a
little below the wish (`releases.enough.AIM`). The constants
of `mechanisms.projection.predicted` were chosen while looking at all of these tables.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks.harness import Figure, data_folder, records_of, show
from dualquery import schema_draft
from dualquery.counting import MemoryCounter
from dualquery.example import SCHEMA, survey
from dualquery.mechanisms.mechanism import Task, finished
from dualquery.mechanisms.projection import PROJECTION
from dualquery.privacy.budget import Accounting, Budget
from dualquery.privacy.curator import Curator
from dualquery.privacy.ledger import Ledger
from dualquery.queries.families import marginals
from dualquery.queries.workload import Workload
from dualquery.randomness import SeededEntropy
from dualquery.releases.enough import enough_for
from dualquery.releases.plan import Settled, settled_plan
from dualquery.table.encoding import encode
from dualquery.table.records import Records
from dualquery.table.schema import parse_schema
from dualquery.types import silent
from experiments.data import Data

FOREIGN = ("ability", "chile", "diamonds", "fair", "flchain", "nwtco", "slid", "vocab")
UNSEEN = ("survey", "rochdale", "transfusion")
NAMES = (*FOREIGN, "nltcs", "adult", "births", *UNSEEN)
EPSILONS = (0.1, 0.3, 1.0, 3.0, 10.0)
WANTED_AT = (0.5, 5.0)
DELTA = 1e-6
FEW = 10_000  # records, below which there are two runs


def records(name: str) -> Records:
    if name in ("nltcs", "adult"):
        return records_of(name)
    if name == "survey":
        return encode(survey(), parse_schema(SCHEMA, origin="the example survey"))
    if name == "rochdale":
        return Data(data_folder()).contingency("rochdale.csv")
    return drafted(frame(name))


def frame(name: str) -> pd.DataFrame:
    if name == "births":
        read = pd.read_csv(data_folder() / "births2014.csv.gz", low_memory=False)
        return read.iloc[:, [0, 1, *range(16, 21), 32, 33, 34, 41, 42]]
    place = "blood_transfusion" if name == "transfusion" else f"foreign/{name}"
    return pd.read_csv(Path(data_folder()) / f"{place}.csv.gz")


def drafted(table: pd.DataFrame) -> Records:
    return encode(table, replace(schema_draft(table).schema, draft=False).domain)


def budget(epsilon: float) -> Budget:
    return Budget(epsilon, DELTA, accounting=Accounting.GAUSSIAN)


def task_of(table: Records, workload: Workload, epsilon: float) -> Task:
    return Task(workload, table.rows, budget(epsilon), places=bool(table.places))


def true_error(table: Records, workload: Workload, epsilon: float) -> float:
    """The mean over queries and runs."""
    task = task_of(table, workload, epsilon)
    plan, truth, found = PROJECTION.plan_for(task, {}), workload.fractions(table), []
    for seed in range(2 if table.rows < FEW else 1):
        entropy = SeededEntropy(seed)
        curator = Curator(MemoryCounter(table), Ledger(task.budget), entropy)
        outcome = PROJECTION.run(plan, curator, entropy.public_generator(), silent)
        made = finished(outcome, table.rows, entropy).artefact.records
        found.append(float(np.abs(workload.fractions(made) - truth).mean()))
    return float(np.mean(found))


def predicted(name: str) -> None:
    table, figures = records(name), []
    for order in (2, 3):
        workload = marginals(table.domain, order)
        for epsilon in EPSILONS:
            said = PROJECTION.plan_for(task_of(table, workload, epsilon), {}).mean_error
            ratio = said / true_error(table, workload, epsilon)
            figures.append(
                Figure(f"order {order}, ε = {epsilon:g}", ratio, runs=2 if table.rows < FEW else 1)
            )
    show(f"{name}, {table.rows:,} records: predicted over true mean error", figures)


def wanted(name: str) -> None:
    table, figures = records(name), []
    for order in (2, 3):
        workload = marginals(table.domain, order)

        def planned(tried: Budget, workload: Workload = workload) -> Settled:
            return settled_plan(table.domain, workload, tried, records=table.rows, check=0)

        for epsilon in WANTED_AT:
            wish = float(f"{planned(budget(epsilon)).plan.mean_error:.1g}")
            found = enough_for(wish, budget(50.0), planned).epsilon
            ratio = true_error(table, workload, found) / wish
            said = f"order {order}, {wish:g} wanted: ε = {found:g}"
            figures.append(Figure(said, ratio, 1.05, runs=2 if table.rows < FEW else 1))
    show(f"{name}, {table.rows:,} records: true over wanted mean error", figures)


def main() -> None:
    asked = [each for each in sys.argv[1:] if each != "--wanted"] or list(NAMES)
    if unknown := [name for name in asked if name not in NAMES]:
        sys.exit(f"no table '{unknown[0]}'; there are {', '.join(NAMES)}")
    for name in asked:
        (wanted if "--wanted" in sys.argv else predicted)(name)


if __name__ == "__main__":
    main()
