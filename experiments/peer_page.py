"""The picture and the words of the peers' page, made from the rows alone."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import fmean, median, stdev
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from experiments.harness import Row, Rows, distinct, where
from experiments.peer_methods import EXACT, OURS, OWN, PEERS
from experiments.processes import DONE, STOPPED

COLUMNS = (("l1", "mean"), ("worst_table", "worst table"), ("max_cell", "worst cell"))
# Okabe and Ito's colours, which the colour-blind can tell apart; a marker of its own for each method besides.
COLOURS = ("#000000", "#E69F00", "#56B4E9", "#009E73", "#0072B2", "#D55E00", "#CC79A7", "#8C8C8C")
MARKERS = "o" + "sD^v<>PpXh*8d"
ACROSS = 3  # panels in a row
CEILING = 0.92  # of a panel: where those stand that gave no answer
TREATMENT = (
    "All know the domain; AIM and MWEM are told the order of the tables, MST and PrivBayes never see it, and a "
    "release of theirs is judged on pairs and on triples. The number of rows is measured by us and by "
    "opendp and dpsynth, given to dpmm and smartnoise-synth. Ours, independent noise, SWIFT and AIM-GDP "
    "turn ε and δ into noise by exact Gaussian accounting (dpsynth's own finds the same for these two). "
    'The others use zero-concentrated privacy; "at exact ρ" they are given as much ρ as Gaussian noise '
    "alone may spend, which no theorem grants to a mechanism that also selects, so that accounting is not"
    " what decides. SWIFT, AIM-GDP and MST of dpsynth keep all defaults, in its wrapper for discrete "
    'tables; "SWIFT 1e5" has cliques of at most 100,000 cells instead of ten million. Where a time says "on a '
    'card" they had a graphics card, most of them several at once, so that one alone is faster than that. MWEM '
    'spends no δ, and takes the range of each attribute from the rows; "in splits" it sees three attributes at '
    'a time. "AIM 48 x 100" is dpmm\'s AIM with 48 rounds, of which each attribute takes one, and 100 iterations '
    "after each; opendp's has its 48 rounds after the single attributes; both hold a model of at "
    'most 8 MB, and opendp\'s fits the joint distribution itself where that is no larger. "AIM 48" has 48 '
    'rounds and every other default; with 100 iterations on trees opendp\'s ends early. "AIM" alone keeps all '
    'defaults. "MST sampled" draws its rows at random; '
    "by default opendp rounds them, also those of AIM, which couples attributes that have only a neighbour in the "
    "tree in common (mbi 1.1.0). Independent noise is Gaussian, on every cell, for a row that is in one cell of each "
    "table; each is then replaced by the nearest distribution. Our kernels are compiled before the clock starts, as "
    "on any second run; what peers compile in a process is part of their time. Small tables are rows of Adult in an "
    "order drawn once."
)


def name_of(row: Row) -> str:
    """Peer and method together; those of our own environment have but one."""
    own = {peer.name for peer in PEERS if not peer.requirements}
    if row["peer"] in own:
        return str(row["peer"])
    both = {
        (peer.name, method.name) for peer in PEERS for method in peer.methods if OWN in method.accountings
    }
    exact = row["accounting"] == EXACT and (row["peer"], row["method"]) in both
    return f"{row['peer']} {row['method']}{' at exact ρ' if exact else ''}"


def named(rows: Rows) -> Rows:
    return [{**row, "name": name_of(row)} for row in rows]


def workloads(rows: Rows) -> list[tuple[Any, Any, Any]]:
    """Data, tables and ε, in the order of the rows."""
    return list(dict.fromkeys((row["data"], row["tables"], row["epsilon"]) for row in rows))


# The picture


def draw(rows: Rows) -> Figure:
    """Error against time, of the processor or of a card: a panel for each workload and ε, a mark for each method."""
    rows = named(rows)
    panels = [each for each in workloads(rows) if where(_at(rows, each), outcome=DONE)]
    shown = [name for name in distinct(rows, "name") if _is_drawn(where(rows, name=name))]
    looks = {name: (MARKERS[i % len(MARKERS)], COLOURS[i % len(COLOURS)]) for i, name in enumerate(shown)}
    down = max(1, -(-len(panels) // ACROSS))
    picture = Figure(figsize=(9.5, 1.2 + 2.5 * down), layout="constrained")
    grid = list(picture.subplots(down, max(1, min(ACROSS, len(panels))), squeeze=False, sharex=True).flat)
    for axes, workload in zip(grid, panels, strict=False):
        _panel(axes, _at(rows, workload), looks)
        data, tables, epsilon = workload
        axes.set_title(f"{data}, {tables}, ε = {epsilon:g}", fontsize=9)
    for axes in grid[len(panels) :]:
        axes.set_visible(False)
    for axes in grid[:: max(1, min(ACROSS, len(panels)))]:
        axes.set_ylabel("L1 error of a table, mean")
    for axes in grid[-min(ACROSS, len(grid)) :]:
        axes.set_xlabel("seconds of a release (processor or card)")
    handles = [
        Line2D([], [], linestyle="none", marker=marker, color=colour, label=name)
        for name, (marker, colour) in looks.items()
    ]
    stopped = Line2D([], [], linestyle="none", marker="x", color="#000000", label="stopped without an answer")
    if any(str(row["outcome"]).startswith(STOPPED) for row in rows):
        handles.append(stopped)
    if handles:
        picture.legend(handles=handles, loc="outside lower center", ncols=4, frameon=False, fontsize=8)
    return picture


def _is_drawn(rows: Rows) -> bool:
    return any(row["outcome"] == DONE or str(row["outcome"]).startswith(STOPPED) for row in rows)


def _panel(axes: Axes, here: Rows, looks: dict[str, tuple[str, str]]) -> None:
    """Means with bars from the least to the most of the runs; a cross under the edge for who was stopped."""
    axes.set(xscale="log", yscale="log")
    for name, (marker, colour) in looks.items():
        mine = where(here, name=name)
        done = where(mine, outcome=DONE)
        if done:
            errors = [row["l1"] for row in done]
            mean = fmean(errors)
            bar = [[mean - min(errors)], [max(errors) - mean]] if len(errors) > 1 else None
            seconds = fmean(times_of(done) or [float("nan")])
            axes.errorbar(seconds, mean, bar, fmt=marker, color=colour, capsize=3, markersize=6, zorder=3)
        elif any(str(row["outcome"]).startswith(STOPPED) for row in mine):
            seconds = max(times_of(mine), default=float("nan"))
            across = axes.get_xaxis_transform()
            axes.plot(
                seconds, CEILING, marker, color=colour, markersize=6, transform=across, fillstyle="none"
            )
            axes.plot(seconds, CEILING, "x", color=colour, markersize=9, transform=across)
    axes.margins(x=0.15, y=0.2)


def times_of(rows: Rows) -> list[float]:
    """Seconds of a card or of the processor, where a release had the machine to itself."""
    found = (row.get("card_seconds") or row["processor_seconds"] for row in rows)
    return [seconds for seconds in found if _number(seconds)]


# The words


def find(rows: Rows) -> str:
    """The terms, who errs less than we do, and who gave nothing; every number from the rows."""
    lines = [*(compared(rows, *workload) for workload in workloads(rows)), *without_answer(rows)]
    return "\n".join([terms_of(rows), "", *(f"- {line}" for line in lines)])


def terms_of(rows: Rows) -> str:
    started = [row for row in rows if _number(row.get("processor_seconds"))]
    share = median(
        row["processor_seconds"] / (row["process_seconds"] * row["cores"]) for row in started or [_IDLE]
    )
    cores = " or ".join(map(str, distinct(rows, "cores")))
    deltas = " or ".join(f"{delta:g}" for delta in distinct(rows, "delta"))
    return (
        f"Each release is a process of its own (cores: {cores}), which in the median was let run {share:.0%} of the "
        f"time, the rest going to other work; so times are processor seconds, of the whole process. Neighbours are "
        f"add-remove, δ = {deltas}. Errors are L1 distances between tables of fractions, in the mean over all tables "
        f"of the workload. After ± stands the standard deviation of the runs, where there are several. {TREATMENT}"
    )


_IDLE: Row = {"processor_seconds": 0.0, "process_seconds": 1.0, "cores": 1}


def compared(rows: Rows, data: str, tables: str, epsilon: float) -> str:
    """Ours, those that err less in one way or another, or the best of the others."""
    asked = _at(named(rows), (data, tables, epsilon))
    here = where(asked, outcome=DONE)
    silent = len(set(distinct(asked, "name")) - set(distinct(here, "name")))
    start = f"{data}, {tables}, ε = {epsilon:g}: "
    names = sorted(distinct(here, "name"), key=lambda name: _mean(here, name, "l1"))
    others = [name for name in names if name != OURS.name]
    if OURS.name not in names:
        return start + ("; ".join(told(here, name) for name in others) or "nobody gave an answer") + "."
    said = f"{start}{told(here, OURS.name)}"
    better = [name for name in others if _mean(here, name, "l1") < _mean(here, OURS.name, "l1")]
    if better:
        said += f"; **lower errors:** {'; '.join(told(here, name) for name in better)}."
    elif others:
        without = f" ({silent} gave no answer)" if silent else ""
        said += f"; of {len(others)} that answered beside us{without} the best is {told(here, others[0])}."
    else:
        said += "; nobody else gave an answer."
    return said + lower_at_worst(here, others) + beside_the_optimum(here)


def told(here: Rows, name: str) -> str:
    """A method's error with its spread, its time and its number of runs."""
    errors = [row["l1"] for row in where(here, name=name)]
    spread = f" ± {stdev(errors):.2g}" if len(errors) > 1 else ""
    runs = "1 run" if len(errors) == 1 else f"{len(errors)} runs"
    return f"{name} {fmean(errors):.3g}{spread} in {time_of(here, name)} ({runs})"


