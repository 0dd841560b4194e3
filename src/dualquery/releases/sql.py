"""SQL on the synthetic rows, by DuckDB.

The rows are the table `data`, of a database each table by its name. They are not as many as the private records, so
every `count` and `sum` over them is multiplied by records / rows. DuckDB hands out its reading of a query as JSON;
there each such call is replaced by its product with that number, and the query is handed back: nothing is read here
with patterns.

`releases.sql_bars` says how far off each number may be.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from dualquery.errors import QueryError

DATA = "data"
_SCALED = {"count", "count_star", "sum"}
_TEMPLATE = "select count(*) * {scale!r}::double from data"

Node = dict[str, Any]


class SqlQuery:
    """A query as DuckDB reads it. `keys` names the key of each table of a database, and is empty for one table."""

    def __init__(self, duckdb: Any, text: str, keys: Mapping[str, str] | None = None) -> None:
        if not isinstance(text, str):
            raise QueryError(f"expected SQL as text, got {type(text).__name__}")
        self._error = duckdb.Error
        self._keys = {name.lower(): key.lower() for name, key in (keys or {}).items()}
        # One thread: groups come in the same order every time, also where nobody asks for one.
        config = {"enable_external_access": "false", "threads": "1"}
        self._connection = duckdb.connect(":memory:", config=config)
        self._tree = self._read(text)
        self._node: Node = self._tree["statements"][0]["node"]
        self._plain = self._node["type"] == "SELECT_NODE"
        if self._keys:
            refuse_what_is_not_along_keys(self._tree, self._keys)
        else:
            _refuse_what_cannot_be_scaled(self._node)

    def of(self, rows: pa.Table | Mapping[str, pa.Table], number: float, *, whole: bool = False) -> pa.Table:
        """What the query makes of some rows, as if they were so many; without `whole`, of every group there is.

        Of a database it is the units that are so many, and all tables have their factor.
        """
        tables = {DATA: rows} if isinstance(rows, pa.Table) else dict(rows)
        scaled = self._scaled(number / next(iter(tables.values())).num_rows)
        node = scaled["statements"][0]["node"]
        if not whole and self._plain:
            node["modifiers"], node["having"] = [], None
        with _in_a_sentence(self._error):
            asked = self._connection.execute("select json_deserialize_sql(?::json)", [json.dumps(scaled)])
            ((query,),) = asked.fetchall()
            for name, table in tables.items():
                self._connection.register(name, table)
            found = self._connection.sql(query).to_arrow_table()
        return found.rename_columns(self._names(found.column_names)) if self._plain else found

    def computed(self, found: pa.Table) -> list[int]:
        """The columns that are numbers made of an aggregate, where rows can be told apart by the others."""
        if not self._plain or len(self._node["select_list"]) != found.num_columns:
            return []
        places = [i for i, each in enumerate(self._node["select_list"]) if any(aggregates(each))]
        return [i for i in places if _is_number(found.schema.field(i).type)]

    @property
    def names(self) -> set[str] | None:
        """The names of the columns that it mentions, in small letters; None where it asks for all of them."""
        every = [each for each in _walk(self._tree) if each.get("class") == "STAR"]
        if every:
            return None
        named = [each for each in _walk(self._tree) if each.get("class") == "COLUMN_REF"]
        return {each["column_names"][-1].lower() for each in named}

    @property
    def selected(self) -> list[Node]:
        """What stands behind SELECT."""
        found: list[Node] = self._node["select_list"]
        return found

    def _names(self, given: Sequence[str]) -> list[str]:
        """What a column is called that has no name of its own: as if nothing had been scaled."""
        if len(given) != len(self._node["select_list"]):
            return list(given)
        names = []
        for name, each in zip(given, self._node["select_list"], strict=True):
            bare = each.get("function_name", "").removesuffix("_star") if any(aggregates(each)) else ""
            names.append(bare if bare in _SCALED and not each["alias"] else name)
        return _apart(names)

    def _read(self, text: str) -> Node:
        with _in_a_sentence(self._error):
            ((found,),) = self._connection.execute("select json_serialize_sql(?::varchar)", [text]).fetchall()
        tree: Node = json.loads(found)
        if tree.get("error"):
            said = str(tree.get("error_message", "it is no query"))
            if "Only SELECT" in said:
                raise QueryError("only SELECT can be asked: nothing in a release is changed by SQL")
            raise QueryError(f"the SQL cannot be read: {said.splitlines()[0]}")
        if len(tree["statements"]) != 1:
            raise QueryError("give one SELECT at a time")
        return tree

    def _scaled(self, scale: float) -> Node:
        """A copy of the query with every count and sum over the rows multiplied."""
        template = self._read(_TEMPLATE.format(scale=scale))["statements"][0]["node"]["select_list"][0]
        copy: Node = json.loads(json.dumps(self._tree))
        for select in list(_selects(copy)):
            if self._keys or _is_data(select["from_table"]):
                for key in ("select_list", "having", "modifiers", "qualify"):
                    select[key] = _multiplied(select[key], template)
        return copy


@contextmanager
def _in_a_sentence(problem: type[BaseException]) -> Iterator[None]:
    """Errors of DuckDB as ours; all that it can quote is public."""
    try:
        yield
    except problem as error:
        said = [line.strip() for line in str(error).splitlines() if line.strip()]
        if "Table with name" in said[0]:
            raise QueryError(
                "the synthetic rows are the one table there is, and it is called data; those of a database have "
                "the names of the schema"
            ) from None
        raise QueryError(f"the SQL cannot be answered: {' '.join(said[:2])}") from None


def _walk(node: Any) -> Iterator[Node]:
    """Every object of a tree, outermost first."""
    if isinstance(node, dict):
        yield node
        for each in node.values():
            yield from _walk(each)
    elif isinstance(node, list):
        for each in node:
            yield from _walk(each)


def _selects(tree: Any) -> Iterator[Node]:
    return (each for each in _walk(tree) if each.get("type") == "SELECT_NODE")


def _is_data(source: Any) -> bool:
    named = isinstance(source, dict) and source.get("type") == "BASE_TABLE"
    return named and source.get("table_name", "").lower() == DATA


def is_scaled(node: Mapping[str, Any]) -> bool:
    called = node.get("class") == "FUNCTION" and node.get("function_name") in _SCALED
    return called and not node.get("distinct", False)


_OTHERS = """
    avg mean min max median mode stddev stddev_samp stddev_pop variance var_samp var_pop quantile quantile_cont
    quantile_disc approx_quantile corr covar_pop covar_samp regr_slope regr_intercept regr_r2 entropy skewness
    kurtosis approx_count_distinct geometric_mean product bool_and bool_or count_if first last
