"""The plan of a replica: what projection does again on rows of its own release (`mechanisms.replicas`)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from dualquery.mechanisms.mechanism import Plan


def with_fewer_rows(plan: Plan[Any]) -> Plan[Any]:
    """The plan of a replica: the same, but for the length of the fit."""
    return replace(plan, parameters=plan.parameters.shorter())
