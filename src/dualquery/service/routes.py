"""The HTTP interface, version 1.

Requests and replies are models here, from which the OpenAPI page is made.
"""

from __future__ import annotations

import asyncio
import json
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, Query, Request, Response
from fastapi.responses import HTMLResponse, PlainTextResponse
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from pydantic import BaseModel, ConfigDict, Field

from dualquery.interactive import Burned, Fired
from dualquery.interactive.rule import LEAST_ERROR, MOST_ERROR
from dualquery.releases.folder import REPORT
from dualquery.releases.seal import CERTIFICATE
from dualquery.service.requests import PendingRequest, Service
from dualquery.service.settings import PROMETHEUS, ProblemError, start_again
from dualquery.service.tokens import Holder

Text = Annotated[str, Field(min_length=1, description="A query, or a table such as `region by sex`.")]
Fraction = Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)]
Error = Annotated[float, Field(ge=LEAST_ERROR, le=MOST_ERROR, allow_inf_nan=False)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class AskRequest(_Strict):
    """A question that is tested: free unless the test finds the answer far off, and then the price of a fire."""

    question: Text
    tolerance: Fraction | None = Field(
        default=None, description="How far off an answer may be before it should be noticed."
    )
    free: bool = Field(default=False, description="The hypothesis alone: no test, no cost, not checked.")


class BuyRequest(_Strict):
    """A question that is measured, for its price."""

    question: Text
    error: Error = Field(description="The standard error, as a fraction of the table.")


class QuoteRequest(_Strict):
    """What would it cost? Looks at no data."""

    question: Text
    tolerance: Fraction | None = None
    error: Error | None = None


class AnswerReply(BaseModel):
    """Fractions of the table. A single question has one value and no labels; a table one for each cell."""

    dataset: str
    question: str = Field(description="As it was understood.")
    badge: str = Field(description="release, not contradicted, measured, bought or not checked")
    words: str = Field(description="What the badge means.")
    values: list[float]
    bars_95: list[float | None] = Field(
        description="The ± of each value: in 19 of 20 cases it is off by at most that."
    )
    bound: float | None = Field(
        description="With this confidence no value is off by more; null: no guarantee."
    )
    confidence: float
    attributes: list[str]
    labels: list[list[str]]
    cost: dict[str, float]
    free: bool
    left: dict[str, float] = Field(description="Of the budget of the dataset, and how many fires that is.")
    quota_left: dict[str, float] = Field(description="Of your own quota.")
    line: int = Field(description="Where this reply stands in the ledger.")
    after: dict[str, Any] = Field(
        description="A line that was in the ledger before: keep it, and a ledger that was rolled back is found out."
    )


class ProblemReply(BaseModel):
    """Everything that is refused looks like this."""

    error: dict[str, Any] = Field(
        description="`code` and `message`; the `column` of a fault; `left`, `quota` and `price` of what is too dear."
    )


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


async def service_of(request: Request) -> Service:
    """The running service. Not a plain function: those are run on threads of their own, one hop a request."""
    service: Service = request.app.state.service
    return service


ServiceOf = Annotated[Service, Depends(service_of)]


async def holder_of(
    request: Request,
    service: ServiceOf,
    given: Annotated[HTTPAuthorizationCredentials | None, Depends(_BEARER)],
) -> Holder:
    """Whoever holds the token of a request, within the rate."""
    holder = None if given is None else service.tokens.holder(given.credentials)
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
async def ready(service: ServiceOf) -> dict[str, str]:
    """Whether questions can be asked: the ledger is there and can be written."""
    service.worker.check()
    return {"status": "ready"}


@watching.get("/metrics", response_class=PlainTextResponse)
async def metrics(service: ServiceOf, owner: OwnerOf) -> Response:
    """Counters for Prometheus, with an owner's token."""
    return Response(service.metrics(), media_type=PROMETHEUS)


@routes.get("/datasets")
async def datasets(service: ServiceOf, holder: HolderOf) -> list[dict[str, Any]]:
    """The table that can be asked, and the releases beside it, with their public schemas."""
    return list(service.schema.values())


@routes.get("/datasets/{dataset}")
async def dataset(dataset: str, service: ServiceOf, holder: HolderOf) -> dict[str, Any]:
    """One of them."""
    return service.known(dataset)


@routes.get("/datasets/{dataset}/certificate")
async def certificate(dataset: str, service: ServiceOf, holder: HolderOf) -> Response:
    """What was done and what is promised, all of it public."""
    if dataset in service.settings.published:
        content = await asyncio.to_thread(service.document, dataset, CERTIFICATE)
    else:
        content = json.dumps(service.known(dataset)["promise"], indent=2).encode("ascii")
    return Response(content, media_type="application/json")


@routes.get("/datasets/{dataset}/report", response_class=HTMLResponse)
async def report(dataset: str, service: ServiceOf, holder: HolderOf) -> Response:
    """The report of a published release: a page for people."""
    content = await asyncio.to_thread(service.document, dataset, REPORT)
    return HTMLResponse(content)


@routes.get("/datasets/{dataset}/budget")
async def budget(dataset: str, service: ServiceOf, holder: HolderOf) -> dict[str, Any]:
    """What is spent and left, of the whole and of your quota; a release costs nothing."""
    service.known(dataset)
    if dataset != service.settings.dataset:
        return {"dataset": dataset, "words": "free: a published release"}
    return await service.budget(holder)


@routes.post("/datasets/{dataset}/quote")
async def quote(dataset: str, body: QuoteRequest, service: ServiceOf, holder: HolderOf) -> dict[str, Any]:
    """The price, before asking: usually free, at most so much."""
    return await service.quote(PendingRequest(holder=holder, dataset=dataset, **dict(body)))


@routes.post("/datasets/{dataset}/ask", response_model=AnswerReply)
async def ask(
    dataset: str, body: AskRequest, service: ServiceOf, holder: HolderOf, key: Key = None
) -> Response:
    """Ask a question: an answer with a badge, a typical error, a guaranteed bound, its cost and what is left."""
    asked = PendingRequest(holder=holder, dataset=dataset, key=key, **dict(body))
    return Response(await service.ask(asked), media_type="application/json")


@routes.post("/datasets/{dataset}/buy", response_model=AnswerReply)
async def buy(
    dataset: str, body: BuyRequest, service: ServiceOf, holder: HolderOf, key: Key = None
) -> Response:
    """Have a question measured with a standard error, for its price."""
    asked = PendingRequest(holder=holder, dataset=dataset, key=key, **dict(body))
    return Response(await service.ask(asked), media_type="application/json")


@routes.get("/history")
async def history(service: ServiceOf, holder: HolderOf, before: Before = LAST, most: Most = 50) -> Response:
    """What you were told, newest first; an owner sees what everybody was told.

    A page has `most` replies, or fewer where they are long; `next` is the `before` of the page behind it.
    """
    name = None if holder.owns else holder.name
    page = await asyncio.to_thread(service.history, name, before=before, most=most)
    start_again()
    return Response(page, media_type="application/json")


@routes.get("/charges")
async def charges(
    service: ServiceOf, owner: OwnerOf, before: Before = LAST, most: Most = 50
) -> dict[str, Any]:
    """The lines of the ledger that charged something, or used what was prepaid, newest first: for owners."""
    lines = await asyncio.to_thread(
        service.storage.charges, (Fired.kind, Burned.kind), before=before, most=most
    )
    start_again()
    return {
        "charges": [
            {"line": line.sequence, "kind": line.kind, "analyst": line.analyst, "units": line.units,
             "spent": line.spent_after, "hash": line.hash}
            for line in lines
        ]
    }  # fmt: skip


@routes.get("/analysts")
async def analysts(service: ServiceOf, owner: OwnerOf) -> dict[str, Any]:
    """Everybody with a token, their quotas and what they have taken: for owners."""
    return {"analysts": await service.analysts()}