"""
_AGGREGATES = _SCALED.union(_OTHERS.split())


def aggregates(node: Any) -> Iterator[Node]:
    """Calls that make one value of many rows, windows included."""
    for each in _walk(node):
        called = each.get("class") == "FUNCTION" and each.get("function_name") in _AGGREGATES
        if called or each.get("class") == "WINDOW":
            yield each


def _multiplied(node: Any, template: Node) -> Any:
    """A tree in which each count or sum is the first factor of a product; subqueries keep their own."""
    if isinstance(node, list):
        return [_multiplied(each, template) for each in node]
    if not isinstance(node, dict) or node.get("type") == "SELECT_NODE":
        return node
    if is_scaled(node):
        return {**_filled(template, {**node, "alias": ""}), "alias": node.get("alias", "")}
    return {key: _multiplied(value, template) for key, value in node.items()}


def _filled(node: Any, factor: Node) -> Any:
    """The template of a product, with another factor in the place of its count."""
    if isinstance(node, list):
        return [_filled(each, factor) for each in node]
    if not isinstance(node, dict):
        return node
    if node.get("function_name") == "count_star":
        return factor
    return {key: _filled(value, factor) for key, value in node.items()}


def _refuse_what_cannot_be_scaled(tree: Node) -> None:
    """Counts over anything but the rows alone would be those of synthetic rows, and look like records."""
    for select in _selects(tree):
        source = select["from_table"]
        joined = isinstance(source, dict) and source.get("type") == "JOIN"
        if joined and any(_is_data(each) for each in _walk(source)):
            raise QueryError(
                f"'{DATA}' cannot be joined: its rows stand for no one, and counts of pairs mean nothing"
            )
        if not _is_data(source):
            continue
        for each in _walk([select["select_list"], select["qualify"]]):
            inside = [value for key, value in each.items() if key != "function_name"]
            if each.get("class") == "WINDOW" and not any(aggregates(inside)):
                raise QueryError("a window over the rows themselves ranks synthetic rows; group them first")


def refuse_what_is_not_along_keys(tree: Node, keys: Mapping[str, str]) -> None:
    """Of a database: one SELECT, from its tables, each joined to those before it by the key of the unit."""
    nodes = [each for each in _walk(tree) if str(each.get("type", "")).endswith("_NODE")]
    if len(nodes) != 1:
        raise QueryError(
            "one SELECT without others inside can be asked of a database: of an inner one it is not known whether it "
            "counts units; ask `answer` with any, all or count"
        )
    (select,) = nodes
    _joined_along(select["from_table"], keys)
    parts = ("select_list", "where_clause", "group_expressions", "having", "modifiers")
    spoken = [select[part] for part in parts]
    named = {each["column_names"][-1].lower() for each in _walk(spoken) if each.get("class") == "COLUMN_REF"}
    if told := sorted(named & set(keys.values())):
        raise QueryError(
            f"'{told[0]}' is a key that the release made up: join by it, and ask about attributes"
        )
    if any(each.get("class") == "WINDOW" for each in _walk(spoken)):
        raise QueryError("a window over the rows of a database ranks synthetic rows; group them instead")


def _joined_along(source: Any, keys: Mapping[str, str]) -> dict[str, str]:
    """The keys of the tables of a FROM by the names that they go by; a QueryError where one is not joined by them."""
    if isinstance(source, dict) and source.get("type") == "BASE_TABLE":
        name = str(source["table_name"]).lower()
        if name not in keys:
            raise QueryError(f"the release has no table '{name}'; there are {', '.join(keys)}")
        return {str(source["alias"] or name).lower(): keys[name]}
    if not isinstance(source, dict) or source.get("type") != "JOIN":
        raise QueryError(f"name a table behind FROM: {', '.join(keys)}")
    left, right = (_joined_along(source[side], keys) for side in ("left", "right"))
    by = _sides(source)
    along = by is not None and all(any(_is_key(column, tables) for column in by) for tables in (left, right))
    if not along or source["join_type"] not in ("INNER", "LEFT") or source["ref_type"] != "REGULAR":
        one, other = (next(iter(tables.items())) for tables in (left, right))
        raise QueryError(
            "tables of a database are joined along their keys alone, like "
            f"{one[0]} join {other[0]} on {one[0]}.{one[1]} = {other[0]}.{other[1]}"
        )
    return left | right


def _sides(join: Node) -> list[list[str]] | None:
    """The columns that a join compares, each as it is named; None where it is no comparison of two columns."""
    if len(join["using_columns"]) == 1:
        return [[str(join["using_columns"][0]).lower()]]
    condition = join["condition"] or {}
    parts = [condition.get("left") or {}, condition.get("right") or {}]
    if condition.get("type") != "COMPARE_EQUAL" or any(each.get("class") != "COLUMN_REF" for each in parts):
        return None
    return [[str(name).lower() for name in each["column_names"]] for each in parts]


def _is_key(column: Sequence[str], tables: Mapping[str, str]) -> bool:
    """Whether a column, with its table before it or not, is the key of one of these tables."""
    if len(column) == 1:
        return column[0] in tables.values()
    return tables.get(column[-2]) == column[-1]


def _is_number(kind: pa.DataType) -> bool:
    return pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)


def _apart(names: Sequence[str]) -> list[str]:
    """Names, the second of a kind with a number behind it."""
    found: list[str] = []
    for name in names:
        number = 1
        while (name if number == 1 else f"{name}_{number}") in found:
            number += 1
        found.append(name if number == 1 else f"{name}_{number}")
    return found
