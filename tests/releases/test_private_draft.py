"""Private drafts: what they find, what they pay for and when, and what they refuse."""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest
from scipy.stats import norm

from dualquery import (
    Accounting,
    Budget,
    BudgetError,
    Categorical,
    DataError,
    Dates,
    Domain,
    DualQueryError,
    Neighbours,
    Numeric,
    PersonAddRemove,
    PersonReplace,
    Schema,
    SchemaError,
    draft_plan,
    encode,
    private_draft,
    read_schema,
    release,
)
from dualquery.counting import MemoryCounter
from dualquery.ledger.books import Books, create
from dualquery.privacy.accounting import after_all, opened
from dualquery.privacy.budget import decimal
from dualquery.privacy.curator import Curator
from dualquery.releases import draft_columns
from dualquery.releases.draft_columns import FORMS, MISSED, Looks
from dualquery.releases.seal import canonical
from dualquery.table.binning import Tree
from dualquery.table.draft import certificate_beside
from dualquery.table.schema import MARK, parse_schema

pytestmark = pytest.mark.usefixtures("few_rows")

ROWS = 8_000
GENEROUS = Budget(3, 1e-6)
RELATIONS = [Neighbours.REPLACE, Neighbours.ADD_REMOVE, PersonReplace(2), PersonAddRemove(2)]


def people(rows: int = ROWS, seed: int = 1) -> pa.Table:
    rng = np.random.default_rng(seed)
    days = np.datetime64("2019-01-01") + rng.integers(0, 1000, rows)
    return pa.table(
        {
            "patient_id": [f"p{i // 2}" for i in range(rows)],
            "age": rng.normal(45, 12, rows).round().clip(0, 99).astype(int),
            "height": (rng.normal(1.7, 0.1, rows)).round(2),
            "visits": rng.choice([0, 1, 2, 3], rows, p=[0.6, 0.2, 0.1, 0.1]),
            "word": rng.choice(["red", "green", "blue", "teal"], rows, p=[0.5, 0.3, 0.199, 0.001]),
            "seen": [str(day) for day in days],
            "wrote": [f"{str(day)[8:]}.{str(day)[5:7]}.{str(day)[:4]}" for day in days],
            "paid": [f"{x:.2f} €".replace(".", ".") for x in rng.gamma(2, 100, rows)],
            "gap": [None if x < 0.3 else str(int(100 * x)) for x in rng.random(rows)],
            "remark": [f"remark number {i} of somebody or other" for i in range(rows)],
            "row": np.arange(rows),
        }
    )


PEOPLE = people()


@pytest.fixture(scope="module")
def draft():
    return private_draft(
        PEOPLE.rename_columns([*PEOPLE.column_names[:-1], "row_id"]), budget=GENEROUS, seed=1
    )


def columns_of(schema: Schema) -> dict[str, Numeric | Categorical]:
    return {column.name: column for column in schema.domain.columns}


def test_every_kind_of_column_is_found(draft) -> None:
    found = columns_of(draft.schema)
    age, height, visits = found["age"], found["height"], found["visits"]
    assert age.integer
    assert 0 <= age.edges[0] < 25
    assert 65 < age.edges[-1] < 110
    assert height.decimals == 2
    assert 1.3 < height.edges[0] < 1.6
    assert 1.8 < height.edges[-1] < 2.2
    assert visits.edges == (0, 1, 2, 3, 4)
    assert found["word"].values == ("blue", "green", "red", "missing")  # teal is rare: no value of its own
    assert found["word"].unknown == "missing"
    for name, format in (("seen", None), ("wrote", "%d.%m.%Y")):
        dates = found[name]
        assert isinstance(dates, Dates)
        assert (dates.by, dates.format) == ("month", format)
        assert (dates.labels[0], dates.labels[-1]) == ("2019-01", "2021-09")
    assert (found["paid"].currency, found["paid"].decimals, found["paid"].missing) == ("€", 2, None)
    assert (found["gap"].missing, found["gap"].unknown) == ("missing", "missing")
    assert {each.name for each in draft.left_out} == {"patient_id", "remark", "row_id"}
    assert [each.unit for each in draft.left_out if each.name == "patient_id"] == [
        "about 2 rows each: a person?"
    ]


