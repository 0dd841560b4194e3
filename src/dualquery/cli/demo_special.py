"""`dualquery demo --graph` and `--points`: an invented special table, released and compared with the truth."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from dualquery.privacy.budget import Budget
from dualquery.privacy.neighbours import Neighbours

if TYPE_CHECKING:
    from dualquery.example_special import Example

DELTA = 1e-6


def show(made_up: Callable[[], Example], out: Path, epsilon: float, *, quiet: bool) -> None:
    """Write the example, release it, and print some questions with the truth beside the answers."""
    from dualquery.cli import output
    from dualquery.cli.output import ProgressBars
    from dualquery.cli.release import print_summary
    from dualquery.releases.evaluate import evaluate
    from dualquery.releases.make import release
    from dualquery.table.encoding import encode
    from dualquery.table.schema import read_schema

    example = made_up()
    budget = Budget(epsilon=epsilon, delta=DELTA, neighbours=Neighbours.ADD_REMOVE)
    table, schema, folder = out / example.table, out / "schema.toml", out / "release"
    with ProgressBars(wanted=not quiet) as progress:
        _write(example, out)
        described = read_schema(schema)
        records = encode(table, described)
        made = release(records, schema=described, workload=example.queries, budget=budget, progress=progress)
        made.save(folder)
        found = evaluate(made, records)
        truth = _truth(example, described.domain, records)
    if quiet:
        return
    print(f"{example.title} were written, and released:\n")
    print(f"  dualquery release {table} --schema {schema} --queries '{example.queries}' \\")
    print(f"      --epsilon {epsilon:g} --delta {DELTA:g} --neighbours add-remove --out {folder}\n")
    print_summary(folder, made.certificate)
    print("\n*** what follows is not private: internal, do not publish (and all of it is invented) ***\n")
    print(f"{found.queries:,} questions: mean error {found.mean_error:.2g}, largest {found.max_error:.2g}\n")
    rows = [
        [text, f"{share:.4f}", str(answer)]
        for text, share, answer in zip(
            example.questions, truth, made.answer_all(example.questions), strict=True
        )
    ]
    output.print_table("Some questions", ["query", "truth", "release"], rows)
    print(f"Open {folder / 'report.html'} in a browser, and ask more:\n")
    print(f'  dualquery answer {folder} "{example.questions[0]}"')


def _truth(example: Example, domain: object, records: object) -> list[float]:
    from dualquery.queries.families import from_texts
    from dualquery.table.domain import Domain
    from dualquery.table.records import Records

    assert isinstance(domain, Domain)
    assert isinstance(records, Records)
    answers: list[float] = from_texts(domain, example.questions).fractions(records).tolist()
    return answers


def _write(example: Example, out: Path) -> None:
    import pyarrow.csv

    from dualquery.errors import ReleaseError

    try:
        out.mkdir(parents=True)
        for name, contents in example.files.items():
            if isinstance(contents, str):
                (out / name).write_text(contents, encoding="utf-8")
            else:
                pyarrow.csv.write_csv(contents, out / name)
    except OSError as error:
        raise ReleaseError(f"'{out}' cannot be written: {error.strerror}") from None
