"""What a service is, in one file: a table and its schema, the releases, the ledger, the promise, the limits."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from dualquery.errors import DualQueryError
from dualquery.privacy.budget import Accounting, Budget
from dualquery.privacy.neighbours import Neighbours
from dualquery.table.toml_text import document, quoted


class ServiceError(DualQueryError):
    """The file that describes a service cannot be read, or says something that cannot be."""


@dataclass(frozen=True, kw_only=True)
class Http:
    """Where the service listens, and how much it takes."""

    host: str = "127.0.0.1"
    port: int = 8642
    quantum: float = 0.02  # seconds between two moments at which answers leave
    longest_body: int = 65_536
    longest_query: int = 4_000
    requests_a_second: float = 200.0  # for each analyst
    bytes_a_day: int = 100_000_000  # of replies that are kept, for each analyst
    connections: int = 500  # at once
    certificate: str = ""  # of TLS, and its key
    key: str = ""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """A service as its owner wrote it down. Files are named from the folder of service.toml."""

    folder: Path
    dataset: str
    table: str
    schema: str
    release: str = ""  # that the table starts from; nothing where it starts from none
    ledger: str
    witness: str
    epsilon: float
    delta: float
    neighbours: str = "replace"
    records_per_person: int | None = None
    public_rows: int | None = None
    questions: int = 2000
    tolerance: float | None = None
    test: str = "hazard"
    published: Mapping[str, str] = field(default_factory=dict)
    http: Http = field(default_factory=Http)

    @property
    def budget(self) -> Budget:
        relation = Neighbours.named(self.neighbours, self.records_per_person)
        return Budget(
            epsilon=self.epsilon, delta=self.delta, neighbours=relation, accounting=Accounting.RENYI
        )

    def path(self, name: str) -> Path:
        return self.folder / name

    @property
    def place(self) -> str:
        return self.ledger if "://" in self.ledger else os.fspath(self.path(self.ledger))

    def to_toml(self) -> str:
        """The file, with a word on each part."""
        lines = [
            "# A service of dualquery. `dualquery serve service.toml` starts it; docs/service.md explains it.",
            "# What stands under the first heading is fixed by the ledger and cannot be changed later.",
            *_assigned(self),
            "\n[published]  # releases that anybody with a token may ask, free",
            *(f"{quoted(name)} = {quoted(place)}" for name, place in self.published.items()),
            "\n[http]",
            *_assigned(self.http),
        ]
        return "\n".join(lines) + "\n"


_NUMBER = (int, float)
_KINDS = {"str": str, "int": int, "int | None": int, "float": _NUMBER, "float | None": _NUMBER}


def _names(of: type) -> dict[str, Any]:
    """The settings that a class has, each with the kind of its value."""
    return {each.name: _KINDS[str(each.type)] for each in fields(of) if str(each.type) in _KINDS}


def read_settings(path: str | os.PathLike[str]) -> Settings:
    """The service that a file describes, or ServiceError."""
    place = Path(path)
    try:
        found = document(place.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise ServiceError(
            f"'{place}' cannot be read: {error.strerror}; make it with `dualquery serve init`"
        ) from None
    except UnicodeDecodeError:
        raise ServiceError(f"'{place}' is not UTF-8 text") from None
    except ValueError as problem:
        raise ServiceError(f"'{place}' {problem}") from None
    first = _checked(found, {**_names(Settings), "published": dict, "http": dict}, place)
    http = Http(**_checked(first.pop("http", {}), _names(Http), place))
    published = first.pop("published", {})
    if not all(isinstance(each, str) for each in published.values()):
        raise ServiceError(f"'{place}': under [published] stand names and folders")
    try:
        made = Settings(folder=place.resolve().parent, published=published, http=http, **first)
    except TypeError:
        wanted = {name for name in _names(Settings) if not hasattr(Settings, name)}  # they have no default
        missing = ", ".join(sorted(wanted - set(first)))
        raise ServiceError(f"'{place}' says nothing about: {missing}") from None
    if not (0.001 <= http.quantum <= 60 and http.requests_a_second > 0 and 0 <= http.port < 65_536):
        raise ServiceError(f"'{place}': under [http] the quantum is 0.001 to 60 seconds, the rate positive")
    if http.bytes_a_day < 1 or http.connections < 1:
        raise ServiceError(f"'{place}': under [http] bytes_a_day and connections are at least 1")
    if made.dataset in published:
        raise ServiceError(f"'{place}': a published release needs another name than the dataset")
    return made


def _checked(
    found: dict[str, Any], kinds: Mapping[str, type | tuple[type, ...]], place: Path
) -> dict[str, Any]:
    for name, value in found.items():
        if name not in kinds:
            raise ServiceError(f"'{place}': '{name}' is not a setting; there are {', '.join(kinds)}")
        beyond = isinstance(value, int) and abs(value) >= 2**63
        if not isinstance(value, kinds[name]) or isinstance(value, bool) or beyond:
            raise ServiceError(f"'{place}': '{name}' has a value of the wrong kind")
    return found


def _assigned(values: Settings | Http) -> list[str]:
    found = {name: getattr(values, name) for name in _names(type(values))}
    return [
        f"{name} = {quoted(value) if isinstance(value, str) else repr(value)}"
        for name, value in found.items()
        if value is not None
    ]
