"""Intervals and bars of numbers: how often they hold the raw truth, and how wide they are.

    python -m benchmarks.inference [estimate | sql | unmeasured] [NAME]... [--runs N] [--epsilon E]

`estimate`: tables of n records drawn with replacement from Adult (7 columns) or from births (7 columns), so that the
whole file is the population; ε = .3, 1, 3, δ = 10⁻⁶, marginals:2. Coefficients of a linear and of a logistic
regression, means of groups and their differences, correlations, quantiles, by `Release.estimate` and
`Release.regress`: how many intervals hold the number of the table and that of the population, and the median half-
width in units of 1.96 sampling errors of n records. `sql`: mean, median, quantiles, sd and correlations of six tables
and of three invented ones with the schema of a draft, ε = 1, by `Release.sql`: how many bars hold the number of the
raw table, how many are null, how many say ± 0 and are right (a quantile among few values), and of each statistic the
rms error in printed standard errors. `unmeasured`: twelve columns, 5,000 rows, only pairs with one of them measured:
bars of means by groups, of correlations and of cells of other pairs.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd

import dualquery
from benchmarks.harness import Figure, data_folder, show
from dualquery.errors import QueryError
from dualquery.example import SCHEMA, survey
from dualquery.mechanisms.error_bars import BAR
from dualquery.privacy.budget import Budget
from dualquery.releases.release import Release
from dualquery.table.schema import parse_schema

RUNS = 4
EPSILONS = (0.3, 1.0, 3.0)
FOREIGN = ("chile", "diamonds", "fair", "flchain", "slid", "vocab")
INVENTED = ("lognormal", "heaped", "mixed")
Numbers = dict[str, float]
Ask = tuple[
    str, Callable[[Release], Any], Callable[[pd.DataFrame], Numbers]
]  # what, of a release, of raw rows


def adult() -> tuple[pd.DataFrame, dict[str, Any]]:
    names = ["age", "education-num", "hours-per-week", "sex", "marital-status", "race", "income"]
    whole = pd.read_csv(data_folder() / "adult.csv.gz", skipinitialspace=True)
    whole = whole[~(whole == "?").any(axis=1)].reset_index(drop=True)[names]
    numbers = [
        {"name": "age", "low": 15, "high": 95, "bins": 16, "integer": True, "clamp": True},
        {"name": "education-num", "edges": list(range(1, 18)), "integer": True, "clamp": True},
        {"name": "hours-per-week", "low": 0, "high": 100, "bins": 20, "integer": True, "clamp": True},
    ]
    return whole, {"attribute": [*numbers, *_values(whole, names[3:])]}


def births() -> tuple[pd.DataFrame, dict[str, Any]]:
    names = ["mager", "dbwt", "combgest", "sex", "pay", "me_rout", "wic"]
    whole = (
        pd.read_csv(data_folder() / "births2014.csv.gz", low_memory=False)[names]
        .dropna()
        .reset_index(drop=True)
    )
    whole = whole.astype({"mager": int, "dbwt": int, "combgest": int})
    numbers = [
        {"name": "mager", "edges": [10, *range(16, 46, 2), 60], "integer": True, "clamp": True},
        {"name": "dbwt", "low": 200, "high": 6200, "bins": 24, "integer": True, "clamp": True},
        {"name": "combgest", "edges": [16, 24, 28, 32, *range(34, 44), 48], "integer": True, "clamp": True},
    ]
    return whole, {"attribute": [*numbers, *_values(whole, names[3:])]}


def _values(frame: pd.DataFrame, names: list[str]) -> list[dict[str, Any]]:
    return [{"name": name, "values": sorted(frame[name].unique().tolist())} for name in names]


def asks_of(data: str) -> list[Ask]:
    """What is asked of a release and of raw rows."""
    if data == "births":
        y, a, b, sign, group, event = "dbwt", "mager", "combgest", "wic", "sex", ("wic", "y")
        quantiles = [("dbwt", 0.5), ("dbwt", 0.1), ("mager", 0.25), ("mager", 0.75)]
    else:
        y, a, b, sign, group = "hours-per-week", "age", "education-num", "income", "sex"
        event = ("income", ">50K")
        quantiles = [
            ("hours-per-week", 0.25),
            ("hours-per-week", 0.9),
            ("age", 0.25),
            ("age", 0.5),
            ("age", 0.75),
        ]
    asks: list[Ask] = [
        _regression(f"{y} ~ {a} + {b} + {group}", "linear", y, None, (a, b), group),
        _regression(f"{sign} ~ {a} + {b} + {group}", "logistic", event[0], event[1], (a, b), group),
    ]
    for number in (y, a, b):
        for by in (group, sign):
            asks.append(_estimate(lambda d, n=number, g=by: _groups(d, n, g)))
    for one, other in ((a, y), (b, y), (a, b)):
        asks.append(_estimate(lambda d, i=one, j=other: {f"corr {i} {j}": float(d[i].corr(d[j]))}))
    for name, q in quantiles:
        asks.append(_estimate(lambda d, n=name, p=q: {f"q{p} {n}": float(d[n].quantile(p))}))
    return asks


def _groups(frame: pd.DataFrame, number: str, by: str) -> Numbers:
    means = frame.groupby(by, observed=False)[number].mean()
    first, second = (float(each) for each in means.iloc[:2])
    return {f"{number} {by} first": first, f"{number} {by} apart": second - first}


def _estimate(function: Callable[..., Numbers]) -> Ask:
    return "estimate", lambda release: release.estimate(function), function


def _regression(
    formula: str, family: str, y: str, event: str | None, numbers: tuple[str, ...], group: str
) -> Ask:
    def truth(frame: pd.DataFrame) -> Numbers:
        last = sorted(frame[group].unique())[-1]
        x = np.column_stack([np.ones(len(frame)), *(frame[n] for n in numbers), frame[group] == last]).astype(
            float
        )
        response = frame[y].to_numpy(float) if event is None else (frame[y] == event).to_numpy(float)
        names = ["(intercept)", *numbers, f"{group}[{last}]"]
        return {
            f"{family} {n}": v
            for n, v in zip(names, coefficients(x, response, event is not None), strict=True)
        }

    def of(release: Release) -> Any:
        found = release.regress(formula, family)
        return found.assign(name=[f"{family} {name}" for name in found["name"]])

    return "regress", of, truth


def coefficients(x: Any, y: Any, logistic: bool) -> list[float]:
    """By least squares, or Newton's method, straight from the definitions."""
    if not logistic:
        return [float(each) for each in np.linalg.lstsq(x, y, rcond=None)[0]]
    scale = np.append(1.0, x[:, 1:].std(axis=0))
    z, beta = x / scale, np.zeros(x.shape[1])
    for _ in range(25):
        p = 1 / (1 + np.exp(-z @ beta))
        beta = beta + np.linalg.solve((z * (p * (1 - p))[:, None]).T @ z, z.T @ (y - p))
    return [float(each) for each in beta / scale]


