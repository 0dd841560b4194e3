"""Families of queries: what they contain, how they are drawn, and what a SPEC may say."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations, permutations, product
from math import comb
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import chisquare

from dualquery.errors import QueryError
from dualquery.queries.conjunctions import Conjunctions, Parities
from dualquery.queries.families import from_file, from_spec, from_texts, marginals, parities
from dualquery.queries.group import NONE
from dualquery.queries.language.reader import parse
from dualquery.queries.random_families import (
    random_conjunctions,
    random_literals,
    ranges,
    weighted_conjunctions,
)
from dualquery.queries.tables import Tables
from dualquery.queries.workload import Workload
from dualquery.table.domain import Categorical, Domain, Items, Numeric

MIXED = Domain(
    (
        Categorical("c", ("a", "b", "d", "e", "f")),
        Categorical("only", ("one",)),
        Numeric("n", (0.0, 1.0, 2.0, 3.0)),
        Categorical("b", ("no", "yes")),
        Items("item", 2),
    )
)
BITS = Domain((Items("bit", 6),))


def conjunctions_of(workload: Workload) -> Conjunctions:
    (group,) = workload.groups
    assert isinstance(group, Conjunctions)
    return group


def literal_contents(group: Conjunctions) -> list[tuple[tuple[int, tuple[int, ...], bool], ...]]:
    """Each query as (attribute, values, negated) triples."""
    p = group.predicates
    return [
        tuple(
            (int(p.attribute[lit // 2]), tuple(p.accepted(lit // 2).tolist()), bool(lit % 2))
            for lit in row
            if lit != NONE
        )
        for row in group.literals.tolist()
    ]


def test_marginals_are_all_tables() -> None:
    workload = marginals(MIXED, 3)
    (group,) = workload.groups
    assert isinstance(group, Tables)
    assert group.sets == tuple(combinations(range(6), 3))
    sizes = MIXED.sizes.tolist()
    assert workload.size == sum(sizes[a] * sizes[b] * sizes[c] for a, b, c in group.sets)
    assert marginals(MIXED, 6).size == 5 * 1 * 3 * 2 * 2 * 2


def test_marginals_around_an_attribute_are_those_that_hold_it() -> None:
    (group,) = from_spec(MIXED, "marginals:3:n").groups
    assert isinstance(group, Tables)
    assert group.sets == tuple(each for each in combinations(range(6), 3) if 2 in each)
    assert marginals(MIXED, 1, "n").size == 3
    assert from_spec(MIXED, "marginals:2:item[1]").spec == "marginals:2:item[1]"
    wide = Domain((Items("item", 3000), Categorical("c", ("a", "b"))))
    with pytest.raises(QueryError, match="are allowed"):
        marginals(wide, 3)
    assert from_spec(wide, "marginals:2:c").size == 3000 * 4
    fewer = from_spec(wide, "marginals:3:c")
    assert fewer.spec == "marginals:2:c"
    assert "so it is made for marginals:2:c" in fewer.notes[0]


def test_parities_are_all_sets_up_to_k() -> None:
    (group,) = parities(BITS, 3).groups
    assert isinstance(group, Parities)
    found = [tuple(j for j in row if j != NONE) for row in group.attributes.tolist()]
    assert found == [members for k in (1, 2, 3) for members in combinations(range(6), k)]
    assert parities(BITS, 6).size == 2**6 - 1


def test_random_conjunctions_are_canonical_queries_on_distinct_attributes() -> None:
    group = conjunctions_of(random_conjunctions(MIXED, 3, 2000, 3))
    assert group.size == 2000
    assert group.complement is None
    for query in literal_contents(group):
        attributes = [attribute for attribute, _, _ in query]
        assert attributes == sorted(set(attributes))
        assert 1 not in attributes  # `only` has nothing to ask
        for attribute, values, _ in query:
            assert len(values) == 1
            assert values == (1,) or MIXED.sizes[attribute] > 2
    texts = [random_conjunctions(MIXED, 3, 50, 3).text(i) for i in range(50)]
    assert from_texts(MIXED, texts).digest() == random_conjunctions(MIXED, 3, 50, 3).digest()


def chance_of_sets(weights: list[int], k: int) -> dict[tuple[int, ...], float]:
    """Drawing without replacement in proportion to the weights, by enumeration."""
    chances: dict[tuple[int, ...], float] = {}
    for order in permutations([j for j, weight in enumerate(weights) if weight], k):
        chance, left = 1.0, sum(weights)
        for j in order:
            chance *= weights[j] / left
            left -= weights[j]
        key = tuple(sorted(order))
        chances[key] = chances.get(key, 0.0) + chance
    return chances


@pytest.mark.parametrize(
    ("draw", "weights", "others"),
    [
        (random_conjunctions, [1, 0, 1, 1, 1, 1], [5, 0, 3, 2, 2, 2]),
        (random_literals, [5, 0, 3, 2, 2, 2], [1, 0, 1, 1, 1, 1]),
    ],
)
def test_attributes_are_drawn_alike_or_by_their_number_of_values(
    draw: Callable[..., Workload], weights: list[int], others: list[int]
) -> None:
    count = 60_000
    queries = literal_contents(conjunctions_of(draw(MIXED, 2, count, 11)))
    chances = chance_of_sets(weights, 2)
    seen = dict.fromkeys(chances, 0)
    for (first, _, _), (second, _, _) in queries:
        seen[first, second] += 1
    expected = [count * chance for chance in chances.values()]
    assert chisquare(list(seen.values()), expected).pvalue > 1e-6
    # The test has teeth: the other way of drawing is another law.
    other = [count * chance for chance in chance_of_sets(others, 2).values()]
    assert chisquare(list(seen.values()), other).pvalue < 1e-20


def test_on_binary_attributes_both_draws_are_the_same() -> None:
    drawn, literals = (draw(BITS, 3, 500, 2).digest() for draw in (random_conjunctions, random_literals))
    assert drawn == literals


@pytest.mark.parametrize("draw", [random_conjunctions, random_literals])
def test_values_are_uniform_and_negations_fair(draw: Callable[..., Workload]) -> None:
    queries = literal_contents(conjunctions_of(draw(MIXED, 1, 60_000, 5)))
    seen = dict.fromkeys(product(range(5), (False, True)), 0)
    for ((attribute, values, negated),) in queries:
        if attribute == 0:
            seen[values[0], negated] += 1
    assert chisquare(list(seen.values())).pvalue > 1e-6
    binary = [negated for ((attribute, _, negated),) in queries if attribute == 3]
    assert abs(np.mean(binary) - 0.5) < 5 * 0.5 / np.sqrt(len(binary))


def test_a_dominant_attribute_does_not_stall_the_draw() -> None:
    domain = Domain((Categorical("v", tuple(map(str, range(5000)))), Items("item", 2)))
    group = conjunctions_of(random_literals(domain, 3, 1000))
    assert all([j for j, _, _ in query] == [0, 1, 2] for query in literal_contents(group))


def test_seeds_and_versions() -> None:
    first = random_conjunctions(MIXED, 3, 1000)
    assert first.digest() == random_conjunctions(MIXED, 3, 1000, 0).digest()
    assert first.digest() != random_conjunctions(MIXED, 3, 1000, 1).digest()
    # A SPEC means the same queries for ever: these digests must never change.
    assert first.digest() == "9190a789ae973b4fdab35e89e0cee6e402c7157b630062d39268c31cd3249085"
    assert (
        random_literals(MIXED, 3, 1000).digest()
        == "9677f6ac48e0ad9bc9642cbcb37377189b9224bc6057f9691a21b21941de3ceb"
    )
    assert (
        ranges(MIXED, "n", 20, 4).digest()
        == "a11743619e69b67dcc03b9bcfa47ea403235f58ebbfc5f47299fa2a65abbc722"
    )


def test_chunks_do_not_repeat() -> None:
    group = conjunctions_of(random_conjunctions(Domain((Items("item", 512_000),)), 3, 300_000))
    assert len(np.unique(group.literals, axis=0)) > 299_990
    assert group.literals.min() >= 0
    assert group.literals.max() < 2 * 512_000
    assert (np.diff(group.literals // 2, axis=1) > 0).all()


def test_popularity_weighs_the_attributes() -> None:
    count = 40_000
    popularity = [0.5, 7.0, 0.0, 1.5, 3.0, 0.25]
    group = conjunctions_of(weighted_conjunctions(MIXED, 2, count, 3, popularity))
    chances = chance_of_sets([2, 0, 0, 6, 12, 1], 2)  # `only` cannot be asked, whatever its popularity
    seen = dict.fromkeys(chances, 0)
    for (first, _, _), (second, _, _) in literal_contents(group):
        seen[first, second] += 1
    assert chisquare(list(seen.values()), [count * c for c in chances.values()]).pvalue > 1e-6
    for bad in ([1.0], [-1.0] * 6, [0.0] * 6, [np.nan] * 6):
        with pytest.raises(QueryError, match="popularity"):
            weighted_conjunctions(MIXED, 2, 10, 0, bad)
    with pytest.raises(QueryError, match="only 4 can be asked"):
        weighted_conjunctions(MIXED, 5, 10, 0, popularity)


ORDERED = Domain(
    (
        Numeric("n", (0.0, 1.0, 2.0, 3.0, 4.0)),
        Numeric("m", (0.0, 1.0, 2.0), missing="none"),
        Categorical("g", ("?", "low", "mid", "high"), missing="?", ordered=True),
        Categorical("c", ("x", "y")),
        Numeric("one", (0.0, 1.0)),
    )
)


@pytest.mark.parametrize(
    ("name", "possible"),
    [
        ("n", {(a, b) for a in range(4) for b in range(a, 4)} - {(0, 3)}),
        ("m", {(0, 0), (0, 1), (1, 1)}),
        ("g", {(a, b) for a in range(1, 4) for b in range(a, 4)}),
    ],
)
def test_ranges_are_uniform_pairs(name: str, possible: set[tuple[int, int]]) -> None:
    workload = ranges(ORDERED, name, 9000, 1)
    group = conjunctions_of(workload)
    attribute = ORDERED.find(name)
    seen = dict.fromkeys(sorted(possible), 0)
    size = int(ORDERED.sizes[attribute])
    for ((drawn, values, negated),) in literal_contents(group):
        assert drawn == attribute
        assert 2 * len(values) < size or (2 * len(values) == size and 0 not in values)
        accepted = sorted(set(range(size)) - set(values)) if negated else list(values)
        assert accepted == list(range(accepted[0], accepted[-1] + 1))
        seen[accepted[0], accepted[-1]] += 1
    assert chisquare(list(seen.values())).pvalue > 1e-6
    assert len(group.predicates) <= len(possible)
    texts = [workload.text(i) for i in range(30)]
    assert from_texts(ORDERED, texts).digest() == ranges(ORDERED, name, 30, 1).digest()


def test_ranges_over_several_attributes_are_boxes() -> None:
    workload = ranges(ORDERED, ["g", "n"], 200, 2)
    contents = literal_contents(conjunctions_of(workload))
    assert all([attribute for attribute, _, _ in query] == [0, 2] for query in contents)
    assert workload.digest() == from_spec(ORDERED, "ranges:g*n:200:2").digest()
    assert len({query[0] for query in contents}) > 5


def test_ranges_over_very_many_bins() -> None:
    domain = Domain((Numeric("n", tuple(map(float, range(5001)))),))
    group = conjunctions_of(ranges(domain, "n", 3000))
    lengths = np.diff(group.predicates.start)
    assert lengths.max() <= 2500
    for p in (0, len(lengths) - 1):
        assert (np.diff(group.predicates.accepted(p)) > 0).all()


# SPEC


def test_specs() -> None:
    assert from_spec(MIXED, "marginals:2").digest() == marginals(MIXED, 2).digest()
    assert from_spec(BITS, "parities:3").digest() == parities(BITS, 3).digest()
    assert from_spec(MIXED, "random:2:70").digest() == random_conjunctions(MIXED, 2, 70).digest()
    assert from_spec(MIXED, "random:2:70:9").digest() == random_conjunctions(MIXED, 2, 70, 9).digest()
    assert from_spec(MIXED, "random-literals:2:70:9").digest() == random_literals(MIXED, 2, 70, 9).digest()
    assert from_spec(MIXED, "ranges:n:7").digest() == ranges(MIXED, "n", 7).digest()
    assert from_spec(MIXED, "ranges:n:7:3").digest() == ranges(MIXED, "n", 7, 3).digest()
    joined = from_spec(MIXED, "marginals:1 + random:2:70")
    assert joined.digest() == from_spec(MIXED, ["marginals:1", "random:2:70"]).digest()
    assert joined.size == marginals(MIXED, 1).size + 70
    assert joined.spec == "marginals:1 + random:2:70:0"
    assert from_spec(MIXED, joined.spec).digest() == joined.digest()


def test_a_spec_knows_names_with_colons_and_asterisks() -> None:
    domain = Domain(
        (Numeric("a:7", (0.0, 1.0, 2.0)), Numeric("a", (0.0, 1.0, 2.0)), Numeric("x*y", (0.0, 1.0, 2.0)))
    )
    assert from_spec(domain, "ranges:a:7:9").digest() == ranges(domain, "a:7", 9).digest()
    assert from_spec(domain, "ranges:a:8:9").digest() == ranges(domain, "a", 8, 9).digest()
    assert from_spec(domain, "ranges:x*y:8").digest() == ranges(domain, "x*y", 8).digest()


def test_files(tmp_path: Path) -> None:
    path = tmp_path / "asked+more.txt"
    path.write_text(
        "# what we ask\n\nc = a & item[1]\r\n  n < 2   # young\nparity(b, item[1])\n", encoding="utf-8"
    )
    workload = from_spec(MIXED, str(path))
    assert [workload.text(i) for i in range(workload.size)] == [
        "c = a & item[1]",
        "n < 2",
        "parity(b, item[1])",
    ]
    assert workload.digest() == from_texts(MIXED, ["c = a & item[1]", "n < 2", "parity(b, item[1])"]).digest()
    assert from_spec(MIXED, [str(path), "marginals:1"]).size == 3 + marginals(MIXED, 1).size
    (tmp_path / "wrong").write_text("c = a\n\nc = z\n")
    with pytest.raises(QueryError, match=r"wrong, line 3, column 5: attribute 'c' has no value 'z'"):
        from_file(MIXED, tmp_path / "wrong")
    (tmp_path / "blank").write_text("\n# nothing\n")
    with pytest.raises(QueryError, match="holds no query"):
        from_spec(MIXED, str(tmp_path / "blank"))
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(QueryError, match="not UTF-8 text"):
        from_spec(MIXED, str(tmp_path / "binary"))
    with pytest.raises(QueryError, match="there is no query file"):
        from_file(MIXED, tmp_path / "absent")


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("marginals:7", "tables of 7 attributes cannot be made: the schema has 6"),
        ("marginals:0", "at least one attribute"),
        ("marginals:two", "K must be a whole number in 'marginals:two'"),
        ("marginals:2:3", "unknown attribute '3'"),
        ("marginals", "neither a family of queries"),
        ("random:3", "should read random:K:COUNT"),
        ("random-literals:3", "should read random-literals:K:COUNT"),
        ("random:3:0", "must be at least 1, and is 0"),
        ("random:3:-5", "COUNT must be a whole number"),
        ("random:3:1e6", "COUNT must be a whole number"),
        ("random:3:10:x", "SEED must be a whole number"),
        ("random:3:" + "9" * 5000, "COUNT must be a whole number"),
        ("random:6:10", "only 5 can be asked about"),
        ("random:3:30000000", "30,000,000 queries; at most 20,000,000"),
        ("parities:2", "'c' is not binary"),
        ("ranges:n", "should read ranges:ATTRIBUTE:COUNT"),
        ("ranges:n:x", "must be a whole number"),
        ("ranges:m:10", "unknown attribute 'm'"),
        ("ranges:m:10:1", "unknown attribute 'm'"),
        ("ranges:c:10", "'c' has no order"),
        ("ranges:item[1]:10", "has no order"),
        ("ranges:n*n:10", "each only once"),
        ("nowhere.txt", "nor a file"),
        ("", "nor a file"),
        ("marginals:2+", "nor a file"),
        ("x" * 5000, "nor a file"),
        ("a\0b", "nor a file"),
    ],
)
def test_a_wrong_spec_is_one_clear_sentence(spec: str, message: str) -> None:
    with pytest.raises(QueryError) as caught:
        from_spec(MIXED, spec)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_too_much_is_refused_with_its_number() -> None:
    many = Domain((Items("item", 512_000),))
    with pytest.raises(QueryError, match=f"{comb(512_000, 3):,} tables"):
        marginals(many, 3)
    with pytest.raises(QueryError, match="at most 20,000,000"):
        parities(many, 2)
    thousands = Domain(tuple(Categorical(f"v{j}", tuple(map(str, range(2000)))) for j in range(3)))
    with pytest.raises(QueryError, match="8,000,000,000 cells"):
        marginals(thousands, 3)
    with pytest.raises(QueryError, match=r"more than 10.30 tables"):
        marginals(many, 250_000)
    with pytest.raises(QueryError, match=r"more than 10.30 cells"):
        marginals(many, 512_000)
    with pytest.raises(QueryError, match=r"more than 10.30 queries"):
        parities(many, 300_000)
    with pytest.raises(QueryError, match="negative"):
        random_conjunctions(MIXED, 2, 10, -1)
    with pytest.raises(QueryError, match="too few values"):
        ranges(ORDERED, "one", 3)
    with pytest.raises(QueryError, match="no query"):
        from_texts(MIXED, [])
    with pytest.raises(QueryError, match=r"^query 2, column 1: unknown attribute"):
        from_texts(MIXED, ["c = a", "z = 1"])


def test_half_a_million_items() -> None:
    domain = Domain((Items("item", 512_000),))
    workload = random_conjunctions(domain, 3, 1000)
    query = parse(workload.text(17), domain)
    assert len(query.literals) == 3
    assert len(conjunctions_of(workload).predicates) == 512_000
