"""A release as scikit-learn and SDV users ask for one: `Synthesizer(schema).fit(frame).sample(1000)`.

It says nothing that `release` does not say. scikit-learn needs no more of it than parameters that are kept as they
were given, a `fit` that returns itself, and what was learned under names that end in `_`; SDV and SDMetrics need
`sample` and a dict that says what each column is.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from dualquery.errors import DataError, DualQueryError, SchemaError
from dualquery.releases.arguments import GivenBudget, GivenSchema, GivenWorkload, schema_from
from dualquery.releases.frames import KINDS, as_frame, for_people
from dualquery.releases.make import release
from dualquery.releases.release import Release
from dualquery.table.cells import of_objects
from dualquery.table.columns import Categorical
from dualquery.table.dates import Dates
from dualquery.table.domain import Column, Items

SchemaByNames = Callable[[Sequence[str]], GivenSchema]


class ArrayError(DataError, ValueError):
    """An array is no table: scikit-learn expects a ValueError of whoever says so."""


class Synthesizer:
    """A private release with the manners of scikit-learn and SDV. `fit` **spends the budget**, each time.

    `schema`, `workload` and `budget` are those of `dualquery.release`; `schema` may also be a function that is given
    the names of the columns, which are public, and gives one. `options` are other arguments of `release` by name,
    such as `{"ledger": "people.ledger", "mechanism": "mwem"}`. `fit` leaves the release in `release_`.
    """

    def __init__(
        self,
        schema: GivenSchema | SchemaByNames | None = None,
        *,
        budget: GivenBudget = 1.0,
        workload: GivenWorkload = "marginals:2",
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self.schema = schema
        self.budget = budget
        self.workload = workload
        self.options = options

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The arguments that it was made with, as they are now."""
        return {name: getattr(self, name) for name in _PARAMETERS}

    def set_params(self, **given: Any) -> Synthesizer:
        """Other arguments, for the next `fit`."""
        for name in given:
            if name not in _PARAMETERS:
                raise ArrayError(
                    f"a Synthesizer has no parameter '{name}'; it has {', '.join(_PARAMETERS)}, and other arguments "
                    "of dualquery.release go into options"
                )
        for name, value in given.items():
            setattr(self, name, value)
        return self

    def fit(self, X: Any, y: object = None) -> Synthesizer:
        """Release `X`: a pandas, Polars or Arrow table, a path, or an array whose columns follow the schema's.

        `y` is ignored: a column that is to be kept stands in `X`.
        """
        table, names = array_as_table(X)
        if self.schema is None:
            raise SchemaError(
                "say what is public about the table: Synthesizer(schema), with a file, a dict or a Schema; "
                "`dualquery schema draft` writes a first one"
            )
        schema = self.schema(names) if callable(self.schema) else self.schema
        if isinstance(X, np.ndarray) and not callable(self.schema):
            table = _named_by(table, schema)
        self.release_ = release(
            table, schema=schema, workload=self.workload, budget=self.budget, **(self.options or {})
        )
        self.n_features_in_ = len(names)
        if not isinstance(X, np.ndarray):
            self.feature_names_in_ = np.array(names, object)
        module = type(X).__module__.partition(".")[0]
        self.frame_ = "numpy" if isinstance(X, np.ndarray) else module if module in KINDS else "arrow"
        return self

    def sample(
        self, n: int | None = None, *, frame: str | None = None, random_state: int | None = None
    ) -> Any:
        """So many synthetic rows, by default as many as the table has; free. None is a person.

        They are drawn from the rows of the release without replacement, where it has so many. `frame` is pandas,
        polars, arrow or numpy; by default what `fit` was given.
        """
        made, rng = self._made(), np.random.default_rng(random_state)
        rows = made.to_arrow()
        if made.records is None:
            raise DualQueryError(
                "this mechanism answers questions and makes no rows; name another in options, or none"
            )
        wanted = for_people(made).num_rows if n is None else n
        if not isinstance(wanted, int | np.integer) or isinstance(wanted, bool) or wanted < 1:
            raise ArrayError("the number of rows to sample must be a whole number, and at least 1")
        places = rng.choice(rows.num_rows, wanted, replace=wanted > rows.num_rows)
        drawn, kind = rows.take(pa.array(places)), frame or self.frame_
        if kind != "numpy":
            return as_frame(drawn, kind)
        return np.column_stack([column.to_numpy(zero_copy_only=False) for column in drawn.columns])

    def get_metadata(self) -> dict[str, Any]:
        """What each column is, in the words of SDV (`SingleTableMetadata.load_from_dict`) and SDMetrics."""
        columns = {each.name: _described(each) for each in self._made().domain.columns}
        return {"METADATA_SPEC_VERSION": "SINGLE_TABLE_V1", "columns": columns}

    def _made(self) -> Release:
        found = getattr(self, "release_", None)
        if not isinstance(found, Release):
            raise DualQueryError("nothing was released yet; call fit with the private table first")
        return found

    def __repr__(self) -> str:
        usual = inspect.signature(Synthesizer).parameters
        shown = [
            (name, value) for name, value in self.get_params().items() if value is not usual[name].default
        ]
        return f"Synthesizer({', '.join(f'{name}={value!r}' for name, value in shown)})"

    def __sklearn_tags__(self) -> Any:
        """What scikit-learn asks an estimator about itself; only it calls this."""
        from sklearn.utils import InputTags, Tags, TargetTags

        takes = InputTags(two_d_array=True, string=True, categorical=True, allow_nan=True)
        return Tags(
            estimator_type=None,
            target_tags=TargetTags(required=False),
            input_tags=takes,
            non_deterministic=True,
        )


