"""Where requests come in: who asks, whether the quota allows it, what was replied before; then the worker asks.

Everything here happens in the worker's order, so that of two requests at once one comes first: a quota cannot be
spent twice, and a request that is repeated finds the reply to the first.

It also tells what is public about a dataset: attributes, values, number of records, examples, the promise.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from dualquery.errors import DualQueryError, QueryError
from dualquery.interactive.answers import OnlineAnswer, Quote
from dualquery.interactive.online import Online
from dualquery.privacy.thresholds import Test
from dualquery.queries.families import grammar_of
from dualquery.queries.language import quoted_where_needed
from dualquery.queries.question import QuestionReader
from dualquery.releases.release import Release
from dualquery.service.journal import LedgerJournal
from dualquery.service.settings import Daily, ProblemError, RequestCounts, Settings, start_again
from dualquery.service.tokens import Holder
from dualquery.service.worker import Worker
from dualquery.table.dates import Dates
from dualquery.table.domain import Column, Domain, Items, Numeric

WHOLE = 10_000  # bytes of a reply that is always kept
_CELLS = ("values", "bars_95", "labels")  # what is long in a reply
_NOT_KEPT = '{"sha256":'
PAGE = 1_000_000  # bytes of history that are given at once, but one reply at the least
_FREE = 'ask with "free": true (`--free`) for an answer that is not checked'


class _UnpreparedError(DualQueryError):
    """The table of a test must be made first, elsewhere: the worker has no time for it."""

    def __init__(self, test: Test) -> None:
        super().__init__("a test is not prepared yet")
        self.test = test


@dataclass(frozen=True, kw_only=True)
class PendingRequest:
    holder: Holder
    dataset: str
    question: str
    tolerance: float | None = None  # of a question that is tested
    error: float | None = None  # of a purchase
    free: bool = False  # the hypothesis alone: no test, no cost
    key: str | None = None

    @property
    def digest(self) -> str:
        """What must be the same when a key is used again."""
        parts = [self.dataset, self.question, self.tolerance, self.error, self.free]
        return _sha256(json.dumps(parts))


class Service:
    """A running service, without its HTTP. The worker owns the table and the journal until `stop`."""

    def __init__(
        self,
        settings: Settings,
        online: Online,
        journal: LedgerJournal,
        *,
        log: Callable[[str], object] | None = None,
    ) -> None:
        self.settings, self.online, self.journal = settings, online, journal
        self.storage, self.tokens = journal.storage, journal.tokens
        self.worker = Worker(online, journal)
        self.daily = Daily(settings.http.bytes_a_day)
        self.counts = RequestCounts(log)
        name, declared = settings.dataset, settings.public_rows is not None
        self.schema = {  # of each dataset, public
            name: of_table(name, online, declared=declared),
            **{each: of_release(each, release) for each, release in online.published.items()},
        }

    def known(self, name: str) -> dict[str, Any]:
        """The public schema of a dataset; 404 where there is none of this name."""
        found = self.schema.get(name)
        if found is None:
            names = ", ".join(self.schema)
            raise ProblemError(404, "unknown_dataset", f"there is no such dataset; there are {names}")
        return found

    def history(self, analyst: str | None, *, before: int, most: int) -> bytes:
        """A page of what was told, as it stands in the ledger, with who asked; and where the next page begins."""
        lines, older = self.storage.told(analyst, before=before, most=most, size=PAGE)
        replies = ",".join(f'{line.reply[:-1]},"analyst":{json.dumps(line.analyst)}}}' for line in lines)
        following = lines[-1].sequence if older else None
        return f'{{"replies":[{replies}],"next":{json.dumps(following)}}}'.encode("ascii")

    def metrics(self) -> str:
        """What Prometheus reads. All of it is told to analysts, too: it follows from the answers."""
        try:
            self.worker.check()
            ready = 1
        except ProblemError:
            ready = 0
        head = self.journal.head
        return self.counts.metrics({"ready": ready, "ledger_lines": head.length, "spent_units": head.spent})

    def document(self, name: str, file: str) -> bytes:
        """The report or the certificate of a published release, as its folder holds it; 404 where there is none."""
        place = self.settings.published.get(name)
        if place is None:
            self.known(name)
            raise ProblemError(404, "not_found", "only a published release has a report")
        try:
            return (self.settings.path(place) / file).read_bytes()
        except OSError:
            raise ProblemError(404, "not_found", f"the folder of this release has no {file}") from None

    async def ask(self, asked: PendingRequest) -> bytes:
        """The reply, on disk before it is returned; the one given before, where the key was used before."""
        self._check(asked)
        request = None if asked.key is None else (asked.holder.name, asked.key)
        while True:
            try:
                return await self.worker.do(lambda: self._answer(asked), request=request)
            except _UnpreparedError as first:  # nothing was looked at, and nothing written
                await self.worker.prepare(first.test)
                start_again()

    async def quote(self, asked: PendingRequest) -> dict[str, Any]:
        """What a question would cost at most. Reads no data."""
        self._check(asked)
        if asked.dataset != self.settings.dataset:
            return {"question": asked.question, "words": "free: a published release answers it"}
        return await self.worker.do(
            lambda: self.online.quote(
                asked.question, tolerance=asked.tolerance, error=asked.error, buyer=asked.holder.name
            ).to_json()
        )

    async def look_at_wishes(self) -> None:
        """Write down what others want to be known about tokens: they wait until it is off the list."""
        wishes = await asyncio.to_thread(self.storage.wishes)
        if wishes:
            await self.worker.do(lambda: self.journal.grant(wishes))
            await asyncio.to_thread(self.storage.unwish, list(wishes))

    async def budget(self, holder: Holder) -> dict[str, Any]:
        """What is spent and left, of the whole and of one's quota."""

        def look() -> dict[str, Any]:
            status, head = self.online.status(), self.journal.head
            return {
                "dataset": self.settings.dataset,
                **status.to_json(),
                "published": self.online.certificate()["published"],
                "release_share": self.journal.account.release / status.cap,
                "owner": holder.owns,
                "quota": self._quota(holder),
                **({"missed_ticks": self.counts.missed} if holder.owns else {}),
                "ledger": {"origin": self.journal.origin, "line": head.length, "hash": head.hash},
            }

        return await self.worker.do(look)

    async def analysts(self) -> list[dict[str, Any]]:
        """Everybody with a token, and what they have taken: for the owner."""
        return await self.worker.do(
            lambda: [{"name": each.name, "role": each.role, **self._quota(each)} for each in self.tokens.all]
        )

    def _check(self, asked: PendingRequest) -> None:
        self.known(asked.dataset)
        longest = self.settings.http.longest_query
        if len(asked.question) > longest:
            raise ProblemError(422, "malformed_query", f"a query has at most {longest} characters")
        if asked.error is not None and asked.dataset != self.settings.dataset:
            raise ProblemError(422, "refused", "a release cannot be measured; asking it is free")

    # On the worker's thread

    def _answer(self, asked: PendingRequest) -> bytes:
        if asked.key is not None:
            before = self.journal.replied(asked.holder.name, asked.key)
            if before is not None and before.request != asked.digest:
                raise ProblemError(
                    409, "key_reused", "this Idempotency-Key belongs to another request; use a new one"
                )
            if before is not None:
                return self._again(asked, before.reply)
        self.daily.check(asked.holder.name)
        self.journal.asking = asked.holder.name
        answer = self._from_the_core(asked)
        reply = self._reply(asked, answer)
        text = _written(reply)
        untested = asked.free or asked.dataset != self.settings.dataset
        # Free for the asking: all but its cells is kept, and the hash of all.
        if untested and len(text) > WHOLE:
            kept = _written({"sha256": _sha256(text), **reply, **{name: [] for name in _CELLS}})
        else:
            kept = text
        self.journal.tell(kept, analyst=asked.holder.name, key=asked.key, request=asked.digest)
        self.daily.add(asked.holder.name, len(kept))
        return text.encode("ascii")

    def _again(self, asked: PendingRequest, kept: str) -> bytes:
        """The same bytes as before; of a long reply that is not kept, if they still follow from what is public."""
        if not kept.startswith(_NOT_KEPT):
            return kept.encode("ascii")
        reply = json.loads(kept)
        digest = reply.pop("sha256")
        release = None if asked.dataset == self.settings.dataset else asked.dataset
        found = self.online.untested(asked.question, release=release).to_json()
        text = _written({**reply, **{name: found[name] for name in _CELLS}})
        if _sha256(text) != digest:
            raise ProblemError(
                410,
                "not_kept",
                "this answer cost nothing and was not kept, and what it came from has moved since; ask again with "
                "another Idempotency-Key",
            )
        return text.encode("ascii")

    def _from_the_core(self, asked: PendingRequest) -> OnlineAnswer:
        if asked.dataset != self.settings.dataset:
            return self.online.ask(asked.question, release=asked.dataset)
        if asked.free:
            return self.online.ask(asked.question, test=False)
        buyer = asked.holder.name
        quote = self.online.quote(asked.question, tolerance=asked.tolerance, error=asked.error, buyer=buyer)
        self._refuse_unaffordable(asked, quote)
        if asked.error is None and quote.most.units:
            test = self.online.unprepared(asked.question, tolerance=asked.tolerance)
            if test is not None:
                raise _UnpreparedError(test)
        if asked.error is None:
            return self.online.ask(asked.question, tolerance=asked.tolerance)
        return self.online.buy(asked.question, error=asked.error, buyer=buyer)

    def _refuse_unaffordable(self, asked: PendingRequest, quote: Quote) -> None:
        """403 with what is left, before anything is looked at: of the quota, then of the cap."""
        quota, left = self._quota(asked.holder), self.online.left
        price = self.online.rule.price if quote.bound is None else quote.most.units
        details: dict[str, Any] = {"price": price, "quota": quota, "left": vars(left)}
        if price > quota["left"]:
            raise ProblemError(
                403, "quota_exhausted", f"this may cost more than is left of your quota; {_FREE}", **details
            )
        if quote.bound is None or (asked.error is not None and price > left.units):
            raise ProblemError(
                403, "budget_exhausted", f"this may cost more than is left of the budget; {_FREE}", **details
            )

    def _quota(self, holder: Holder) -> dict[str, Any]:
        """A share of what the release left over, what was taken of it, and what is left, in units."""
        whole = int(holder.quota * (self.online.rule.cap - self.journal.account.release))
        taken = self.journal.account.spent_by[holder.name]
        return {"share": float(holder.quota), "units": whole, "spent": taken, "left": max(0, whole - taken)}

    def _reply(self, asked: PendingRequest, answer: OnlineAnswer) -> dict[str, Any]:
        quota = self._quota(asked.holder)
        return {
            "dataset": asked.dataset,
            **answer.to_json(),
            "words": answer.badge.words(),
            "free": answer.cost.units == 0,
            "quota_left": {
                "units": quota["left"],
                "share": quota["left"] / quota["units"] if quota["units"] else 0,
            },
            "line": self.journal.next_line,
            "after": {"line": self.journal.head.length, "hash": self.journal.head.hash},
        }


