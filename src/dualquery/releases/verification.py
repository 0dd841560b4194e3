"""What can be said of a folder without its table: as it was sealed, the sum is right, who signed it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dualquery.privacy.budget import Spent
from dualquery.releases import sentences as words
from dualquery.releases.certificate import Certificate
from dualquery.releases.folder import read_certificate
from dualquery.releases.keys import read_public_key
from dualquery.releases.recount import recounted
from dualquery.releases.seal import check_signature


@dataclass(frozen=True)
class Verification:
    """A certificate whose seal and files have been checked, and what its signature is worth.

    `signed` without `key_given` means that the folder itself named the key: anybody could have done that.
    """

    certificate: Certificate
    signed: bool
    key_given: bool
    recounted: Spent  # from the events that the certificate lists

    @property
    def public_key(self) -> str | None:
        return str(self.certificate["signature"]["public_key"]) if self.signed else None

    def facts(self) -> dict[str, str]:
        """What is certified, in six lines."""
        certificate = self.certificate
        files = sorted(certificate["files"])
        facts = {
            "certified": words.headline(certificate),
            "privacy": _privacy(certificate),
            "added up again": f"ε = {words.number_above(self.recounted.epsilon)} by "
            f"{certificate['budget']['accounting']}, from the uses of the table that are listed",
            "made": f"{certificate['created']} by dualquery {certificate['versions']['dualquery']}, mechanism "
            f"{certificate['mechanism']}, from {certificate['entropy']['statement']}",
            "files": f"as they were sealed: {', '.join(files)}",
            "signature": self._signature(),
        }
        return {name: _printable(fact) for name, fact in facts.items()}

    def _signature(self) -> str:
        if not self.signed:
            return "none. The seal shows accidents only: whoever changes a release with care can seal it anew"
        if self.key_given:
            return "by the key given"
        return (
            f"by the key {self.public_key}, which is the folder's own word: compare it with one that you got "
            "another way (--key)"
        )

    def to_json(self) -> dict[str, Any]:
        certificate = self.certificate
        return {
            "private": certificate.private,
            "budget": {name: certificate["budget"][name] for name in ("epsilon", "delta", "neighbours")},
            "spent": {name: certificate["spent"][name] for name in ("epsilon", "delta")},
            "accounting": certificate["budget"]["accounting"],
            "recounted": {"epsilon": self.recounted.epsilon, "delta": self.recounted.delta},
            "mechanism": certificate["mechanism"],
            "created": certificate["created"],
            "files": dict(certificate["files"]),
            "seal": certificate["seal"],
            "signed": self.signed,
            "public_key": self.public_key,
            "key_given": self.key_given,
        }


def verify(folder: str | os.PathLike[str], key: str | os.PathLike[str] | None = None) -> Verification:
    """Check the files, the seal, the signature and the sum of a release; ReleaseError where one of them is wrong.

    `key` names the file of a public key. With it, a release that is not signed by that key is refused.
    """
    known = None if key is None else read_public_key(key)
    certificate = read_certificate(Path(folder))
    signed = check_signature(certificate, known)
    return Verification(certificate, signed, known is not None, recounted(certificate))


def _privacy(certificate: Certificate) -> str:
    if not certificate.private:
        return f"none: {words.why_not_private(certificate)}"
    spent, budget = certificate["spent"], certificate["budget"]
    return (
        f"ε = {words.number_above(spent['epsilon'])} of {words.number(budget['epsilon'])}, "
        f"δ = {words.number(spent['delta'])}, neighbours {budget['neighbours']}, "
        f"accounting {budget['accounting']}"
    )


def _printable(text: str) -> str:
    """Without what could steer a terminal: the text comes out of a file that anybody may have written."""
    return "".join(each if each.isprintable() else "?" for each in text)