def time_of(here: Rows, name: str) -> str:
    """Processor seconds of a release, or those of the clock beside a graphics card."""
    cards = [row["card"] for row in where(here, name=name) if row.get("card")]
    if cards:
        return f"{_mean(here, name, 'card_seconds'):,.1f} s on a card ({cards[0]})"
    return f"{_mean(here, name, 'processor_seconds'):,.1f} s"


def lower_at_worst(here: Rows, others: Iterable[str]) -> str:
    """Who errs less than we do in the worst table or the worst cell, whatever the mean says."""
    said = ""
    for column, what in COLUMNS[1:]:
        ours = _mean(here, OURS.name, column)
        means = [(name, _mean(here, name, column)) for name in others]
        lower = [f"{name} {error:.3g}" for name, error in means if error < ours]
        if lower:
            said += f" **Lower in the {what}** (ours {ours:.3g}): {', '.join(lower)}."
    return said


def beside_the_optimum(here: Rows) -> str:
    """The rms of a cell beside the least of unbiased linear answers (`residual_planner`), where it was measured."""
    ours, least = (_mean(here, OURS.name, column) for column in ("rms", "optimal_rms"))
    if not ours > 0:
        return ""
    return f" Rms of a cell {ours:.2g}; the optimal unbiased matrix mechanism (ResidualPlanner) {least:.2g}."


