"""The graph of Frieze and Kannan as it leaves: a sum of rectangles, of which some may be negative."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dualquery.beliefs.graphs import Rectangles, crossing
from dualquery.errors import QueryError
from dualquery.mechanisms.error_bars import bar_from_mean
from dualquery.mechanisms.graphs.artefact import EDGES, MOST_PAIRS, edge_table, networkx_of
from dualquery.queries.cuts import Cuts
from dualquery.queries.group import Group
from dualquery.table.domain import Domain
from dualquery.table.graph import Graph
from dualquery.table.records import pack_bits, unpack_bits
from dualquery.types import Fractions

RECTANGLES = "rectangles.parquet"


def _summed(from_: NDArray[np.uint8], to: NDArray[np.uint8], heights: Fractions) -> Fractions:
    """Σ_t d_t 1_{S_t} 1_{T_t}ᵀ, entry by entry."""
    summed: Fractions = (from_ * heights[:, None]).T @ to.astype(np.float64)
    return summed


@dataclass(frozen=True, eq=False)
class RectangleGraph:
    """Rectangles in fractions of all edges, the public number of edges, and the mean error that was predicted."""

    domain: Graph
    held: Rectangles
    edges: float
    mean_error: float

    @property
    def rows(self) -> None:
        return None

    def words(self) -> str:
        number, many = len(self.domain.vertices), len(self.held.heights)
        return f"A graph over {number:,} vertices, the sum of {many:,} rectangles"

    def fractions(self, group: Group) -> Fractions:
        if not isinstance(group, Cuts):
            raise QueryError("this release is a graph, which answers cuts and nothing else")
        return np.clip(crossing(self.held.sources, self.held.targets, self.held.heights, group), 0.0, 1.0)

    def bars(self, group: Group) -> Fractions:
        return np.full(group.size, bar_from_mean(self.mean_error))

    def to_arrow(self) -> pa.Table:
        """The edges with a positive weight, where there are not too many pairs of vertices to add up."""
        number = len(self.domain.vertices)
        weight = np.zeros((number, number) if number**2 <= MOST_PAIRS else (0, 0))
        if len(weight):
            from_, to = (unpack_bits(each, number) for each in (self.held.sources, self.held.targets))
            weight = _summed(from_, to, self.held.heights)
            if not self.domain.directed:  # S×T ∪ T×S, both of which have S∩T × S∩T; each pair stands once
                inner = from_ & to
                weight = np.triu(weight + weight.T - _summed(inner, inner, self.held.heights))
            weight *= self.edges * self.domain.heaviest
        source, target = np.nonzero(weight > 1e-9)
        return edge_table(self.domain, source, target, weight[source, target])

    def to_networkx(self) -> Any:
        return networkx_of(self.domain, self.to_arrow())

    def files(self) -> dict[str, pa.Table]:
        number = len(self.domain.vertices)
        sides = {
            name: pa.array(
                [np.flatnonzero(row).tolist() for row in unpack_bits(each, number)], pa.list_(pa.int32())
            )
            for name, each in (("from", self.held.sources), ("to", self.held.targets))
        }
        known = {"edges": repr(self.edges), "mean_error": repr(self.mean_error)}
        table = pa.table({"height": self.held.heights, **sides}).replace_schema_metadata(known)
        return {EDGES: self.to_arrow(), RECTANGLES: table}

    @staticmethod
    def of_files(domain: Domain, tables: dict[str, pa.Table]) -> RectangleGraph:
        """What a folder holds."""
        assert isinstance(domain, Graph), "the schema says graph"
        table = tables[RECTANGLES]
        members = np.zeros((2, table.num_rows, len(domain.vertices)), np.bool_)
        for side, name in enumerate(("from", "to")):
            for row, held in enumerate(table[name].to_pylist()):
                members[side, row, held] = True
        heights = table["height"].to_numpy()
        held = Rectangles(pack_bits(members[0]), pack_bits(members[1]), heights, np.empty(0))
        known = table.schema.metadata
        return RectangleGraph(domain, held, float(known[b"edges"]), float(known[b"mean_error"]))
