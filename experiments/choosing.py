"""Which mechanism for which shape: the evidence behind `kinds/__init__.py` and docs/evidence.md."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache, partial

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from dualquery.example import SCHEMA, survey
from dualquery.kinds import choose
from dualquery.mechanisms.mechanism import Task
from dualquery.mechanisms.wishes import MECHANISMS
from dualquery.privacy.budget import Accounting
from dualquery.queries.families import from_spec
from dualquery.queries.workload import Workload
from dualquery.table.encoding import encode
from dualquery.table.records import Records
from dualquery.table.schema import parse_schema
from experiments import drawing
from experiments.data import Data, kept
from experiments.drawing import curve, plain_ticks
from experiments.harness import (
    Experiment,
    Point,
    Rows,
    Setting,
    Value,
    distinct,
    main,
    where,
)
from experiments.runs import ADD_REMOVE, budget_of, errors_of, run_of
from experiments.spread import samples_by

DELTA = 1e-6
PROJECTION, DUAL_QUERY, MWEM = "projection", "dualquery", "mwem"
LOOKS = {
    PROJECTION: drawing.PROJECTION,
    DUAL_QUERY: drawing.OWN_DUAL_QUERY,
    MWEM: drawing.MWEM,
}
COLUMNS = ("mean_error", "max_error")


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
    gaussian = (PROJECTION, DUAL_QUERY)
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
    epsilons = setting.choose(
        toy=(0.05, 5.0), quick=(0.1, 1.0), full=(0.1, 1.0, 3.0)
    )  # at 10 projection takes minutes
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
        for seed in setting.seeds(full=5)  # outermost: a run that is broken off has something of every case
        for case in cases(setting)
        for mechanism in case.mechanisms
        for epsilon in epsilons
    ]


def draw(rows: Rows) -> Figure:
    names = distinct(rows, "case")
    across = min(3, len(names))
    down = -(-len(names) // across)
    picture = Figure(figsize=(3.4 * across, 3.2 * down), layout="constrained")
    panels = picture.subplots(down, across, sharey=True, squeeze=False)
    for panel, name in zip(panels.flat, names, strict=False):
        for mechanism, look in LOOKS.items():
            mine = where(rows, case=name, mechanism=mechanism)
            for column, mark in zip(COLUMNS, ({}, {"marker": "", "dash": ":"}), strict=True):
                curve(
                    panel,
                    mine,
                    "epsilon",
                    column,
                    replace(look, **mark),
                    f"{mechanism}, {column.partition('_')[0]}",
                )
        panel.set(xscale="log", yscale="log", xlabel="ε")
        plain_ticks(panel, distinct(rows, "epsilon"))
        panel.set_title(name, fontsize=10)
    for panel in panels[:, 0]:
        panel.set_ylabel("error")
    for panel in panels.flat[len(names) :]:
        panel.remove()
    handles = {
        label: handle
        for panel in panels.flat[: len(names)]
        for handle, label in zip(*panel.get_legend_handles_labels(), strict=True)
    }
    picture.legend(handles.values(), handles, loc="outside lower center", ncols=len(LOOKS), frameon=False)
    return picture


def find(rows: Rows) -> str:
    told = ["Errors of the synthetic records, a record added or removed, δ = 10⁻⁶ or pure.", ""]
    for name in distinct(rows, "case"):
        mine = where(rows, case=name)
        epsilon = min(distinct(mine, "epsilon"), key=lambda given: abs(given - 1))
        here = where(mine, epsilon=epsilon)
        mean, most = (samples_by(here, ("mechanism",), column) for column in COLUMNS)
        shown = ", ".join(f"{key[0]} {mean[key].mean:.4f} / {most[key].mean:.3f}" for key in mean)
        told.append(
            f"- {name}, mean / max error at ε = {epsilon:g}: {shown}; the rule picks {here[0]['chosen']}."
        )
    return "\n".join([*told, "", *(judged(rows, column) for column in COLUMNS)])


def judged(rows: Rows, column: str) -> str:
    """Where another mechanism has a lower error than the one that the rule picks: clearly, or within the noise."""
    errors = samples_by(rows, ("case", "epsilon", "mechanism"), column)
    picks = {(row["case"], row["epsilon"]): row["chosen"] for row in rows}
    words = column.replace("_", " ")
    clear: list[str] = []
    near: list[str] = []
    for (name, epsilon), chosen in picks.items():
        mine = errors[name, epsilon, chosen]
        others = {key[2]: e for key, e in errors.items() if key[:2] == (name, epsilon) and e.mean < mine.mean}
        if others:
            best = min(others, key=lambda mechanism: others[mechanism].mean)
            told = f"{name}, ε = {epsilon:g} ({best} {others[best].mean:.2g}, {chosen} {mine.mean:.2g})"
            (clear if others[best].clearly_below(mine) else near).append(told)
    said = f"clearly better at {len(clear)} of {len(picks)} points"
    parts = [
        f"By {words}, another mechanism than the one picked is {said}{': ' if clear else ''}{'; '.join(clear)}."
    ]
    if near:
        parts.append(f"Lower, but within the noise, at {len(near)}: {'; '.join(near)}.")
    return " ".join(parts)


EXPERIMENT = Experiment(
    name="choosing",
    title="Choosing: every mechanism on the same tables, against ε",
    paper="The paper compares DualQuery with MWEM alone (Figure 5) and writes that the projection of Nikolov, Talwar "
    "and Zhang and of Dwork, Nikolov and Talwar, which has the better theory and gives answers rather than records, "
    "'deserves to be studied empirically' (section 8). Ours has its name, gives records, and none of its bounds.",
    points=points,
    draw=draw,
    find=find,
    by=("case", "mechanism", "epsilon"),
    shown=("mean_error", "max_error", "seconds", "chosen"),
)

if __name__ == "__main__":
    main(EXPERIMENT)
