"""The certificate in words: sentences that a data steward can explain to a lawyer."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from dualquery.kinds import Kind, kind_named
from dualquery.privacy.budget import PROMISES_LITTLE, Neighbours, ReplaceWithin
from dualquery.releases.certificate import Certificate, RowsFrom
from dualquery.releases.release import with_bar

_EVENT_WORDS = {
    "selection": ("draw", "of the exponential mechanism"),
    "gaussian noise": ("measurement", "with discrete Gaussian noise"),
    "laplace noise": ("measurement", "with discrete Laplace noise"),
}


MEASURED_FIRST = (
    "The number of records was measured first, and how much was asked afterwards followed it, so that the whole "
    "budget counts as spent."
)


def number(x: float) -> str:
    """A number as people write it: 1, 0.5, 2.72, 0.000001 as 10⁻⁶."""
    if x == 0 or 1e-4 <= abs(x) < 1e6:
        return f"{x:.4g}" if not float(x).is_integer() else f"{x:,.0f}"
    lead, _, written = f"{x:.1e}".partition("e")  # two digits, with the carry of 9.99 to 10 done
    lead, exponent = lead.removesuffix(".0"), int(written)
    power = "10" + str(exponent).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
    return power if lead == "1" else f"{lead} · {power}"


def number_above(x: float) -> str:
    """A cost in four digits, rounded up: what was spent must not look like less."""
    if x <= 0:
        return "0"
    step = 10.0 ** (math.floor(math.log10(x)) - 3)
    return number(math.ceil(x / step - 1e-9) * step)


def counted(count: int, noun: str) -> str:
    """`1 measurement`, `2 measurements`, `1,000 measurements`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def _uses(kind: str, count: int) -> str:
    noun, rest = _EVENT_WORDS.get(kind, (kind, ""))
    return f"{counted(count, noun)} {rest}".rstrip() if rest else f"{count:,} {kind}"


def headline(certificate: Certificate) -> str:
    queries = certificate["workload"]["queries"]
    rows, kind = certificate["synthetic_rows"], words_of(certificate)
    what = "Answers" if rows is None else counted(rows, "synthetic record")
    about = "about " if certificate["records"]["from"] == RowsFrom.MEASURED.value else ""
    number = certificate["records"]["rows"]
    of = f"{about}{number:,} {kind.record if number == 1 else kind.records}"
    what = certificate.get("artefact") or what
    return f"{what}, made to answer {counted(queries, 'question')} about {kind.table} of {of}."


def words_of(certificate: Certificate) -> Kind:
    return kind_named(certificate.get("table", "records"))


def promise(certificate: Certificate) -> list[str]:
    """What is guaranteed, and to whom."""
    if "fitted" in certificate:
        told = certificate["fitted"]
        return [
            f"Nothing private was read here: the rows were fitted to {counted(told['tables'], 'table')} with noise "
            f"from elsewhere ({told['origin']}). They promise what those tables promise, and nothing more."
        ]
    if not certificate["entropy"]["private"]:
        return [
            "Nothing is promised. This release was drawn from a seed, so that it can be repeated; whoever "
            "knows the seed can undo the noise. It is for tests and must not be published.",
        ]
    if certificate["schema_is_draft"]:
        return [
            "Nothing is promised. The schema is a draft that was read off the private table, so that its values, "
            "ranges and columns may give records away. Make it public knowledge, delete its line 'draft = true', "
            "and release again.",
        ]
    budget = certificate["budget"]
    epsilon, delta = budget["epsilon"], budget["delta"]
    protected = relation(certificate)
    person = protected.records_per_person is not None
    one = "person" if person else words_of(certificate).record
    return [
        f"Take any one {one}, and suppose that {'they' if person else 'it'} "
        f"{protected.change}. Whatever anybody concludes from this release, "
        f"they would have concluded with {_how_similar(epsilon)} "
        f"exp(ε) = {_factor(epsilon)}"
        + (
            f", except with a probability of at most δ = {number(delta)}."
            if delta
            else ", without exception."
        ),
        *_for_instance(epsilon, "records" if person else "record"),
        f"This holds for every {one}, against everybody, whatever they know "
        "already, however long they compute, and whatever is done with the release afterwards.",
        *_within(protected),
        *_period(certificate, person=person),
    ]


def _within(protected: Neighbours) -> list[str]:
    """Where totals of this very table are public."""
    if not isinstance(protected, ReplaceWithin):
        return []
    return [
        f"It is about everything of a record except {protected.named_attributes}: totals of this very table, which "
        "are public, count how many records have which, and whoever knows the others may work out the last. Together "
        "with these totals nothing is promised about them.",
    ]


def _period(certificate: Certificate, *, person: bool) -> list[str]:
    """What a release of a period says of those of others."""
    found = certificate.get("period")
    if found is None:
        return []
    said = f"Only records of {found['periods']} were read, by the date in “{found['column']}”. "
    if relation(certificate).size_is_public:
        said += "A record is replaced by another of the same period, and how many each period has is public. "
    who = "one person's records of one period" if person else "one record"
    return [
        f"{said}Releases of other {found['calendar']}s add nothing to what {who} may lose, for ever. Somebody with "
        "records in several periods pays for each; `dualquery ledger show` says how much that may be.",
    ]


