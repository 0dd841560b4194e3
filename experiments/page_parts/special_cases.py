"""docs/learners.md, evidence.md (the rule) and service.md (questions one at a time).

What a page says of an order ("lower than") is worked out here from the runs, so that it changes with them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from experiments import choosing, mirror
from experiments.harness import Rows, distinct, where
from experiments.page_parts.files import plain, rows_of
from experiments.special_cases import EPSILON
from experiments.spread import Sample, samples_by

# How numbers are told


def many(samples: Iterable[Sample]) -> str:
    """How many runs stand behind each of some numbers: from the fewest to the most."""
    counts = sorted({int(sample.runs) for sample in samples if sample.runs})
    return " to ".join(f"{count}" for count in dict.fromkeys((*counts[:1], *counts[-1:])))


# Mirror descent


def mirror_maps() -> str:
    """Entropy beside Euclid on every table that can be held; all maps stand on the page of the experiment."""
    rows = [row for row in rows_of("mirror") if row["case"] != mirror.WIDE]
    mean = samples_by(rows, ("case", "method"), "mean_error")
    cases = [case for case in mirror.CASES if (case, "entropy") in mean]
    better, worse = (
        [case for case in cases if mean[case, one].clearly_below(mean[case, other])]
        for one, other in (("entropy", "euclidean"), ("euclidean", "entropy"))
    )
    left = len(cases) - len(better) - len(worse)
    return (
        f"By mean error (ε = {EPSILON:g}, δ = 10⁻⁶, add-remove, {mirror.ROUNDS} rounds, {many(mean.values())} runs) "
        f"entropy is clearly better than Euclid on {_listed(better)}, and clearly worse on {_listed(worse)}; on the "
        f"other {left} tables the runs do not tell them apart.\n"
    )


def _listed(names: list[str]) -> str:
    return " and ".join(f"*{name}*" for name in names) or "none"


# The rule that chooses


def evidence_of_the_rule() -> str:
    """What is behind each point of the rule, a line each."""
    rows = rows_of("choosing")
    gaussian, pure = ([row for row in rows if row["case"].endswith(", pure") is it] for it in (False, True))
    lines = [
        *_projection_beside(gaussian, "Gaussian noise can be paid for"),
        *_projection_beside(pure, "Pure ε"),
    ]
    return "".join(f"- {each}\n" for each in lines)


def _projection_beside(rows: Rows, title: str) -> Iterable[str]:
    """Projection's mean error as a share of each other mechanism's, over all points that both were measured at."""
    mean = samples_by(rows, ("case", "epsilon", "mechanism"), "mean_error")
    told = []
    for other, words in ((choosing.DUAL_QUERY, "DualQuery's"), (choosing.MWEM, "MWEM's")):
        pairs = [
            (sample, mean[case, epsilon, other])
            for (case, epsilon, mechanism), sample in mean.items()
            if mechanism == choosing.PROJECTION and (case, epsilon, other) in mean
        ]
        if pairs:
            shares = [mine.mean / its.mean for mine, its in pairs]
            lower = sum(mine.clearly_below(its) for mine, its in pairs)
            higher = sum(its.clearly_below(mine) for mine, its in pairs)
            told.append(
                f"{plain(min(shares))} to {plain(max(shares))} times {words} (clearly lower at {lower} of "
                f"{len(pairs)} points, clearly higher at {higher})"
            )
    if told:
        said = "; ".join(told)
        yield f"**{title}.** The mean error of projection is {said}. Runs of a point: {many(mean.values())}."


# Questions one at a time


def online_misfires() -> str:
    """What fires did to the longest natural streams, beside the release that these began with."""
    rows = where(rows_of("online"), stream="natural")
    rows = where(rows, questions=max(distinct(rows, "questions"), default=0))
    if not rows:
        return "Not measured.\n"
    ratios = Sample.of([row["online_mean"] / row["release_mean"] for row in rows])
    worst = max(rows, key=lambda row: row["online_mean"] / row["release_mean"])
    before, after = plain(worst["release_mean"]), plain(worst["online_mean"])
    tables = len(distinct(rows, "table"))
    return (
        f"Of {len(rows)} runs of {worst['questions']:,} natural questions on {tables} tables, the mean error is "
        f"{ratios:.2f} times that of the release alone. In the worst of them, on {worst['table']}, it is {after} "
        f"instead of {before}.\n"
    )


PARTS: dict[str, Callable[[], str]] = {
    "mirror maps": mirror_maps,
    "evidence of the rule": evidence_of_the_rule,
    "online misfires": online_misfires,
}