_PARAMETERS = tuple(inspect.signature(Synthesizer).parameters)


def array_as_table(given: Any) -> tuple[Any, list[str]]:
    """What `release` reads, and the names of its columns; of an array x0, x1 and so on."""
    if isinstance(given, np.ndarray):
        if np.iscomplexobj(given):
            raise ArrayError("Complex data not supported: give real numbers")
        if given.ndim != 2:
            raise ArrayError(
                f"expected an array of rows and columns, got one of {given.ndim} dimensions. Reshape your data: "
                "X.reshape(-1, 1) is one column"
            )
        if given.shape[1] == 0:
            raise ArrayError(f"0 feature(s) (shape={given.shape}) while a minimum of 1 is required.")
        if given.shape[0] == 0:
            raise ArrayError(f"0 sample(s) (shape={given.shape}) while a minimum of 1 is required.")
        names = [f"x{j}" for j in range(given.shape[1])]
        return pa.table([_cells(*named) for named in zip(given.T, names, strict=True)], names=names), names
    if hasattr(given, "tocsr") or hasattr(given, "toarray"):
        raise ArrayError(
            "sparse arrays are no tables; give X.toarray(), or baskets of items (docs/schema.md)"
        )
    named: Any = given.column_names if isinstance(given, pa.Table) else getattr(given, "columns", None)
    return given, [] if named is None else [str(name) for name in named]


def _cells(column: np.ndarray, name: str) -> pa.Array:
    """Objects one by one: no record decides how another is read (`table.cells`)."""
    try:
        return (
            of_objects(list(column), name, lists=False)
            if column.dtype == object
            else pa.array(column, from_pandas=True)
        )
    except (DataError, pa.ArrowException) as error:
        raise ArrayTypeError(f"{error}: argument must be a string or a number") from None


class ArrayTypeError(DataError, TypeError):
    """A cell is neither a number nor a text: scikit-learn expects a TypeError."""


def _named_by(table: pa.Table, schema: Any) -> pa.Table:
    """The columns of an array are those of the schema, in its order."""
    names = [column.name for column in schema_from(schema).domain.columns]
    if len(names) != table.num_columns:
        raise ArrayError(
            f"the array has {table.num_columns} columns and the schema {len(names)}; give a frame with names"
        )
    return table.rename_columns(names)


def _described(column: Column) -> dict[str, Any]:
    if isinstance(column, Dates):
        written = "%Y-%m-%d" if column.per_day == 1 else "%Y-%m-%d %H:%M:%S"
        return {"sdtype": "datetime", "datetime_format": column.format or written}
    if isinstance(column, Items):
        return {"sdtype": "unknown", "pii": False}
    if isinstance(column, Categorical) and not column.numeric:
        return {"sdtype": "categorical"}
    return {"sdtype": "numerical"}