def why_not_private(certificate: Certificate) -> str:
    if "fitted" in certificate:
        return "it promises what the tables from elsewhere promise"
    return "the schema is a draft" if certificate["entropy"]["private"] else "a seed was used"


def relation(certificate: Certificate) -> Neighbours:
    """Between which tables the promise holds."""
    budget = certificate["budget"]
    found = Neighbours.named(budget["neighbours"], budget.get("records_per_person"))
    if not isinstance(found, ReplaceWithin):
        return found
    named = dict.fromkeys(name for each in certificate.get("totals", ()) for name in each["attributes"])
    return replace(found, attributes=tuple(named))


def _how_similar(epsilon: float) -> str:
    """What ε says of the two probabilities; "almost the same" is no word for a factor of 22,026."""
    if epsilon >= PROMISES_LITTLE:
        return "another probability then, perhaps a very different one: it changes by up to a factor of"
    return "almost the same probability then: it changes by at most a factor of"


def _for_instance(epsilon: float, records: str) -> list[str]:
    """The promise in percentages: odds grow by at most exp(ε)."""
    if epsilon >= PROMISES_LITTLE:
        return [
            "So large an ε promises very little: a release within it could turn a suspicion of 10% about a "
            "person into near certainty."
        ]
    odds = math.exp(epsilon) / 9  # of what was 10% likely
    after = odds / (1 + odds)
    if after > 0.95:
        return []
    return [
        f"For instance, suppose that somebody would think a statement about a person 10% likely if that person's "
        f"{records} had been different. With the real {records} they may think it at most "
        f"{math.ceil(100 * after)}% likely."
    ]


def _factor(epsilon: float) -> str:
    return number(float(f"{math.exp(epsilon):.3g}")) if epsilon < 50 else f"10^{epsilon / math.log(10):.0f}"


def cost(certificate: Certificate) -> str:
    """What was spent, of how much, in one line."""
    spent, budget = certificate["spent"], certificate["budget"]
    return (
        f"ε = {number_above(spent['epsilon'])} of {number(budget['epsilon'])}, δ = {number(spent['delta'])}, "
        f"neighbours {relation(certificate)}, accounting {budget['accounting']}"
    )


def price(certificate: Certificate) -> list[str]:
    """How the promise was paid for."""
    if "fitted" in certificate:
        return ["Whoever measured the tables paid for them. Fitting rows to them costs nothing."]
    spent, budget = certificate["spent"], certificate["budget"]
    uses: Counter[str] = Counter()
    for event in certificate["events"]:
        uses[event["event"]] += event["times"] * int(event.get("draws", 1))
    listed = " and ".join(_uses(kind, count) for kind, count in uses.items())
    reason = budget.get("accounting_reason")
    why = f" This theorem was taken because {reason}." if reason else ""
    rho = f" (ρ = {float(spent['rho']):.6g} of zero-concentrated privacy)" if spent["rho"] is not None else ""
    return [
        f"The table was used for {listed or 'nothing at all'}; everything else worked on what they gave. "
        "Each was charged to a ledger before it was drawn.",
        f"Together they cost ε = {number_above(spent['epsilon'])} at δ = {number(spent['delta'])}{rho}, "
        f"within the budget of ε = {number(budget['epsilon'])} and δ = {number(budget['delta'])}; added up "
        f"by {budget['accounting_words']}.{why}",
        *[MEASURED_FIRST] * (certificate["records"]["from"] == RowsFrom.MEASURED.value),
        *_book(certificate),
        f"Randomness came from: {certificate['entropy']['statement']}. Noise consists of whole numbers added to "
        "whole numbers, so that no rounding of fractions can betray the table.",
    ]


def _book(certificate: Certificate) -> list[str]:
    """What was charged to the book of the dataset, whose head anybody may compare (docs/certificate.md)."""
    book = certificate.get("book")
    if book is None:
        return []
    currencies = {"rho": "ρ", "epsilon": "ε", "mu_squared": "μ²", "renyi": "a Rényi divergence"}
    ending, currency = next(each for each in currencies.items() if f"cap_{each[0]}" in book)
    charged, spent, cap = (float(book[f"{word}_{ending}"]) for word in ("charged", "spent", "cap"))
    return [
        f"Before the first count was read, all that it might cost ({currency} = {number_above(charged)}) was "
        f"charged to the book “{book['name']}” as number {book['sequence']}: all releases together have spent "
        f"{number_above(spent)} of {number(cap)} there. The head of the book was {book['head']}."
    ]


