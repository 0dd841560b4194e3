"""All mechanisms by name, and the public rule that picks one where the user names none."""

from __future__ import annotations

from dualquery.mechanisms.dual_query import DUAL_QUERY
from dualquery.mechanisms.plan import Mechanism, Options, Plan, Shape

MECHANISMS: dict[str, Mechanism] = {mechanism.name: mechanism for mechanism in (DUAL_QUERY,)}


def choose(shape: Shape, options: Options) -> Plan:
    """The plan of the mechanism that suits a shape best."""
    return DUAL_QUERY.checked_plan(shape, options)
