"""The facts of a release for a public register of deployments, as data and as a page of questions and answers.

Stewards are asked to publish what they chose, not only that they chose (Dwork, Kohli and Mulligan, "Differential
Privacy in Practice: Expose Your Epsilons!", 2019). registry.json has the facts that such registers ask for.
registry.html goes through what NIST SP 800-226 ("Guidelines for Evaluating Differential Privacy Guarantees", 2025)
asks of a guarantee, from ε at the top of its pyramid to the collection of the data at its foot. What a certificate
can answer is answered from it alone; what only the organisation can know is left for the steward to answer.
"""

from __future__ import annotations

import json
from typing import Any

from dualquery.releases import sentences as words
from dualquery.releases.certificate import Certificate
from dualquery.releases.report import document, paragraph, section

FORMAT = "dualquery registry 1"


def facts(certificate: Certificate) -> dict[str, Any]:
    budget = certificate["budget"]
    relation, predicted, plain = words.relation(certificate), certificate.predicted_error, certificate.plain()
    return {
        "format": FORMAT,
        "about": words.about(certificate),
        "published": certificate["created"],
        "product": certificate.get("artefact")
        or ("answers to queries" if certificate["synthetic_rows"] is None else "synthetic records"),
        "model": {"curator": "central", "interactive": False, "continual": "book" in plain},
        "unit": {
            "protects": "person" if relation.records_per_person else words.words_of(certificate).record,
            "records_per_person": relation.records_per_person,
            "relation": budget["neighbours"],
            "words": budget["neighbours_words"],
        },
        "guarantee": {
            "holds": certificate.private,
            "definition": "(ε, δ)-differential privacy" if budget["delta"] else "ε-differential privacy",
            "epsilon": budget["epsilon"],
            "delta": budget["delta"],
            "spent": plain["spent"],
            "several": plain["several"],
        },
        "mechanism": {
            "name": certificate["mechanism"],
            "words": certificate["mechanism_words"],
            "parameters": plain["parameters"],
            "uses_of_the_table": plain["events"],
            "randomness": certificate["entropy"]["statement"],
        },
        "accounting": {"theorem": budget["accounting"], "words": budget["accounting_words"]},
        "ledger": plain.get("book"),
        "public": words.public(certificate),
        "schema": certificate["schema"],
        "accuracy": {
            "predicted": {"mean": predicted.mean, "max": predicted.maximum},
            "measured": plain.get("check"),
            "accepted": plain.get("accepted"),
        },
        "warnings": list(certificate["warnings"]),
        "software": plain["versions"],
    }


def facts_text(certificate: Certificate) -> str:
    return json.dumps(facts(certificate), indent=2, ensure_ascii=False) + "\n"


CHECKED = (
    "Its proofs stand beside the code, and its tests attack its own claims; `dualquery audit` repeats them. "
    "`dualquery verify` adds the cost up again from the uses of the table that the certificate lists."
)
SMALL_GROUPS = (
    "Small groups. The noise of a count does not depend on how large the count is, so that it is a larger share of a "
    "small group. Every answer comes with its own 95% bar."
)
SIDES = (
    "Noise is whole numbers added to whole numbers. Parameters, stops, ties and error messages never look at the "
    "truth, and no time that depends on it is published."
)
CENTRAL = "The curator, who ran the program on the table (the central model). What left is this folder."
OpenQuestion = tuple[str, list[str] | None]  # a question and its answers; None where the steward must answer


def questions(certificate: Certificate) -> dict[str, list[OpenQuestion]]:
    budget, name = certificate["budget"], certificate["mechanism"]
    unit = [f"{budget['neighbours']}: {budget['neighbours_words']}.", words.not_promised(certificate)[0]]
    how = [f"{name}: {certificate['mechanism_words']}.", *words.price(certificate)]
    off = [_predicted(certificate), *(words.check(certificate) or ["It was not measured."])]
    return {
        "The guarantee": [
            ("Which guarantee is promised, with which ε and δ?", words.promise(certificate)),
            ("What is the unit of privacy?", unit),
            ("Is a person with several records protected as a whole?", [_persons(certificate)]),
            ("Do other releases about the same people add to the cost?", _others(certificate)),
            ("Why is this ε right for this purpose?", None),
        ],
        "The algorithm": [
            ("What was computed, and how was noise added?", how),
            ("Who checked that the program does what is claimed?", [CHECKED]),
            ("What was chosen without looking at the data?", words.public(certificate)),
            ("What is cut off, grouped or left out before anything is counted?", _cut_off(certificate)),
        ],
        "Accuracy and bias": [
            ("How far off are the answers?", off),
            ("Who is hit harder by the noise?", [SMALL_GROUPS]),
            ("Is the data itself fair to those whom it describes?", None),
        ],
        "Trust and security": [
            ("Who sees the data without noise?", [CENTRAL]),
            ("Can timing, errors or rounding give data away?", [SIDES]),
            ("How is the table kept, and who may read it?", None),
            ("How was the data collected, and could less be collected?", None),
        ],
    }


def _persons(certificate: Certificate) -> str:
    most = words.relation(certificate).records_per_person
    if most is None:
        return "No: one record is protected. A person with several records is protected less."
    return f"Yes: all records of a person together, of whom at most {most:,} counted."


def _others(certificate: Certificate) -> list[str]:
    if certificate.get("book") is None:
        return [
            "Yes, costs add up. This release was charged to no ledger: its steward must add up all releases."
        ]
    return ["Yes, costs add up. A ledger caps all of them together.", words.price(certificate)[-2]]


def _cut_off(certificate: Certificate) -> list[str]:
    found = []
    for column in certificate.schema.domain.columns:
        if getattr(column, "clamp", False):
            found.append(f"Values of {column.name} beyond the ends of the schema count as the nearest end.")
        if other := getattr(column, "unknown", None):
            found.append(f"Values of {column.name} that the schema does not list count as {other}.")
    return [*found, "Numbers are known by the bins of the schema. No other columns were read."]


def _predicted(certificate: Certificate) -> str:
    mean = certificate.predicted_error.mean
    if mean is None:
        return "No error was predicted."
    return f"Predicted from public quantities: {words.number(100 * mean)}% of the records, on average."


def page(certificate: Certificate) -> str:
    """The questions with their answers, one file that needs no network."""
    dataset = words.about(certificate).get("dataset", "A private release")
    body = [section(part, "".join(map(_asked, asked))) for part, asked in questions(certificate).items()]
    said = f"{words.headline(certificate)} The questions follow NIST SP 800-226."
    return document(f"{dataset}: the guarantee, question by question", said, (), body)


def _asked(asked: OpenQuestion) -> str:
    question, answers = asked
    said = "".join(map(paragraph, answers or []))
    left_open = '<p class="note">For the steward to answer.</p>'
    return f"<h3>{question}</h3>{said or left_open}"
