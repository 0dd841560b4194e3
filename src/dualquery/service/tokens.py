"""Who may ask: tokens, stored hashed; analysts with a share of the budget, and owners, who see everybody's.

A token is `dq_PUBLIC_SECRET`. The public part finds the row, and the hash of the whole is compared in constant time;
where there is no such row, with a hash that nobody has. The secret has 256 bits, so that one SHA-256 is enough.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from dataclasses import dataclass
from datetime import UTC, datetime
from fractions import Fraction

import sqlalchemy as sql

from dualquery.errors import DualQueryError
from dualquery.service.storage import AwayError, Storage
from dualquery.service.tables import METADATA

ANALYST, OWNER = "analyst", "owner"
LONGEST_NAME = 100
TOKENS = sql.Table(
    "dualquery_service_tokens",
    METADATA,
    sql.Column("name", sql.Text, primary_key=True),
    *(sql.Column(each, sql.Text) for each in ("role", "public_part", "hash", "quota", "added", "revoked")),
)


@dataclass(frozen=True)
class Holder:
    """Somebody with a token."""

    name: str
    role: str
    quota: Fraction  # of what the release left over, 0 to 1
    added: str
    revoked: str  # when; "" as long as the token is good

    @property
    def owns(self) -> bool:
        return self.role == OWNER


def add(storage: Storage, name: str, *, quota: float, owner: bool = False) -> str:
    """A new token, which is shown once and kept nowhere; DualQueryError where the name has one that is good."""
    if not name.strip() or len(name) > LONGEST_NAME or not name.isprintable():
        raise DualQueryError(f"the name of an analyst has 1 to {LONGEST_NAME} printable characters")
    if not 0 <= quota <= 1:
        raise DualQueryError("a quota is a share of the budget, from 0 to 1")
    public_part, secret = secrets.token_hex(8), secrets.token_urlsafe(32)
    token = f"dq_{public_part}_{secret}"
    row = {
        "role": OWNER if owner else ANALYST,
        "public_part": public_part,
        "hash": _hash(token),
        "quota": repr(float(quota)),
        "added": _today(),
        "revoked": "",
    }
    with storage.changing() as connection:
        before = connection.execute(sql.select(TOKENS).where(TOKENS.c.name == name)).mappings().one_or_none()
        if before is None:
            connection.execute(sql.insert(TOKENS).values(name=name, **row))
        elif before["revoked"]:
            connection.execute(sql.update(TOKENS).where(TOKENS.c.name == name).values(**row))
        else:
            raise DualQueryError(f"'{name}' has a token; revoke it first to give another")
    return token


def revoke(storage: Storage, name: str) -> None:
    """From now on (a running server: within a second) the token of this name opens nothing."""
    good = sql.and_(TOKENS.c.name == name, TOKENS.c.revoked == "")
    with storage.changing() as connection:
        done = connection.execute(sql.update(TOKENS).where(good).values(revoked=_today()))
    if done.rowcount != 1:
        raise DualQueryError(f"'{name}' has no token that could be revoked")


def holders(storage: Storage) -> list[Holder]:
    """Everybody who has or had a token."""
    with storage.reading() as connection:
        return [_holder(row) for row in connection.execute(_ALL).mappings()]


class Tokens:
    """The tokens as a running server knows them."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._rows: dict[str, tuple[str, Holder]] = {}
        self.refresh()

    def refresh(self) -> None:
        """Look again; while the database is away, what was known stays."""
        try:
            with self._storage.reading() as connection:
                rows = connection.execute(_ALL).mappings().all()
        except AwayError:
            return
        self._rows = {row["public_part"]: (row["hash"], _holder(row)) for row in rows if not row["revoked"]}

    def holder(self, token: str) -> Holder | None:
        """Whose token this is."""
        parts = token.split("_", 2)
        known, holder = self._rows.get(parts[1] if len(parts) == 3 else "", (_NOBODYS, None))
        return holder if hmac.compare_digest(_hash(token), known) else None

    @property
    def all(self) -> list[Holder]:
        return [holder for _, holder in self._rows.values()]


def _holder(row: sql.RowMapping) -> Holder:
    return Holder(row["name"], row["role"], Fraction(row["quota"]), row["added"], row["revoked"])


def _hash(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", errors="replace")).hexdigest()


def _today() -> str:
    return datetime.now(UTC).date().isoformat()


_ALL = sql.select(TOKENS).order_by(TOKENS.c.name)
_NOBODYS = secrets.token_hex(32)
