"""`dualquery release`, the degrees that polynomials need (`degrees`), and integer programs (`program`)."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dualquery.cli import flags, output
from dualquery.pool import limited
from dualquery.privacy.budget import Accounting
from dualquery.privacy.neighbours import Neighbours

if TYPE_CHECKING:
    from dualquery.releases.certificate import Certificate


NOT_ACCEPTED = 3  # exit code


@flags.with_mechanism_flags
def release(
    *,
    table: flags.TableArgument,
    schema: flags.SchemaFlag,
    queries: flags.QueriesFlag,
    epsilon: flags.EpsilonFlag,
    out: Annotated[Path, typer.Option("--out", "-o", metavar="DIR", help="The folder to write.")],
    delta: flags.DeltaFlag = None,
    mechanism: flags.MechanismFlag = None,
    accounting: flags.AccountingFlag = Accounting.TIGHTEST,
    neighbours: flags.NeighboursFlag = Neighbours.REPLACE,
    records_per_person: flags.RecordsPerPersonFlag = None,
    records: flags.RecordsFlag = None,
    check: flags.CheckFlag = 0.01,
    accept: flags.AcceptFlag = None,
    seed: Annotated[
        int | None,
        typer.Option("--seed", metavar="N", min=0, help="Make it repeatable, and therefore **not private**."),
    ] = None,
    ledger: Annotated[
        str | None,
        typer.Option(
            "--ledger",
            metavar="LEDGER",
            help="The ledger (a file or a `postgresql://` URL) that is charged with the whole budget beforehand.",
        ),
    ] = None,
    dataset: flags.ChargedFlag = None,
    prior: flags.PriorFlag = None,
    prior_origin: flags.PriorOriginFlag = None,
    prior_key: flags.PriorKeyFlag = None,
    draft: flags.DraftFlag = None,
    totals: flags.TotalsFlag = None,
    period: flags.PeriodFlag = None,
    named: flags.NamedTableFlag = None,
    engine: flags.EngineFlag = flags.Machines.LOCAL,
    master: flags.MasterFlag = None,
    threads: flags.ThreadsFlag = None,
    csv: Annotated[bool, typer.Option("--csv", help="Write synthetic.csv beside synthetic.parquet.")] = False,
    registry: Annotated[
        bool,
        typer.Option(
            "--registry",
            help="Write registry.json and registry.html: the facts for a register of deployments.",
        ),
    ] = False,
    sign: Annotated[
        Path | None,
        typer.Option("--sign", metavar="FILE", help="Sign the certificate with this private key."),
    ] = None,
    json: flags.JsonFlag = False,
    quiet: flags.QuietFlag = False,
    options: dict[str, Any],
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
    budget_for = partial(flags.budget_from, epsilon, delta, neighbours=neighbours, accounting=accounting)
    budget_for(rows=records or (2 if neighbours.size_is_public else None))  # refuses at once what is wrong
    with ExitStack() as during:
        during.enter_context(limited(threads))
        progress = during.enter_context(output.ProgressBars(wanted=not (json or quiet)))
        from dualquery.counting.opening import told_of_dropped
        from dualquery.queries.families import from_spec
        from dualquery.releases import make
        from dualquery.releases.folder import refuse_occupied
        from dualquery.releases.machines import working_on
        from dualquery.releases.number_of_records import shared_rows
        from dualquery.releases.plan import check_mechanism
        from dualquery.releases.priors import refuse_same
        from dualquery.releases.reuse import refuse_another_table
        from dualquery.releases.seal import read_private_key
        from dualquery.table.drafting import several_rows
        from dualquery.table.linking import one_table
        from dualquery.table.reading import first_rows
        from dualquery.table.schema import read_schema

        heard: list[str] = []
        during.enter_context(working_on("cuda" if engine is flags.Machines.CUDA else None, heard.append))
        # What would only fail later is refused before the table is read.
        refuse_occupied(out)
        if sign is not None:
            read_private_key(sign)
        check_mechanism(mechanism)
        described = read_schema(schema)
        workload = from_spec(described.domain, queries)
        described = described.during(period)
        source = flags.source_of(table, named, described, engine, master)
        for each in prior or ():
            refuse_same(each, table)
        refuse_another_table(draft, one_table(source))
        for each in totals or ():
            refuse_same(each, table, "table of totals")
        counter = make.counting(source, described, neighbours, options.get("memory"), progress)
        made = make.release(
            counter,
            schema=described,
            workload=workload,
            budget=budget_for(rows=shared_rows(counter, neighbours) or records),
            mechanism=mechanism,
            seed=seed,
            records=records,
            progress=progress,
            ledger=ledger,
            dataset=dataset,
            prior=prior or None,
            prior_origin=prior_origin,
            prior_key=prior_key,
            draft=draft,
            totals=totals or None,
            period=period,
            check=check,
            accept=accept,
            **options,
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

    predicted = certificate.predicted_error
    book = certificate.get("book")
    output.print_facts(
        {
            "released": words.headline(certificate),
            "mechanism": f"{certificate['mechanism']}. {certificate['reason']}",
            "privacy": f"{words.cost(certificate)} ({certificate['budget']['accounting_reason']}), "
            f"from {certificate['entropy']['statement']}",
            **(
                {}
                if book is None
                else {"ledger": f"charge {book['sequence']} of '{book['name']}', head {book['head']}"}
            ),
            "predicted error": output.errors(
                predicted.mean, predicted.maximum, certificate.get("table", "records")
            ),
            "measured error": " ".join(words.check(certificate)),
            **({} if "accepted" not in certificate else {"acceptance": words.accepted(certificate)}),
            **({"note": "; ".join(certificate["notes"])} if certificate["notes"] else {}),
            "folder": str(folder),
            "report": str(folder / "report.html"),
        }
    )


def _json(folder: Path, certificate: Certificate) -> dict[str, object]:
    import json

    whole = json.loads(certificate.to_json())
    kept = ("mechanism", "reason", "parameters", "budget", "spent", "records", "synthetic_rows", "workload")
    predicted = certificate.predicted_error
    return {
        "folder": str(folder),
        **{key: whole[key] for key in kept},
        **({"book": whole["book"]} if "book" in whole else {}),
        "private": certificate.private,
        "predicted_error": {"mean": predicted.mean, "max": predicted.maximum},
        **{key: whole[key] for key in ("check", "accepted") if key in whole},
        "notes": whole["notes"],
        "warnings": whole["warnings"],
    }


def program(
    schema: flags.SchemaFlag,
    queries: flags.QueriesFlag,
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="The file, by habit FILE.mps.")],
    samples: Annotated[
        int, typer.Option("--samples", metavar="N", min=1, help="Queries drawn per round (s).")
    ] = 1000,
    seed: Annotated[int, typer.Option("--seed", metavar="N", min=0, help="Which draw.")] = 0,
) -> None:
    """Write the integer program of a round of DualQuery, for a solver of your own. **Needs no data.**

    Queries and negations are drawn evenly, as in the first round.

    Example:

    ```
    dualquery program --schema schema.toml --queries marginals:3 --samples 500 --out round.mps
    ```
    """
    import numpy as np

    from dualquery.errors import ReleaseError
    from dualquery.game.query_players import net_weights
    from dualquery.mechanisms.dual_query.game import clauses_of
    from dualquery.oracles.program import mps
    from dualquery.queries.families import from_spec
    from dualquery.table.schema import read_schema

    workload, rng = from_spec(read_schema(schema).domain, queries), np.random.default_rng(seed)
    drawn, signs = rng.integers(0, workload.size, samples), rng.choice([-1, 1], samples)
    written = mps(clauses_of(workload, net_weights(drawn, signs)))
    try:
        out.write_text(written, encoding="utf-8")
    except OSError as error:
        raise ReleaseError(f"'{out}' cannot be written: {error.strerror}") from None


def degrees(
    widest: Annotated[
        int, typer.Option("--widest", metavar="K", min=1, help="The widest disjunction of the table.")
    ] = 32,
    error: Annotated[
        float, typer.Option("--error", metavar="α", help="The error that a polynomial may have.")
    ] = 0.01,
    attributes: Annotated[
        int, typer.Option("--attributes", metavar="D", min=1, help="Attributes (or blocks) for the weight.")
    ] = 50,
    json: flags.JsonFlag = False,
) -> None:
    """Print the least degree of a polynomial that stands for a disjunction of k attributes, by k.

    Example:

    ```
    dualquery degrees --widest 16
    ```
    """
    from dualquery.cli import output
    from dualquery.errors import QueryError
    from dualquery.mechanisms.monomials import chebyshev_degree, check_width, least_degree

    check_width(widest)
    if not 0 < error < 0.5:
        raise QueryError(f"--error lies between 0 and ½, and {error:g} does not")
    rows = []
    for k in range(1, widest + 1):
        best = least_degree(k, error)
        rows.append(
            {
                "k": k,
                "chebyshev": chebyshev_degree(k, error),
                "minimax": best.degree,
                "error": best.error,
                "weight": best.weight(max(attributes, best.degree)),
            }
        )
    if json:
        output.print_json({"error": error, "attributes": attributes, "degrees": rows})
        return
    output.print_table(
        f"Degrees with an error of at most {error:g}, and weights over {attributes} attributes",
        ["k", "Chebyshev", "minimax", "its error", "its weight"],
        [
            [f"{r['k']}", f"{r['chebyshev']}", f"{r['minimax']}", f"{r['error']:.4f}", f"{r['weight']:.3g}"]
            for r in rows
        ],
    )
