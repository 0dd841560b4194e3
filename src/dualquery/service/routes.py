"""The HTTP interface, version 1."""

from __future__ import annotations

import asyncio
import json
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, Query, Request, Response
from fastapi.responses import HTMLResponse, PlainTextResponse
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from dualquery.asking.journal import Burned, Fired
from dualquery.releases.folder import REPORT
from dualquery.releases.seal import CERTIFICATE
from dualquery.service.departures import start_again
from dualquery.service.desk import Desk, PendingRequest
from dualquery.service.problems import ProblemError
from dualquery.service.shapes import AnswerReply, AskRequest, BuyRequest, ProblemReply, QuoteRequest
from dualquery.service.tally import PROMETHEUS
from dualquery.service.tokens import Holder

_REFUSALS: dict[int | str, dict[str, Any]] = {
    status: {"model": ProblemReply, "description": words}
    for status, words in {
        400: "the request is no HTTP request that can be understood",
        401: "no token, or a wrong one",
        403: "the quota or the cap is exhausted; or this is for owners",
        404: "no such dataset",
        405: "no such method here",
        408: "the body did not arrive in time",
        409: "the Idempotency-Key belongs to another request",
        410: "a long reply that cost nothing was not kept, and would be another one now",
        413: "the request is too large",
        422: "the query or the request is malformed",
        429: "too many requests, or too many bytes kept today",
        500: "a defect of the service, which concerns this request alone",
        503: "the ledger is away; nothing was told",
    }.items()
}
routes = APIRouter(prefix="/v1", responses=_REFUSALS)
watching = APIRouter(responses=_REFUSALS)
_BEARER = HTTPBearer(auto_error=False, description="A token of `dualquery serve token add`.")
_KEY = Header(
    alias="Idempotency-Key",
    min_length=1,
    max_length=100,
    pattern=r"^[!-~]+$",
    description="Of your choice. The same request with the same key is answered with the same bytes, at no cost.",
)
Key = Annotated[str | None, _KEY]
Before = Annotated[int, Query(ge=1, le=2**53, description="Only lines before this one.")]
Most = Annotated[int, Query(ge=1, le=1000)]
LAST = 2**53


async def desk_of(request: Request) -> Desk:
    """The running service. Not a plain function: those are run on threads of their own, one hop a request."""
    desk: Desk = request.app.state.desk
    return desk


DeskOf = Annotated[Desk, Depends(desk_of)]


async def holder_of(
    request: Request, desk: DeskOf, given: Annotated[HTTPAuthorizationCredentials | None, Depends(_BEARER)]
) -> Holder:
    """Whoever holds the token of a request, within the rate."""
    holder = None if given is None else desk.tokens.holder(given.credentials)
    if holder is None:
        raise ProblemError(
            401,
            "wrong_token",
            "this token opens nothing; ask the owner for one, and send it as `Authorization: Bearer …`",
            headers={"WWW-Authenticate": "Bearer"},
        )
    request.scope["analyst"] = holder.name
    request.app.state.rate.take(holder.name)
    return holder


async def owner_of(holder: Annotated[Holder, Depends(holder_of)]) -> Holder:
    if not holder.owns:
        raise ProblemError(403, "owners_only", "only an owner may see this")
    return holder


HolderOf = Annotated[Holder, Depends(holder_of)]
OwnerOf = Annotated[Holder, Depends(owner_of)]


@routes.get("/health")
async def health() -> dict[str, str]:
    """Whether the service is alive; whether it can be asked is another question."""
    return {"status": "ok"}


@routes.get("/ready")
async def ready(desk: DeskOf) -> dict[str, str]:
    """Whether questions can be asked: the ledger is there and can be written."""
    desk.clerk.check()
    return {"status": "ready"}


@watching.get("/metrics", response_class=PlainTextResponse)
async def metrics(desk: DeskOf, owner: OwnerOf) -> Response:
    """Counters for Prometheus, with an owner's token."""
    return Response(desk.metrics(), media_type=PROMETHEUS)


@routes.get("/datasets")
async def datasets(desk: DeskOf, holder: HolderOf) -> list[dict[str, Any]]:
    """The table that can be asked, and the releases beside it, with their public schemas."""
    return list(desk.schema.values())


