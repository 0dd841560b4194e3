"""A release for people: the page report.html, and what a notebook shows.

The page is one file, needs no network, and reads well on paper and on a phone. Its pictures are of every column, and
of the pairs of attributes that go together most.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from html import escape
from importlib.resources import files
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from dualquery import plots
from dualquery.errors import QueryError
from dualquery.kinds import Stored, kind_named
from dualquery.mechanisms.error_bars import LEVEL
from dualquery.plots import Figure
from dualquery.queries.families import grammar_of
from dualquery.queries.tables import Tables
from dualquery.releases import sentences as words
from dualquery.releases.certificate import Certificate
from dualquery.releases.frames import attributes_of, cells_table, pairs_of
from dualquery.releases.release import Release, with_bar
from dualquery.table.domain import Domain, Items
from dualquery.table.records import Records, item_counts
from dualquery.types import Set

MOST_BARS = 30
PLOTTED_BARS, PLOTTED_CELLS_A_SIDE = 60, 40  # where one picture is all that was asked for
MOST_ITEMS_IN_PAIRS = 12
PAIRS = 6
MOST_MATRIX = 100  # attributes
MOST_CELLS = 4_000_000  # of pairs that are counted at once
ERRORS = "How far off the answers may be"
LEAST_BITS = 0.005  # below this nothing is to be seen
_NAME = (
    "text-align:left;vertical-align:top;white-space:nowrap;padding-right:12px;font-weight:500;color:#5b6a7b"
)


def report_html(release: Release, certificate: Certificate) -> str:
    """The page of a release; the certificate is the one that is saved beside it."""
    parts = [
        _alarm(certificate),
        _about(certificate),
        _certificate(certificate),
        _use(release, certificate),
        _rules(release),
        _records(release),
        _measured(release),
        _errors(certificate),
        _parameters(certificate),
        "<section><details><summary>The certificate as data</summary>"
        "<p>certificate.json says the same, with the digest of this page and a seal over everything.</p>"
        f"<pre>{escape(certificate.to_json())}</pre></details></section>",
    ]
    made = certificate["created"].replace("T", " ").replace("+00:00", " UTC")
    by = f"made {made} by dualquery {certificate['versions']['dualquery']}"
    versions = ", ".join(f"{name} {number}" for name, number in certificate["versions"].items())
    parts.append(f"<footer>{escape(versions)}. This page needs no network.</footer>")
    tiles = _tiles(certificate)
    return document(
        _titled(certificate), words.headline(certificate), tiles, parts, f"<small>{escape(by)}</small>"
    )


def document(
    title: str, said: str, tiles: Sequence[tuple[str, str]], parts: Iterable[str], beside: str = ""
) -> str:
    """One file: a title with a sentence below it, numbers with their words, and parts; empty ones are left out."""
    style = (files("dualquery.releases") / "page.css").read_text(encoding="utf-8")
    cells = "".join(
        f'<div class="tile"><b>{escape(value)}</b><span>{escape(label)}</span></div>'
        for value, label in tiles
    )
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{escape(title)}</title><style>{style}</style></head><body>",
            f"<header><div><h1>{escape(title)}</h1><p>{escape(said)}</p>{beside}</div></header>",
            "<main>",
            f'<div class="tiles">{cells}</div>',
            *(part for part in parts if part),
            "</main></body></html>",
            "",
        ]
    )


def _titled(certificate: Certificate) -> str:
    title = "A private release" if certificate.private else "A release that is not private"
    title = "Rows from noisy tables" if "fitted" in certificate else title
    dataset = words.about(certificate).get("dataset")
    return title if dataset is None else f"{title}: {dataset}"


ABOUT = {"dataset": "dataset", "steward": "steward", "purpose": "purpose", "source": "source of the schema"}


def _about(certificate: Certificate) -> str:
    said = words.about(certificate)
    rows = "".join(
        f"<tr><th>{name}</th><td>{escape(said[key])}</td></tr>" for key, name in ABOUT.items() if key in said
    )
    return section("About", f"<table>{rows}</table>") if rows else ""


def _tiles(certificate: Certificate) -> list[tuple[str, str]]:
    budget, spent = certificate["budget"], certificate["spent"]
    mean = certificate.predicted_error.mean
    change = "replaced" if "replace" in budget["neighbours"] else "added or removed"
    most = words.relation(certificate).records_per_person
    counted = "" if most is None else f", at most {most:,} records each"
    tiles = [
        (f"ε = {words.number_above(spent['epsilon'])}", f"spent, of {words.number(budget['epsilon'])}"),
        (f"δ = {words.number(spent['delta'])}", "chance of an exception"),
        (
            f"one {words.words_of(certificate).record}" if most is None else "one person",
            f"is protected, if {change}{counted}",
        ),
        (f"{certificate['workload']['queries']:,}", "questions it was made for"),
        ("unknown" if mean is None else plots.percentage(mean), "predicted error, on average"),
        (certificate["mechanism"], "mechanism"),
    ]
    if not certificate.private:
        tiles[0] = ("not private", words.why_not_private(certificate))
    if "fitted" in certificate:
        tiles = [
            (f"{certificate['fitted']['tables']:,}", "tables with noise, from elsewhere"),
            (f"{certificate['records']['rows']:,}", "records that they are about"),
        ]
    return tiles


def _alarm(certificate: Certificate) -> str:
    safe = certificate.private or ("fitted" in certificate and not certificate["schema_is_draft"])
    if safe and not certificate["warnings"]:
        return ""
    title = "Please note" if safe else "Do not publish this"
    return section(title, listed(certificate["warnings"]), kind="alarm")


def _certificate(certificate: Certificate) -> str:
    parts = {
        "What is promised": "".join(map(paragraph, words.promise(certificate))),
        "What is not promised": listed(words.not_promised(certificate)),
        "How it was paid for": "".join(map(paragraph, words.price(certificate))),
        "What was public from the start": listed(words.public(certificate)),
    }
    body = "".join(f"<div><h3>{title}</h3>{text}</div>" for title, text in parts.items())
    return section("The certificate, in words", f'<div class="two">{body}</div>')


def _use(release: Release, certificate: Certificate) -> str:
    example = grammar_of(release.domain).example(release.domain)
    commands = f"dualquery answer THIS_FOLDER {shlex.quote(example)}"
    frame = "frame = release.to_pandas()          # or to_polars(), to_arrow()"
    if release.domain.inner:
        frame = "tables = release.tables               # a frame for each table, with keys that fit"
    python = (
        "from dualquery import Release\n\n"
        'release = Release.load("THIS_FOLDER")\n'
        f"print(release.answer({example!r}))\n{frame}"
    )
    what = f"<p>{_coded(_stored(release).use)}</p>"
    if release.replicas:
        what += (
            f"<p>An answer comes with its {LEVEL:.0%} bar, the ± behind it. <code>replicas.parquet</code> is what "
            "the bars are made from; it is no part of the data.</p>"
        )
    return section(
        "How to use it",
        f"{what}<h3>From the command line</h3><pre>{escape(commands)}</pre>"
        f"<h3>From Python</h3><pre>{escape(python)}</pre>",
    )


def _stored(release: Release) -> Stored:
    found = kind_named(release.domain.kind).stored_in(release.artefact.files(), release.domain)
    assert found is not None, "what a mechanism releases is stored by its kind of table"
    return found


def _coded(text: str) -> str:
    """HTML, with code between backquotes."""
    parts = text.split("`")
    return "".join(f"<code>{escape(part)}</code>" if i % 2 else escape(part) for i, part in enumerate(parts))


def _rules(release: Release) -> str:
    rules = release.domain.rules
    if not rules or release.records is None:
        return ""
    said = "".join(f"<li><code>{escape(rule.says)}</code></li>" for rule in rules)
    note = "Declared in the schema, without looking at the table. No synthetic record breaks one."
    return section("What cannot be", f'<p class="note">{note}</p><ul>{said}</ul>')


def _records(release: Release) -> str:
    records = release.records
    if records is None:
        stored = _stored(release)
        return gallery(stored.title, "", "columns", stored.figures(release.artefact))
    shown = histograms(records, release)
    barred = " The line at the end of a bar is its 95% bar." if release.replicas else ""
    note = (
        f"Shares among the {records.rows:,} synthetic records. These are pictures of the release, not of the "
        f"table that it was made from.{barred}"
    )
    hidden = len(records.domain.columns) - len(shown)
    if hidden > 0:
        note += f" {hidden:,} further columns are not shown."
    pairs = (
        "The pairs of attributes that tell most about each other among the synthetic records, measured in bits of "
        "information: the answer to a question with two equally likely answers is one bit. Darker cells hold more "
        "records; numbers are percentages."
    )
    stored = _stored(release)
    return (
        gallery("The synthetic records, attribute by attribute", note, "columns", shown)
        + gallery(stored.title, "", "columns", stored.figures(release.artefact))
        + gallery("What goes together", pairs, "grid", heat_maps(records))
    )


def _measured(release: Release) -> str:
    """Which pairs were measured, where tables were and there is room to show it."""
    known = {each.what for each in release.measured if isinstance(each.what, tuple)}
    tables = known or any(getattr(each.what, "kind", "") == "table" for each in release.measured)
    width = release.domain.width
    if not tables or not 2 <= width <= MOST_MATRIX:
        return ""
    pairs = pairs_of(release.measured)
    varied = int((release.domain.sizes > 1).sum())
    said = (
        f"{len(pairs):,} of {varied * (varied - 1) // 2:,} pairs of attributes were measured: the dark cells."
    )
    if len(pairs) < varied * (varied - 1) // 2:
        said += (
            " Of a pair that was not, the records know only what follows from those that were: a relationship "
            "between its two attributes that nothing else brings about may be weaker in the records than in the "
            "table, or missing."
        )
    picture = plots.pair_matrix(list(release.domain.names()), pairs)
    file = "<code>measurements.parquet</code> holds what was measured, with its noise."
    return section(
        "What was measured", f'<p class="note">{said} {file}</p><div class="matrix">{picture}</div>'
    )


def _errors(certificate: Certificate) -> str:
    predicted = certificate.predicted_error
    told = "".join(map(paragraph, words.check(certificate)))
    if "accepted" in certificate:
        told += _accepted(certificate)
    if predicted.mean is None or not (predicted.counts or predicted.mean):
        return section(ERRORS, told) if told else ""
    if predicted.counts:
        picture = plots.error_histogram(predicted.edges, predicted.counts, predicted.mean)
        note = (
            "The errors that replicas of the release make on the questions of the workload. A replica is a release "
            "of rows drawn from this one, so that its errors can be seen without looking at the table. The "
            "<b>± of an answer is a 95% bar</b>: it holds the truth for about 95 of 100 questions."
        )
    else:
        picture = plots.error_curve(predicted.mean, predicted.maximum)
        note = (
            "The mechanism predicts the mean error of the workload; the curve shows how errors spread around "
            "zero if they are normal with that mean."
        )
    largest = ""
    if predicted.maximum is not None:
        share = plots.percentage(predicted.maximum)
        largest = f" The largest error over all of them is predicted to be about {share} of the records."
    return section(
        ERRORS,
        f'{told}<p class="note">{note}{largest} Predictions use public quantities only: the truth was not '
        f'looked at.</p><div class="wide">{picture}</div>',
    )


def _accepted(certificate: Certificate) -> str:
    """The verdicts on what was named beforehand."""
    found = certificate["accepted"]
    heads = "".join(f"<th>{each}</th>" for each in ("named beforehand", "limit", "measured", "verdict"))
    rows = "".join(
        f"<tr><td>{escape(each['says'])}</td><td>{words.number(each['limit'])}</td>"
        f"<td>{'unknown' if each['error'] is None else with_bar(each['error'], each['bar'])}</td>"
        f"<td>{each['verdict']}</td></tr>"
        for each in found["criteria"]
    )
    return f"<h3>Acceptance: {found['verdict']}</h3><table><tr>{heads}</tr>{rows}</table>"


def _parameters(certificate: Certificate) -> str:
    rows = {
        "mechanism": f"{certificate['mechanism']}: {certificate['mechanism_words']}",
        "chosen because": certificate["reason"],
        **{name.replace("_", " "): value for name, value in certificate["parameters"].items()},
        "neighbours": f"{certificate['budget']['neighbours']}: {certificate['budget']['neighbours_words']}",
        "accounting": certificate["budget"]["accounting"],
        "digest of the questions": certificate["workload"]["digest"],
    }
    cells = ""
    for name, value in rows.items():
        plain = isinstance(value, bool) or not isinstance(value, int | float)
        said = str(value) if plain else words.number(value)
        cells += f"<tr><th>{escape(name)}</th><td>{escape(said)}</td></tr>"
    notes = listed(certificate["notes"]) if certificate["notes"] else ""
    shown = f"<summary>Appendix: parameters</summary><table>{cells}</table>{notes}"
    return f"<section><details>{shown}</details></section>"


def section(title: str, body: str, kind: str = "") -> str:
    mark = f' class="{kind}"' if kind else ""
    return f"<section{mark}><h2>{escape(title)}</h2>{body}</section>"


def paragraph(text: str) -> str:
    return f"<p>{escape(text)}</p>"


def listed(texts: Iterable[str]) -> str:
    return "<ul>" + "".join(f"<li>{escape(text)}</li>" for text in texts) + "</ul>"


def gallery(title: str, note: str, kind: str, figures: Sequence[Figure]) -> str:
    """A section of pictures under a note; nothing where there are none."""
    said = f'<p class="note">{note}</p>' if note else ""
    shown = "".join(map(_figure, figures))
    return section(title, f'{said}<div class="{kind}">{shown}</div>') if shown else ""


def _figure(picture: Figure) -> str:
    caption = f"<span>{escape(picture.caption)}</span>" if picture.caption else ""
    return f"<figure><figcaption>{escape(picture.title)}{caption}</figcaption>{picture.svg}</figure>"


def histograms(records: Records, release: Release | None = None) -> list[Figure]:
    """The shares of the values of each column, with the bars of their release where it is given, and of a block of
    items the most frequent ones."""
    shown = []
    for position, column in enumerate(records.domain.columns[: plots.MOST_COLUMNS]):
        codes = records.columns[position]
        labels: Sequence[object]
        if isinstance(column, Items):
            counts, labels = (
                item_counts(codes, column.count),
                range(column.first, column.first + column.count),
            )
        else:
            assert isinstance(codes, np.ndarray), "only blocks of items are stored otherwise"
            counts, labels = np.bincount(codes, minlength=len(column.labels)), column.labels
        shares, caption = counts / records.rows, ""
        kept = np.arange(len(shares))
        if len(shares) > MOST_BARS:
            kept = np.argsort(-shares, kind="stable")[:MOST_BARS]
            what = "items" if isinstance(column, Items) else "values"
            caption = f"the {MOST_BARS} most frequent of {len(shares):,} {what}"
        shown.append((column, [str(labels[i]) for i in kept.tolist()], shares[kept], kept, caption))
    bars: Sequence[NDArray[np.float64] | None] = [None] * len(shown)
    if release is not None and release.replicas:
        bars = _bars_of(release, [kept for *_, kept, _ in shown])
    return [
        Figure(column.name, plots.histogram(labels, shares, name=column.name, bars=bar), caption)
        for (column, labels, shares, _, caption), bar in zip(shown, bars, strict=True)
    ]


def _bars_of(release: Release, kept: Sequence[NDArray[np.int64]]) -> list[NDArray[np.float64]]:
    """The 95% bars of some values of each column, or of the items themselves; all asked for at once."""
    domain = release.domain
    sets = [
        [(start + int(i),) for i in mine] if isinstance(column, Items) else [(start,)]
        for column, start, mine in zip(domain.columns, domain.starts, kept, strict=False)
    ]
    asked = Tables(domain, tuple(each for those in sets for each in those))
    told = np.array([each.error or 0.0 for each in release.answers_of(asked)])
    parts = np.split(told, asked.starts[np.cumsum([len(those) for those in sets])[:-1]])
    return [
        part[1::2] if isinstance(column, Items) else part[mine]
        for column, part, mine in zip(domain.columns, parts, kept, strict=False)
    ]


def heat_maps(records: Records) -> list[Figure]:
    """The pairs with the strongest association in the synthetic records, strongest first."""
    domain = records.domain
    ranked: list[tuple[float, Set]] = []
    pairs = Tables(domain, tuple(combinations(sorted(_candidates(records)), 2)))
    for part in pairs.in_parts(MOST_CELLS):
        told = [information(joint) for joint in part.split(part.counts(records))]
        ranked += zip(told, part.sets, strict=True)
    ranked = sorted(ranked, key=lambda entry: -entry[0])[:PAIRS]
    shown = Tables(domain, tuple(pair for _, pair in ranked))
    joints = shown.split(shown.counts(records))
    pictures = []
    for (bits, (a, b)), joint in zip(ranked, joints, strict=True):
        if bits < LEAST_BITS:
            break
        # The longer list of values reads better downwards.
        longer = domain.sizes[a] > domain.sizes[b]
        down, across, counts = (a, b, joint) if longer else (b, a, joint.T)
        title, svg = _map(domain, down, across, counts / records.rows, plots.MOST_CELLS_A_SIDE)
        pictures.append(Figure(title, svg, f"{bits:.2f} bits in common"))
    return pictures


def _map(domain: Domain, down: int, across: int, shares: NDArray[np.float64], room: int) -> tuple[str, str]:
    """A title and a map of the joint shares of two attributes, of as many values as there is room for."""
    rows, columns = _largest(shares.sum(axis=1), room), _largest(shares.sum(axis=0), room)
    names = (domain.name(down), domain.name(across))
    svg = plots.heat_map(
        [domain.labels(down)[i] for i in rows],
        [domain.labels(across)[i] for i in columns],
        shares[np.ix_(rows, columns)],
        names=names,
    )
    return f"{names[0]} × {names[1]}", svg


def information(joint: NDArray[np.integer]) -> float:
    """The mutual information of two attributes in bits, Σ p_ij log₂(p_ij / p_i p_j), corrected for its bias.

    From n records it is too large by (r − 1)(c − 1) / (2 n ln 2) on average when r and c values occur
    (Miller 1955). Rare values weigh little here, unlike in χ².
    """
    table = joint[joint.sum(axis=1) > 0][:, joint.sum(axis=0) > 0].astype(np.float64)
    n = float(table.sum())
    if n == 0:
        return 0.0
    expected = table.sum(axis=1, keepdims=True) * table.sum(axis=0) / n
    held = table > 0
    bits = float((table[held] * np.log2(table[held] / expected[held])).sum()) / n
    rows, columns = table.shape
    return max(0.0, bits - (rows - 1) * (columns - 1) / (2 * n * np.log(2)))


def _candidates(records: Records) -> list[int]:
    """All attributes that are columns of their own, and the most frequent items of blocks."""
    domain = records.domain
    attributes: list[int] = []
    for position, column in enumerate(domain.columns[: plots.MOST_COLUMNS]):
        first = domain.starts[position]
        if isinstance(column, Items):
            counts = item_counts(records.columns[position], column.count)
            attributes += [first + int(i) for i in np.argsort(-counts, kind="stable")[:MOST_ITEMS_IN_PAIRS]]
        elif len(column.labels) <= 1000:
            attributes.append(first)
    return attributes


def _largest(shares: NDArray[np.float64], room: int) -> list[int]:
    """The values with the largest shares, as many as there is room for, in their own order."""
    return sorted(np.argsort(-shares, kind="stable")[:room].tolist())


def plotted(release: Release, by: str | Sequence[str], where: str | None) -> Figure:
    """Shares of one attribute with bars, or of two as a heat map."""
    members = attributes_of(release, by)
    if len(members) > 2:
        raise QueryError("a picture shows one attribute or two; ask `table` for more")
    cells = cells_table(release, by, where)
    shares, among = cells["share"].to_numpy(), "" if where is None else f", where {where}"
    domain, first = release.domain, members[0]
    if len(members) == 2:
        joint = shares.reshape([int(domain.sizes[j]) for j in members])
        title, svg = _map(domain, first, members[1], joint, PLOTTED_CELLS_A_SIDE)
        return Figure(f"{title}, in percent of the table{among}", svg)
    kept = _largest(shares, PLOTTED_BARS)
    bars = np.array([bar or 0.0 for bar in cells["bar"].to_pylist()])
    labels = [domain.labels(first)[i] for i in kept]
    svg = plots.histogram(labels, shares[kept], name=domain.name(first), bars=bars[kept])
    return Figure(f"{domain.name(first)}: shares and 95% bars{among}", svg)


def in_short(release: Release) -> str:
    """One line, for people and logs."""
    certificate, width = release.certificate, release.domain.width
    rows = release.artefact.rows
    what = "answers" if rows is None else f"{rows:,} synthetic records"
    what = release.artefact.words or what
    budget = certificate["budget"]
    private = "" if certificate.private else ", NOT PRIVATE"
    about = f"<Release: {what}, {width:,} attribute{'' if width == 1 else 's'}, {certificate['mechanism']}, "
    if "fitted" in certificate:
        return f"{about}tables of {certificate['fitted']['origin']}>"
    return f"{about}ε = {words.number(budget['epsilon'])}, δ = {words.number(budget['delta'])}{private}>"


def card(release: Release) -> str:
    """What a notebook shows: what it is, what is promised, how good it is, and what to ask next."""
    certificate, expected = release.certificate, "unknown"
    names = [column.name for column in release.domain.columns]
    if (mean := certificate.predicted_error.mean) is not None:
        expected = f"{plots.percentage(mean)} of the records on average, for the questions it was made for"
    facts = {
        "released": words.headline(certificate),
        "mechanism": certificate["mechanism"],
        "privacy": words.cost(certificate),
        "expected error": expected,
        "attributes": ", ".join(names[:12]) + (f", and {len(names) - 12:,} more" if len(names) > 12 else ""),
    }
    if not certificate.private:
        facts["not private"] = words.why_not_private(certificate)
    rows = "".join(
        f'<tr><th style="{_NAME}">{escape(name)}</th><td style="text-align:left">{escape(value)}</td></tr>'
        for name, value in facts.items()
    )
    return f'<div style="{plots.CARD}"><b>Release</b><table style="color:inherit">{rows}</table></div>'
