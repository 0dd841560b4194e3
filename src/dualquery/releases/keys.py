"""Keys that sign releases: Ed25519 (RFC 8032), by the package `cryptography`, which the extra `sign` installs.

A private key is a PEM file for its owner's eyes; its public half stands beside it in FILE.pub, for everybody.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dualquery.errors import ReleaseError

_LARGEST = 64_000  # bytes of a key file; a PEM file of this kind has about 120


@dataclass(frozen=True)
class PublicKey:
    """Tells whether a signature is by its private half."""

    hex: str

    @staticmethod
    def of_hex(text: str) -> PublicKey:
        _cryptography()
        if len(text) != 64:
            raise ReleaseError("the public key in certificate.json is not a key of Ed25519")
        return PublicKey(text)

    def signed(self, message: bytes, signature: str) -> bool:
        _cryptography()
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

        try:
            Ed25519PublicKey.from_public_bytes(bytes.fromhex(self.hex)).verify(
                bytes.fromhex(signature), message
            )
        except (InvalidSignature, ValueError):
            return False
        return True


@dataclass(frozen=True, repr=False)
class PrivateKey:
    """Signs. It is never printed."""

    _key: Any

    @property
    def public(self) -> PublicKey:
        return PublicKey(self._key.public_key().public_bytes_raw().hex())

    def sign(self, message: bytes) -> str:
        return str(self._key.sign(message).hex())


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


def read_private_key(file: str | os.PathLike[str]) -> PrivateKey:
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
    return PrivateKey(key)


def read_public_key(file: str | os.PathLike[str]) -> PublicKey:
    """The key that checks signatures."""
    _cryptography()
    from cryptography.hazmat.primitives.asymmetric import ed25519
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    text = _contents(Path(file), secret=False)
    if b"PRIVATE KEY" in text:
        raise ReleaseError(f"'{file}' is a private key; check with the public one, '{file}.pub'")
    key: object = None
    with suppress(Exception):  # the package has many of its own
        key = load_pem_public_key(text)
    if not isinstance(key, ed25519.Ed25519PublicKey):
        raise ReleaseError(f"'{file}' is not a public key of Ed25519")
    return PublicKey(key.public_bytes_raw().hex())


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
