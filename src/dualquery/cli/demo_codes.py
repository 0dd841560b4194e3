"""`dualquery demo --codes`: look-ups and lists in a register that nobody is in."""

from __future__ import annotations

from pathlib import Path


def show(out: Path, epsilon: float, quiet: bool) -> None:
    """Write the register, release it for its look-ups, compare with the truth, and say how to ask."""
    import numpy as np
    import pyarrow.csv

    import dualquery
    from dualquery import example_codes as example
    from dualquery.cli import output
    from dualquery.cli.output import ProgressBars
    from dualquery.cli.release import print_summary
    from dualquery.errors import ReleaseError
    from dualquery.privacy.budget import Budget, default_delta
    from dualquery.privacy.neighbours import Neighbours
    from dualquery.queries.families import from_spec
    from dualquery.releases.make import release
    from dualquery.table.schema import read_schema

    if out.exists():
        raise ReleaseError(f"'{out}' exists already; choose another folder with --out, or remove it")
    delta = default_delta(example.PATIENTS)
    budget = Budget(epsilon=epsilon, delta=delta, neighbours=Neighbours.REPLACE)
    table, schema, folder = out / "register.csv", out / "schema.toml", out / "release"
    lookups = out / example.LOOKUPS
    with ProgressBars(wanted=not quiet) as progress:
        try:
            out.mkdir(parents=True)
            pyarrow.csv.write_csv(example.register(), table)
            schema.write_text(example.SCHEMA, encoding="utf-8")
            example.write_lists(out)
        except OSError as error:
            raise ReleaseError(f"'{out}' cannot be written: {error.strerror}") from None
        described = read_schema(schema)
        workload = from_spec(described.domain, f"lookups:{lookups}")
        records = dualquery.encode(table, described)
        made = release(records, schema=described, workload=workload, budget=budget, progress=progress)
        made.save(folder, csv=True)
    if quiet:
        return
    print("A register that nobody is in was written, and released:\n")
    print(f"  dualquery release {table} --schema {schema} --queries lookups:{lookups} \\")
    print(f"      --epsilon {epsilon:g} --delta {delta:g} --csv --out {folder}\n")
    print_summary(folder, made.certificate)
    print("\n*** what follows is not private: internal, do not publish (and these people are invented) ***\n")
    truth = workload.fractions(records)
    off = records.rows * np.abs(np.concatenate([made.artefact.fractions(g) for g in workload.groups]) - truth)
    output.print_table(
        "Errors, in records",
        ["look-ups", "mean", "max", "largest count"],
        [
            [
                f"{workload.size:,}",
                f"{off.mean():.2f}",
                f"{off.max():.1f}",
                f"{truth.max() * records.rows:.0f}",
            ]
        ],
    )
    answers = made.answer_all([example.QUESTION, f"record in list('{out / example.WATCHED}')"])
    output.print_table("Some questions", ["query", "release"], [[each.query, str(each)] for each in answers])
    print(f"Open {folder / 'report.html'} in a browser, and ask more:\n")
    print(f'  dualquery answer {folder} "{example.QUESTION}"')
