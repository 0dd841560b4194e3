"""Imports run downwards, data players and oracles never meet the truth, the service never its evaluation.

Everything here is a function of source texts, so that a changed copy of a source can be checked, too.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatch
from functools import cache
from pathlib import Path

import pytest

import dualquery

SOURCE = Path(__file__).resolve().parents[1] / "src" / "dualquery"

# What stands lower may be imported by what stands higher. Siblings on one step do not import each other.
STEPS = [
    {"errors", "randomness", "types"},
    {"card", "loops"},
    {"example", "plots", "registry"},
    {"table"},
    {"queries"},
    {"counting"},
    {"privacy"},
    {"ledger"},
    {"game"},
    {"fitting"},
    {"oracles"},
    {"beliefs"},
    {"mechanisms"},
    {"kinds"},
    {"inference"},
    {"releases"},
    {"audits"},
    {"interactive"},
    {"service"},
    {"desk"},
    {"cli"},
    {"__main__"},
]
HEIGHT = {name: height for height, step in enumerate(STEPS) for name in step}

# Whoever best-responds or learns from what was heard; to these come all modules that define a data player.
BLIND = ("dualquery.oracles*", "dualquery.beliefs.*", "dualquery.fitting.*")
UNSEEN = {"privacy", "counting"}  # by the blind

# Who may say `true_counts` or `true_rows`. The rehearsal and replicas have public numbers in a counter's clothes.
TRUTHFUL = (
    "dualquery.counting*",
    "dualquery.privacy.*",
    "dualquery.releases.evaluate",
    "dualquery.releases.quality",
    "dualquery.mechanisms.dual_query.rehearsal",
    "dualquery.mechanisms.error_bars",
)

Sources = Mapping[str, str]


def module_name(path: Path) -> str:
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


PATHS = {module_name(path): path for path in sorted(SOURCE.rglob("*.py"))}
SOURCES: Sources = {name: path.read_text(encoding="utf-8") for name, path in PATHS.items()}


def part(name: str) -> str:
    return name.split(".")[1] if "." in name else ""


def packages_of(name: str) -> Iterator[str]:
    """The packages that are imported on the way to a module; the first of all imports nothing by itself."""
    while "." in (name := name.rpartition(".")[0]):
        yield name


def home_of(module: str, name: str) -> str:
    """Where a name comes from: `from package import module` imports the module.

    From `dualquery` itself a public name is fetched from its home; its version comes from nowhere else.
    """
    full = f"{module}.{name}"
    if module == "dualquery" and full not in PATHS:
        return "" if name == "__version__" else dualquery._HOMES[name]
    return full if full in PATHS else module


def imported_by(nodes: Iterable[ast.AST]) -> set[str]:
    """The modules of this package that these nodes import, by a statement or by a name in a string."""
    found = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are written out"
            found |= {home_of(str(node.module), alias.name) for alias in node.names}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            named = node.value.partition(":")[0]  # "module:name", in a registry
            found |= {named} & PATHS.keys() if "." in named else set()
    return {name for name in found if name.split(".")[0] == "dualquery"}


@cache
def imports(text: str) -> set[str]:
    """What a source imports, anywhere in it."""
    return imported_by(ast.walk(ast.parse(text)))


@cache
def defines_a_data_player(text: str) -> bool:
    nodes = ast.walk(ast.parse(text))
    return any(isinstance(node, ast.ClassDef) and node.name.endswith("DataPlayer") for node in nodes)


def graph_of(sources: Sources) -> dict[str, set[str]]:
    return {name: imports(text) for name, text in sources.items()}


def everything_below(name: str, graph: Mapping[str, set[str]]) -> set[str]:
    """All that is imported where this module is, its packages included."""
    seen: set[str] = set()
    left = [name]
    while left:
        current = left.pop()
        for each in (*graph.get(current, ()), *packages_of(current)):
            if each not in seen:
                seen.add(each)
                left.append(each)
    return seen


def blind(sources: Sources) -> set[str]:
    """The modules that never see data: those listed, and every one that defines a data player."""
    players = {name for name, text in sources.items() if defines_a_data_player(text)}
    listed = {name for name in sources if any(fnmatch(name, pattern) for pattern in BLIND)}
    return players | listed


def glimpses(sources: Sources) -> dict[str, set[str]]:
    """What each blind module can reach of the rooms where the truth is; empty where all is well."""
    graph = graph_of(sources)
    found = {
        name: {other for other in everything_below(name, graph) if part(other) in UNSEEN}
        for name in blind(sources)
    }
    return {name: reached for name, reached in found.items() if reached}


def true_names(text: str) -> set[str]:
    """The names of the truth that a source mentions, in whatever place."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(text)):
        for field in ("id", "attr", "name", "arg", "asname", "value"):
            value = getattr(node, field, None)
            if isinstance(value, str) and value in ("true_counts", "true_rows"):
                found.add(value)
    return found


@pytest.mark.parametrize("name", [name for name in SOURCES if part(name)])
def test_imports_run_downwards(name: str) -> None:
    assert part(name) in HEIGHT, f"give {part(name)} a step"
    for other in imports(SOURCES[name]):
        if part(other) and part(other) != part(name):
            assert HEIGHT[part(other)] < HEIGHT[part(name)], f"{name} imports {other}"


def test_who_never_sees_data_never_reaches_the_truth() -> None:
    assert glimpses(SOURCES) == {}


