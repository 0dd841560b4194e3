"""What may be asked of a special table: its own language, and its own families of queries."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

from dualquery.errors import QueryError
from dualquery.queries.group import Group
from dualquery.queries.workload import Workload
from dualquery.table.domain import Domain


@dataclass(frozen=True)
class Language:
    """How the questions of one kind of table are written."""

    words: str  # what a question is about, in a message
    example: Callable[[Domain], str]  # a question that this table can be asked
    families: str  # the SPECs that it knows
    groups: Callable[
        [Domain, Sequence[str], Sequence[str]], tuple[Group, ...]
    ]  # of texts and their places, in order
    family: Callable[[Domain, str], Workload | None]  # of a SPEC; None where it is no family of this kind


@cache
def _languages() -> dict[str, Language]:
    from dualquery.queries.language import codes, cuts, distances

    return {
        "graph": Language(
            "cuts",
            cuts.example_of,
            "cuts:random:COUNT, cuts:ranges:COUNT, cuts:ATTRIBUTE",
            cuts.groups_of,
            cuts.family_of,
        ),
        "points": Language(
            "distances",
            distances.example_of,
            "points:FILE, points:random:COUNT",
            distances.groups_of,
            distances.family_of,
        ),
        "codes": Language(
            "look-ups and lists",
            codes.example_of,
            "lookups:FILE, lists:FILE",
            codes.groups_of,
            codes.family_of,
        ),
    }


def language_of(domain: Domain) -> Language | None:
    """The language of a special table; None where it is a table of records, which speaks the query language."""
    return None if domain.kind == "records" else _languages().get(domain.kind)


def family_of(language: Language, domain: Domain, spec: str) -> Workload:
    """The workload that a SPEC names, of a special table."""
    found = language.family(domain, spec)
    if found is None:
        raise QueryError(
            f"'{spec}' is neither a family of {language.words} ({language.families}) nor a file of them"
        )
    return found