def estimates(data: str, rows: int, epsilon: float, runs: int) -> list[Figure]:
    whole, schema = births() if data == "births" else adult()
    asks, figures = asks_of(data), []
    population = {name: value for _, _, truth in asks for name, value in truth(whole).items()}
    held: dict[str, list[float]] = {"table": [], "population": []}
    widths: dict[str, list[float]] = {"table": [], "population": []}
    missed: dict[str, int] = {}
    silent, seconds, slopes = 0, [], []
    for run in range(runs):
        drawn = whole.iloc[np.random.default_rng(run).integers(0, len(whole), rows)].reset_index(drop=True)
        release = dualquery.release(
            drawn, schema=schema, workload="marginals:2", budget=Budget(epsilon, 1e-6), seed=100 + run
        )
        slopes.append(slope_of_rows(drawn, release.to_pandas()))
        started = time.process_time()
        for _, of, truth in asks:
            known = truth(drawn)
            for row in _told(of, release, list(known)):
                if row["estimate"] is None or row["estimate"] != row["estimate"]:
                    silent += 1
                    continue
                error = 1.96 * max(row["population_se"] ** 2 - row["se"] ** 2, 1e-300) ** 0.5
                for which, true in (("table", known), ("population", population)):
                    begin = "" if which == "table" else "population_"
                    low, high = row[f"{begin}low"], row[f"{begin}high"]
                    held[which].append(float(low <= true[row["name"]] <= high))
                    missed[row["name"]] = missed.get(row["name"], 0) + (not low <= true[row["name"]] <= high)
                    if error > 1e-100:
                        widths[which].append((high - low) / 2 / error)
        seconds.append(time.process_time() - started)
    said = f"{data} {rows:,}, ε = {epsilon:g}"
    for which in held:
        figures.append(Figure(f"{said}: {which}, held", _mean(held[which]), 0.92, at_least=True, runs=runs))
        figures.append(Figure(f"{said}: {which}, width", float(np.median(widths[which])), runs=runs))
    figures.append(Figure(f"{said}: nothing said", silent / (silent + len(held["table"])), runs=runs))
    figures.append(Figure.mean(f"{said}: correlations of rows, slope", slopes))
    figures.append(Figure(f"{said}: all functions, processor seconds", _mean(seconds), runs=runs))
    print(said, "missed most:", sorted(missed.items(), key=lambda pair: -pair[1])[:6], flush=True)
    return figures


