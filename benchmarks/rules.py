"""Rules of the schema: what they do to the errors of all tables over two and three attributes.

python -m benchmarks.rules                      # Adult and the clinic, eight seeds, some minutes
python -m benchmarks.rules clinic --seeds 0 1   # some of it

Each release is made twice from the same seed, with the rules and without; errors are those of the released rows, mean
over all cells. The clinic is the second example with its own rules, Adult 8,000 records with rules about spouses.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from benchmarks.harness import Figure, records_of, show
from dualquery.mechanisms.projection import PROJECTION
from dualquery.privacy.budget import Accounting, default_delta
from dualquery.queries.families import marginals
from dualquery.queries.rules import check_rules, obeyed
from dualquery.table.draft import schema_draft
from dualquery.table.encoding import encode
from dualquery.table.records import Records
from dualquery.table.schema import Schema, parse_schema, schema_text
from experiments import clinic
from experiments.data import only_columns
from experiments.runs import budget_of, run_of

ATTRIBUTES = (
    "age",
    "workclass",
    "education",
    "marital-status",
    "occupation",
    "relationship",
    "sex",
    "hours-per-week",
)
SPOUSES = (
    "relationship = Husband => sex = Male",
    "relationship = Wife => sex = Female",
    "relationship in {Husband, Wife} => marital-status in {Married-civ-spouse, Married-AF-spouse}",
    "marital-status = Never-married => relationship not in {Husband, Wife}",
)
ROWS = 8000


def adult() -> Records:
    records = records_of("adult")
    names = list(records.domain.names())
    places = [names.index(name) for name in (*ATTRIBUTES, "income")]
    kept = only_columns(records, places)
    first = Records.from_rows(kept.domain, kept.to_rows()[:ROWS])
    says = "\n".join(f'[[rule]]\nsays = "{rule}"' for rule in SPOUSES)
    ruled = parse_schema(f"{schema_text(Schema.of(kept.domain))}\n{says}\n", origin="the benchmark")
    return Records.from_rows(ruled.domain, first.to_rows())


def stays() -> Records:
    table = clinic.stays()
    schema = parse_schema(clinic.edited(str(schema_draft(table))), origin="the benchmark")
    return encode(table, schema)


CASES: dict[str, Callable[[], Records]] = {"adult": adult, "clinic": stays}


def errors(records: Records, epsilon: float, seed: int) -> list[float]:
    """The mean error of all pairs and of all triples."""
    check_rules(records.domain)
    budget = budget_of(epsilon, default_delta(records.rows), Accounting.GAUSSIAN)
    made = run_of(PROJECTION, records, marginals(records.domain, 3), budget, seed).records
    if records.domain.rules:
        made = obeyed(made, np.random.default_rng(seed))
    return [
        float(np.abs(asked.fractions(made) - asked.fractions(records)).mean())
        for asked in (marginals(records.domain, k) for k in (2, 3))
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", default=list(CASES), metavar="TABLE")
    parser.add_argument("--seeds", nargs="+", type=int, default=list(range(8)))
    arguments = parser.parse_args()
    for name in arguments.names:
        ruled = CASES[name]()
        free = Records.from_rows(replace(ruled.domain, rules=()), ruled.to_rows())
        for epsilon in (0.3, 1.0, 3.0):
            found = np.array(
                [[errors(each, epsilon, seed) for each in (free, ruled)] for seed in arguments.seeds]
            )
            figures = []
            for k, words in enumerate(("pairs", "triples")):
                without, with_rules = found[:, 0, k], found[:, 1, k]
                figures += [
                    Figure.mean(f"{words}, mean error without rules", without.tolist()),
                    Figure.mean(f"{words}, mean error with rules", with_rules.tolist()),
                    Figure.mean(
                        f"{words}, percent more with rules", (100 * (with_rules / without - 1)).tolist()
                    ),
                ]
            show(f"{name}, ε = {epsilon:g}", figures)


if __name__ == "__main__":
    main()
