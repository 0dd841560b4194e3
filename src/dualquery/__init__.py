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

import ast
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dualquery.registry import KINDS

__version__ = "0.3.0"

# fmt: off
# isort: off
if TYPE_CHECKING:  # every public name and its home, for whoever checks types and for `_HOMES`
    from dualquery.interactive.online import Online as Online
    from dualquery.interactive.opening import online as online
    from dualquery.errors import (
        BudgetError as BudgetError, DataError as DataError, DualQueryError as DualQueryError,
        LedgerError as LedgerError, QueryError as QueryError, ReleaseError as ReleaseError,
        SchemaError as SchemaError,
    )
    from dualquery.example import Example as Example
    from dualquery.kinds import Kind as Kind, Stored as Stored
    from dualquery.mechanisms.artefact import (
        Artefact as Artefact, BareAnswers as BareAnswers, SyntheticRecords as SyntheticRecords,
    )
    from dualquery.mechanisms.mechanism import (
        Mechanism as Mechanism, Outcome as Outcome, Plan as Plan, Step as Step, Task as Task,
        hidden as hidden, least_noise as least_noise,
    )
    from dualquery.mechanisms.wishes import wish as wish
    from dualquery.oracles.program import Solver as Solver
    from dualquery.plots import Figure as Figure
    from dualquery.privacy.budget import Accounting as Accounting, Budget as Budget, default_delta as default_delta
    from dualquery.privacy.curator import Curator as Curator
    from dualquery.privacy.budget import (
        Neighbours as Neighbours, PersonAddRemove as PersonAddRemove, PersonReplace as PersonReplace,
    )
    from dualquery.privacy.noise import Noise as Noise
    from dualquery.queries.families import from_spec as from_spec, marginals as marginals, parities as parities
    from dualquery.queries.group import Digest as Digest, Group as Group, NotProducts as NotProducts
    from dualquery.queries.random_families import random_conjunctions as random_conjunctions, ranges as ranges
    from dualquery.queries.workload import Grammar as Grammar, Workload as Workload
    from dualquery.registry import register as register
    from dualquery.releases.certificate import Certificate as Certificate
    from dualquery.releases.enough import Enough as Enough, choose_epsilon as choose_epsilon
    from dualquery.releases.evaluate import (
        Comparison as Comparison, Evaluation as Evaluation, compare as compare, evaluate as evaluate,
    )
    from dualquery.releases.refit import fit as fit
    from dualquery.releases.make import release as release
    from dualquery.releases.plan import plan as plan
    from dualquery.releases.private_draft import draft_plan as draft_plan, private_draft as private_draft
    from dualquery.releases.refit import refit as refit
    from dualquery.releases.release import Answer as Answer, Release as Release
    from dualquery.releases.series import Series as Series
    from dualquery.releases.synthesizer import Synthesizer as Synthesizer
    from dualquery.releases.verify import Verification as Verification, verify as verify
    from dualquery.table.dates import Dates as Dates, dates as dates
    from dualquery.table.domain import (
        Categorical as Categorical, Domain as Domain, Items as Items, Numeric as Numeric,
        equal_width as equal_width,
    )
    from dualquery.table.draft import Draft as Draft, schema_draft as schema_draft
    from dualquery.table.encoding import encode as encode
    from dualquery.table.reading.source import (
        Source as Source, WantedColumns as WantedColumns, file_source as file_source,
    )
    from dualquery.table.records import Records as Records
    from dualquery.table.schema import Schema as Schema, read_schema as read_schema
    from dualquery.types import Progress as Progress
# isort: on
# fmt: on

_HOMES = {
    alias.name: str(node.module)
    for node in ast.walk(ast.parse(Path(__file__).read_text(encoding="utf-8")))
    if isinstance(node, ast.ImportFrom)
    for alias in node.names
    if alias.asname
}
__all__ = ["__version__", *sorted(_HOMES)]

# The kinds of tables, which modules look up that stand below them.
KINDS.homes.update(
    records="dualquery.kinds:RECORDS",
    graph="dualquery.kinds.special:GRAPH",
    points="dualquery.kinds.special:POINTS",
    codes="dualquery.kinds.special:CODES",
    database="dualquery.kinds.special:DATABASE",
)


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'dualquery' has no attribute '{name}'")
    return getattr(import_module(home), name)


def __dir__() -> list[str]:
    return sorted(__all__)
