"""How Python callers say things: a schema, a workload or a budget in whichever form is at hand.

    schema      a Schema, a Domain, the path of a TOML file, or a dict with the same keys as the file
    workload    a SPEC (`marginals:3`), a list of query texts (SPECs may stand among them), or a Workload
    budget      a Budget, or ε alone: the neighbours replace a record then, and δ is min(1/n², 10⁻⁶), as for commands

Whatever a caller gets wrong is a DualQueryError.
"""

from __future__ import annotations

import functools
import inspect
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from numbers import Integral, Real
from typing import Any, TypeVar, cast

from dualquery.errors import BudgetError, DualQueryError, QueryError, SchemaError
from dualquery.mechanisms import wishes
from dualquery.pool import limited
from dualquery.privacy.budget import Budget, default_delta
from dualquery.queries.families import from_spec, from_texts, names_family
from dualquery.queries.workload import Workload
from dualquery.releases.machines import working_on
from dualquery.table.domain import Domain
from dualquery.table.schema import Schema, parse_schema, read_schema

GivenSchema = Schema | Domain | str | os.PathLike[str] | Mapping[str, Any]
GivenWorkload = Workload | str | Sequence[str]
GivenBudget = Budget | float

F = TypeVar("F", bound=Callable[..., Any])

ALSO_CALLED = {"public_rows": "records", "rows": "expected_records"}  # other words for arguments


def schema_from(given: GivenSchema) -> Schema:
    """The schema that is meant."""
    if isinstance(given, Schema | Domain):
        return Schema.of(given)
    if isinstance(given, str | os.PathLike):
        return read_schema(given)
    if isinstance(given, Mapping):
        return parse_schema(_plain(given), origin="the schema")
    raise SchemaError(
        f"expected a schema as a Schema, a Domain, the path of a file or a dict, got {type(given).__name__}"
    )


def workload_from(domain: Domain, given: GivenWorkload) -> Workload:
    """The workload that is meant, about this domain."""
    if isinstance(given, Workload):
        if given.domain != domain:
            raise DualQueryError("the workload was made for another schema than the table's")
        return given
    if isinstance(given, str):
        return from_spec(domain, given)
    if not isinstance(given, Sequence) or not all(isinstance(each, str) for each in given):
        raise QueryError(
            "expected a workload as a SPEC like 'marginals:3', a list of queries or a Workload, "
            f"got {type(given).__name__}"
        )
    if not given:
        raise QueryError("the workload holds no query; name at least one")
    specs, texts = ([each for each in given if names_family(domain, each) is kind] for kind in (True, False))
    parts = [from_spec(domain, specs)] if specs else []
    parts += [from_texts(domain, texts)] if texts else []
    return Workload(
        domain,
        tuple(group for part in parts for group in part.groups),
        " + ".join(part.spec for part in parts),
        tuple(note for part in parts for note in part.notes),
    )


def budget_from(given: GivenBudget, rows: Callable[[], int]) -> Budget:
    """The budget that is meant; `rows` is asked for the number of records where ε stands alone."""
    if isinstance(given, Budget):
        return given
    if isinstance(given, bool) or not isinstance(given, Real):
        raise BudgetError(f"expected Budget(epsilon, delta) or epsilon alone, got {type(given).__name__}")
    return Budget(given, default_delta(rows()))


def checked_seed(seed: int | None) -> int | None:
    """None, or a whole number from 0 on."""
    if seed is None or (isinstance(seed, Integral) and not isinstance(seed, bool) and seed >= 0):
        return seed
    raise DualQueryError("a seed is a whole number, 0 or more, or None for the system's entropy")


def checked_rows(name: str, value: int | None) -> int | None:
    """A number of records: None, or a whole number from 1 on."""
    if value is None or (isinstance(value, Integral) and not isinstance(value, bool) and value >= 1):
        return value
    raise BudgetError(f"{name} must be a whole number, and at least 1")


def _checked_threads(value: object) -> int | None:
    """How many threads may work: None, or a whole number from 1 on."""
    if value is None:
        return None
    if isinstance(value, int) and not isinstance(value, bool) and value >= 1:
        return value
    raise DualQueryError("threads must be a whole number, and at least 1")


def checked_options(options: Mapping[str, object]) -> dict[str, object]:
    """Options of mechanisms given by name, each of the type that its flag has. None is as good as not given."""
    known = wishes.options()
    if not known.keys() >= options.keys():
        known = wishes.options(packages=True)
    for name in options:
        if name not in known:
            raise DualQueryError(
                f"there is no argument '{name}'; the options of mechanisms are {', '.join(known)}"
            )
    return {name: _checked(name, value, known[name]) for name, value in options.items() if value is not None}


def _checked(name: str, value: object, option: wishes.Option) -> object:
    if option.flag.parser is not None and isinstance(value, str):  # a size like 2GB
        return option.flag.parser(value)
    if option.kind is str and isinstance(value, Enum):
        return value
    kinds: dict[type, tuple[type, str]] = {
        int: (Integral, "a whole number"),
        float: (Real, "a number"),
        str: (str, "a text"),
    }
    kind, words = kinds[option.kind]
    if isinstance(value, bool) or not isinstance(value, kind):
        raise DualQueryError(f"{name} must be {words}, got {value!r}")
    return value


def for_callers(function: F) -> F:
    """Show the options of mechanisms in signature and help; say in a sentence which arguments do not fit."""
    shown = inspect.signature(function)
    own = [each for each in shown.parameters.values() if each.kind is not inspect.Parameter.VAR_KEYWORD]

    @functools.wraps(function)
    def checked(*given: Any, **named: Any) -> Any:
        for other, name in ALSO_CALLED.items():
            if other in named and name in shown.parameters and name not in named:
                named[name] = named.pop(other)
        try:
            shown.bind(*given, **named)
        except TypeError as error:
            raise DualQueryError(
                f"dualquery.{function.__name__}: {error}; help(dualquery.{function.__name__}) shows what it takes"
            ) from None
        taken = {name: named.get(name) for name in ("threads", "engine") if name in shown.parameters}
        warn = functools.partial(warnings.warn, stacklevel=3)
        with limited(_checked_threads(taken.get("threads"))), working_on(taken.get("engine"), warn):
            return function(*given, **named)

    if len(own) < len(shown.parameters):
        known = wishes.options()
        options = [
            inspect.Parameter(
                name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=f"{each.kind.__name__} | None"
            )
            for name, each in known.items()
        ]
        checked.__signature__ = shown.replace(parameters=[*own, *options])  # type: ignore[attr-defined]
        lines = [f"    {name}: {each.flag.help}" for name, each in known.items()]
        checked.__doc__ = "\n".join(
            [inspect.getdoc(function) or "", "", "Options of mechanisms:", "", *lines]
        )
    return cast(F, checked)


def _plain(value: Any) -> Any:
    """What a dict holds, as a TOML file of the same contents would say it."""
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise SchemaError(f"the keys of a schema must be texts, got {type(key).__name__}")
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, bool | str) or hasattr(value, "isoformat"):
        return value
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Real):
        number = float(value)
        return int(number) if number.is_integer() and abs(number) < 2**53 else number
    if isinstance(value, Sequence):
        return [_plain(each) for each in value]
    raise SchemaError(f"a schema holds texts, numbers, dates and lists, not {type(value).__name__}")
