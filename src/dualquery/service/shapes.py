"""What requests and replies look like, for the OpenAPI document and for whoever reads it."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from dualquery.asking.rule import LEAST_ERROR, MOST_ERROR

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
        description="The ± of each value: 19 times of 20 it is off by at most that."
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
