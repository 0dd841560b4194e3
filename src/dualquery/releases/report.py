"""report.html: the release for people. One file, no network, readable on paper and on a phone."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from importlib.resources import files

from dualquery.mechanisms.error_bars import LEVEL
from dualquery.queries.special import language_of
from dualquery.releases import pictures, plots
from dualquery.releases import sentences as words
from dualquery.releases.certificate import Certificate
from dualquery.releases.pictures import Picture
from dualquery.releases.release import Release
from dualquery.releases.special import described
from dualquery.table.domain import Categorical, Domain, Items, Numeric


def report_html(release: Release, certificate: Certificate) -> str:
    """The page of a release; the certificate is the one that is saved beside it."""
    parts = [
        _alarm(certificate),
        _certificate(certificate),
        _use(release, certificate),
        _rules(release),
        _records(release),
        _errors(certificate),
        _parameters(certificate),
        _raw(certificate),
    ]
    style = (files("dualquery.releases") / "page.css").read_text(encoding="utf-8")
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{escape(_title(certificate))}</title><style>{style}</style></head><body>",
            _header(certificate),
            "<main>",
            _tiles(certificate),
            *(part for part in parts if part),
            _footer(certificate),
            "</main></body></html>",
            "",
        ]
    )


def _title(certificate: Certificate) -> str:
    return "A private release" if certificate.private else "A release that is not private"


def _header(certificate: Certificate) -> str:
    made = certificate["created"].replace("T", " ").replace("+00:00", " UTC")
    return (
        f"<header><div><h1>{escape(_title(certificate))}</h1><p>{escape(words.headline(certificate))}</p>"
        f"<small>made {escape(made)} by dualquery {escape(certificate['versions']['dualquery'])}</small>"
        "</div></header>"
    )


def _tiles(certificate: Certificate) -> str:
    budget, spent = certificate["budget"], certificate["spent"]
    mean = certificate.predicted_error.mean
    change = "replaced" if budget["neighbours"].endswith("replace") else "added or removed"
    most = words.relation(certificate).records_per_person
    counted = "" if most is None else f", at most {most:,} records each"
    tiles = [
        (f"ε = {words.number_above(spent['epsilon'])}", f"spent, of {words.number(budget['epsilon'])}"),
        (f"δ = {words.number(spent['delta'])}", "chance of an exception"),
        ("one record" if most is None else "one person", f"is protected, if {change}{counted}"),
        (f"{certificate['workload']['queries']:,}", "questions it was made for"),
        ("unknown" if mean is None else plots.percentage(mean), "predicted error, on average"),
        (certificate["mechanism"], "mechanism"),
    ]
    if not certificate.private:
        tiles[0] = ("not private", words.why_not_private(certificate))
    cells = "".join(
        f'<div class="tile"><b>{escape(value)}</b><span>{escape(label)}</span></div>'
        for value, label in tiles
    )
    return f'<div class="tiles">{cells}</div>'


def _alarm(certificate: Certificate) -> str:
    if certificate.private and not certificate["warnings"]:
        return ""
    title = "Please note" if certificate.private else "Do not publish this"
    return _section(title, _listed(certificate["warnings"]), kind="alarm")


def _certificate(certificate: Certificate) -> str:
    parts = {
        "What is promised": "".join(map(_paragraph, words.promise(certificate))),
        "What is not promised": _listed(words.not_promised(certificate)),
        "How it was paid for": "".join(map(_paragraph, words.price(certificate))),
        "What was public from the start": _listed(words.public(certificate)),
    }
    body = "".join(f"<div><h3>{title}</h3>{text}</div>" for title, text in parts.items())
    return _section("The certificate, in words", f'<div class="two">{body}</div>')


def _use(release: Release, certificate: Certificate) -> str:
    language = language_of(release.domain)
    example = _example_query(release.domain) if language is None else language.example(release.domain)
    commands = f"dualquery answer THIS_FOLDER {_shell_quoted(example)}"
    python = (
        "from dualquery import Release\n\n"
        'release = Release.load("THIS_FOLDER")\n'
        f"print(release.answer({example!r}))\n"
        "frame = release.to_pandas()          # or to_polars(), to_arrow()"
    )
    what = (
        "<p><code>synthetic.parquet</code> is an ordinary table: open it with whatever you would have opened "
        "the real one with. Count shares in it, not people: its number of rows was chosen. Asking it "
        "anything costs no privacy, as often as you like.</p>"
        f"{_bars(release)}"
        if release.records is not None
        else "<p><code>answers.parquet</code> holds the questions and their answers. Reading them costs no "
        "privacy.</p>"
    )
    special = described(release)
    if special is not None:
        what = special[0]
    return _section(
        "How to use it",
        f"{what}<h3>From the command line</h3><pre>{escape(commands)}</pre>"
        f"<h3>From Python</h3><pre>{escape(python)}</pre>",
    )


def _bars(release: Release) -> str:
    if not release.replicas:
        return ""
    return (
        f"<p>An answer comes with its {LEVEL:.0%} bar, the ± behind it. <code>replicas.parquet</code> is what the "
        "bars are made from; it is no part of the data.</p>"
    )


def _example_query(domain: Domain) -> str:
    """A query that this domain can be asked, in the query language."""
    from dualquery.queries.language.canonical import Literal, Query

    literals: list[Literal] = []
    for position, column in enumerate(domain.columns):
        first, size = domain.starts[position], len(column.labels)
        if size < 2 or len(literals) == 2:
            continue
        if isinstance(column, Numeric) and column.bins >= 2:
            code = tuple(range(column.bins // 2, column.bins))
            code, negated = (code, False) if 2 * len(code) < size else (tuple(range(column.bins // 2)), True)
            literals.append(Literal(first, code, negated))
        elif isinstance(column, Items | Categorical):
            literals.append(Literal(first, (1,), False))
    return Query(tuple(literals)).text(domain) if literals else ""


def _shell_quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


def _rules(release: Release) -> str:
    rules = release.domain.rules
    if not rules or release.records is None:
        return ""
    said = "".join(f"<li><code>{escape(rule.says)}</code></li>" for rule in rules)
    note = "Declared in the schema, without looking at the table. No synthetic record breaks one."
    return _section("What cannot be", f'<p class="note">{note}</p><ul>{said}</ul>')


def _records(release: Release) -> str:
    special = described(release)
    if special is not None:
        _, title, shown = special
        return _section(title, f'<div class="columns">{"".join(map(_figure, shown))}</div>') if shown else ""
    records = release.records
    if records is None:
        return ""
    shown = pictures.histograms(records)
    note = (
        f"Shares among the {records.rows:,} synthetic records. These are pictures of the release, not of the "
        "table that it was made from."
    )
    hidden = len(records.domain.columns) - len(shown)
    if hidden > 0:
        note += f" {hidden:,} further columns are not shown."
    text = _section(
        "The synthetic records, attribute by attribute",
        f'<p class="note">{note}</p><div class="columns">{"".join(map(_figure, shown))}</div>',
    )
    pairs = pictures.heat_maps(records)
    if pairs:
        note = (
            "The pairs of attributes that tell most about each other among the synthetic records, measured in "
            "bits of information: the answer to a question with two equally likely answers is one bit. Darker "
            "cells hold more records; numbers are percentages."
        )
        text += _section(
            "What goes together",
            f'<p class="note">{note}</p><div class="grid">{"".join(map(_figure, pairs))}</div>',
        )
    return text


def _errors(certificate: Certificate) -> str:
    predicted = certificate.predicted_error
    if predicted.mean is None:
        return ""
    if predicted.counts:
        picture = plots.error_histogram(predicted.edges, predicted.counts, predicted.mean)
        note = (
            "The errors that replicas of the release make on the questions of the workload. A replica is a release "
            "of rows drawn from this one, so that its errors can be seen without looking at the table. The "
            "<b>± of an answer is a 95% bar</b>: it holds the truth for about 95 of 100 questions."
        )
    elif predicted.mean > 0:
        picture = plots.error_curve(predicted.mean, predicted.maximum)
        note = (
            "The mechanism predicts the mean error of the workload; the curve shows how errors spread around "
            "zero if they are normal with that mean."
        )
    else:
        return ""
    largest = (
        ""
        if predicted.maximum is None
        else f" The largest error over all of them is predicted to be about "
        f"{plots.percentage(predicted.maximum)} of the records."
    )
    return _section(
        "How far off the answers may be",
        f'<p class="note">{note}{largest} Predictions use public quantities only: the truth was not '
        f'looked at.</p><div class="wide">{picture}</div>',
    )


def _parameters(certificate: Certificate) -> str:
    rows = {
        "mechanism": f"{certificate['mechanism']}: {certificate['mechanism_words']}",
        "chosen because": certificate["reason"],
        **{name.replace("_", " "): value for name, value in certificate["parameters"].items()},
        "neighbours": f"{certificate['budget']['neighbours']}: {certificate['budget']['neighbours_words']}",
        "accounting": certificate["budget"]["accounting"],
        "digest of the questions": certificate["workload"]["digest"],
    }
    cells = "".join(
        f"<tr><th>{escape(name)}</th><td>{escape(_value(value))}</td></tr>" for name, value in rows.items()
    )
    notes = _listed(certificate["notes"]) if certificate["notes"] else ""
    return _section("Parameters", f"<table>{cells}</table>{notes}")


def _value(value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    return words.number(value)


def _raw(certificate: Certificate) -> str:
    return (
        f"<section><details><summary>The certificate as data</summary>"
        "<p>certificate.json says the same, with the digest of this page and a seal over everything.</p>"
        f"<pre>{escape(certificate.to_json())}</pre></details></section>"
    )


def _footer(certificate: Certificate) -> str:
    versions = ", ".join(f"{name} {number}" for name, number in certificate["versions"].items())
    return f"<footer>{escape(versions)}. This page needs no network.</footer>"


def _section(title: str, body: str, kind: str = "") -> str:
    mark = f' class="{kind}"' if kind else ""
    return f"<section{mark}><h2>{escape(title)}</h2>{body}</section>"


def _paragraph(text: str) -> str:
    return f"<p>{escape(text)}</p>"


def _listed(texts: Iterable[str]) -> str:
    return "<ul>" + "".join(f"<li>{escape(text)}</li>" for text in texts) + "</ul>"


def _figure(picture: Picture) -> str:
    caption = f"<span>{escape(picture.caption)}</span>" if picture.caption else ""
    return f"<figure><figcaption>{escape(picture.title)}{caption}</figcaption>{picture.svg}</figure>"
