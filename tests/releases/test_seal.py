"""Sealed and signed: what was changed is refused by name, and keys are looked at before anything is spent."""

from __future__ import annotations

import builtins
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization as forms
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

import dualquery
from dualquery import Release, ReleaseError, example
from dualquery.cli import run
from dualquery.releases.certificate import Certificate
from dualquery.releases.seal import canonical, create_key, read_private_key, read_public_key, seal_of, sealed

Make = Callable[..., Release]


@pytest.fixture
def folder(make: Make, tmp_path: Path) -> Path:
    make().save(tmp_path / "out", csv=True)
    return tmp_path / "out"


@pytest.fixture
def key(tmp_path: Path) -> Path:
    create_key(tmp_path / "steward")
    return tmp_path / "steward"


def edited(folder: Path, change: Callable[[dict[str, Any]], None], *, reseal: bool = False) -> None:
    file = folder / "certificate.json"
    data = json.loads(file.read_text(encoding="utf-8"))
    change(data)
    text = sealed(Certificate.of(data)).to_json() if reseal else json.dumps(data)
    file.write_text(text, encoding="utf-8")


def cheaper(data: dict[str, Any]) -> None:
    data["budget"]["epsilon"] = data["spent"]["epsilon"] = 0.1


def test_every_file_has_its_digest(folder: Path) -> None:
    certificate = Release.load(folder).certificate
    assert set(certificate["files"]) == {file.name for file in folder.iterdir()} - {"certificate.json"}
    assert certificate["seal"] == seal_of(certificate)
    report = (folder / "report.html").read_text(encoding="utf-8")
    assert certificate["seal"] not in report
    assert certificate["files"]["synthetic.parquet"] in report
    assert "signature" not in certificate


def test_the_canonical_form_is_what_the_page_says() -> None:
    assert canonical({"b": [1.0, 1, 1e-9], "a": "ε"}) == b'{"a":"\\u03b5","b":[1.0,1,1e-09]}'


def test_a_changed_epsilon_is_refused(folder: Path) -> None:
    edited(folder, cheaper)
    for read in (Release.load, dualquery.verify):
        with pytest.raises(ReleaseError, match="changed after it was sealed"):
            read(folder)


def test_blanks_and_order_do_not_matter(folder: Path) -> None:
    file = folder / "certificate.json"
    data = json.loads(file.read_text(encoding="utf-8"))
    file.write_text(json.dumps(dict(reversed(data.items())), indent=7), encoding="utf-8")
    assert dualquery.verify(folder).certificate["seal"] == data["seal"]


def test_a_name_that_stands_twice_is_refused(folder: Path) -> None:
    """One program would read the first ε, another the second."""
    file = folder / "certificate.json"
    text = file.read_text(encoding="utf-8")
    file.write_text(text.replace('"epsilon": 1', '"epsilon": 0.1, "epsilon": 1', 1), encoding="utf-8")
    with pytest.raises(ReleaseError, match="name twice"):
        Release.load(folder)


@pytest.mark.parametrize("name", ["synthetic.parquet", "synthetic.csv", "report.html"])
def test_a_changed_or_missing_file_is_named(folder: Path, name: str) -> None:
    whole = (folder / name).read_bytes()
    (folder / name).write_bytes(whole.replace(b"a", b"b", 1) + b" secret")
    for read in (Release.load, dualquery.verify):
        with pytest.raises(ReleaseError, match=f"'{name}' .* does not match its certificate") as caught:
            read(folder)
        assert "secret" not in str(caught.value)
    (folder / name).unlink()
    with pytest.raises(ReleaseError, match=f"'{name}' is missing"):
        Release.load(folder)
    (folder / name).mkdir()
    with pytest.raises(ReleaseError, match=f"'{name}' .* is not a file"):
        Release.load(folder)


def test_an_extra_file_is_named(folder: Path) -> None:
    (folder / "more\x1b.csv").write_text("secret")
    with pytest.raises(ReleaseError, match=r"'more\?\.csv' .* no part of the release") as caught:
        Release.load(folder)
    assert "secret" not in str(caught.value)


def test_files_stay_in_their_folder(folder: Path) -> None:
    def outside(data: dict[str, Any]) -> None:
        data["files"]["../elsewhere"] = data["files"]["report.html"]

    edited(folder, outside, reseal=True)
    with pytest.raises(ReleaseError, match=r"'files' in certificate\.json is not"):
        Release.load(folder)


