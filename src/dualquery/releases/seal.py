"""The seal of a certificate, its signature, and the keys that sign.

files       SHA-256 of every file in the folder but certificate.json
seal        SHA-256 of the canonical JSON of everything else in the certificate, `files` included
signature   Ed25519 over the seal, by whoever released

The canonical JSON of data has sorted names, no blanks and nothing but ASCII. report.html is written from the
certificate before it is sealed, so it shows neither its own digest nor the seal; then its digest is entered, and the
seal comes last. The seal alone finds accidents and careless edits: whoever edits with care can seal anew. Only a
signature, checked against a key that came another way, tells who made a release.

Keys are of Ed25519 (RFC 8032), by the package `cryptography`, which the extra `sign` installs. A private key is a PEM
file for its owner alone; its public half stands beside it in FILE.pub, for everybody.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from dualquery.errors import ReleaseError
from dualquery.releases.certificate import Certificate, plain_name

CERTIFICATE = "certificate.json"
ALGORITHM = "Ed25519"
_UNSEALED = ("seal", "signature")
_CONTEXT = b"dualquery certificate\n"  # a signature for this purpose serves no other


def canonical(data: Mapping[str, Any]) -> bytes:
    """The one way to write data as JSON: sorted names, no blanks, ASCII, the shortest digits of each number."""
    return json.dumps(data, sort_keys=True, separators=(",", ":"), allow_nan=False).encode("ascii")


def seal_of(certificate: Certificate) -> str:
    """SHA-256 of all that a certificate says."""
    data = json.loads(json.dumps(certificate.plain()))  # as whoever reads the file has it
    return _sha256(canonical({name: value for name, value in data.items() if name not in _UNSEALED}))


def sealed(certificate: Certificate, key: Any = None) -> Certificate:
    """The certificate with its seal and, where there is a private key, its signature."""
    bare = {name: value for name, value in certificate.items() if name not in _UNSEALED}
    seal = seal_of(certificate)
    if key is None:
        return Certificate.of({**bare, "seal": seal})
    signature = {
        "algorithm": ALGORITHM,
        "public_key": key.public_key().public_bytes_raw().hex(),
        "signature": key.sign(_CONTEXT + seal.encode("ascii")).hex(),
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


def check_signature(certificate: Certificate, key: str | None) -> bool:
    """Whether a certificate is signed; ReleaseError where its signature is wrong, or not by the key.

    A public key is written in hexadecimal digits. Without one the signature is compared with the one that the
    certificate itself names.
    """
    signature = certificate.get("signature")
    if signature is None:
        if key is not None:
            raise ReleaseError("the release is not signed; ask whoever made it for a signed one")
        return False
    if signature["algorithm"] != ALGORITHM:
        raise ReleaseError(f"the release is signed by an algorithm that is not known here, not {ALGORITHM}")
    if key is not None and signature["public_key"] != key:
        raise ReleaseError("the release is signed by another key than the one given")
    _cryptography()
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        signer = Ed25519PublicKey.from_public_bytes(bytes.fromhex(signature["public_key"]))
    except ValueError:
        raise ReleaseError("the public key in certificate.json is not a key of Ed25519") from None
    try:
        signer.verify(bytes.fromhex(signature["signature"]), _CONTEXT + certificate["seal"].encode("ascii"))
    except (InvalidSignature, ValueError):
        raise ReleaseError("the signature in certificate.json does not fit the certificate") from None
    return True


def digests(folder: Path) -> dict[str, str]:
    return {file.name: digest(file) for file in sorted(folder.iterdir()) if file.name != CERTIFICATE}


def digest(file: Path) -> str:
    with file.open("rb") as stream:
        return "sha256:" + hashlib.file_digest(stream, "sha256").hexdigest()


def check_files(folder: Path, certificate: Certificate) -> None:
    """ReleaseError that names a file which is missing, changed, or not part of the release."""
    named = certificate["files"]
    found = {file.name for file in folder.iterdir()} - {CERTIFICATE}
    for name in sorted(found - set(named)):
        raise ReleaseError(
            f"'{printable(name)}' stands in '{folder}' and is no part of the release; take it away"
        )
    for name in sorted(named):
        if name not in found:
            raise ReleaseError(
                f"'{printable(name)}' is missing in '{folder}', although the certificate names it"
            )
        if not (folder / name).is_file() or not plain_name(name):
            raise ReleaseError(f"'{printable(name)}' in '{folder}' is not a file")
        if digest(folder / name) != named[name]:
            raise ReleaseError(
                f"'{printable(name)}' in '{folder}' is damaged: it does not match its certificate"
            )


def printable(text: str) -> str:
    """Without what could steer a terminal: the text comes out of a folder that anybody may have written."""
    return "".join(each if each.isprintable() else "?" for each in text)


def _sha256(data: bytes) -> str:
    return "sha256:" + hashlib.sha256(data).hexdigest()


_LARGEST = 64_000  # bytes of a key file; a PEM file of this kind has about 120


def create_key(file: str | os.PathLike[str]) -> Path:
    """Write a new private key to a file that only its owner may read, and FILE.pub; the latter's path."""
    _cryptography()
    from cryptography.hazmat.primitives import serialization as forms
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    path = Path(file)
    public = path.with_name(path.name + ".pub")
    for each in (path, public):
        if each.exists() or each.is_symlink():
            raise ReleaseError(f"'{each}' exists already; a key is never overwritten, choose another name")
    key = Ed25519PrivateKey.generate()
    secret = key.private_bytes(forms.Encoding.PEM, forms.PrivateFormat.PKCS8, forms.NoEncryption())
    shared = key.public_key().public_bytes(forms.Encoding.PEM, forms.PublicFormat.SubjectPublicKeyInfo)
    try:
        _write_new(path, secret, 0o600)
        try:
            _write_new(public, shared, 0o644)
        except BaseException:
            with suppress(OSError):
                path.unlink()
            raise
    except OSError as error:
        raise ReleaseError(f"the key cannot be written to '{path}': {error.strerror}") from None
    return public


