"""What the pages of the mechanisms quote: MWEM, projection and DualQuery."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from experiments import dualquery_figure_4 as figure_4
from experiments import dualquery_figure_5 as figure_5
from experiments import dualquery_own as own
from experiments import dualquery_parameters as parameters
from experiments import dualquery_projection as study
from experiments import mwem_figure_4, mwem_rounds
from experiments.harness import Rows, distinct, listed, where
from experiments.page_parts.files import TABLES, error, plain, rows_of, table
from experiments.spread import samples_by

# MWEM


def mwem() -> str:
    """What MWEM reaches, from the experiments that draw the paper's figures."""
    lines = [*_ranges(), *_contingency(), *_surveys(), *_cuboids(), *_bits(), *_scaling()]
    return "".join(f"- {words}: {found}.\n" for words, found in lines)


def _ranges() -> Iterable[tuple[str, str]]:
    """Ratios to the bound: the larger, the better."""
    rows = rows_of("mwem_figure_2")
    for name, epsilons in (
        ("capital-loss", (0.0125, 0.025, 0.05)),
        ("recency × frequency", (0.1,)),
        ("age × hours", (0.0125, 0.025, 0.05)),
    ):
        mine = where(rows, data=name, accounting="pure")
        squared = samples_by(mine, ("epsilon",), "squared_error")
        bound = samples_by(mine, ("epsilon",), "svd_bound")
        found = [plain(bound[epsilon,].mean / squared[epsilon,].mean) for epsilon in epsilons]
        words = f"SVD bound over squared error, {name} ranges, ε = {listed(epsilons)} ({_runs(mine)})"
        yield words, ", ".join(found)


def _contingency() -> Iterable[tuple[str, str]]:
    rows = rows_of("mwem_figure_3")
    epsilons = (0.1, 0.3, 0.5, 0.7)
    told, runs = [], 0
    for name in distinct(rows, "data"):
        mine = where(rows, data=name)
        entropy = {(row["method"], row["epsilon"]): row["relative_entropy"] for row in mine}
        found = [plain(entropy["Hadamard", each] / entropy["MWEM", each]) for each in epsilons]
        told.append(f"{name} {', '.join(found)}")
        runs = max(runs, *(row["runs"] for row in mine))
    words = f"relative entropy, Hadamard over ours, ε = {listed(epsilons)} ({runs} runs)"
    yield words, "; ".join(told)


def _surveys() -> Iterable[tuple[str, str]]:
    rows = where(rows_of("mwem_figure_4"), degree=3)
    entropy = samples_by(rows, ("method", "epsilon"), "relative_entropy")
    epsilons = (0.1, 0.2, 0.5, 1.0)
    found = [
        plain(entropy[mwem_figure_4.HADAMARD, each].mean / entropy[mwem_figure_4.RULE, each].mean)
        for each in epsilons
    ]
    yield f"the same on NLTCS, ε = {listed(epsilons)} ({_runs(rows)})", ", ".join(found)


def _cuboids() -> Iterable[tuple[str, str]]:
    rows = rows_of("mwem_figure_5")
    ours, laplace, ding = (
        samples_by(rows, ("epsilon",), f"{column}_average") for column in ("mwem", "laplace", "ding")
    )
    found = [
        ", ".join(plain(theirs[epsilon,].mean / ours[epsilon,].mean) for epsilon in (0.1, 1.0))
        for theirs in (laplace, ding)
    ]
    words = f"clipped Laplace; Ding et al. over ours, cuboids of Adult, ε = 0.1, 1 ({_runs(rows)})"
    yield words, "; ".join(found)


def _bits() -> Iterable[tuple[str, str]]:
    mean = samples_by(rows_of("dualquery_figure_5"), ("line", "epsilon"), "mean_error")
    ratios = [
        mean[figure_5.OURS, epsilon].mean / mean[figure_5.MWEM_OURS, epsilon].mean for epsilon in range(1, 6)
    ]
    runs = int(mean[figure_5.MWEM_OURS, 1].runs)
    words = f"mean error of DualQuery over MWEM's, 17 bits of Adult, 10,000 queries, ε = 1 to 5 ({runs} runs)"
    yield words, f"{plain(min(ratios))} to {plain(max(ratios))}"
    letter = mean[figure_5.LETTER, 1]
    words = "mean error there at ε = 1, Figure 1 to the letter; the defaults"
    yield words, f"{error(letter)}; {error(mean[figure_5.MWEM_OURS, 1])}"


def _scaling() -> Iterable[tuple[str, str]]:
    seconds = samples_by(rows_of("mwem_scaling"), ("attributes",), "processor_seconds")
    told = [
        f"{attributes:,} attributes {sample.mean:.1f} s" for (attributes,), sample in sorted(seconds.items())
    ]
    yield "processor time", ", ".join(told)


def _runs(rows: Rows) -> str:
    """How many runs a point has at most."""
    return f"{len(distinct(rows, 'run'))} runs"


# Projection


def projection() -> str:
    """What the peers' page says of us; largest cells and times stand there."""
    rows = [
        row
        for row in where(rows_of("peers"), peer="dualquery", outcome="done")
        if " rows" not in str(row["data"])
    ]
    budgets = sorted(distinct(rows, "epsilon"))
    l1, worst = (samples_by(rows, ("data", "tables", "epsilon"), column) for column in ("l1", "worst_table"))
    keys = sorted({key[:2] for key in l1}, key=lambda key: (list(TABLES).index(key[0]), key[1]))
    lines = [
        [
            f"{TABLES[data]}, {tables}",
            *(
                f"{error(l1[data, tables, each])}; {plain(worst[data, tables, each].mean)}"
                if (data, tables, each) in l1
                else ""
                for each in budgets
            ),
        ]
        for data, tables in keys
    ]
    return table(("L1; of the worst table", *(f"ε = {each:g}" for each in budgets)), lines)


