"""`dualquery plan` and `release`, the degrees that polynomials need (`degrees`), and integer programs (`program`)."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from dualquery.cli import output
from dualquery.cli.flags import Machines, budget_from, option, source_of, with_flags, with_mechanism_flags
from dualquery.errors import writing
from dualquery.loops import limited
from dualquery.privacy.budget import Accounting, Neighbours

if TYPE_CHECKING:
    from dualquery.privacy.budget import Budget
    from dualquery.queries.workload import Workload
    from dualquery.releases.certificate import Certificate
    from dualquery.releases.enough import Enough
    from dualquery.releases.plan import Settled

WIDEST_BAR = 30  # columns
NOT_ACCEPTED = 3  # exit code


@with_mechanism_flags
@with_flags(
    epsilon=option("The privacy budget; with --error the most that may be spent.", "ε", "--epsilon", "-e"),
    error=option("The mean error wanted, as a fraction of the table: finds the least ε.", "E"),
    order=option("In place of --queries: all tables of K columns.", "K", min=1),
    expected_records=option(
        "About how many records there are, if the release is to measure their number.", "N", min=1
    ),
)
def plan(
    schema: Path,
    queries: list[str] | None = None,
    epsilon: float | None = None,
    error: float | None = None,
    order: int | None = None,
    records: int | None = None,
    expected_records: int | None = None,
    delta: float | None = None,
    mechanism: str | None = None,
    accounting: Accounting = Accounting.TIGHTEST,
    neighbours: Neighbours = Neighbours.REPLACE,
    records_per_person: int | None = None,
    check: float = 0.01,
    accept: Path | None = None,
    json: bool = False,
    **options: Any,
) -> None:
    """Say what a release would be: parameters, predicted error, time, memory. **Needs no data.**

    Example:

    ```
    dualquery plan --schema schema.toml --records 30162 \\
        --queries random:3:500000 --epsilon 1 --delta 1e-6
    dualquery plan --schema schema.toml --records 30162 --error 0.001 --order 2
    ```
    """
    if (queries is None) == (order is None):
        raise typer.BadParameter(
            "say what is asked: --queries SPEC, or --order K for all tables of K columns."
        )
    if (records is None) == (expected_records is None):
        raise typer.BadParameter("say how many records the table has: --records, or --expected-records.")
    if epsilon is None and error is None:
        raise typer.BadParameter("say what may be spent, --epsilon, or which mean error is wanted, --error.")
    number = records or expected_records or 0
    from dualquery.queries.families import from_spec
    from dualquery.releases.enough import MOST, enough_for
    from dualquery.releases.plan import settled_plan, warnings_of
    from dualquery.table.schema import read_schema

    budget = budget_from(
        MOST if epsilon is None else epsilon, delta, rows=number, neighbours=neighbours, accounting=accounting
    )
    described = read_schema(schema)
    workload = from_spec(described.domain, queries or [f"marginals:{order}"])

    def planned(tried: Budget) -> Settled:
        rows = (expected_records, records)
        return settled_plan(described, workload, tried, *rows, mechanism, options, check, accept)

    enough = None if error is None else enough_for(error, budget, planned)
    found = planned(budget) if enough is None else enough.settled
    warnings = warnings_of(found.budget, number, described)
    if json:
        curve = {} if enough is None else {"error": enough.wanted, "curve": enough.curve}
        output.print_json(_plan_json(found, workload, number, warnings) | curve)
    else:
        _print_plan(found, workload)
        if enough is not None:
            _print_curve(enough)
        output.print_warnings(warnings)


def _print_curve(enough: Enough) -> None:
    """ε against the predicted mean error, a bar for each."""
    most, rows = max(error for _, error in enough.curve), []
    for epsilon, error in enough.curve:
        bar = "█" * max(1, round(WIDEST_BAR * error / most))
        remark = "enough for the error wanted" if epsilon == enough.epsilon else ""
        rows.append([f"{epsilon:g}", output.fraction(error), bar, remark])
    print("Mean error by ε, predicted")
    output.print_lines(rows)


def _print_plan(found: Settled, workload: Workload) -> None:
    from dualquery.mechanisms.mechanism import shown

    made, budget = found.plan, found.budget
    facts = {
        "mechanism": made.mechanism,
        "because": made.reason,
        "queries": f"{workload.size:,} ({workload.spec})",
        "budget": f"ε = {budget.epsilon:g}, δ = {budget.delta:g}, neighbours {budget.neighbours}, "
        f"accounting {budget.accounting} ({found.why})",
    }
    for name, value in shown(made.parameters).items():
        facts[name.replace("_", " ")] = output.parameter(value)
    facts["predicted error"] = output.errors(made.mean_error, made.max_error, made.task.domain.kind)
    facts["check"] = found.check_words
    facts["time"], facts["memory"] = output.seconds(made.seconds), output.size(made.bytes)
    output.print_facts(facts)
    if made.steps:
        output.print_table("What the curator is asked, and what it costs", *output.steps(made.steps))
    for note in made.notes:
        print(f"Note: {note}")


def _plan_json(found: Settled, workload: Workload, rows: int, warnings: list[str]) -> dict[str, object]:
    from dualquery.mechanisms.mechanism import shown

    made, budget = found.plan, found.budget
    return {
        "mechanism": made.mechanism,
        "reason": made.reason,
        "parameters": shown(made.parameters),
        "steps": [{**step.event.to_json(), "words": step.words, "times": step.times} for step in made.steps],
        "rows": rows,
        "queries": workload.size,
        "workload": workload.spec,
        "budget": {
            "epsilon": budget.epsilon,
            "delta": budget.delta,
            "neighbours": budget.neighbours.value,
            "records_per_person": budget.neighbours.records_per_person,
            "accounting": budget.accounting.value,
            "accounting_reason": found.why,
        },
        "check": found.check_words,
        "mean_error": made.mean_error,
        "max_error": made.max_error,
        "seconds": made.seconds,
        "bytes": made.bytes,
        "notes": list(made.notes),
        "warnings": warnings,
    }


@with_mechanism_flags
@with_flags(
    mechanism=(str | None, None),
    seed=(int | None, None, option("Make it repeatable, and therefore **not private**.", "N", min=0)),
    ledger=(str | None, None),
    dataset=(str | None, None),
    prior=(list[str] | None, None),
    prior_origin=(str | None, None),
    prior_key=(Path | None, None),
    draft=(Path | None, None),
    totals=(list[str] | None, None),
    period=(str | None, None),
    check=(float, 0.01),
    accept=(Path | None, None),
    csv=option("Write synthetic.csv beside synthetic.parquet."),
    registry=option("Write registry.json and registry.html: the facts for a register of deployments."),
)
def release(
    table: str,
    schema: Path,
    queries: list[str],
    epsilon: float,
    out: Path,
    delta: float | None = None,
    accounting: Accounting = Accounting.TIGHTEST,
    neighbours: Neighbours = Neighbours.REPLACE,
    records_per_person: int | None = None,
    records: int | None = None,
    named: str | None = None,
    engine: Machines = Machines.LOCAL,
    master: str | None = None,
    threads: int | None = None,
    csv: bool = False,
    registry: bool = False,
    sign: Path | None = None,
    json: bool = False,
    quiet: bool = False,
    **given: Any,
) -> None:
    """Make synthetic data with a certificate from a private table.

    Exit code 3 where the release is not what `--accept` calls good enough; it is written all the same, and says so.

    Examples:

    ```
    dualquery release people.csv --schema schema.toml --queries marginals:3 --epsilon 1 --out released
    dualquery release people.csv --schema schema.toml \\
        --queries random:3:500000 --epsilon 1 --delta 1e-6 --mechanism dualquery --out released
    dualquery release 'parts/part-*.parquet' --schema schema.toml \\
        --queries marginals:2 --epsilon 1 --memory 2GB --out released
    dualquery release q3.csv --schema schema.toml --queries marginals:2 --epsilon 1 \\
        --prior released-q2 --prior sample.csv --prior-origin "census sample 2023" --out released-q3
    dualquery release visits.csv --schema schema.toml --queries marginals:2 --epsilon 1 \\
        --neighbours add-remove --delta 1e-6 --period 2024-Q3 --ledger visits.ledger --out released-q3
    dualquery release 'parts/*.parquet' --schema schema.toml \\
        --queries marginals:2 --epsilon 1 --engine spark --master 'local-cluster[2,1,2048]' --out released
    ```
    """
    budget_for = partial(budget_from, epsilon, delta, neighbours=neighbours, accounting=accounting)
    budget_for(rows=records or (2 if neighbours.size_is_public else None))  # refuses at once what is wrong
    with ExitStack() as during:
        during.enter_context(limited(threads))
        progress = during.enter_context(output.ProgressBars(wanted=not (json or quiet)))
        from dualquery.counting.opening import told_of_dropped
        from dualquery.queries.families import from_spec
        from dualquery.releases import make
        from dualquery.releases.arguments import working_on
        from dualquery.releases.folder import refuse_occupied
        from dualquery.releases.plan import check_mechanism, shared_rows
        from dualquery.releases.public import refuse_same
        from dualquery.releases.reuse import refuse_another_table
        from dualquery.releases.seal import read_private_key
        from dualquery.table.drafting import several_rows
        from dualquery.table.reading import first_rows, one_table
        from dualquery.table.schema import read_schema

        heard: list[str] = []
        during.enter_context(working_on("cuda" if engine is Machines.CUDA else None, heard.append))
        # What would only fail later is refused before the table is read.
        refuse_occupied(out)
        if sign is not None:
            read_private_key(sign)
        check_mechanism(given["mechanism"])
        described = read_schema(schema)
        workload = from_spec(described.domain, queries)
        described = described.during(given["period"])
        source = source_of(table, named, described, engine, master)
        for each in given["prior"] or ():
            refuse_same(each, table)
        if given["draft"] is not None:
            refuse_another_table(given["draft"], table if described.domain.inner else one_table(source))
        for each in given["totals"] or ():
            refuse_same(each, table, "table of totals")
        counter = make.counting(source, described, neighbours, given.get("memory"), progress)
        made = make.release(
            counter,
            schema=described,
            workload=workload,
            budget=budget_for(rows=shared_rows(counter, neighbours) or records),
            records=records,
            progress=progress,
            **given,
        )
        progress("writing the release", 0, 1)
        made.save(out, csv=csv, registry=registry, sign=sign)
    if json:
        output.print_json(_json(out, made.certificate))
    elif not quiet:
        print_summary(out, made.certificate)
    if not quiet:
        output.print_warnings([*heard, *made.certificate["warnings"]])
        # On the terminal, and nowhere else: a column that the schema leaves out may hold ids that come again,
        # and which rows of a database have no place in it is private.
        if described.domain.inner:
            output.print_warnings(told_of_dropped(counter))
        else:
            output.print_warnings(several_rows(first_rows(one_table(source), described.encoding), described))
    if (made.certificate.get("accepted") or {}).get("verdict") == "fail":
        raise typer.Exit(NOT_ACCEPTED)


def print_summary(folder: Path, certificate: Certificate) -> None:
    """What was released, what it cost, and where it is."""
    from dualquery.releases import sentences as words

    predicted, book = certificate.predicted_error, certificate.get("book")
    why, entropy = certificate["budget"]["accounting_reason"], certificate["entropy"]["statement"]
    facts = {
        "released": words.headline(certificate),
        "mechanism": f"{certificate['mechanism']}. {certificate['reason']}",
        "privacy": f"{words.cost(certificate)} ({why}), from {entropy}",
    }
    if book is not None:
        facts["ledger"] = f"charge {book['sequence']} of '{book['name']}', head {book['head']}"
    kind = certificate.get("table", "records")
    facts["predicted error"] = output.errors(predicted.mean, predicted.maximum, kind)
    facts["measured error"] = " ".join(words.check(certificate))
    if "accepted" in certificate:
        facts["acceptance"] = words.accepted(certificate)
    if certificate["notes"]:
        facts["note"] = "; ".join(certificate["notes"])
    output.print_facts({**facts, "folder": str(folder), "report": str(folder / "report.html")})


def _json(folder: Path, certificate: Certificate) -> dict[str, object]:
    whole, predicted = certificate.plain(), certificate.predicted_error
    kept = (
        "mechanism",
        "reason",
        "parameters",
        "budget",
        "spent",
        "records",
        "synthetic_rows",
        "workload",
        "book",
    )
    told = ("check", "accepted", "notes", "warnings")
    return {
        "folder": str(folder),
        **{key: whole[key] for key in kept if key in whole},
        "private": certificate.private,
        "predicted_error": {"mean": predicted.mean, "max": predicted.maximum},
        **{key: whole[key] for key in told if key in whole},
    }


@with_flags(
    out=option("The file, by habit FILE.mps.", "FILE", "--out", "-o"),
    samples=option("Queries drawn per round (s).", "N", min=1),
    seed=option("Which draw.", "N", min=0),
)
def program(schema: Path, queries: list[str], out: Path, samples: int = 1000, seed: int = 0) -> None:
    """Write the integer program of a round of DualQuery, for a solver of your own. **Needs no data.**

    Queries and negations are drawn evenly, as in the first round.

    Example:

    ```
    dualquery program --schema schema.toml --queries marginals:3 --samples 500 --out round.mps
    ```
    """
    import numpy as np

    from dualquery.game.query_players import net_weights
    from dualquery.mechanisms.dual_query import clauses_of
    from dualquery.oracles.program import mps
    from dualquery.queries.families import from_spec
    from dualquery.table.schema import read_schema

    workload, rng = from_spec(read_schema(schema).domain, queries), np.random.default_rng(seed)
    drawn, signs = rng.integers(0, workload.size, samples), rng.choice([-1, 1], samples)
    written = mps(clauses_of(workload, net_weights(drawn, signs)))
    with writing(out):
        out.write_text(written, encoding="utf-8")


@with_flags(
    widest=option("The widest disjunction of the table.", "K", min=1),
    error=option("The error that a polynomial may have.", "α"),
    attributes=option("Attributes (or blocks) for the weight.", "D", min=1),
)
def degrees(widest: int = 32, error: float = 0.01, attributes: int = 50, json: bool = False) -> None:
    """Print the least degree of a polynomial that stands for a disjunction of k attributes, by k.

    Example:

    ```
    dualquery degrees --widest 16
    ```
    """
    from dualquery.errors import QueryError
    from dualquery.mechanisms.monomials import chebyshev_degree, check_width, least_degree

    check_width(widest)
    if not 0 < error < 0.5:
        raise QueryError(f"--error lies between 0 and ½, and {error:g} does not")
    rows = []
    for k in range(1, widest + 1):
        best = least_degree(k, error)
        weight = best.weight(max(attributes, best.degree))
        rows.append((k, chebyshev_degree(k, error), best.degree, best.error, weight))
    if json:
        names = ("k", "chebyshev", "minimax", "error", "weight")
        listed = [dict(zip(names, row, strict=True)) for row in rows]
        output.print_json({"error": error, "attributes": attributes, "degrees": listed})
        return
    output.print_table(
        f"Degrees with an error of at most {error:g}, and weights over {attributes} attributes",
        ["k", "Chebyshev", "minimax", "its error", "its weight"],
        [[f"{k}", f"{c}", f"{m}", f"{off:.4f}", f"{weight:.3g}"] for k, c, m, off, weight in rows],
    )