def test_the_schema_is_public_as_it_stands_and_every_measured_line_says_so(tmp_path: Path) -> None:
    draft = private_draft(PEOPLE, budget=GENEROUS)
    draft.save(tmp_path / "s.toml")
    text = (tmp_path / "s.toml").read_text(encoding="utf-8")
    read = read_schema(tmp_path / "s.toml")
    assert read == draft.schema
    assert not read.draft
    assert MARK not in text
    assert "draft = true" not in text
    for line in text.splitlines():
        free = not line or line.startswith(("#", "[[", "name = ", "clamp = ", "by = ", "[table]"))
        assert free or line.endswith("# measured, ε = 3"), line
    certificate = json.loads(certificate_beside(tmp_path / "s.toml").read_text(encoding="utf-8"))
    seal = certificate.pop("seal")
    assert seal == hashlib.sha256(canonical(certificate)).hexdigest()
    assert certificate["schema_sha256"] == hashlib.sha256(text.encode()).hexdigest()
    assert certificate["epsilon"] == 3
    assert certificate["delta"] == 1e-6
    assert certificate["failure"] == 1e-7
    with pytest.raises(SchemaError, match="exists already"):
        draft.save(tmp_path / "s.toml")


ODD = [
    "",
    "x",
    "?",
    "1e999",
    "-5",
    "99999999",
    "2019-02-30",
    "31.12.2050",
    "inf",
    "nan",
    "007",
    "1,5",
    "€",
    "missing",
]


def test_every_cell_has_a_place(draft) -> None:
    """Whatever a record holds, a release reads it: no cell of a measured column is an error."""
    names = [column.name for column in draft.schema.domain.columns]
    odd = pa.table(dict.fromkeys(names, ODD))
    records = encode(odd, draft.schema)
    assert records.rows == len(ODD)
    for column, codes in zip(draft.schema.domain.columns, records.columns, strict=True):
        assert max(codes) < len(column.labels)
    assert encode(PEOPLE.select(names), draft.schema).rows == ROWS


def test_a_release_can_be_made_with_it(draft) -> None:
    made = release(PEOPLE, schema=draft.schema, workload="marginals:2", budget=Budget(5, 1e-6), seed=1)
    true = np.mean(np.array(PEOPLE["word"]) == "red")
    assert abs(made.answer("word = red").value - true) < 0.02


@pytest.mark.parametrize("relation", RELATIONS, ids=str)
@pytest.mark.parametrize("accounting", [Accounting.TIGHTEST, Accounting.ZCDP])
def test_what_is_charged_is_what_was_promised(relation: Neighbours, accounting: Accounting) -> None:
    budget = Budget(6, 1e-6, relation, accounting)
    persons = relation.records_per_person is not None
    made = private_draft(
        PEOPLE, budget=budget, unit="patient_id" if persons else None, records=None if persons else ROWS,
        seed=3, force=True,
    ) if not relation.size_is_public else private_draft(PEOPLE, budget=budget, seed=3)  # fmt: skip
    certificate = made.certificate
    assert certificate is not None
    promised = Budget(
        6, certificate["delta"] - certificate["failure"], relation, Accounting(certificate["accounting"])
    )
    assert decimal(certificate["delta"]) == decimal(1e-6)
    assert certificate["failure"] == 1e-7
    assert certificate["neighbours"] == str(relation)
    # Every event, as the certificate has it, within what is promised; at most the trees' four levels in one each.
    kinds = {event["event"] for event in certificate["events"]}
    assert kinds == {"gaussian noise"}
    total = sum(
        Fraction(each["sensitivity_squared"]) / Fraction(each["variance"]) for each in certificate["events"]
    )
    whole = after_all(opened(replace(promised, adaptive=True)), []).budget
    assert float(total) > 0.5
    assert whole.epsilon == 6
    columns = len(certificate["measured"])
    forms = certificate["events"][0]
    times = Fraction(forms["sensitivity_squared"]) / relation.sensitivity(_histograms(columns)).l2_squared
    assert times in {1, 4, 16, 64, 256, 1024}  # the square of how many times each record counts
    if persons:
        assert made.schema.unit == "patient_id"


def _histograms(columns: int):
    from dualquery.queries.statistics import Bound

    return Bound((columns, columns), (2 * columns, 2 * columns), 1)