def test_every_data_player_and_oracle_is_checked() -> None:
    checked = blind(SOURCES)
    for name in (
        "dualquery.game",
        "dualquery.fitting.fitter",
        "dualquery.fitting.cpu",
        "dualquery.oracles.program",
        "dualquery.oracles.local_search",
        "dualquery.beliefs.factored",
        "dualquery.beliefs.multiplicative_weights",
        "dualquery.fitting.fit",
        "dualquery.fitting.measured",
    ):
        assert name in checked
    for pattern in BLIND:
        assert any(fnmatch(name, pattern) for name in SOURCES), f"{pattern} names nobody"


@pytest.mark.parametrize(
    "name",
    [
        "dualquery.game",
        "dualquery.beliefs.multiplicative_weights",
        "dualquery.oracles.local_search",
        "dualquery.fitting.cpu",
        "dualquery.fitting.fit",
        "dualquery.fitting.measured",
    ],
)
@pytest.mark.parametrize(
    "line",
    [
        "from dualquery.privacy.curator import Curator",
        "import dualquery.privacy.curator",
        "from dualquery.privacy import curator",
        "from dualquery.counting import MemoryCounter",
        "from dualquery import Budget",
        "import dualquery",
        "from dualquery.game.query_players import LearningQueryPlayer",  # through another
        "def look():\n    from dualquery.privacy.curator import Curator",
        'curator = __import__("dualquery.privacy.curator")',
    ],
)
def test_a_player_that_looked_would_be_found(name: str, line: str) -> None:
    """The check is fed a copy of a source with one line more."""
    assert name in glimpses({**SOURCES, name: f"{SOURCES[name]}\n{line}\n"})


def test_a_player_in_a_room_with_the_curator_would_be_found() -> None:
    name = "dualquery.mechanisms.mwem"
    added = f"{SOURCES[name]}\nclass PeepingDataPlayer:\n    pass\n"
    assert name in glimpses({**SOURCES, name: added})


def test_the_truth_is_named_only_where_it_is_kept() -> None:
    for name, text in SOURCES.items():
        if not any(fnmatch(name, pattern) for pattern in TRUTHFUL):
            assert not true_names(text), name
    for pattern in TRUTHFUL:
        assert any(fnmatch(name, pattern) and true_names(text) for name, text in SOURCES.items()), pattern


@pytest.mark.parametrize(
    "line",
    [
        "x = counter.true_counts(workload)",
        "true_rows = 5",
        "def true_counts(): pass",
        "def f(true_rows): pass",
        'x = getattr(counter, "true_rows")',
        "f(true_rows=3)",
        "from somewhere import true_counts",
    ],
)
def test_every_way_to_name_the_truth_is_seen(line: str) -> None:
    assert true_names(line)


@cache
def used_by(text: str) -> set[str]:
    """The names that a source imports from elsewhere, or reaches through a module."""
    nodes = list(ast.walk(ast.parse(text)))
    imported = {alias.name for node in nodes if isinstance(node, ast.ImportFrom) for alias in node.names}
    return imported | {node.attr for node in nodes if isinstance(node, ast.Attribute)}


def users_of(*names: str) -> set[str]:
    return {module for module, text in SOURCES.items() if used_by(text) & {*names}}


def test_records_are_put_into_a_counter_only_where_a_release_is_made_or_judged() -> None:
    released = {
        "dualquery.mechanisms.error_bars",
        "dualquery.service.run",
    }  # whose records are released ones
    judged = {"dualquery.releases.make", "dualquery.releases.evaluate"}
    drafted = {"dualquery.releases.private_draft"}  # records as texts, before there is a schema
    counters = users_of("MemoryCounter", "SpilledCounter", "SparkCounter", "counted_by")
    counters = {
        name for name in counters if part(name) not in ("audits", "counting")
    }  # tables of audits are invented
    assert counters == judged | drafted | released
    assert users_of("open_counter") == judged
    assert users_of("ColumnCounter") - released == {"dualquery.interactive.opening"}


def services_that_judge(sources: Sources) -> set[str]:
    """The modules of the service that reach the evaluation, and so the truth without noise."""
    graph = graph_of(sources)
    service = {name for name in sources if part(name) == "service"}
    return {name for name in service if "dualquery.releases.evaluate" in everything_below(name, graph)}


def test_the_service_cannot_reach_the_evaluation() -> None:
    assert services_that_judge(SOURCES) == set()
    name = "dualquery.service.answers"
    assert services_that_judge({**SOURCES, name: "from dualquery.releases.release import Release"}) == set()
    assert services_that_judge({**SOURCES, name: "from dualquery.releases import evaluate"}) == {name}
    assert services_that_judge({**SOURCES, name: "from dualquery.cli.released import evaluate"}) == {name}


def test_no_module_is_imported_in_a_circle() -> None:
    """Imports inside functions may look back; those at the top of a module may not."""
    top = {
        name: {each for each in imported_by(ast.parse(text).body) if part(each)}
        for name, text in SOURCES.items()
    }
    done: set[str] = set()

    def visit(name: str, trail: tuple[str, ...]) -> None:
        assert name not in trail, " → ".join((*trail, name))
        if name not in done:
            for other in top.get(name, set()):
                visit(other, (*trail, name))
            done.add(name)

    for name in SOURCES:
        visit(name, ())
