"""Rows that answer as a signed density does: the row player on the density's own tables."""

from __future__ import annotations

from itertools import combinations

import numpy as np

from dualquery.distributions.implicit_euclidean import SignedDensity
from dualquery.errors import QueryError
from dualquery.fitting.pace import Pace
from dualquery.fitting.rows import Targets, play_residual, product_start
from dualquery.mechanisms.mechanism import Progress
from dualquery.queries.predicates import NONE
from dualquery.queries.tables import Tables
from dualquery.queries.workload import Workload
from dualquery.table.records import Records

MOST_CELLS = 4_000_000  # of the tables that rows are fitted to
COLD = 1e-4  # temperature of the fit, as a fraction of the rows

Set = tuple[int, ...]


def tables_of(workload: Workload) -> list[Set]:
    """The sets that queries ask about and the pairs and single attributes within."""
    asked = [tuple(j for j in row if j != NONE) for row in workload.scope.tolist()]
    parts = {part for members in asked for order in (1, 2) for part in combinations(members, order)}
    return sorted(parts | set(asked) - {()}, key=lambda members: (len(members), members))


def check_rows(workload: Workload) -> None:
    """Refuse where the tables that rows would be fitted to are too many."""
    sizes = workload.domain.sizes
    cells = sum(int(np.prod(sizes[list(members)].astype(float))) for members in tables_of(workload))
    if cells > MOST_CELLS:
        raise QueryError(
            f"rows would be fitted to {cells:,} cells, more than {MOST_CELLS:,}; leave out --synthetic-rows for "
            "answers alone, or ask about fewer attributes"
        )


def rows_of(
    density: SignedDensity, workload: Workload, rows: int, rng: np.random.Generator, progress: Progress
) -> Records:
    """Rows fitted to every table that the workload asks about."""
    domain, sets = workload.domain, tables_of(workload)
    tables = Tables(domain, tuple(sets))
    answers = density.answers(Workload(domain, (tables,), "tables"))
    targets = Targets(domain.sizes.astype(np.int64))
    for t, members in enumerate(sets):
        targets.add_table(members, answers[tables.cells_of(t)].reshape(tables.shape_of(t)), 1.0)
    pace = Pace.of(rows)
    start = product_start(domain, density.base.ones, pace, rng)
    heat = pace.temperatures(COLD, 1.0)
    fitted = play_residual(
        targets,
        density.base.ones,
        start,
        heat,
        rng,
        lambda done, total: progress("fitting rows", done, total),
    )
    return Records.from_rows(domain, pace.released(fitted))