def _written(reply: dict[str, Any]) -> str:
    return json.dumps(reply, separators=(",", ":"))


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


MOST_VALUES = 1000  # of an attribute, that are listed


def of_table(name: str, table: Online, *, declared: bool) -> dict[str, Any]:
    """Of a table that is asked. Its number of records is known, unless the first release measured it."""
    measured = not declared and table.release is not None and table.release.public_rows is None
    return _described(name, "interactive", table.domain, table.certificate(), table.rule.rows, measured)


def of_release(name: str, release: Release) -> dict[str, Any]:
    rows, measured = int(release.certificate["records"]["rows"]), release.public_rows is None
    return _described(name, "release", release.domain, dict(release.certificate["budget"]), rows, measured)


def _described(
    name: str, kind: str, domain: Domain, promise: Mapping[str, Any], rows: int, measured: bool
) -> dict[str, Any]:
    return {
        "name": name,
        "kind": kind,
        "free": kind == "release",
        "records": {"rows": rows, "measured": measured},
        "attributes": [_attribute(column) for column in domain.columns],
        "examples": examples(domain),
        "promise": promise,
    }


def examples(domain: Domain) -> dict[str, str]:
    """A question that can be asked here and, of records, a table of the first attributes."""
    names = [quoted_where_needed(each.name) for each in domain.columns if not isinstance(each, Items)]
    table = ""
    if domain.kind == "records" and names:
        reader = QuestionReader(domain)
        for text in (f"by {names[0]}", " by ".join(names[:2])):
            with suppress(QueryError):  # it has too many cells, or is one attribute
                table = reader.read(text).text
    return {"question": grammar_of(domain).example(domain), "table": table}


def _attribute(column: Column) -> dict[str, Any]:
    """An attribute as somebody who asks needs to know it; of very many values the first."""
    if isinstance(column, Items):
        ends = {"first": column.first, "count": column.count}
        return {"name": column.name, "kind": "items", **ends, "values": []}
    if isinstance(column, Numeric) and not isinstance(column, Dates):
        limits = {"low": column.edges[0], "high": column.edges[-1]}
        return {"name": column.name, "kind": "numeric", "values": list(column.labels[:MOST_VALUES]), **limits}
    kind = "ordered" if isinstance(column, Dates) or column.ordered else "categorical"
    return {"name": column.name, "kind": kind, "values": list(column.labels[:MOST_VALUES])}