def test_signing_and_verifying(make: Make, key: Path, tmp_path: Path) -> None:
    make().save(tmp_path / "out", sign=key)
    public = tmp_path / "steward.pub"
    own, given = dualquery.verify(tmp_path / "out"), dualquery.verify(tmp_path / "out", key=public)
    assert own.signed
    assert given.signed
    assert not own.key_given
    assert given.key_given
    assert (
        own.public_key
        == read_private_key(key).public_key().public_bytes_raw().hex()
        == read_public_key(public)
    )
    assert "own word" in own.facts()["signature"]
    assert given.facts()["signature"] == "by the key given"
    assert len(given.facts()) == 6
    assert Release.load(tmp_path / "out")


def test_an_edit_with_care_is_found_by_the_key_alone(make: Make, key: Path, tmp_path: Path) -> None:
    """Whoever seals anew after an edit passes without a key, and with a signature of their own, but not the key.

    (Unless the edit is about the sum: that is added up again.)
    """
    public = tmp_path / "steward.pub"
    make().save(tmp_path / "out", sign=key)
    make().save(tmp_path / "cheaper", sign=key)
    edited(tmp_path / "cheaper", cheaper, reseal=True)
    with pytest.raises(ReleaseError, match="cost more than its budget"):
        dualquery.verify(tmp_path / "cheaper")

    def praised(data: dict[str, Any]) -> None:
        data["mechanism_words"] = "the best there is"

    edited(tmp_path / "out", praised, reseal=True)
    assert not dualquery.verify(tmp_path / "out").signed
    with pytest.raises(ReleaseError, match="not signed"):
        dualquery.verify(tmp_path / "out", key=public)
    create_key(tmp_path / "mallory")
    forged = sealed(dualquery.verify(tmp_path / "out").certificate, read_private_key(tmp_path / "mallory"))
    (tmp_path / "out" / "certificate.json").write_text(forged.to_json(), encoding="utf-8")
    assert dualquery.verify(tmp_path / "out").signed
    with pytest.raises(ReleaseError, match="by another key"):
        dualquery.verify(tmp_path / "out", key=public)

    def named(data: dict[str, Any]) -> None:
        data["signature"]["public_key"] = read_public_key(public)

    edited(tmp_path / "out", named)
    for known in (None, public):
        with pytest.raises(ReleaseError, match="does not fit the certificate"):
            dualquery.verify(tmp_path / "out", key=known)


@pytest.mark.parametrize(
    ("field", "value", "part"),
    [
        ("algorithm", "none", "algorithm"),
        ("public_key", "00", "not a key of Ed25519"),
        ("public_key", 7, "'signature.public_key'"),
        ("signature", "00", "does not fit"),
        ("signature", "0" * 127, "does not fit"),
        ("signature", None, "'signature.signature'"),
    ],
)
def test_bent_signatures(make: Make, key: Path, tmp_path: Path, field: str, value: object, part: str) -> None:
    make().save(tmp_path / "out", sign=key)
    edited(tmp_path / "out", lambda data: data["signature"].__setitem__(field, value))
    with pytest.raises(ReleaseError, match=part):
        dualquery.verify(tmp_path / "out")


def test_keys_are_made_once_and_for_their_owner(key: Path) -> None:
    assert key.stat().st_mode & 0o777 == 0o600
    assert "PRIVATE" not in (key.parent / "steward.pub").read_text()
    assert "PRIVATE" not in repr(read_private_key(key))
    with pytest.raises(ReleaseError, match="exists already"):
        create_key(key)
    key.unlink()
    with pytest.raises(ReleaseError, match=r"steward\.pub' exists already"):
        create_key(key)
    assert not key.exists()
    with pytest.raises(ReleaseError, match="cannot be written"):
        create_key(key.parent / "nowhere" / "key")


def pem(key: Any, password: bytes | None = None) -> bytes:
    lock = forms.BestAvailableEncryption(password) if password else forms.NoEncryption()
    return bytes(key.private_bytes(forms.Encoding.PEM, forms.PrivateFormat.PKCS8, lock))


