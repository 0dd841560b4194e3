"""What has a name and may be added from outside: kinds of tables, mechanisms, sources, solvers.

    dualquery.register(MEDIAN)                              # in a session

    [project.entry-points."dualquery.mechanisms"]           # in the pyproject.toml of a package
    median = "a_package:MEDIAN"

A registry knows the built-in names and where their values live, and imports a value when somebody asks for it, so
that a command that needs none starts at once. Packages with entry points (dualquery.kinds, dualquery.mechanisms,
dualquery.sources, dualquery.solvers) are asked when a name is looked up that is not known, and when all names are
listed. One that fails is told in a sentence that names it, and stops no other. None can take a built-in name.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Mapping, MutableMapping
from importlib import import_module
from typing import Any, ClassVar, TypeVar

from dualquery.errors import DualQueryError

Value = TypeVar("Value")


class Registry(MutableMapping[str, Value]):
    """Values by name, the built-in ones first. The class of a value says where it belongs (`registered_in`)."""

    every: ClassVar[dict[str, Registry[Any]]] = {}

    def __init__(self, group: str, noun: str, homes: Mapping[str, str] | None = None) -> None:
        self.group, self.noun = group, noun  # of entry points; in sentences
        self.homes = dict(homes or {})  # "module:name" of each built-in value
        self._values: dict[str, Value] = {}
        self._asked = False  # whether packages were
        Registry.every[group] = self

    def __getitem__(self, name: str) -> Value:
        if name not in self._values and name in self.homes:
            module, _, attribute = self.homes[name].partition(":")
            self._values[name] = getattr(import_module(module), attribute)
        elif name not in self._values:
            self._ask_packages()
        return self._values[name]

    def __contains__(self, name: object) -> bool:
        if name not in self.homes and name not in self._values:
            self._ask_packages()
        return name in self.homes or name in self._values

    def __iter__(self) -> Iterator[str]:
        self._ask_packages()
        return iter({**self.homes, **self._values})

    def __len__(self) -> int:
        return len(list(iter(self)))

    def __setitem__(self, name: str, value: Value) -> None:
        self._values[name] = value

    def __delitem__(self, name: str) -> None:
        del self._values[name]

    @property
    def added(self) -> dict[str, Value]:
        return {name: self[name] for name in self if name not in self.homes}

    def add(self, value: Value) -> None:
        """Add a value under its name; one that was added before under that name makes room."""
        name = getattr(value, "name", None)
        if not isinstance(name, str) or not re.fullmatch(r"[a-z][a-z0-9-]*", name):
            raise DualQueryError(f"a {self.noun} name needs small letters, digits and hyphens, got {name!r}")
        if name in self.homes:
            raise DualQueryError(f"'{name}' is a built-in {self.noun} and stays one; choose another name")
        self._values[name] = value

    def _ask_packages(self) -> None:
        if self._asked:
            return
        self._asked = True
        from importlib.metadata import entry_points

        for entry in entry_points(group=f"dualquery.{self.group}"):
            package = (
                entry.value.partition(":")[0].partition(".")[0] if entry.dist is None else entry.dist.name
            )
            try:
                value = entry.load()
                if _group_of(value) != self.group:
                    raise DualQueryError(f"{entry.value} is no {self.noun}")
                if value.name in self._values:
                    raise DualQueryError(f"another package has added a {self.noun} of this name")
                self.add(value)
            except (Exception, SystemExit) as problem:
                said = " ".join(str(problem).split()) or type(problem).__name__
                warnings.warn(
                    f"the package '{package}' could not add the {self.noun} '{entry.name}': {said}; "
                    "update the package, or remove it",
                    stacklevel=2,
                )


def _group_of(value: object) -> str:
    return getattr(type(value), "registered_in", "")


def register(value: Value) -> Value:
    """Add a kind of table, a mechanism, a source or a solver under its name, for this process; it is given back."""
    registry = Registry.every.get(_group_of(value))
    if registry is None:
        raise DualQueryError(
            f"only a Kind, a Mechanism, a Source or a Solver can be registered, got {type(value).__name__}"
        )
    registry.add(value)
    return value


# Tables and queries ask it and stand below what it lists; `dualquery/__init__.py` says where the built-in ones live.
KINDS: Registry[Any] = Registry("kinds", "kind of table")
