"""What every mechanism hands out keeps the rules of the schema: rows that break one are mended (`queries.rules`)."""

from __future__ import annotations

from dataclasses import replace

from dualquery.mechanisms.artefact import SyntheticRecords
from dualquery.mechanisms.mechanism import Outcome
from dualquery.queries.rules import obeyed
from dualquery.randomness import Entropy


def obeying(outcome: Outcome, entropy: Entropy) -> Outcome:
    """The outcome with records that keep all rules; nothing else is drawn where there are none."""
    artefact = outcome.artefact
    if not isinstance(artefact, SyntheticRecords) or not artefact.records.domain.rules:
        return outcome
    return replace(outcome, artefact=SyntheticRecords(obeyed(artefact.records, entropy.public_generator())))