def slope_of_rows(table: pd.DataFrame, rows: pd.DataFrame) -> float:
    """Of the correlations of numbers: 1 where those of the released rows are as strong as those of the table."""
    names = list(table.select_dtypes("number"))
    upper = np.triu_indices(len(names), 1)
    known, seen = (each[names].astype(float).corr().to_numpy()[upper] for each in (table, rows))
    return float((known * seen).sum() / (known**2).sum())


def _told(of: Callable[[Release], Any], release: Release, names: list[str]) -> list[dict[str, Any]]:
    """The rows of an estimate; where the whole is refused, rows that say nothing."""
    try:
        rows: list[dict[str, Any]] = of(release).to_dict("records")
    except QueryError:
        rows = [{"name": name, "estimate": None} for name in names]
    return rows


def _mean(values: list[float]) -> float:
    return float(np.mean(values)) if values else float("nan")


def bars(name: str, runs: int) -> list[Figure]:
    """SQL on a table whose schema is a draft's."""
    frame = invented(name) if name in INVENTED else pd.read_csv(data_folder() / "foreign" / f"{name}.csv.gz")
    schema = parse_schema(str(dualquery.schema_draft(frame)).replace("draft = true", ""), origin=name)
    names = {column.name for column in schema.domain.columns}
    numbers = [name for name in frame if name in names and pd.api.types.is_numeric_dtype(frame[name])]
    held, null, exact = [], 0, 0
    off: dict[str, list[float]] = {}
    for run in range(runs):
        release = dualquery.release(
            frame, schema=schema, workload="marginals:2", budget=Budget(1, 1e-6), seed=run
        )
        for label, text, true in _questions(frame, numbers):
            try:
                row = release.sql(f"select {text} as v from data").iloc[0]
            except QueryError:  # numbers that the draft takes for names
                continue
            if row["v_bar"] is None or row["v_bar"] != row["v_bar"]:
                null += 1
                continue
            error = abs(row["v"] - true)
            held.append(float(error <= row["v_bar"]))
            exact += row["v_bar"] == 0 == error
            if row["v_bar"] > 0:
                off.setdefault(label.split()[0].rstrip(".0123456789"), []).append(BAR * error / row["v_bar"])
            if not held[-1]:
                print(f"{name}: {label} is {true:.4g}, said {row['v']:.4g} ± {row['v_bar']:.3g}", flush=True)
    said = {"mean": "means", "sd": "deviations", "q": "quantiles", "corr": "correlations"}
    return [
        Figure(f"{name}: bars that hold", _mean(held), 0.90, at_least=True, runs=runs),
        Figure(f"{name}: null", null / (null + len(held)), 0.15, runs=runs),
        Figure(f"{name}: ± 0, and right", exact / len(held), runs=runs),
        *(
            Figure(
                f"{name}: rms error in standard errors, {said[kind]}",
                float(np.sqrt(np.mean(np.square(x)))),
                runs=runs,
            )
            for kind, x in off.items()
        ),
    ]


def invented(name: str, rows: int = 10_000) -> pd.DataFrame:
    """Long tails; heaps at round numbers; modes, level stretches and wide tails."""
    rng = np.random.default_rng([77, INVENTED.index(name)])
    if name == "lognormal":
        z = rng.normal(size=(rows, 3)) @ np.array([[1, 0.5, 0.2], [0, 0.85, 0.3], [0, 0, 0.9]])
        return pd.DataFrame(
            {
                "a": np.round(np.exp(3 + z[:, 0]), 2),
                "b": np.round(np.exp(8 + 0.7 * z[:, 1])).astype(int),
                "c": np.round(np.exp(0.5 * z[:, 2]), 3),
                "group": rng.choice(list("xyz"), rows, p=[0.5, 0.3, 0.2]),
            }
        )
    if name == "heaped":
        age = np.clip(rng.normal(45, 15, rows), 18, 90).astype(int)
        fives = np.round(rng.normal(38, 12, rows) / 5) * 5 + (rng.random(rows) < 0.2) * rng.integers(
            0, 5, rows
        )
        hours = np.where(rng.random(rows) < 0.6, 40, fives).clip(1, 99).astype(int)
        income = (np.round(np.exp(rng.normal(10 + 0.01 * age + 0.01 * hours, 0.6)) / 1000) * 1000).astype(int)
        income = np.where(rng.random(rows) < 0.15, 0, income)
        return pd.DataFrame(
            {"age": age, "hours": hours, "income": income, "job": rng.choice(list("abcd"), rows)}
        )
    mode = rng.integers(0, 3, rows)
    parts = np.stack([rng.normal(0, 1, rows), rng.normal(8, 0.5, rows), rng.uniform(-20, 20, rows)])
    x = parts[mode, np.arange(rows)]
    return pd.DataFrame(
        {
            "x": np.round(x, 3),
            "y": np.round(x / 2 + rng.standard_t(4, rows), 3),
            "w": np.round(rng.gamma(2, 3, rows), 2),
            "u": rng.integers(0, 2000, rows),
            "mode": np.array(list("pqr"))[mode],
        }
    )