def without_answer(rows: Rows) -> list[str]:
    """For each outcome other than an answer, who had it where, and in no run anything else."""
    found: dict[tuple[str, str], dict[str, dict[str, None]]] = {}
    by = ("name", "data", "tables", "epsilon")
    answered = {tuple(row[name] for name in by) for row in named(rows) if row["outcome"] == DONE}
    for row in named(rows):
        if tuple(row[name] for name in by) not in answered:
            places = found.setdefault((row["name"], row["outcome"]), {})
            places.setdefault(f"{row['data']}, {row['tables']}", {})[f"{row['epsilon']:g}"] = None
    return [
        f"{name} {outcome} ({'; '.join(f'{place}, ε = {_listed(epsilons)}' for place, epsilons in places.items())})."
        for (name, outcome), places in found.items()
    ]


def _listed(epsilons: Iterable[str]) -> str:
    return ", ".join(sorted(epsilons, key=float))


def _at(rows: Rows, workload: tuple[Any, Any, Any]) -> Rows:
    data, tables, epsilon = workload
    return where(rows, data=data, tables=tables, epsilon=epsilon)


def _mean(here: Rows, name: str, column: str) -> float:
    values = [row[column] for row in where(here, name=name) if _number(row.get(column))]
    return fmean(values) if values else float("nan")


def _number(value: object) -> bool:
    return isinstance(value, int | float)
