"""What tests are furnished with: budgets, ledgers, curators and a database, made in one place."""

from __future__ import annotations

from fractions import Fraction

from dualquery.counting import MemoryCounter
from dualquery.mechanisms.dual_query.parameters import NO_SLACK, Learning, pays_for
from dualquery.privacy.budget import Accounting, Budget, Neighbours
from dualquery.privacy.curator import Curator
from dualquery.privacy.ledger import Ledger
from dualquery.randomness import SeededEntropy
from dualquery.table.database import Database
from dualquery.table.records import Records
from dualquery.table.schema import parse_schema

# A database: households with their persons and their cars.
HOUSEHOLDS = """
[about]
dataset = "a toy"

[database]
protect = "household"

[[table]]
name = "household"
key = "hh"
[[table.attribute]]
name = "region"
values = ["East", "West"]
[[table.attribute]]
name = "kind"
values = ["a", "b", "c"]

[[table]]
name = "person"
parent = "household"
link = "home"
at_most = 3
at_least = 1
key = "pid"
[[table.attribute]]
name = "age"
edges = [0, 18, 65, 120]
integer = true
[[table.attribute]]
name = "sex"
values = ["f", "m"]
[[table.attribute]]
name = "kind"
values = ["x", "y"]
unknown = "y"

[[table]]
name = "car"
parent = "household"
at_most = 20
[[table.attribute]]
name = "fuel"
values = ["petrol", "power"]
"""


def database_in(text: str = HOUSEHOLDS) -> Database:
    """The database that a schema describes."""
    domain = parse_schema(text, origin="the schema").domain
    assert isinstance(domain, Database)
    return domain


def budget(
    epsilon: float = 1.0,
    *,
    delta: float = 1e-6,
    neighbours: Neighbours = Neighbours.REPLACE,
    accounting: Accounting = Accounting.ZCDP,
    adaptive: bool = False,
) -> Budget:
    """A budget; of pure ε δ is 0."""
    delta = 0.0 if accounting is Accounting.PURE else delta
    return Budget(
        epsilon=epsilon, delta=delta, neighbours=neighbours, accounting=accounting, adaptive=adaptive
    )


def curator_of(records: Records, pays: Budget | Ledger, *, seed: int = 0) -> Curator:
    """A curator of records in memory, paid for by a ledger, or by a fresh one of this budget."""
    ledger = pays if isinstance(pays, Ledger) else Ledger(pays)
    return Curator(MemoryCounter(records), ledger, SeededEntropy(seed))


def largest_rounds(
    pays: Budget, *, learning_rate: float, samples: int, rows: int, slack: Fraction = NO_SLACK
) -> int:
    """The largest number of rounds of DualQuery that the closed form pays for; round 1 is free."""

    def fits(rounds: int) -> bool:
        return pays_for(pays, Learning(learning_rate, samples, rounds), rows, slack)

    rounds = 1
    while fits(2 * rounds):
        rounds *= 2
    step = rounds
    while step := step // 2:
        rounds += step if fits(rounds + step) else 0
    return rounds
