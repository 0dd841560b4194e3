"""Mutated certificates and mutated queries: an answer or one sentence, never a traceback.

A certificate that says anything else than it did is refused, unless its mutation was sealed anew; then whatever is
still read from it must work. 300 of each run always, 10,000 with `-m long`.
"""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import dualquery
from dualquery import DualQueryError, QueryError, Release, ReleaseError
from dualquery.cli import run
from dualquery.releases.certificate import Certificate
from dualquery.releases.seal import canonical, sealed

pytestmark = pytest.mark.usefixtures("few_rows")

Make = Callable[..., Release]
STRANGE: tuple[Any, ...] = (
    *(
        None,
        True,
        False,
        0,
        1,
        -1,
        7,
        10**18,
        10**400,
        -0.0,
        0.5,
        -1e-9,
        1e308,
        1e-320,
        "",
        "a",
        "ε",
        "\x1b[2J",
    ),
    *("1e999", "sha256:", [], [[]], [None], {}, {"a": 1}, [1, 2, 3], "\ud800", [[0.5, 0.1], [0.1, 0.5]]),
)


def places(data: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to every value, the containers included."""
    entries = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, value in entries:
        yield (*path, key)
        yield from places(value, (*path, key))


def mutated(data: dict[str, Any], chance: random.Random) -> dict[str, Any]:
    """One to three values deleted, replaced, nudged, copied from elsewhere, or put under another name."""
    data = copy.deepcopy(data)
    for _ in range(chance.randint(1, 3)):
        path = chance.choice(list(places(data)))
        owner: Any = data
        for key in path[:-1]:
            owner = owner[key]
        key, how = path[-1], chance.randrange(6)
        value = owner[key]
        if how == 0:
            del owner[key]
        elif how == 1:
            owner[key] = copy.deepcopy(chance.choice(STRANGE))
        elif how == 2 and isinstance(value, int | float) and abs(value) < 1e300:
            owner[key] = chance.choice([-value, value + 1, value * 1e-3, value / 3, str(value)])
        elif how == 3 and isinstance(value, str) and value:
            cut = chance.randrange(len(value))
            owner[key] = value[:cut] + chance.choice(["", "0", "9", "\n", "'", "é"]) + value[cut + 1 :]
        elif how == 4 and isinstance(owner, dict):
            owner[chance.choice(["", "more", key + "_", "epsilon"])] = owner.pop(key)
        else:
            source: Any = data
            for step in chance.choice(list(places(data))):
                source = source[step]
            owner[key] = copy.deepcopy(source)
    return data


def bitten(text: bytes, chance: random.Random) -> bytes:
    """A few bytes changed, removed, doubled or cut off."""
    out = bytearray(text)
    for _ in range(chance.randint(1, 4)):
        place = chance.randrange(len(out) + 1)
        end = min(len(out), place + chance.choice([1, 1, 1, 5, 50]))
        how = chance.randrange(5)
        if how == 0:
            out[place:end] = bytes(chance.randrange(256) for _ in range(end - place))
        elif how == 1:
            del out[place:end]
        elif how == 2:
            out[place:place] = out[place:end]
        elif how == 3:
            out[place:place] = chance.choice(
                [b"{", b"[", b"[" * 5000, b"9" * 5000, b"NaN", b'"', b"\\", b"\0"]
            )
        elif chance.random() < 0.2:
            del out[place:]
    return bytes(out)


def resealed(data: dict[str, Any]) -> bytes | None:
    try:
        return sealed(Certificate.of(data)).to_json().encode()
    except (ValueError, RecursionError):
        return None


def meaning(text: bytes) -> bytes | None:
    """What a certificate says, or None where it says nothing."""
    try:
        return canonical(json.loads(text))
    except (ValueError, RecursionError):
        return None


def read_in_every_way(folder: Path) -> None:
    """All that uses a certificate which came out of a folder."""
    dualquery.verify(folder).facts()
    json.dumps(dualquery.verify(folder).to_json())
    release = Release.load(folder)
    str(release.answer("sex = male"))
    assert release.certificate.private in (True, False)
    dualquery.evaluate(release, release.records, "marginals:1")


def says_something(error: DualQueryError) -> None:
    assert str(error)
    assert "Traceback" not in str(error)


def one_sentence(error: DualQueryError) -> None:
    says_something(error)
    assert "\n" not in str(error)
    assert len(str(error)) < 500


def try_certificates(folder: Path, count: int) -> dict[str, int]:
    chance = random.Random(count)
    file = folder / "certificate.json"
    whole = file.read_bytes()
    data = json.loads(whole)
    seen = {"refused": 0, "unchanged": 0, "sealed anew and read": 0}
    for number in range(count):
        kind = number % 4
        text = bitten(whole, chance) if kind == 0 else None
        if kind == 1:
            text = json.dumps(mutated(data, chance)).encode()
        while text is None:
            text = resealed(mutated(data, chance))
        file.write_bytes(text)
        try:
            read_in_every_way(folder)
        except DualQueryError as error:
            one_sentence(error)
            seen["refused"] += 1
        else:
            same = meaning(text) == canonical(data)
            assert same or kind > 1, f"mutant {number} was believed"
            seen["unchanged" if same else "sealed anew and read"] += 1
    file.write_bytes(whole)
    read_in_every_way(folder)
    return seen


def test_mutated_certificates(make: Make, tmp_path: Path) -> None:
    make(synthetic_rows=20).save(tmp_path / "out")
    seen = try_certificates(tmp_path / "out", 300)
    assert seen["refused"] > 200


@pytest.mark.long
def test_ten_thousand_mutated_certificates(make: Make, tmp_path: Path) -> None:
    make(synthetic_rows=20).save(tmp_path / "out")
    print(try_certificates(tmp_path / "out", 10_000))


@pytest.mark.parametrize(
    "path",
    [
        *(
            "predicted_error",
            "predicted_error.curves",
            "predicted_error.histogram",
            "budget",
            "budget.epsilon",
        ),
        *(
            "spent.rho",
            "events",
            "events.0.times",
            "entropy",
            "records.rows",
            "workload",
            "versions",
            "schema",
        ),
        *("created", "files", "warnings", "seal"),
    ],
)
def test_a_certificate_that_lacks_something(make: Make, tmp_path: Path, path: str) -> None:
    """Deleted, emptied, or of another type: also where it was sealed anew."""
    make().save(tmp_path / "out")
    file = tmp_path / "out" / "certificate.json"
    whole = json.loads(file.read_text(encoding="utf-8"))
    for value in ("deleted", None, 7, "seven", {"a": []}, [[1]]):
        data = copy.deepcopy(whole)
        *way, last = [int(step) if step.isdigit() else step for step in path.split(".")]
        owner: Any = data
        for step in way:
            owner = owner[step]
        if value == "deleted":
            del owner[last]
        else:
            owner[last] = value
        for text in (json.dumps(data), None if path == "seal" else sealed(Certificate.of(data)).to_json()):
            if text is None or (text != json.dumps(data) and _allowed(path, value)):
                continue
            file.write_text(text, encoding="utf-8")
            with pytest.raises(ReleaseError) as caught:
                read_in_every_way(tmp_path / "out")
            one_sentence(caught.value)


def _allowed(path: str, value: object) -> bool:
    """Values that a certificate might have had."""
    return (path, value) in [
        ("records.rows", 7),
        ("spent.rho", None),
        ("budget.epsilon", 7),
        ("events.0.times", 7),
    ]


QUERIES = (
    "age >= 55 & sex = female",
    "education = university & income >= 45000",
    "employment = retired & health in {good, 'very good'}",
    "!(smokes = yes & !(commute = car))",
    "age in [30, 50) & region != capital",
    "income is missing | sex = male",
    "parity(sex, smokes)",
    "'age' < 3e1",
)
PIECES = (
    *(
        "&",
        "|",
        "!",
        "(",
        ")",
        "{",
        "}",
        "[",
        "]",
        ",",
        "=",
        "!=",
        "<",
        "<=",
        ">=",
        "in",
        "is missing",
        "'",
        '"',
    ),
    *(
        "age",
        "sex",
        "parity(",
        "item[3]",
        "-1",
        "1e999",
        "NaN",
        "0x1",
        "٣",
        "ε",
        "\x00",
        "\x1b",
        "\t",
        "\u2028",
    ),
    *(
        "9" * 400,
        "(" * 300,
        "!" * 300,
        "age >= 20 & " * 30,
        "\\",
        "#",
        "--",
        "",
        "very good",
        "\ud800",
        "1_000",
    ),
)


CONDITIONS = (
    *("age >= 55", "sex = female", "education = university", "income >= 45000", "employment = retired"),
    *(
        "health in {good, 'very good'}",
        "smokes = yes",
        "commute = car",
        "age in [30, 50)",
        "region != capital",
    ),
    *(
        "age < 3e1",
        "age in [ 25,1e9 )",
        "'sex'='male'",
        "smokes in {yes}",
        "health in {good, good}",
        "age > -5",
    ),
)


def composed_query(chance: random.Random) -> str:
    """Conditions joined in ways that often make a query."""
    text = chance.choice(CONDITIONS)
    for _ in range(chance.randint(0, 3)):
        text = chance.choice(
            ["{} & {}", "{}  &({})", "({}) & {}", "!({}) & {}", "{} & !{}", "{} | {}"]
        ).format(text, chance.choice(CONDITIONS))
    return f"!({text})" if chance.random() < 0.2 else text


def mutated_query(chance: random.Random) -> str:
    text = chance.choice([chance.choice(QUERIES), composed_query(chance), composed_query(chance)])
    for _ in range(chance.choice([0, 0, 1, 1, 2, 3, 6])):
        how, place = chance.randrange(5), chance.randrange(len(text) + 1)
        end = min(len(text), place + chance.choice([1, 1, 2, 8]))
        if how == 0:
            text = text[:place] + text[end:]
        elif how == 1:
            text = text[:place] + chance.choice(PIECES) + text[place:]
        elif how == 2:
            text = text[:place] + chance.choice(PIECES) + text[end:]
        elif how == 3:
            other = chance.choice(QUERIES)
            text = text[:place] + other[chance.randrange(len(other)) :]
        else:
            text = (
                text[:place]
                + "".join(chr(chance.randrange(1, 0x2FFF)) for _ in range(end - place))
                + text[end:]
            )
    return text


def try_queries(release: Release, count: int) -> dict[str, int]:
    chance = random.Random(count)
    seen = {"answered": 0, "refused": 0}
    for _ in range(count):
        text = mutated_query(chance)
        try:
            answer = release.answer(text)
        except QueryError as error:
            says_something(error)
            seen["refused"] += 1
        else:
            assert 0 <= answer.value <= 1
            again = release.answer(answer.query)
            assert again.value == answer.value, f"{text!r} is not what it is printed as"
            seen["answered"] += 1
    return seen


def test_mutated_queries(make: Make) -> None:
    seen = try_queries(make(), 300)
    assert min(seen.values()) > 20


@pytest.mark.long
def test_ten_thousand_mutated_queries(make: Make) -> None:
    print(try_queries(make(), 10_000))


def test_mutated_queries_on_the_command_line(make: Make, tmp_path: Path, capsys: Any) -> None:
    make().save(tmp_path / "out")
    chance = random.Random(30)
    for _ in range(30):
        text = mutated_query(chance)
        code = run(["answer", str(tmp_path / "out"), "--", text])
        out, err = capsys.readouterr()
        assert code in (0, 2)
        assert err.startswith("Error: ") == (code == 2)
        assert bool(out) == (code == 0)