def bad_keys() -> dict[str, tuple[bytes | None, int, str]]:
    """Contents (None: no file), mode, and a part of the sentence."""
    good = Ed25519PrivateKey.generate()
    public = good.public_key().public_bytes(forms.Encoding.PEM, forms.PublicFormat.SubjectPublicKeyInfo)
    return {
        "missing": (None, 0, "cannot be read"),
        "open to all": (pem(good), 0o644, "read by others"),
        "open to the group": (pem(good), 0o640, "read by others"),
        "nonsense": (b"nonsense", 0o600, "not a private key"),
        "empty": (b"", 0o600, "not a private key"),
        "public": (public, 0o600, "is a public key"),
        "locked": (pem(good, b"word"), 0o600, "password"),
        "another kind": (pem(rsa.generate_private_key(65537, 2048)), 0o600, "not a key of Ed25519"),
    }


@pytest.mark.parametrize("name", list(bad_keys()))
def test_a_bad_key_is_refused_before_the_table_is_read(tmp_path: Path, capsys: Any, name: str) -> None:
    contents, mode, part = bad_keys()[name]
    if contents is not None:
        (tmp_path / "key").write_bytes(contents)
        (tmp_path / "key").chmod(mode)
    (tmp_path / "schema.toml").write_text(example.SCHEMA, encoding="utf-8")
    code = run(
        [
            *("release", str(tmp_path / "no such table.csv"), "--schema", str(tmp_path / "schema.toml")),
            *("--queries", "marginals:1", "--epsilon", "1", "--out", str(tmp_path / "out")),
            *("--sign", str(tmp_path / "key")),
        ]
    )
    assert code == 2
    assert part in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_key_of_another_user_is_refused(key: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    with pytest.raises(ReleaseError, match="another user"):
        read_private_key(key)


def test_public_keys_that_are_none(key: Path, tmp_path: Path) -> None:
    with pytest.raises(ReleaseError, match=r"is a private key; check with the public one"):
        read_public_key(key)
    (tmp_path / "nonsense").write_text("nonsense")
    with pytest.raises(ReleaseError, match="not a public key"):
        read_public_key(tmp_path / "nonsense")
    with pytest.raises(ReleaseError, match="cannot be read"):
        read_public_key(tmp_path / "nowhere")


def test_without_cryptography_there_is_a_sentence(
    make: Make, key: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make().save(tmp_path / "signed", sign=key)
    found = builtins.__import__

    def missing(name: str, *rest: Any) -> Any:
        if name.split(".")[0] == "cryptography":
            raise ImportError(name)
        return found(name, *rest)

    monkeypatch.setattr(builtins, "__import__", missing)
    for attempt in (
        lambda: make().save(tmp_path / "out", sign=key),
        lambda: create_key(tmp_path / "another"),
        lambda: dualquery.verify(tmp_path / "signed"),
        lambda: read_public_key(tmp_path / "steward.pub"),
    ):
        with pytest.raises(ReleaseError, match=r"pip install 'dualquery\[sign\]'"):
            attempt()
    assert not (tmp_path / "out").exists()
    make().save(tmp_path / "out")
    assert dualquery.verify(tmp_path / "out")
    assert Release.load(tmp_path / "signed"), "reading a signed release needs no signature"


def test_nothing_imports_cryptography_by_itself() -> None:
    script = (
        "import sys, dualquery.cli.app, dualquery.releases.folder; assert 'cryptography' not in sys.modules"
    )
    source = str(Path(dualquery.__file__).resolve().parents[1])
    subprocess.run([sys.executable, "-c", script], env={**os.environ, "PYTHONPATH": source}, check=True)


def test_the_commands(folder: Path, make: Make, tmp_path: Path, capsys: Any) -> None:
    assert run(["key", "create", str(tmp_path / "mine")]) == 0
    assert "mine.pub" in capsys.readouterr().out
    make().save(tmp_path / "signed", sign=tmp_path / "mine")
    assert run(["verify", str(tmp_path / "signed"), "--key", str(tmp_path / "mine.pub")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == [
        "certified",
        "privacy",
        "added",
        "made",
        "files",
        "signature",
    ]
    assert run(["verify", str(folder), "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["signed"] is False
    assert data["public_key"] is None
    assert set(data["files"]) == {"report.html", "synthetic.csv", "synthetic.parquet"}
    assert run(["verify", str(folder), "--key", str(tmp_path / "mine.pub")]) == 2
    assert "not signed" in capsys.readouterr().err
    assert run(["verify", str(tmp_path / "nowhere")]) == 2
    assert "does not exist" in capsys.readouterr().err
    shutil.rmtree(folder)
    folder.write_text("a file")
    assert run(["verify", str(folder)]) == 2
    assert "is not a release" in capsys.readouterr().err
