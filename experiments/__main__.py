"""All experiments, one after the other, and the page that lists them.

python -m experiments                                    # quick sizes, minutes
python -m experiments --full --out docs/experiments      # the papers' sizes, hours; goes on where it stopped
python -m experiments --only mwem_figure_3 accounting    # some of them
"""

from __future__ import annotations

import csv
import os
import time
import traceback
from importlib import import_module
from pathlib import Path

from experiments.harness import Experiment, gather, leave, parser, run, setting_of

NAMES = (
    "dualquery_figure_1",
    "dualquery_figure_2",
    "dualquery_figure_3",
    "dualquery_figure_4",
    "dualquery_figure_5",
    "dualquery_own",
    "dualquery_projection",
    "dualquery_theory",
    "dualquery_parameters",
    "parities",
    "accounting",
    "mwem_figure_2",
    "mwem_figure_3",
    "mwem_figure_4",
    "mwem_figure_5",
    "mwem_rounds",
    "mwem_scaling",
    "choosing",
    "coverage",
    "without_floor",
    "priors",
    "series",
    "linked",
    "learning",
    "online",
    "mirror",
    "disjunctions",
    "sparse",
    "distances",
    "cuts",
    "peers",
    "foreign",
)


def experiment_of(name: str) -> Experiment:
    found: Experiment = import_module(f"experiments.{name}").EXPERIMENT
    return found


def processor_seconds() -> float:
    """Of this process and of those that it made and that ended."""
    return sum(os.times()[:4])


def keep_times(out: Path, name: str, seconds: float, processor: float) -> None:
    """How long an experiment took, one line each; the last time counts."""
    path = out / "times.csv"
    rows: dict[str, dict[str, str]] = {}
    if path.exists():
        with path.open(newline="") as file:
            rows = {row["name"]: row for row in csv.DictReader(file)}
    rows[name] = {"name": name, "seconds": f"{seconds:.0f}", "processor_seconds": f"{processor:.0f}"}
    out.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[name]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows.values())


def main() -> None:
    made = parser(__doc__ or "")
    made.add_argument(
        "--only", nargs="+", choices=NAMES, default=NAMES, metavar="NAME", help=", ".join(NAMES)
    )
    arguments = made.parse_args()
    setting, out = setting_of(arguments)
    problems: dict[str, None] = {}  # each sentence once, in order
    for name in arguments.only:
        started = time.perf_counter(), processor_seconds()
        try:
            problems.update(dict.fromkeys(run(experiment_of(name), setting, out, only_draw=arguments.draw)))
            if not arguments.draw:
                keep_times(out, name, time.perf_counter() - started[0], processor_seconds() - started[1])
        except Exception as problem:  # the other figures do not depend on this one
            traceback.print_exc()
            problems[f"{name} broke off: {type(problem).__name__}: {problem}"] = None
    print(gather([experiment_of(name) for name in NAMES], setting, out, list(problems)))
    leave(list(problems))


if __name__ == "__main__":
    main()