@routes.get("/datasets/{dataset}")
async def dataset(dataset: str, desk: DeskOf, holder: HolderOf) -> dict[str, Any]:
    """One of them."""
    return desk.known(dataset)


@routes.get("/datasets/{dataset}/certificate")
async def certificate(dataset: str, desk: DeskOf, holder: HolderOf) -> Response:
    """What was done and what is promised, all of it public."""
    if dataset in desk.settings.published:
        content = await asyncio.to_thread(desk.document, dataset, CERTIFICATE)
    else:
        content = json.dumps(desk.known(dataset)["promise"], indent=2).encode("ascii")
    return Response(content, media_type="application/json")


@routes.get("/datasets/{dataset}/report", response_class=HTMLResponse)
async def report(dataset: str, desk: DeskOf, holder: HolderOf) -> Response:
    """The report of a published release: a page for people."""
    content = await asyncio.to_thread(desk.document, dataset, REPORT)
    return HTMLResponse(content)


@routes.get("/datasets/{dataset}/budget")
async def budget(dataset: str, desk: DeskOf, holder: HolderOf) -> dict[str, Any]:
    """What is spent and left, of the whole and of your quota; a release costs nothing."""
    desk.known(dataset)
    if dataset != desk.settings.dataset:
        return {"dataset": dataset, "words": "free: a published release"}
    return await desk.budget(holder)


@routes.post("/datasets/{dataset}/quote")
async def quote(dataset: str, body: QuoteRequest, desk: DeskOf, holder: HolderOf) -> dict[str, Any]:
    """The price, before asking: usually free, at most so much."""
    asked = PendingRequest(
        holder=holder, dataset=dataset, question=body.question, tolerance=body.tolerance, error=body.error
    )
    return await desk.quote(asked)


@routes.post("/datasets/{dataset}/ask", response_model=AnswerReply)
async def ask(dataset: str, body: AskRequest, desk: DeskOf, holder: HolderOf, key: Key = None) -> Response:
    """Ask a question: an answer with a badge, a typical error, a guaranteed bound, its cost and what is left."""
    asked = PendingRequest(
        holder=holder,
        dataset=dataset,
        question=body.question,
        tolerance=body.tolerance,
        free=body.free,
        key=key,
    )
    return Response(await desk.ask(asked), media_type="application/json")


@routes.post("/datasets/{dataset}/buy", response_model=AnswerReply)
async def buy(dataset: str, body: BuyRequest, desk: DeskOf, holder: HolderOf, key: Key = None) -> Response:
    """Have a question measured with a standard error, for its price."""
    asked = PendingRequest(holder=holder, dataset=dataset, question=body.question, error=body.error, key=key)
    return Response(await desk.ask(asked), media_type="application/json")


@routes.get("/history")
async def history(desk: DeskOf, holder: HolderOf, before: Before = LAST, most: Most = 50) -> Response:
    """What you were told, newest first; an owner sees what everybody was told.

    A page has `most` replies, or fewer where they are long; `next` is the `before` of the page behind it.
    """
    name = None if holder.owns else holder.name
    page = await asyncio.to_thread(desk.history, name, before=before, most=most)
    start_again()
    return Response(page, media_type="application/json")


@routes.get("/charges")
async def charges(desk: DeskOf, owner: OwnerOf, before: Before = LAST, most: Most = 50) -> dict[str, Any]:
    """The lines of the ledger that charged something, or used what was prepaid, newest first: for owners."""
    lines = await asyncio.to_thread(desk.storage.charges, (Fired.kind, Burned.kind), before=before, most=most)
    start_again()
    return {
        "charges": [
            {"line": line.sequence, "kind": line.kind, "analyst": line.analyst, "units": line.units,
             "spent": line.spent_after, "hash": line.hash}
            for line in lines
        ]
    }  # fmt: skip


@routes.get("/analysts")
async def analysts(desk: DeskOf, owner: OwnerOf) -> dict[str, Any]:
    """Everybody with a token, their quotas and what they have taken: for owners."""
    return {"analysts": await desk.analysts()}