def test_the_book_is_charged_once_before_a_cell_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "l.ledger"
    create(place, name="people", epsilon=4, delta=1e-6, neighbours=Neighbours.REPLACE)
    charged: list[int] = []
    counts = MemoryCounter.true_counts

    def counted(self: MemoryCounter, *given: object, **named: object):
        charged.append(len(Books(place).read().charges))
        return counts(self, *given, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(MemoryCounter, "true_counts", counted)
    made = private_draft(PEOPLE, budget=GENEROUS, ledger=place, seed=1)
    assert set(charged) == {1}
    (charge,) = Books(place).read().charges
    assert charge.failure == "1/10000000"
    assert charge.what.startswith("private draft: epsilon 3")
    assert made.certificate is not None
    assert made.certificate["book"]["head"] == charge.hash
    with pytest.raises(BudgetError, match="too little is left"):
        private_draft(PEOPLE, budget=GENEROUS, ledger=place, seed=1)
    assert len(Books(place).read().charges) == 1


@pytest.mark.parametrize("persons", [False, True])
def test_the_book_knows_whom_a_draft_protects(tmp_path: Path, persons: bool) -> None:
    """A release that protects others does not add up with it."""
    whom = Neighbours.named("person-add-remove", 3) if persons else Neighbours.ADD_REMOVE
    create(tmp_path / "l.ledger", name="people", epsilon=9, delta=1e-5, neighbours=whom)
    private_draft(
        PEOPLE.select(["word", "patient_id"]), budget=Budget(3, 1e-6, whom), ledger=tmp_path / "l.ledger",
        unit="patient_id", records=ROWS, force=True,
    )  # fmt: skip
    (charge,) = Books(tmp_path / "l.ledger").read().charges
    assert charge.unit == ("person by patient_id" if persons else "row")


def test_a_draft_that_dies_stays_charged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "l.ledger"
    create(place, name="people", epsilon=5, delta=1e-6, neighbours=Neighbours.REPLACE)
    monkeypatch.setattr(Curator, "frequent", lambda *_, **__: (_ for _ in ()).throw(RuntimeError("killed")))
    with pytest.raises(RuntimeError, match="killed"):
        private_draft(PEOPLE, budget=GENEROUS, ledger=place)
    assert len(Books(place).read().charges) == 1


def test_the_plan_looks_at_no_cell(monkeypatch: pytest.MonkeyPatch) -> None:
    other = pa.table({name: pa.array(["x"] * ROWS) for name in PEOPLE.column_names})
    assert draft_plan(PEOPLE, budget=1.0) == draft_plan(other, budget=1.0)
    monkeypatch.setattr(MemoryCounter, "__init__", lambda *_, **__: pytest.fail("counted"))
    plan = draft_plan(PEOPLE, budget=0.3)
    assert any("become 'other'" in line for line in plan.lines())
    shared = [draft_plan(t, budget=Budget(1, 1e-6, "add-remove")) for t in (PEOPLE, PEOPLE.slice(0, 10))]
    assert shared[0] == shared[1]  # the number of records is private there


def test_what_is_said_follows_from_what_was_measured_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same noisy numbers from another table make the same schema: everything else is post-processing."""
    said: list[object] = []
    measure, frequent = Curator.measure, Curator.frequent

    def keep(method):
        def kept(self: Curator, *given: object, **named: object):
            said.append(method(self, *given, **named))
            return said[-1]

        return kept

    monkeypatch.setattr(Curator, "measure", keep(measure))
    monkeypatch.setattr(Curator, "frequent", keep(frequent))
    first = private_draft(PEOPLE, budget=GENEROUS, seed=1)
    replies = iter(said.copy())
    monkeypatch.setattr(Curator, "measure", lambda self, what, **_: next(replies))
    monkeypatch.setattr(Curator, "frequent", lambda self, name, **_: next(replies))
    assert str(private_draft(people(seed=9), budget=GENEROUS, seed=4)) == str(first)


def test_stated_columns_cost_nothing_and_stay_as_they_are(tmp_path: Path) -> None:
    stated = parse_schema(
        '[about]\ndataset = "people"\n\n[[attribute]]\nname = "word"\nvalues = ["red", "green", "blue", "teal"]\n\n'
        '[[attribute]]\nname = "age"\nlow = 0\nhigh = 100\nbins = 10\n',
        origin="part",
    )
    made = private_draft(PEOPLE, budget=GENEROUS, known=stated, seed=1)
    found = columns_of(made.schema)
    assert found["word"] == stated.domain.columns[0]
    assert found["age"] == stated.domain.columns[1]
    assert made.schema.about.dataset == "people"
    assert [c.name for c in made.schema.domain.columns] == [n for n in PEOPLE.column_names if n in found]
    assert made.certificate is not None
    assert set(made.certificate["measured"]).isdisjoint({"word", "age"})
    text = str(made)
    block = text[text.index('name = "word"') : text.index('name = "seen"')]
    assert "# measured" not in block
    assert (
        draft_plan(PEOPLE, budget=GENEROUS, known=stated).least()
        < draft_plan(PEOPLE, budget=GENEROUS).least()
    )


def refused(
    match: str, table: object = PEOPLE, error: type[DualQueryError] = DualQueryError, **named: object
) -> None:
    with pytest.raises(error, match=match):
        private_draft(table, **{"budget": GENEROUS, **named})  # type: ignore[arg-type]


def test_bad_requests_are_refused_in_a_sentence(tmp_path: Path) -> None:
    word = Categorical("word", ("red",))
    refused("no column 'colour', which is stated", known=Domain((Categorical("colour", ("red",)),)))
    refused("every column is stated", PEOPLE.select(["word"]), known=Domain((word,)))
    refused("must be public", known=Schema(Domain((word,)), draft=True))
    refused("every row is a record", known=Schema(Domain((word,)), drop_rows_containing="?"))
    refused("no column 'whose', which is stated", unit="whose")
    refused(
        "names the unit", unit="word", known=Schema(Domain((Categorical("gap", ("1",)),)), unit="patient_id")
    )
    refused(r"whose record a row is \(--unit\)", budget=Budget(1, 1e-6, PersonReplace(2)))
    refused("no rows below", PEOPLE.slice(0, 0))
    refused("gaussian or by zcdp", budget=Budget(1, None, accounting=Accounting.PURE))
    refused("not seen, so", PEOPLE.slice(0, 300), BudgetError)
    refused("not seen, so", budget=0.0003)
    refused("quantiles", quantiles=1)
    refused("hint for the number of bins", for_epsilon=-1)
    refused("looks like a record", PEOPLE.select(["age", "word"]).rename_columns(["17", "red"]), DataError)
    refused(
        "looks like a record", PEOPLE.select(["age", "word"]).rename_columns(["2019-01-01", "red"]), DataError
    )
    refused("holds lists", pa.table({"basket": [[1, 2]] * 1000}), DataError)
    (tmp_path / "b.csv").write_bytes(bytes(range(256)) * 50)
    refused(" ", tmp_path / "b.csv", DataError)
    refused("too small to measure|not seen", budget=1e-9)


def test_a_refusal_charges_nothing(tmp_path: Path) -> None:
    place = tmp_path / "l.ledger"
    create(place, name="people", epsilon=5, delta=1e-6, neighbours=Neighbours.REPLACE)
    refused("not seen, so", PEOPLE.slice(0, 300), ledger=place)
    refused("no column", ledger=place, unit="whose")
    assert Books(place).read().charges == ()


def test_nothing_found_is_said_and_a_thousand_columns_are_refused() -> None:
    noise = pa.table({"remark": [f"a remark about somebody number {i}" for i in range(5000)]})
    refused("nothing was found", noise, DataError)
    wide = pa.table({f"c{i}": np.arange(5000) % 7 for i in range(1000)})
    refused("not seen, so", wide, BudgetError, budget=0.3)
    made = private_draft(wide, budget=300, force=True, seed=1)
    assert sum(column.edges[:7] == tuple(range(7)) for column in made.schema.domain.columns) > 900


def test_columns_that_no_name_tells_apart_are_left_out() -> None:
    table = pa.Table.from_arrays(
        [PEOPLE["age"], PEOPLE["word"], PEOPLE["age"], PEOPLE["gap"]], ["a", "", "a", "b"]
    )
    made = private_draft(table, budget=GENEROUS, seed=1)
    assert [column.name for column in made.schema.domain.columns] == ["b"]
    assert len(made.left_out) == 3


def test_a_column_that_is_nearly_empty_says_whether_there_is_a_value() -> None:
    table = pa.table({"seldom": [str(i) if i % 200 == 0 else "" for i in range(ROWS)], "age": PEOPLE["age"]})
    seldom = columns_of(private_draft(table, budget=0.3, seed=1).schema)["seldom"]
    assert isinstance(seldom, Categorical)
    assert seldom.values == ("other", "missing")


def test_without_a_seed_no_two_drafts_are_alike() -> None:
    one, other = (private_draft(PEOPLE, budget=GENEROUS) for _ in range(2))
    assert one.certificate is not None
    assert other.certificate is not None
    assert one.certificate["measured"] != other.certificate["measured"]
    assert one.certificate["entropy"] != private_draft(PEOPLE, budget=GENEROUS, seed=1).certificate["entropy"]  # type: ignore[index]


def test_a_person_has_no_more_records_than_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a person with a thousand rows K count, so that their words do not stand out."""
    one = pa.table(
        {"who": ["x"] * 1000 + [f"p{i}" for i in range(4000)], "word": ["mine"] * 1000 + ["usual"] * 4000}
    )
    seen: list[int] = []
    counts = MemoryCounter.true_counts

    def counted(self: MemoryCounter, *given: object, **named: object):
        seen.append(self.true_rows)
        return counts(self, *given, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(MemoryCounter, "true_counts", counted)
    budget = Budget(20, 1e-6, PersonAddRemove(2))
    made = private_draft(one, budget=budget, unit="who", seed=1)
    assert set(seen) == {4002}
    assert "mine" not in columns_of(made.schema)["word"].labels


def test_a_draft_with_a_seed_is_not_public() -> None:
    """Whoever knows the seed can undo the noise: a release made with such a schema promises nothing."""
    seeded, private = (private_draft(PEOPLE, budget=GENEROUS, seed=seed) for seed in (1, None))
    assert seeded.schema.draft
    assert "public as it stands" not in str(seeded)
    assert not private.schema.draft
    assert "public as it stands" in str(private)


@pytest.mark.parametrize(
    ("held", "found"),
    [
        ("n", ("n", "y", "missing")),
        ("Yes", ("Yes", "No", "missing")),
        ("FEMALE", ("FEMALE", "MALE", "missing")),
        ("perhaps", ("perhaps", "missing")),
    ],
)
def test_of_two_answers_that_everybody_knows_the_rare_one_has_its_place(
    held: str, found: tuple[str, ...]
) -> None:
    """It is the same whether anybody gave it: what is added looks at what was seen, and at a public list."""
    for rare in (held, found[1]):
        table = pa.table({"answer": [held] * 3_999 + [rare]})
        draft = private_draft(table, budget=GENEROUS, seed=1)
        assert columns_of(draft.schema)["answer"].values == found
    codes = encode(table, draft.schema).columns[0]
    assert np.count_nonzero(codes == 1) == 1


@pytest.mark.parametrize("missing", [0, 300, 500, 5_000])
def test_missing_cells_are_seen_in_what_other_forms_leave(missing: int) -> None:
    """As often as noise of both numbers together, of variance 2/3 σ², would have it; rarely where there are none."""
    rng, sigma, rows = np.random.default_rng(0), 285.0, 100_000
    truth = np.zeros(len(FORMS))
    truth[FORMS.index("empty")], truth[FORMS.index("0 decimals")] = missing, rows - missing
    found = [
        Looks("a", np.rint(truth + rng.normal(0, sigma, len(FORMS))), sigma, 10.0, 1.0, rows).missing
        for _ in range(400)
    ]
    deviation = sigma * math.sqrt(2 / 3)
    assert np.mean(found) == pytest.approx(norm.cdf(missing / deviation - MISSED), abs=0.08)


def test_days_that_noise_has_seen_far_beyond_are_clamped() -> None:
    tree, days = Tree(1.0), np.repeat([2.0**14 + 5, 2.0**24 + 5], 10_000)
    while not tree.done:
        tree.fill(np.histogram(days, tree.edges)[0].astype(np.float64), 10.0)
    looks = Looks("day", np.zeros(len(FORMS)), 10.0, 10.0, 1.0)
    made = draft_columns.numbers(looks, draft_columns._dates(looks), tree, 8)
    assert made.labels[-1].startswith("2999")