def _questions(frame: pd.DataFrame, numbers: list[str]) -> Iterator[tuple[str, str, float]]:
    for name in numbers:
        cells = pd.to_numeric(frame[name], errors="coerce").dropna()
        yield f"mean {name}", f'avg("{name}")', float(cells.mean())
        yield f"sd {name}", f'stddev("{name}")', float(cells.std())
        for q in (0.1, 0.5, 0.9):
            yield f"q{q} {name}", f'quantile_cont("{name}", {q})', float(cells.quantile(q))
    for one, other in list(combinations(numbers, 2))[:10]:
        both = frame[[one, other]].apply(pd.to_numeric, errors="coerce").dropna()
        yield f"corr {one} {other}", f'corr("{one}", "{other}")', float(both[one].corr(both[other]))


def unmeasured(runs: int) -> list[Figure]:
    """Pairs that were never measured: what is said of them must be wide enough."""
    schema = parse_schema(SCHEMA, origin="the example survey")
    whole = survey(40_000)
    frame = whole if isinstance(whole, pd.DataFrame) else whole.to_pandas()
    kinds: dict[str, list[float]] = {"mean by group": [], "correlation": [], "cell of a pair": []}
    others = ["sex", "region", "education", "employment", "housing", "smokes", "health"]
    for run in range(runs):
        drawn = frame.iloc[np.random.default_rng(run).integers(0, len(frame), 5_000)].reset_index(drop=True)
        release = dualquery.release(
            drawn, schema=schema, workload="marginals:2:marital_status", budget=Budget(1, 1e-6), seed=run
        )
        for by in others:
            told = release.sql(f"select {by} as g, avg(income) as v from data group by 1")
            true = drawn.groupby(by, observed=True)["income"].mean()
            kinds["mean by group"] += _holds(told, true)
        told = release.sql("select 0 as g, corr(age, income) as v from data")
        kinds["correlation"] += _holds(told, pd.Series({0: drawn["age"].corr(drawn["income"])}))
        for one, other in combinations(others, 2):
            told = release.sql(f"select {one} || '/' || {other} as g, count(*) as v from data group by 1")
            kinds["cell of a pair"] += _holds(
                told, (drawn[one].astype(str) + "/" + drawn[other].astype(str)).value_counts()
            )
    return [
        Figure(f"unmeasured pairs, {kind}: bars that hold", _mean(held), 0.92, at_least=True, runs=runs)
        for kind, held in kinds.items()
    ]


def _holds(told: pd.DataFrame, true: pd.Series[Any]) -> list[float]:
    known = told[told["v_bar"].notna()]
    return [
        float(abs(row["v"] - true.get(row["g"], 0.0)) <= row["v_bar"]) for row in known.to_dict("records")
    ]


def main() -> None:
    given = sys.argv[1:]
    runs = int(given[given.index("--runs") + 1]) if "--runs" in given else RUNS
    epsilons = (float(given[given.index("--epsilon") + 1]),) if "--epsilon" in given else EPSILONS
    named = [each for each in given if not each.startswith("--") and not each.replace(".", "").isdecimal()]
    parts = [each for each in named if each in ("estimate", "sql", "unmeasured")] or [
        "estimate",
        "sql",
        "unmeasured",
    ]
    chosen = [each for each in named if each not in parts]
    if "estimate" in parts:
        for data, rows in (("adult", 5_000), ("adult", 30_162), ("births", 10_000)):
            if not chosen or f"{data}{rows}" in chosen:
                for epsilon in epsilons:
                    title = f"estimate and regress, {data}, {rows:,} records, ε = {epsilon:g}"
                    show(title, estimates(data, rows, epsilon, runs))
    if "sql" in parts:
        for name in (*FOREIGN, *INVENTED):
            if not chosen or name in chosen:
                show(f"SQL, {name}", bars(name, runs))
    if "unmeasured" in parts:
        show("Unmeasured pairs", unmeasured(runs))


if __name__ == "__main__":
    main()
