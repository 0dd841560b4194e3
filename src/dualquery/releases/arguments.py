"""How Python callers say things: a schema, a workload or a budget in whichever form is at hand.

    schema      a Schema, a Domain, the path of a TOML file, or a dict with the same keys as the file
    workload    a SPEC (`marginals:3`), a list of query texts (SPECs may stand among them), or a Workload
    budget      a Budget, or ε alone: the neighbours replace a record then, and δ is min(1/n², 10⁻⁶), as for commands

Whatever a caller gets wrong is a DualQueryError.

And who counts and fits: this machine's processor, or its graphics card as well. A card that cannot be used, or that
fails on the way, costs time and nothing else: the processor does the work, and one sentence says why. The sentence is
for the screen of whoever holds the table (how much memory a count takes tells how many records there are), and stands
in no release.
"""

from __future__ import annotations

import functools
import inspect
import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from enum import Enum
from numbers import Integral, Real
from typing import Any, TypeVar, cast

from dualquery.beliefs.cuda import CardHistograms
from dualquery.beliefs.histogram import believing_with
from dualquery.card import CardError
from dualquery.counting import counting_with
from dualquery.counting.cuda import Cuda
from dualquery.errors import BudgetError, DualQueryError, QueryError, SchemaError
from dualquery.fitting.cuda import CudaFitter
from dualquery.fitting.fitter import fitting_with, usual_fitter
from dualquery.loops import limited
from dualquery.mechanisms import wishes
from dualquery.privacy.budget import Budget, default_delta
from dualquery.privacy.cuda import CardWeights
from dualquery.privacy.selection import weighing_with
from dualquery.queries.families import from_spec, from_texts, names_family
from dualquery.queries.workload import Workload
from dualquery.table.domain import Domain
from dualquery.table.schema import Schema, parse_schema, read_schema

GivenSchema = Schema | Domain | str | os.PathLike[str] | Mapping[str, Any]
GivenWorkload = Workload | str | Sequence[str]
GivenBudget = Budget | float

F = TypeVar("F", bound=Callable[..., Any])

ALSO_CALLED = {"public_rows": "records", "rows": "expected_records"}  # other words for arguments
ENGINES = ("local", "cuda")
ONE_AFTER_ANOTHER = (
    "rows were fitted on a GPU, where many move at once: the same seed does not give the same rows again"
)


def schema_from(given: GivenSchema) -> Schema:
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
    """A number of records, or of threads: None, or a whole number from 1 on."""
    if value is None or (isinstance(value, Integral) and not isinstance(value, bool) and value >= 1):
        return value
    raise BudgetError(f"{name} must be a whole number, and at least 1")


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
    kinds: dict[type, tuple[type, str]] = {int: (Integral, "a whole number"), float: (Real, "a number")}
    kind, words = kinds.get(option.kind, (str, "a text"))
    if isinstance(value, bool) or not isinstance(value, kind):
        raise DualQueryError(f"{name} must be {words}, got {value!r}")
    return value


def notes_of_machines() -> tuple[str, ...]:
    """What a certificate says of who fitted."""
    return (ONE_AFTER_ANOTHER,) if isinstance(usual_fitter(), CudaFitter) else ()


def _say_all(say: Callable[[str], None], said: Sequence[str]) -> None:
    for sentence in said:
        say(sentence)


@contextmanager
def working_on(engine: str | None, say: Callable[[str], None] = lambda sentence: None) -> Iterator[None]:
    """Counters and fits inside are the engine's; `say` hears why a card was not used."""
    if engine not in (None, *ENGINES):
        raise DualQueryError(f"engine must be one of {', '.join(ENGINES)}, got '{engine}'")
    with ExitStack() as stack:
        if engine == "cuda":
            try:
                counts, fits, weights, cells = Cuda(), CudaFitter(), CardWeights(), CardHistograms()
            except CardError as problem:
                say(f"{problem}; the processor does the work")
            else:
                stack.enter_context(counting_with(counts))
                stack.enter_context(fitting_with(fits))
                stack.enter_context(weighing_with(weights))
                stack.enter_context(believing_with(cells))
                for said in (cells.said, weights.said, fits.said, counts.said):
                    stack.callback(_say_all, say, said)
        yield


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
        with limited(checked_rows("threads", taken.get("threads"))), working_on(taken.get("engine"), warn):
            return function(*given, **named)

    if len(own) < len(shown.parameters):
        known = wishes.options()
        keyword = inspect.Parameter.KEYWORD_ONLY
        options = [
            inspect.Parameter(name, keyword, default=None, annotation=f"{each.kind.__name__} | None")
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
