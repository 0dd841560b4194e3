"""What a question would cost, in numbers and in words. Nothing here looks at data."""

from __future__ import annotations

from dualquery.asking.answers import FREE, Cost, Quote
from dualquery.asking.rule import MOST_ERROR, gaussian_bound, rounded_up, variance_of
from dualquery.asking.state import Known, State
from dualquery.asking.telling import percent
from dualquery.privacy.conversion import units
from dualquery.privacy.thresholds import HazardTest
from dualquery.queries.question import Question


def quote_of(state: State, question: Question, test: HazardTest) -> Quote:
    """Of a question that is tested, known already, or beyond what is left."""
    rule, known = state.rule, state.known.get(question.text)
    if known is not None:
        return _measured(state, question, known)
    tested, bound = state.tested_within(question), rule.bound(test)
    if tested is not None and (state.open_slot is None or tested <= bound):
        return Quote(question.text, FREE, FREE, tested, "free: it has been checked")
    if state.open_slot is None:
        words = "free, and not checked: nothing is left to check it with"
        return Quote(question.text, FREE, FREE, None, words)
    most = Cost.of(rule.price, rule.cap)
    words = f"usually free, at most {percent(most.share)} of the budget"
    return Quote(question.text, FREE, most, bound, words, rule.tolerances_of(question.cells))


def purchase_quote(state: State, question: Question, error: float, buyer: str) -> Quote:
    """Of a question that is measured with this standard error."""
    rule = state.rule
    variance = variance_of(error, rule.rows)
    if (known := state.known_within(question, variance)) is not None:
        return _measured(state, question, known)
    bound = min(1.0, gaussian_bound(float(variance) ** 0.5, question.cells) / rule.rows)
    if state.credit(question, variance, buyer) is not None:
        return Quote(question.text, FREE, FREE, bound, "free: it was paid for, and not delivered")
    cost = Cost.of(units(state.purchase(question, variance).renyi(rule.order)), rule.cap)
    return Quote(question.text, cost, cost, bound, f"{percent(cost.share)} of the budget")


def _measured(state: State, question: Question, known: Known) -> Quote:
    width = gaussian_bound(float(known.variance) ** 0.5, question.cells) / state.rule.rows
    return Quote(question.text, FREE, FREE, min(width, 1.0), "free: it has been measured")


def too_dear(state: State, question: Question, price: int) -> str:
    """What to say of a purchase that is not affordable."""
    rule, left = state.rule, state.left()
    if left.units <= 0:
        return "nothing is left of the budget; ask, which is free while the hypothesis is good"
    dearest = state.purchase(question, variance_of(MOST_ERROR, rule.rows))
    least = MOST_ERROR * (units(dearest.renyi(rule.order)) / left.units) ** 0.5
    within = (
        f"an error of {rounded_up(least)} is within it"
        if least < MOST_ERROR
        else "ask, which is usually free"
    )
    cost, rest = percent(price / rule.cap), percent(left.share)
    return f"this purchase costs {cost} of the budget, and {rest} is left; {within}"
