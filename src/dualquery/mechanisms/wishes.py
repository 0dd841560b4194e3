"""All mechanisms by name, and what a user may ask of each: one frozen dataclass a mechanism, every field a flag.

None leaves a choice to the plan. The command line makes its flags, its help and the check for flags that a
mechanism would ignore from these fields, and nothing heavy is imported for it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, get_type_hints

from dualquery.errors import DualQueryError
from dualquery.registry import Registry

if TYPE_CHECKING:
    from dualquery.mechanisms.mechanism import AnyMechanism


@dataclass(frozen=True)
class Flag:
    """How a wish looks on the command line."""

    help: str
    metavar: str
    least: float | None = None
    most: float | None = None
    names: tuple[str, ...] = ()
    parser: Callable[[str], Any] | None = None


def flags_of(wishes: type) -> dict[str, Flag]:
    """The flags of a dataclass of wishes, by field."""
    return {each.name: each.metadata["flag"] for each in fields(wishes)}


def wish(help: str, metavar: str, **look: Any) -> Any:
    """A field that a user may give, as a flag of the command line and by name in Python; None where nobody does."""
    return field(default=None, metadata={"flag": Flag(help, metavar, **look)})


def size_in_bytes(text: str) -> int:
    """`512MB`, `1.5 GB` or a plain number of bytes."""
    units = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
    number = text.strip().upper().rstrip("KMGTB").strip()
    unit = text.strip().upper()[len(number) :].strip()
    try:
        size = float(number) * units[unit]
    except (ValueError, KeyError):
        raise DualQueryError(f"--memory should read like 2GB or 500MB, and '{text}' does not") from None
    if not 0 < size < 2**63:
        raise DualQueryError("--memory must be a positive size")
    return int(size)


_rounds = partial(wish, "Rounds of the game (T).", "N", least=1)
_learning_rate = partial(wish, "How strongly a player learns (η).", "η", least=0.0)
_alpha = partial(wish, "The error wanted: fixes parameters by the theory.", "α", least=0.0)
_iterate = partial(wish, "Which distribution to release: last or average.", "WHICH")
_measured = partial(wish, "What is selected and measured: queries, tables or parities.", "WHAT")
_updates = partial(
    wish,
    "Updates per round: repeated over all measurements, once, or figure-1 (MWEM's, word for word).",
    "HOW",
)
_memory = partial(wish, "The most memory to use, like 2GB.", "SIZE", parser=size_in_bytes)
_widest = partial(wish, "The most attributes of a disjunction (k); a wider one is refused.", "K", least=1)

# What releases and commands are given whatever the mechanism is; a wish has another name.
TAKEN = frozenset({
    "accept", "accounting", "budget", "check", "csv", "dataset", "delta", "domain", "engine", "epsilon", "error",
    "json", "ledger", "master", "mechanism", "named", "neighbours", "options", "out", "period", "prior",
    "prior_origin", "progress", "queries", "quiet", "records", "records_per_person", "schema", "seed", "sign",
    "table", "threads", "workload",
})  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class RowsWishes:
    """Of whoever makes as many rows as wanted."""

    synthetic_rows: int | None = wish(
        "The number of synthetic records.", "N", least=1, names=("--rows", "--synthetic-rows")
    )


@dataclass(frozen=True, kw_only=True)
class LinkedWishes(RowsWishes):
    memory: int | None = _memory()


@dataclass(frozen=True, kw_only=True)
class ProjectionWishes(RowsWishes):
    means: float | None = wish(
        "The share of the budget for means inside the bins of numbers; 0 for none. [default: 0.02]",
        "SHARE",
        least=0.0,
        most=0.5,
    )
    shares: str | None = wish(
        "How tables share the budget: adaptive (by what was measured first), pairs (the same, but always all "
        "pairs), or fixed (beforehand, the same for any table).",
        "HOW",
    )
    items_per_record: int | None = wish(
        "Records are baskets, of which so many items count; the rest is dropped.", "N", least=1
    )
    memory: int | None = _memory()


@dataclass(frozen=True, kw_only=True)
class DualQueryWishes:
    learning_rate: float | None = _learning_rate()
    samples: int | None = wish("Queries drawn per round (s).", "N", least=1)
    rounds: int | None = _rounds()
    recall: int | None = wish(
        "Rounds whose draws a record answers, old ones faded; 1 as in the paper.", "N", least=1
    )
    alpha: float | None = _alpha()
    beta: float | None = wish("The chance that the theory may fail; with --alpha.", "β", least=0.0)
    free: str | None = wish(
        "Attributes that no drawn query decides: zeros, random or density (priced).", "HOW"
    )
    oracle: str | None = wish(
        "Who finds the best response: search, exact (CP-SAT), scip, cbc or another solver.", "WHO"
    )
    time_limit: float | None = wish(
        "Seconds per round for an oracle other than search (5; the paper: 20).", "SECONDS", least=0.0
    )


@dataclass(frozen=True, kw_only=True)
class MwemWishes(RowsWishes):
    rounds: int | None = _rounds()
    iterate: str | None = _iterate()
    updates: str | None = _updates()
    start: str | None = wish(
        "The first distribution: uniform, or noisy (a measured histogram, priced).", "WHICH"
    )
    measured: str | None = _measured()
    part_cells: int | None = wish("The most cells that one part of the distribution may have.", "N", least=2)
    memory: int | None = _memory()


@dataclass(frozen=True, kw_only=True)
class PmwWishes(RowsWishes):
    rounds: int | None = _rounds()
    learning_rate: float | None = _learning_rate()
    alpha: float | None = _alpha()
    iterate: str | None = _iterate()


@dataclass(frozen=True, kw_only=True)
class MirrorWishes(RowsWishes):
    rounds: int | None = _rounds()
    iterate: str | None = _iterate()
    measured: str | None = _measured()
    updates: str | None = _updates()
    mirror_map: str | None = wish("How steps are measured: entropy, euclidean or p-norm.", "MAP")
    norm: float | None = wish("The p of the p-norm, between 1 and 2.", "P", least=1.0)


@dataclass(frozen=True, kw_only=True)
class RowsAndRoundsWishes(RowsWishes):
    rounds: int | None = _rounds()


@dataclass(frozen=True, kw_only=True)
class MonomialWishes:
    rounds: int | None = _rounds()
    widest: int | None = _widest()
    degree: int | None = wish("The degree of the polynomial that stands for OR.", "T", least=1)
    blocks: int | None = wish(
        "How many blocks of attributes: fewer weigh less, and have more basis functions.", "B", least=1
    )


@dataclass(frozen=True, kw_only=True)
class ParityWishes:
    widest: int | None = _widest()


@dataclass(frozen=True, kw_only=True)
class RoundsWishes:
    """Of a learner that takes its rounds, and nothing else."""

    rounds: int | None = _rounds()


@dataclass(frozen=True, kw_only=True)
class NoWishes:
    """Of a mechanism without options."""


# Every mechanism: what may be asked of it, and where it lives. Nothing of it is imported before it is asked for.
BUILT_IN: dict[str, tuple[type, str]] = {
    "projection": (ProjectionWishes, "dualquery.mechanisms.projection:PROJECTION"),
    "dualquery": (DualQueryWishes, "dualquery.mechanisms.dual_query:DUAL_QUERY"),
    "mwem": (MwemWishes, "dualquery.mechanisms.mwem:MWEM"),
    "pmw": (PmwWishes, "dualquery.mechanisms.mwem:PMW"),
    "mirror": (MirrorWishes, "dualquery.mechanisms.mirror:MIRROR"),
    "euclidean": (RowsAndRoundsWishes, "dualquery.mechanisms.mirror:EUCLIDEAN"),
    "monomials": (MonomialWishes, "dualquery.mechanisms.monomials:MONOMIALS"),
    "parities": (ParityWishes, "dualquery.mechanisms.parities:PARITIES"),
    "least-squares": (RowsAndRoundsWishes, "dualquery.mechanisms.baselines:LEAST_SQUARES"),
    "laplace": (NoWishes, "dualquery.mechanisms.baselines:INDEPENDENT_LAPLACE"),
    "gaussian": (NoWishes, "dualquery.mechanisms.baselines:INDEPENDENT_GAUSSIAN"),
    "hadamard": (RowsWishes, "dualquery.mechanisms.baselines:HADAMARD"),
    "uniform": (RowsWishes, "dualquery.mechanisms.baselines:UNIFORM"),
    "zeros": (RowsWishes, "dualquery.mechanisms.baselines:ZEROS"),
    "coarsenings": (NoWishes, "dualquery.mechanisms.cuts:COARSENINGS"),
    "frieze-kannan": (RoundsWishes, "dualquery.mechanisms.cuts:FRIEZE_KANNAN"),
    "distance-curves": (NoWishes, "dualquery.mechanisms.distances:DISTANCE_CURVES"),
    "coordinate-wise": (RoundsWishes, "dualquery.mechanisms.distances:COORDINATE_WISE"),
    "noisy-cells": (NoWishes, "dualquery.mechanisms.lists:NOISY_CELLS"),
    "touched-weights": (RoundsWishes, "dualquery.mechanisms.lists:TOUCHED_WEIGHTS"),
    "linked": (LinkedWishes, "dualquery.mechanisms.linked:LINKED"),
}
WISHES = {name: wishes for name, (wishes, _) in BUILT_IN.items()}
MECHANISMS: Registry[AnyMechanism] = Registry(
    "mechanisms", "mechanism", {name: home for name, (_, home) in BUILT_IN.items()}
)


class Option(NamedTuple):
    """A wish by its name, as Python callers and the command line give it."""

    flag: Flag
    kind: type  # int, float or str
    mechanisms: tuple[str, ...]  # that grant it


def options(*, packages: bool = False) -> dict[str, Option]:
    """Every wish, in the order of the mechanisms; those of packages too, where they are to be asked."""
    found: dict[str, Option] = {}
    added = {name: each.wishes for name, each in MECHANISMS.added.items()} if packages else {}
    for mechanism, wishes in (WISHES | added).items():
        hints = get_type_hints(wishes)
        for name, flag in flags_of(wishes).items():
            (kind,) = (each for each in hints[name].__args__ if each is not type(None))
            known = found.get(name, Option(flag, kind, ()))
            found[name] = known._replace(mechanisms=(*known.mechanisms, mechanism))
    return found