def public(certificate: Certificate) -> list[str]:
    """What was taken as known to everybody, and therefore is not protected."""
    workload = certificate["workload"]
    if "fitted" in certificate:
        return [f"Everything: the tables ({certificate['fitted']['origin']}), their noise, and the schema."]
    source = about(certificate).get("source")
    said = "" if source is None else f" Its source, as the steward states it: {source}."
    return [
        "The schema: which attributes there are, and which values or ranges each may take. It must have been "
        f"written without looking at the table{_found(certificate)}.{said}",
        f"The number of records, {certificate['records']['rows']:,}: {certificate['records']['from']}.",
        *["The number of persons: it is not printed here, but it is not protected either."]
        * (relation(certificate).value == "person-replace"),
        *(
            f"How many records have which {' and '.join(each['attributes'])}: the totals are public, and the "
            f"synthetic records, {each['records']:,} of them, meet them exactly."
            for each in certificate.get("totals", ())
        ),
        f"The questions: {workload['queries']:,} of them, {workload['spec']}.",
        *(_prior(each) for each in certificate.get("prior", ())),
        *(_draft(certificate["draft"]) for _ in range("draft" in certificate)),
        "Every parameter below.",
    ]


def _prior(entry: Mapping[str, Any]) -> str:
    return (
        f"The prior: {entry['origin']}, {counted(entry['records'], 'record')}. Its rows may stand in this release as "
        "they are, and nothing here protects them. Whoever is in it and in the table, too, pays for both."
    )


def _found(certificate: Certificate) -> str:
    return ", or be what a private draft found" if "draft" in certificate else ""


def _draft(entry: Mapping[str, Any]) -> str:
    """What was measured before, and is used again."""
    return (
        f"What the private draft of ε = {entry['epsilon']:g}, δ = {number(entry['delta'])} counted of "
        f"{counted(len(entry['attributes']), 'attribute')}: it was paid for when it was made, apart from this "
        "release, and is used here once more."
    )


def about(certificate: Certificate) -> dict[str, str]:
    return certificate.schema.about.entries()


def not_promised(certificate: Certificate) -> list[str]:
    """Where the promise ends."""
    own = [
        f"{_who_else(certificate)} {several(certificate)}",
        "It covers this release. Another release about the same people costs again, and the costs add up.",
    ]
    return [
        *([] if "fitted" in certificate else own),
        "It does not hide what is true of people in general. That smokers fall ill more often may be learned "
        "from it, and believed of a smoker who was never in the table.",
        f"Answers are approximate{_off(certificate)}. Small groups are the least reliable, and questions far "
        "from those that the release was made for may be off by more.",
        "Synthetic records are not people. One may look like somebody by chance; it says nothing about them.",
    ]


def several(certificate: Certificate) -> str:
    """What the promise is for several records, or persons, together: worse than so many times ε, except at δ = 0."""
    kind = "persons" if relation(certificate).records_per_person is not None else "records"
    costs = [
        f"{k} {kind} with ε = {number_above(epsilon) if epsilon is not None else '∞'}"
        for k, epsilon in certificate["several"].items()
    ]
    at = f", at the same δ = {number(certificate['spent']['delta'])}" if certificate["spent"]["delta"] else ""
    return f"It protects {', '.join(costs[:-1])} and {costs[-1]}{at}."


def _who_else(certificate: Certificate) -> str:
    most = relation(certificate).records_per_person
    if most is None:
        return words_of(certificate).protects
    return (
        f"It protects one person, as the table's ids tell persons apart. Of each at most {most:,} "
        f"record{'s' if most > 1 else ''} counted, chosen by a rule that looks at that person alone; what was "
        "dropped is not described here. A household, or a person with several ids, is protected less. A record "
        "without an id counts as a person of its own."
    )


def _off(certificate: Certificate) -> str:
    mean = certificate.predicted_error.mean
    share = "" if mean is None else number(float(f"{100 * mean:.2g}"))
    return share and f": on average they are predicted to be off by {share}% of the records"


_ATTRIBUTES = {1: "one attribute", 2: "two attributes", 3: "three attributes"}


def check(certificate: Certificate) -> list[str]:
    """What the release has measured of its own error."""
    found = certificate.get("check")
    if found is None:
        return []
    if found["why_not"] is not None:
        return [f"Could not be checked: {found['why_not']}."]
    said = [
        " of ".join(["tables", _ATTRIBUTES[each["attributes"]], *([each["of"]] if "of" in each else [])])
        + f" {with_bar(each['error'], each['bar'])}"
        for each in found["orders"]
    ]
    return [
        f"Mean error of {', '.join(said)} (95%): the sum over a table's cells of how far shares are off, measured "
        f"with {100 * found['share']:.2g}% of the budget."
    ]


def accepted(certificate: Certificate) -> str:
    """The verdict on what was named beforehand, criterion by criterion."""
    found = certificate["accepted"]
    said = [
        f"{each['says']} {'?' if each['error'] is None else with_bar(each['error'], each['bar'])}, limit "
        f"{number(each['limit'])}: {each['verdict']}"
        for each in found["criteria"]
    ]
    return f"{found['verdict']} ({'; '.join(said)})"