def read_private_key(file: str | os.PathLike[str]) -> Any:
    """The key that signs; ReleaseError where it is none, or where others than the user could have read it."""
    _cryptography()
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    text = _contents(Path(file), secret=True)
    if b"PUBLIC KEY" in text:
        raise ReleaseError(f"'{file}' is a public key; sign with the private one, which stands beside it")
    try:
        key = load_pem_private_key(text, password=None)
    except TypeError:
        raise ReleaseError(f"the key '{file}' is locked by a password; name one without") from None
    except Exception:  # the package has many of its own
        raise ReleaseError(f"'{file}' is not a private key; make one with `dualquery key create`") from None
    if not isinstance(key, Ed25519PrivateKey):
        raise ReleaseError(f"'{file}' is not a key of Ed25519; make one with `dualquery key create`")
    return key


def read_public_key(file: str | os.PathLike[str]) -> str:
    """The key that checks signatures, in hexadecimal digits."""
    _cryptography()
    from cryptography.hazmat.primitives.asymmetric import ed25519
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    text = _contents(Path(file), secret=False)
    if b"PRIVATE KEY" in text:
        raise ReleaseError(f"'{file}' is a private key; check with the public one, '{file}.pub'")
    with suppress(Exception):  # the package has many of its own
        key = load_pem_public_key(text)
        if isinstance(key, ed25519.Ed25519PublicKey):
            return key.public_bytes_raw().hex()
    raise ReleaseError(f"'{file}' is not a public key of Ed25519")


def _contents(path: Path, *, secret: bool) -> bytes:
    """The bytes of a key file, with the permissions of the very file that is read."""
    try:
        with path.open("rb") as stream:
            status = os.fstat(stream.fileno())
            if secret and os.name == "posix":
                if status.st_uid != os.geteuid():
                    raise ReleaseError(f"the key '{path}' belongs to another user; sign with your own")
                if status.st_mode & 0o077:
                    raise ReleaseError(
                        f"the key '{path}' may be read by others; make a new one, or close it with chmod 600"
                    )
            return stream.read(_LARGEST)
    except OSError as error:
        raise ReleaseError(f"the key '{path}' cannot be read: {error.strerror}") from None


def _write_new(path: Path, contents: bytes, mode: int) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(handle, "wb") as stream:
        stream.write(contents)
        stream.flush()
        os.fsync(stream.fileno())


def _cryptography() -> None:
    try:
        import cryptography  # noqa: F401
    except ImportError:
        raise ReleaseError(
            "signatures need the package cryptography, which is not installed: pip install 'dualquery[sign]'"
        ) from None
