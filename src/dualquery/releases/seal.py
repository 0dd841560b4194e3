"""The seal of a certificate, and its signature.

files       SHA-256 of every file in the folder but certificate.json
seal        SHA-256 of the canonical JSON of everything else in the certificate, `files` included
signature   Ed25519 over the seal, by whoever released

The canonical JSON of data has sorted names, no blanks and nothing but ASCII. report.html is written from the
certificate before it is sealed, so it shows neither its own digest nor the seal; then its digest is entered, and the
seal comes last. The seal alone finds accidents and careless edits: whoever edits with care can seal anew. Only a
signature, checked against a key that came another way, tells who made a release.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dualquery.errors import ReleaseError
from dualquery.releases.certificate import Certificate
from dualquery.releases.shape import plain_name

if TYPE_CHECKING:
    from dualquery.releases.keys import PrivateKey, PublicKey

CERTIFICATE = "certificate.json"
ALGORITHM = "Ed25519"
_UNSEALED = ("seal", "signature")
_CONTEXT = b"dualquery certificate\n"  # a signature for this purpose serves no other


def canonical(data: Mapping[str, Any]) -> bytes:
    """The one way to write data as JSON: sorted names, no blanks, ASCII, the shortest digits of each number."""
    return json.dumps(data, sort_keys=True, separators=(",", ":"), allow_nan=False).encode("ascii")


def seal_of(certificate: Certificate) -> str:
    """SHA-256 of all that a certificate says."""
    data = json.loads(certificate.to_json())
    return _sha256(canonical({name: value for name, value in data.items() if name not in _UNSEALED}))


def sealed(certificate: Certificate, key: PrivateKey | None = None) -> Certificate:
    """The certificate with its seal and, where there is a key, its signature."""
    bare = {name: value for name, value in certificate.items() if name not in _UNSEALED}
    seal = seal_of(certificate)
    if key is None:
        return Certificate.of({**bare, "seal": seal})
    signature = {
        "algorithm": ALGORITHM,
        "public_key": key.public.hex,
        "signature": key.sign(_CONTEXT + seal.encode("ascii")),
    }
    return Certificate.of({**bare, "seal": seal, "signature": signature})


def check_seal(certificate: Certificate) -> None:
    """ReleaseError where a certificate says something else than when it was sealed."""
    if "seal" not in certificate:
        raise ReleaseError("certificate.json has no seal: it was changed by hand, or never finished")
    if certificate["seal"] != seal_of(certificate):
        raise ReleaseError(
            "certificate.json was changed after it was sealed; what it says cannot be believed"
        )


def check_signature(certificate: Certificate, key: PublicKey | None) -> bool:
    """Whether a certificate is signed; ReleaseError where its signature is wrong, or not by the key.

    Without a key the signature is compared with the one that the certificate itself names.
    """
    from dualquery.releases.keys import PublicKey

    signature = certificate.get("signature")
    if signature is None:
        if key is not None:
            raise ReleaseError("the release is not signed; ask whoever made it for a signed one")
        return False
    if signature["algorithm"] != ALGORITHM:
        raise ReleaseError(f"the release is signed by an algorithm that is not known here, not {ALGORITHM}")
    if key is not None and signature["public_key"] != key.hex:
        raise ReleaseError("the release is signed by another key than the one given")
    signer = PublicKey.of_hex(signature["public_key"]) if key is None else key
    if not signer.signed(_CONTEXT + certificate["seal"].encode("ascii"), signature["signature"]):
        raise ReleaseError("the signature in certificate.json does not fit the certificate")
    return True


def digests(folder: Path) -> dict[str, str]:
    """The digest of every file in a folder but the certificate."""
    return {file.name: digest(file) for file in sorted(folder.iterdir()) if file.name != CERTIFICATE}


def digest(file: Path) -> str:
    with file.open("rb") as stream:
        return "sha256:" + hashlib.file_digest(stream, "sha256").hexdigest()


def check_files(folder: Path, certificate: Certificate) -> None:
    """ReleaseError that names a file which is missing, changed, or not part of the release."""
    named = certificate["files"]
    found = {file.name for file in folder.iterdir()} - {CERTIFICATE}
    for name in sorted(found - set(named)):
        raise ReleaseError(f"{_shown(name)} stands in '{folder}' and is no part of the release; take it away")
    for name in sorted(named):
        if name not in found:
            raise ReleaseError(f"{_shown(name)} is missing in '{folder}', although the certificate names it")
        if not (folder / name).is_file() or not plain_name(name):
            raise ReleaseError(f"{_shown(name)} in '{folder}' is not a file")
        if digest(folder / name) != named[name]:
            raise ReleaseError(f"{_shown(name)} in '{folder}' is damaged: it does not match its certificate")


def _shown(name: str) -> str:
    """A file name for a terminal: whoever chose it may have wanted to steer one."""
    return "'" + "".join(each if each.isprintable() else "?" for each in name) + "'"


def _sha256(data: bytes) -> str:
    return "sha256:" + hashlib.sha256(data).hexdigest()
