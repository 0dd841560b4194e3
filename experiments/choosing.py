"""Which mechanism for which shape: the evidence behind `mechanisms/choose.py` and docs/choosing.md."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from dualquery.example import SCHEMA, survey
from dualquery.mechanisms.choose import MECHANISMS, choose
from dualquery.mechanisms.mechanism import Task
from dualquery.privacy.budget import Accounting
from dualquery.queries.families import from_spec
from dualquery.queries.workload import Workload
from dualquery.table.encoding import encode
from dualquery.table.records import Records
from dualquery.table.schema import parse_schema
from experiments.data import Data, kept
from experiments.harness import (
    Experiment,
    Point,
    Rows,
    Setting,
    Value,
    distinct,
    line,
    main,
    mean_by,
    where,
)
from experiments.runs import ADD_REMOVE, budget_of, errors_of, run_of

DELTA = 1e-6
PROJECTION, ADAPTIVE, DUAL_QUERY, MWEM = "projection", "adaptive-projection", "dualquery", "mwem"
COLOURS = {PROJECTION: "C0", ADAPTIVE: "C1", DUAL_QUERY: "C2", MWEM: "C3"}


@dataclass(frozen=True)
class Case:
    """A table, what is asked of it, and who may try under which accounting."""

    name: str
    table: Callable[[Data], Records]
    spec: str
    accounting: Accounting
    mechanisms: tuple[str, ...]


def people(data: Data) -> Records:
    """The invented survey that travels with the program."""
    return encode(survey(), parse_schema(SCHEMA, origin="the example"))


def adult(data: Data) -> Records:
    return kept(data, "adult")


def nltcs(data: Data) -> Records:
    return kept(data, "nltcs")


def workers(data: Data) -> Records:
    return data.contingency("czech_autoworkers.csv")


def cases(setting: Setting) -> list[Case]:
    order = setting.choose(toy=2, quick=3, full=3)
    many = setting.choose(toy=500, quick=100_000, full=100_000)
    fewer = setting.choose(toy=500, quick=20_000, full=20_000)
    tables = f"marginals:{order}"
    rho, pure = Accounting.ZCDP, Accounting.PURE
    gaussian = (PROJECTION, ADAPTIVE, DUAL_QUERY)
    laplace = (PROJECTION, MWEM, DUAL_QUERY)
    listed = [
        Case(f"survey, all {order}-way tables", people, tables, rho, gaussian),
        Case(f"Adult, {many:,} random 3-way", adult, f"random:3:{many}", rho, gaussian),
        Case(f"NLTCS, all {order}-way tables", nltcs, tables, rho, (*gaussian, MWEM)),
        Case(f"NLTCS, all {order}-way tables, pure", nltcs, tables, pure, laplace),
        Case(f"Adult, {fewer:,} random 3-way, pure", adult, f"random:3:{fewer}", pure, laplace),
        Case(f"Czech workers, all {order}-way tables, pure", workers, tables, pure, (PROJECTION, MWEM)),
    ]
    return setting.choose(toy=[listed[0], *listed[3:]], quick=listed, full=listed)


@lru_cache(maxsize=1)
def asked(data: Data, case: Case) -> tuple[Records, Workload, NDArray[np.float64]]:
    """The table, the workload and its true answers."""
    records = case.table(data)
    workload = from_spec(records.domain, case.spec)
    return records, workload, workload.fractions(records)


def measure(data: Data, case: Case, mechanism: str, epsilon: float, seed: int) -> dict[str, Value]:
    """Errors of the synthetic records, whatever else a mechanism answers."""
    records, workload, truth = asked(data, case)
    delta = 0.0 if case.accounting is Accounting.PURE else DELTA
    budget = budget_of(epsilon, delta, case.accounting, ADD_REMOVE)
    run = run_of(MECHANISMS[mechanism], records, workload, budget, seed)
    errors = errors_of(workload.fractions(run.records), truth)
    return {
        "mean_error": errors.mean,
        "max_error": errors.max,
        "seconds": run.seconds,
        "chosen": choose(Task(workload, records.rows, budget), {}).mechanism,
    }


def points(setting: Setting) -> list[Point]:
    epsilons = setting.choose(toy=(0.05, 5.0), quick=(0.1, 1.0), full=(0.1, 1.0, 10.0))
    return [
        Point(
            {
                "case": case.name,
                "mechanism": mechanism,
                "epsilon": epsilon,
                "neighbours": ADD_REMOVE.value,
                "run": seed,
            },
            partial(measure, setting.data, case, mechanism, epsilon, seed),
            cost=1 + 10 * epsilon ** (2 / 3) if mechanism == MWEM else 2,  # as MWEM's rounds, squared
        )
        for case in cases(setting)
        for mechanism in case.mechanisms
        for epsilon in epsilons
        for seed in setting.seeds()
    ]


def draw(rows: Rows) -> Figure:
    names = distinct(rows, "case")
    picture = Figure(figsize=(2.9 * len(names), 3.6), layout="constrained")
    panels = picture.subplots(1, len(names), sharey=True, squeeze=False)[0]
    for panel, name in zip(panels, names, strict=True):
        for mechanism, colour in COLOURS.items():
            mine = where(rows, case=name, mechanism=mechanism)
            panel.loglog(*line(mine, "epsilon", "mean_error"), "o-", ms=4, color=colour, label=mechanism)
            panel.loglog(*line(mine, "epsilon", "max_error"), "o:", ms=4, color=colour, alpha=0.5)
        ticks = distinct(rows, "epsilon")
        panel.set_xticks(ticks, [f"{epsilon:g}" for epsilon in ticks])
        panel.set_xticks([], minor=True)
        panel.set(xlabel="ε")
        panel.set_title(name, fontsize=9)
    panels[0].set_ylabel("error: mean (solid), max (dotted)")
    picture.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=4, frameon=False)
    return picture


def find(rows: Rows) -> str:
    told = ["Errors of the synthetic records, replace-one, δ = 10⁻⁶ or pure."]
    for name in distinct(rows, "case"):
        mine = where(rows, case=name)
        mean = mean_by(mine, ("epsilon", "mechanism"), "mean_error")
        epsilon = min(distinct(mine, "epsilon"), key=lambda given: abs(given - 1))
        here = {mechanism: error for (given, mechanism), error in mean.items() if given == epsilon}
        chosen = where(mine, epsilon=epsilon)[0]["chosen"]
        shown = ", ".join(f"{mechanism} {error:.4f}" for mechanism, error in here.items())
        told.append(f"{name}, mean error at ε = {epsilon:g}: {shown}; the rule picks {chosen}.")
    return "\n".join([told[0], "", *(f"- {words}" for words in told[1:]), "", _shortfalls(rows)])


def _shortfalls(rows: Rows) -> str:
    """Where another mechanism has the lower mean error than the one that the rule picks."""
    mean = mean_by(rows, ("case", "epsilon", "mechanism"), "mean_error")
    picked = {(row["case"], row["epsilon"]): row["chosen"] for row in rows}
    behind = [
        f"{mechanism} on {case} at ε = {epsilon:g} ({error:.4f} against {ours:.4f})"
        for (case, epsilon, mechanism), error in mean.items()
        if error < (ours := mean.get((case, epsilon, picked[case, epsilon]), 0.0))
    ]
    if not behind:
        return f"At none of {len(picked)} points does another mechanism beat the one that the rule picks."
    return f"At {len(behind)} of {len(picked)} points another would have been better: {'; '.join(behind)}."


EXPERIMENT = Experiment(
    name="choosing",
    title="Choosing: every mechanism on the same tables, against ε",
    paper="The paper compares DualQuery with MWEM alone (Figure 5) and writes that projection, which has the better "
    "theory, 'deserves to be studied empirically' (section 8).",
    points=points,
    draw=draw,
    find=find,
    by=("case", "mechanism", "epsilon"),
    shown=("mean_error", "max_error", "seconds", "chosen"),
)

if __name__ == "__main__":
    main(EXPERIMENT)
