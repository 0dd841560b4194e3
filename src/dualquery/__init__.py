"""Answers to very many statistical questions about a private table, with differential privacy.

    import dualquery
    from dualquery import Budget

    release = dualquery.release(frame, schema="schema.toml", workload="marginals:3", budget=Budget(1, 1e-6))
    print(release.answer("age >= 50 & sex = Female"))     # 0.142 ± 0.006 (95%)
    release.table(["region", "sex"])                      # a frame with error bars
    release.save("release")

Names are imported when they are first used, so that a command that needs no kernels starts at once.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.3.0"

_HOMES = {
    "Accounting": "dualquery.privacy.budget",
    "Answer": "dualquery.releases.release",
    "Budget": "dualquery.privacy.budget",
    "BudgetError": "dualquery.errors",
    "Categorical": "dualquery.table.domain",
    "Certificate": "dualquery.releases.certificate",
    "Comparison": "dualquery.releases.evaluate",
    "DataError": "dualquery.errors",
    "Domain": "dualquery.table.domain",
    "Dates": "dualquery.table.dates",
    "Draft": "dualquery.table.draft",
    "DualQueryError": "dualquery.errors",
    "Evaluation": "dualquery.releases.evaluate",
    "Figure": "dualquery.releases.plots",
    "Items": "dualquery.table.domain",
    "LedgerError": "dualquery.errors",
    "Neighbours": "dualquery.privacy.neighbours",
    "Numeric": "dualquery.table.domain",
    "Online": "dualquery.interactive.online",
    "PersonAddRemove": "dualquery.privacy.neighbours",
    "PersonReplace": "dualquery.privacy.neighbours",
    "Plan": "dualquery.mechanisms.mechanism",
    "QueryError": "dualquery.errors",
    "Records": "dualquery.table.records",
    "Release": "dualquery.releases.release",
    "ReleaseError": "dualquery.errors",
    "Schema": "dualquery.table.schema",
    "SchemaError": "dualquery.errors",
    "Verification": "dualquery.releases.verify",
    "Workload": "dualquery.queries.workload",
    "compare": "dualquery.releases.evaluate",
    "dates": "dualquery.table.dates",
    "default_delta": "dualquery.privacy.budget",
    "encode": "dualquery.table.encoding",
    "equal_width": "dualquery.table.domain",
    "evaluate": "dualquery.releases.evaluate",
    "from_spec": "dualquery.queries.families",
    "marginals": "dualquery.queries.families",
    "online": "dualquery.interactive.opening",
    "parities": "dualquery.queries.families",
    "plan": "dualquery.releases.plan",
    "random_conjunctions": "dualquery.queries.random_families",
    "ranges": "dualquery.queries.random_families",
    "release": "dualquery.releases.make",
    "read_schema": "dualquery.table.schema",
    "schema_draft": "dualquery.table.draft",
    "verify": "dualquery.releases.verify",
}

__all__ = [
    "Accounting",
    "Answer",
    "Budget",
    "BudgetError",
    "Categorical",
    "Certificate",
    "Comparison",
    "DataError",
    "Dates",
    "Domain",
    "Draft",
    "DualQueryError",
    "Evaluation",
    "Figure",
    "Items",
    "LedgerError",
    "Neighbours",
    "Numeric",
    "Online",
    "PersonAddRemove",
    "PersonReplace",
    "Plan",
    "QueryError",
    "Records",
    "Release",
    "ReleaseError",
    "Schema",
    "SchemaError",
    "Verification",
    "Workload",
    "__version__",
    "compare",
    "dates",
    "default_delta",
    "encode",
    "equal_width",
    "evaluate",
    "from_spec",
    "marginals",
    "online",
    "parities",
    "plan",
    "random_conjunctions",
    "ranges",
    "read_schema",
    "release",
    "schema_draft",
    "verify",
]

if TYPE_CHECKING:
    from dualquery.errors import (
        BudgetError,
        DataError,
        DualQueryError,
        LedgerError,
        QueryError,
        ReleaseError,
        SchemaError,
    )
    from dualquery.interactive.online import Online
    from dualquery.interactive.opening import online
    from dualquery.mechanisms.mechanism import Plan
    from dualquery.privacy.budget import Accounting, Budget, default_delta
    from dualquery.privacy.neighbours import Neighbours, PersonAddRemove, PersonReplace
    from dualquery.queries.families import from_spec, marginals, parities
    from dualquery.queries.random_families import random_conjunctions, ranges
    from dualquery.queries.workload import Workload
    from dualquery.releases.certificate import Certificate
    from dualquery.releases.evaluate import Comparison, Evaluation, compare, evaluate
    from dualquery.releases.make import release
    from dualquery.releases.plan import plan
    from dualquery.releases.plots import Figure
    from dualquery.releases.release import Answer, Release
    from dualquery.releases.verify import Verification, verify
    from dualquery.table.dates import Dates, dates
    from dualquery.table.domain import Categorical, Domain, Items, Numeric, equal_width
    from dualquery.table.draft import Draft, schema_draft
    from dualquery.table.encoding import encode
    from dualquery.table.records import Records
    from dualquery.table.schema import Schema, read_schema


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'dualquery' has no attribute '{name}'")
    return getattr(import_module(home), name)


def __dir__() -> list[str]:
    return sorted(__all__)
