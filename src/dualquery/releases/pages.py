"""The facts of a release for a public register of deployments, as data and as a page of questions and answers.

Stewards are asked to publish what they chose, not only that they chose (Dwork, Kohli and Mulligan, "Differential
Privacy in Practice: Expose Your Epsilons!", 2019). registry.json has the facts that such registers ask for.
registry.html goes through what NIST SP 800-226 ("Guidelines for Evaluating Differential Privacy Guarantees", 2025)
asks of a guarantee, from ε at the top of its pyramid to the collection of the data at its foot. What a certificate
can answer is answered from it alone; what only the organisation can know is left for the steward to answer.

The quality page: what `releases.quality` has found, in pictures and sentences. Internal: do not publish.
"""

from __future__ import annotations

import json
from html import escape
from typing import Any

import numpy as np

from dualquery import plots
from dualquery.releases import sentences as words
from dualquery.releases.certificate import Certificate
from dualquery.releases.quality import Quality
from dualquery.releases.release import Release
from dualquery.releases.report import document, gallery, paragraph, section
from dualquery.releases.sentences import number

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


def register_page(certificate: Certificate) -> str:
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


PAIRS_SHOWN = 6


def quality_page(found: Quality, release: Release) -> str:
    """The page: one file without a script, stamped on top."""
    body = [
        section("Internal: do not publish", f"<p>{INTERNAL}</p>", "alarm"),
        _numbers(found),
        gallery("Column by column", BESIDE, "columns", _ones(found, release)),
        gallery("The pairs that are farthest from the truth", APART, "two", _pairs(found, release)),
        _worst(found, release),
        _near(found),
    ]
    return document("Quality of a release, beside the truth", found.stamp, _tiles(found), body)


INTERNAL = (
    "This page was made with the private table. Whoever reads it learns things about people in it that the release "
    "keeps back. Keep it where the table is kept."
)
BESIDE = "Above the truth (orange), below the release (blue)."
APART = "Left the truth, right the release; darker cells hold more records, numbers are percentages."


def _tiles(found: Quality) -> list[tuple[str, str]]:
    tiles = [
        (number(float(f"{found.pmse:.3g}")), "pMSE, times that of two samples of one table"),
        (
            _percent(found.copied[0]),
            f"of synthetic rows have a real twin ({_percent(found.copied[1])} of real rows)",
        ),
    ]
    if found.trained is not None:
        t = found.trained
        tiles.append(
            (
                f"{t.synthetic:.3f}",
                f"{t.measure} of {t.target}, trained on synthetic rows ({t.real:.3f} on real)",
            )
        )
    if found.attack is not None:
        tiles.append(
            (
                _percent(found.attack.right),
                f"right: who knows all but one record (at most {_percent(found.attack.bound)})",
            )
        )
    if found.holdout is not None:
        tiles.append(
            (f"{found.holdout:.3f}", "area under the curve of the nearest-record attack (0.5 is guessing)")
        )
    return tiles


def _numbers(found: Quality) -> str:
    said = [
        f"pMSE is {number(float(f'{found.pmse:.3g}'))} times what two samples of one table would have. Near 1 nobody "
        "tells real rows from synthetic ones by a logistic model of single columns; it grows with the number of rows."
    ]
    if (t := found.trained) is not None:
        said.append(
            f"A linear model of {t.target} reaches {t.measure} = {t.synthetic:.3f} on real rows when trained on "
            f"synthetic ones, {t.real:.3f} when trained on real ones, and {t.nothing:.3f} without any column."
        )
    if (a := found.attack) is not None:
        said.append(
            "An attacker who knows every record but one and all noisy numbers of this release says which of two "
            f"records is in the table: right in {_percent(a.right)} of {a.asked:,} cases. Guessing is right in 50%, "
            f"and its ε lets nobody be right in more than {_percent(a.bound)}."
        )
    if found.holdout is not None:
        said.append(
            "The usual attack calls records near a synthetic one members: against the records that you gave, the "
            f"area under its curve is {found.holdout:.3f}; 0.5 is guessing."
        )
    return section("In words", "".join(map(paragraph, said)))


def _ones(found: Quality, release: Release) -> list[plots.Figure]:
    figures = []
    for attribute, true, made in found.ones:
        name, labels = release.domain.name(attribute), release.domain.labels(attribute)
        kept = sorted(np.argsort(-(true + made), kind="stable")[: plots.MOST_CELLS_A_SIDE].tolist())
        svg = plots.beside([labels[i] for i in kept], true[kept], made[kept], name=name)
        off = 100 * float(np.abs(true - made).sum())
        figures.append(plots.Figure(name, svg, f"{off:.2g} percentage points in all"))
    return figures


def _pairs(found: Quality, release: Release) -> list[plots.Figure]:
    figures = []
    for each in found.pairs[:PAIRS_SHOWN]:
        names = (release.domain.name(each.members[0]), release.domain.name(each.members[1]))
        kept = [
            sorted(
                np.argsort(-each.true.sum(axis=1 - axis), kind="stable")[: plots.MOST_CELLS_A_SIDE].tolist()
            )
            for axis in (0, 1)
        ]
        labels = [[release.domain.labels(j)[i] for i in k] for j, k in zip(each.members, kept, strict=True)]
        for stamp, shares in (("truth", each.true), ("release", each.released)):
            svg = plots.heat_map(labels[0], labels[1], shares[np.ix_(*kept)], names=names)
            figures.append(
                plots.Figure(f"{names[0]} × {names[1]}: {stamp}", svg, f"{100 * each.l1:.2g} points apart")
            )
    return figures


def _worst(found: Quality, release: Release) -> str:
    rows = "".join(
        f"<tr><td>{escape(' × '.join(release.domain.name(j) for j in each.members))}</td><td>{each.l1:.4f}</td></tr>"
        for each in found.pairs[:10]
    )
    mean = float(np.mean([each.l1 for each in found.pairs])) if found.pairs else 0.0
    return section(
        "Pairs of columns",
        f"<p>Σ |difference| over the cells of a pair's table is {mean:.4f} on average of {len(found.pairs):,} pairs. "
        f"The ten largest:</p><table><tr><th>pair</th><th>Σ |difference|</th></tr>{rows}</table>",
    )


def _near(found: Quality) -> str:
    last = int(np.flatnonzero(found.nearest[0] + found.nearest[1]).max()) + 1
    made, real = (each[:last] for each in found.nearest)
    svg = plots.beside([f"{k} columns" for k in range(last)], real, made, name="distances")
    note = (
        "In how many columns a row differs from the nearest real row: real rows (orange, compared with the others), "
        "and synthetic ones (blue). Blue far above orange at 0 would mean copies."
    )
    return section("Nearest records", f'<p class="note">{note}</p>{svg}')


def _percent(share: float) -> str:
    return f"{100 * share:.1f}%"
