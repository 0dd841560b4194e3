"""Who may ask: tokens, stored hashed; analysts with a share of the budget, and owners, who see everybody's.

A token is `dq_PUBLIC_SECRET`. The public part finds the row, and the hash of the whole is compared in constant time;
where there is no such row, with a hash that nobody has. The secret has 256 bits, so that one SHA-256 is enough.

Who has which token follows from the ledger: a line `granted` gives a name its token, role and quota, in place of
what it had before, and a line `revoked` takes the token away. Whoever gives tokens writes the line where no server
has the ledger open; otherwise the server does, which looks for such wishes every second.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import secrets
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from fractions import Fraction

from dualquery.errors import DualQueryError, LedgerError
from dualquery.ledger import Line, NewLine, Witness, chained
from dualquery.ledger.journal import Storage, TakenError

ANALYST, OWNER = "analyst", "owner"
GRANTED, REVOKED = "granted", "revoked"  # the kinds of their lines
LONGEST_NAME = 100
PATIENCE = 15.0  # seconds that a running server has to write a line


@dataclass(frozen=True, kw_only=True)
class Holder:
    """Somebody with a token, as the line says that gave it."""

    name: str
    role: str
    quota: Fraction  # of what the release left over, 0 to 1
    public_part: str
    hash: str
    added: str
    expires: str = ""  # when; "" for never
    revoked: str = ""  # when; "" as long as it was not

    @property
    def owns(self) -> bool:
        return self.role == OWNER

    @property
    def good(self) -> bool:
        return not self.revoked and (not self.expires or self.expires > _now())


class Tokens:
    """The tokens that follow from lines. One thread hears lines; any may look."""

    def __init__(self, lines: Iterable[Line] = ()) -> None:
        self._holders: dict[str, Holder] = {}
        self._by_public_part: dict[str, Holder] = {}
        self._heard: set[str] = set()
        for line in lines:
            self.hear(line)

    def hear(self, line: Line) -> None:
        """Follow a line of the chain; others than ours say nothing about tokens."""
        if line.kind not in (GRANTED, REVOKED):
            return
        number, change = _read(line.kind, line.body)
        self._heard.add(number)
        if isinstance(change, Holder):
            self._holders = {**self._holders, change.name: change}
        elif line.analyst in self._holders:
            gone = replace(self._holders[line.analyst], revoked=change)
            self._holders = {**self._holders, line.analyst: gone}
        self._by_public_part = {each.public_part: each for each in self._holders.values()}

    def heard(self, number: str) -> bool:
        return number in self._heard

    def holder(self, token: str) -> Holder | None:
        parts = token.split("_", 2)
        found = self._by_public_part.get(parts[1]) if len(parts) == 3 else None
        same = hmac.compare_digest(_hash(token), _NOBODYS if found is None else found.hash)
        return found if same and found is not None and found.good else None

    @property
    def everybody(self) -> list[Holder]:
        """Whoever has or had a token."""
        return sorted(self._holders.values(), key=lambda each: each.name)

    @property
    def all(self) -> list[Holder]:
        """Whoever has a token that is good."""
        return [each for each in self.everybody if each.good]


def add(
    storage: Storage,
    name: str,
    *,
    quota: float,
    owner: bool = False,
    expires: str = "",
    witness: Witness | None = None,
) -> str:
    """A new token, which is shown once and kept nowhere; DualQueryError where the name has one that is good."""
    if not name.strip() or len(name) > LONGEST_NAME or not name.isprintable():
        raise DualQueryError(f"the name of an analyst has 1 to {LONGEST_NAME} printable characters")
    if not 0 <= quota <= 1:
        raise DualQueryError("a quota is a share of the budget, from 0 to 1")
    role, share = OWNER if owner else ANALYST, Fraction(repr(float(quota)))
    if _held(storage, witness, name) is not None:
        raise DualQueryError(f"'{name}' has a token; rotate it, or revoke it first to give another")
    return _grant(storage, witness, name, role, share, expires)


def rotate(storage: Storage, name: str, *, expires: str = "", witness: Witness | None = None) -> str:
    """A new token in place of the old one, which opens nothing from now on; role and quota stay."""
    held = _held(storage, witness, name)
    if held is None:
        raise DualQueryError(f"'{name}' has no token that could be rotated; add one")
    return _grant(storage, witness, name, held.role, held.quota, expires)


def revoke(storage: Storage, name: str, *, witness: Witness | None = None) -> None:
    """From now on (a running server: within a second) the token of this name opens nothing."""
    if _held(storage, witness, name) is None:
        raise DualQueryError(f"'{name}' has no token that could be revoked")
    _write(storage, witness, _draft(REVOKED, name, {"wish": secrets.token_hex(8), "at": _now()}))


def known(storage: Storage, witness: Witness | None = None) -> Tokens:
    promise = storage.promise()
    lines = storage.verified(promise)
    return Tokens(lines if witness is None else witness.checked(lines, promise, trust=False))


def _held(storage: Storage, witness: Witness | None, name: str) -> Holder | None:
    return next((each for each in known(storage, witness).all if each.name == name), None)


def expiry(text: str, now: datetime | None = None) -> str:
    """The moment at which a token ends: in so many hours, days or weeks (12h, 30d, 4w), or on a date (2030-01-31)."""
    if found := re.fullmatch(r"([1-9]\d{0,3})([hdw])", text):
        span = timedelta(hours=int(found[1]) * {"h": 1, "d": 24, "w": 168}[found[2]])
        return ((now or datetime.now(UTC)) + span).isoformat(timespec="seconds")
    try:
        date = datetime.fromisoformat(text)
    except ValueError:
        raise DualQueryError(
            f"'{text}' is no time for a token: say 12h, 30d or 4w, or a date such as 2030-01-31"
        ) from None
    whole = (date if date.tzinfo else date.replace(tzinfo=UTC)).astimezone(UTC)
    if whole.isoformat(timespec="seconds") <= _now():
        raise DualQueryError(f"'{text}' has passed; give the token a time to come")
    return whole.isoformat(timespec="seconds")


def draft_of(body: str) -> NewLine | None:
    """The line that a wish asks for; None where nobody of us wrote it."""
    try:
        row = json.loads(body)
        kind, name = row.pop("line"), row.pop("analyst")
        made = _draft(kind, name, row)
        _read(kind, made.body)
    except (LedgerError, ValueError, TypeError, KeyError, AttributeError):
        return None
    return made if isinstance(name, str) else None


def _grant(
    storage: Storage, witness: Witness | None, name: str, role: str, quota: Fraction, expires: str
) -> str:
    public_part = secrets.token_hex(8)
    token = f"dq_{public_part}_{secrets.token_urlsafe(32)}"
    who = Holder(name=name, role=role, quota=quota, public_part=public_part, hash=_hash(token), added=_now())
    row = {**asdict(who), "expires": expires, "quota": str(quota), "wish": public_part}
    _write(storage, witness, _draft(GRANTED, name, row))
    return token


def _write(storage: Storage, witness: Witness | None, draft: NewLine) -> None:
    """Into the chain, on disk: by ourselves, or by the server that has the ledger open."""
    try:
        storage.hold()
    except TakenError:
        _wish(storage, draft)
        return
    try:
        promise = storage.promise()
        head = promise.start
        for line in storage.verified(promise):
            head = line.head
        written = chained(draft, head, origin=promise.origin)
        storage.commit(head, [written])
        if witness is not None:
            witness.write(written.head, origin=promise.origin)
            witness.close()
    finally:
        storage.release()


def _wish(storage: Storage, draft: NewLine) -> None:
    row = {**json.loads(draft.body), "line": draft.kind, "analyst": draft.analyst}
    number = row["wish"]
    storage.wish(number, json.dumps(row))
    until = time.monotonic() + PATIENCE
    while number in storage.wishes():
        if time.monotonic() > until and storage.unwish([number]):
            raise DualQueryError(
                "the server that has this ledger open did not write this down in time, and nothing was changed; look "
                "whether it is ready, and try again"
            )
        time.sleep(0.1)


def _draft(kind: str, name: str, row: dict[str, object]) -> NewLine:
    body = json.dumps({"kind": kind, **row}, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return NewLine(kind=kind, body=body, units=0, analyst=name)


def _read(kind: str, body: str) -> tuple[str, Holder | str]:
    """The number of the wish; and who holds what now, or when it was revoked."""
    try:
        row = json.loads(body)
        number = str(row.pop("wish"))
        if row.pop("kind") != kind or kind not in (GRANTED, REVOKED):
            raise ValueError
        if kind == REVOKED:
            return number, str(row["at"])
        holder = Holder(**{**row, "quota": Fraction(row["quota"])})
        texts = asdict(holder)
        if not 0 <= texts.pop("quota") <= 1 or not all(isinstance(each, str) for each in texts.values()):
            raise ValueError
        if holder.role not in (ANALYST, OWNER):
            raise ValueError
    except (ValueError, TypeError, KeyError, AttributeError, ZeroDivisionError):
        raise LedgerError("a line about a token cannot be read; restore the last good copy") from None
    return number, holder


def _hash(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", errors="replace")).hexdigest()


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


_NOBODYS = secrets.token_hex(32)