def pure() -> str:
    """Projection beside MWEM where noise is that of Laplace: mean errors."""
    rows = [row for row in rows_of("choosing") if str(row["case"]).endswith(", pure")]
    mean = samples_by(rows, ("case", "mechanism", "epsilon"), "mean_error")
    budgets = sorted(distinct(rows, "epsilon"))
    lines = [
        [
            str(case).removesuffix(", pure"),
            *(
                " / ".join(plain(mean[case, name, each].mean) for name in ("mwem", "projection"))
                for each in budgets
            ),
        ]
        for case in distinct(rows, "case")
    ]
    return table(("mean error of MWEM / of projection", *(f"ε = {each:g}" for each in budgets)), lines)


# DualQuery


def flat() -> str:
    """How much worse than the best of the grid its neighbours are, and the paper's own choice."""
    rows = where(rows_of("dualquery_parameters"), accounting=parameters.RHO, chosen=parameters.GRID)
    told = []
    for name in distinct(rows, "data"):
        mine = where(rows, data=name, free=parameters.ADVICE[name].free)
        found = samples_by(mine, ("learning_rate", "samples"), "mean_error")
        best = min(found, key=lambda key: found[key].mean)
        beside = [found[key].mean / found[best].mean for key in _beside(best, found)]
        told.append(
            f"{name} the best is η = {best[0]:g}, s = {best[1]:,}, and half or twice of either has "
            f"{plain(min(beside))} to {plain(max(beside))} times its mean error"
        )
    return "On " + "; on ".join(told) + ".\n"


def _beside(best: tuple[float, ...], grid: Iterable[tuple[float, ...]]) -> list[tuple[float, ...]]:
    """The cells one step away along one of the axes."""
    rates, samples = (sorted({key[axis] for key in grid}) for axis in range(2))
    i, j = rates.index(best[0]), samples.index(best[1])
    steps = ((i - 1, j), (i + 1, j), (i, j - 1), (i, j + 1))
    return [(rates[a], samples[b]) for a, b in steps if 0 <= a < len(rates) and 0 <= b < len(samples)]


def widths() -> str:
    """DualQuery as in its paper, whose free values are random, beside ours, whose values follow a density."""
    rows = rows_of("dualquery_figure_4")
    mean = samples_by(rows, ("attributes", "method"), "mean_error")
    every = distinct(rows, "attributes")
    ratios = [mean[width, figure_4.PAPERS].mean / mean[width, figure_4.PLANNED].mean for width in every]
    return (
        f"From {min(every):,} to {max(every):,} attributes of biased data the mean error is {plain(min(ratios))} to "
        f"{plain(max(ratios))} times lower than as in the paper, by all differences together.\n"
    )


def price() -> str:
    """What the paper's parameters on KDD99 cost."""
    row = rows_of("dualquery_figure_3")[0]
    return (
        f"The paper's run on KDD99 costs ε = {row['epsilon_theorem_4_3']:.2f} by Theorem 4.3 as printed and "
        f"{row['epsilon_rho']:.2f} by ρ, for a record added or removed.\n"
    )


def least_squares() -> str:
    """The projection mechanism of the theory beside DualQuery and our default, by mean error."""
    rows = rows_of("dualquery_projection")
    mean = samples_by(rows, ("data", "method"), "mean_error")
    square = samples_by(rows, ("data", "method"), "root_mean_square")
    promised = samples_by(rows, ("data", "method"), "promised_with_gap")
    names = list(distinct(rows, "data"))
    lines = [
        [study.TITLES[name], *(plain(mean[name, method].mean) for method in study.WAYS)] for name in names
    ]
    shares = [square[name, study.SQUARES].mean / promised[name, study.SQUARES].mean for name in names]
    words = (
        f"{rows[0]['queries']:,} random 3-way queries, ε = 1, δ = 10⁻³, add-remove, at most {_runs(rows)}. The root "
        f"of its mean square is {plain(min(shares))} to {plain(max(shares))} of what was promised."
    )
    return f"{table(('mean error', *study.WAYS), lines)}\n{words}\n"


def own_rule() -> str:
    """DualQuery by its own rule against ε, on the tables of the rule and on others: mean errors."""
    rows = rows_of("dualquery_own")
    mean = samples_by(rows, ("data", "epsilon"), "mean_error")
    epsilons = [each for each in sorted(distinct(rows, "epsilon")) if each in SHOWN]
    lines = [
        [
            own.TITLES[name] + ("" if name in own.CHOSEN_ON else ", unseen"),
            *(error(mean[name, each]) if (name, each) in mean else "" for each in epsilons),
        ]
        for name in distinct(rows, "data")
    ]
    runs = [each.runs for each in mean.values()]
    words = f"Random 3-way queries, δ = 10⁻³, add-remove, {min(runs):g} to {max(runs):g} runs."
    header = ("mean error", *(f"ε = {each:g}" for each in epsilons))
    return f"{table(header, lines)}\n{words}\n"


SHOWN = (0.05, 1, 5)  # of the budgets; the others stand on the page of the experiment


def rounds_of_mwem() -> str:
    """How far MWEM's rule for T is from the best of each sweep."""
    return "\n".join(mwem_rounds.judged(rows_of("mwem_rounds"))) + "\n"


PARTS: dict[str, Callable[[], str]] = {
    "mwem": mwem,
    "own rule": own_rule,
    "rounds of mwem": rounds_of_mwem,
    "projection": projection,
    "least squares": least_squares,
    "pure": pure,
    "a flat optimum": flat,
    "free values in wide tables": widths,
    "the price of a run": price,
}
