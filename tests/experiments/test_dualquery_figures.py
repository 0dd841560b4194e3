"""Figures 2, 3 and 4 of DualQuery at toy size."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from dualquery.privacy.budget import Accounting
from dualquery.queries.families import from_texts
from dualquery.queries.random_families import random_conjunctions
from dualquery.table.domain import Categorical, Domain, Items
from dualquery.table.records import Records
from experiments import dualquery_figure_1, dualquery_own, dualquery_projection, dualquery_theory
from experiments import dualquery_figure_2 as figure_2
from experiments import dualquery_figure_3 as figure_3
from experiments import dualquery_figure_4 as figure_4
from experiments.biased import biased_records
from experiments.data import Data
from experiments.harness import Kept, Setting, Size, mean_by, run
from experiments.runs import asked_at_random, dual_query_epsilons, papers_rounds, zeros_errors
from tests.experiments.outputs import rows_after_run


@pytest.fixture(scope="module")
def figure_2_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder for the data sets in turn, and for all of them: what is there is not measured again."""
    return tmp_path_factory.mktemp("figure_2")


@pytest.mark.parametrize("name", figure_2.TITLES)
def test_figure_2_errors_fall_with_epsilon(invented_data: Data, figure_2_folder: Path, name: str) -> None:
    setting = Setting(invented_data, Size.TOY)
    points = [point for point in figure_2.points(setting) if point.key["data"] == name]
    one = replace(figure_2.EXPERIMENT, points=lambda setting: points)
    assert run(one, setting, figure_2_folder) == []
    rows = Kept(figure_2_folder / f"{one.name}.csv", Size.TOY).rows(points)
    means = mean_by(rows, ("method", "epsilon"), "mean_error")
    for method in (
        figure_2.THEOREM,
        figure_2.ADVANCED,
        figure_2.RHO,
        figure_2.PLANNED,
        figure_2.PROJECTED,
    ):
        # On so few baskets of 23,496 items our own plan cannot pay for a density, and fills in random items.
        if (name, method) != ("kosarak", figure_2.PLANNED):
            assert means[method, 50] < means[method, 1], (name, method)
    assert means[figure_2.ZEROS, 50] == means[figure_2.ZEROS, 1]


def test_figure_2_shows_all_data_sets(invented_data: Data, figure_2_folder: Path) -> None:
    rows = rows_after_run(figure_2.EXPERIMENT, Setting(invented_data, Size.TOY), figure_2_folder)
    assert {row["data"] for row in rows} == set(figure_2.TITLES)


def test_figure_3_prices_are_those_of_the_design(invented_data: Data, tmp_path: Path) -> None:
    rows = rows_after_run(figure_3.EXPERIMENT, Setting(invented_data, Size.TOY), tmp_path)
    assert [row["queries"] for row in rows] == [300, 1000]
    assert all(0 < row["mean_error"] < row["max_error"] <= 1 for row in rows)
    prices = figure_3.prices(494_021, 170)
    assert prices["epsilon_theorem_4_2"] == pytest.approx(1.2 * 170 * 169 * 1750 / 494_021)
    assert prices["epsilon_theorem_4_3"] == pytest.approx(1.859, abs=1e-3)
    assert prices["epsilon_theorem_4_3_added"] == pytest.approx(0.880, abs=1e-3)
    assert prices["epsilon_rho"] == pytest.approx(0.141, abs=1e-3)


def test_figure_4_errors_fall_with_epsilon_and_guesses_are_as_expected(
    invented_data: Data, tmp_path: Path
) -> None:
    rows = rows_after_run(figure_4.EXPERIMENT, Setting(invented_data, Size.TOY, runs=2), tmp_path)
    means = mean_by(rows, ("method", "epsilon"), "mean_error")
    for method in (figure_4.PAPERS, figure_4.PLANNED, figure_4.NOISE):
        assert means[method, 5] < means[method, 0.05], method
    records = biased_records(2000, 2000, 3)
    workload = random_conjunctions(records.domain, 3, 20_000, 3)
    truth = workload.fractions(records)
    assert zeros_errors(workload, truth).mean == pytest.approx(7 / 32, abs=0.01)
    assert np.abs(1 / 8 - truth).mean() == pytest.approx(0.11, abs=0.01)


def test_the_zeros_table_has_a_bit_for_every_value() -> None:
    """By hand: each way that the queries may have been drawn, on a table of two and three values and an item."""
    domain = Domain((Categorical("two", ("a", "b")), Categorical("three", ("x", "y", "z")), Items("item", 1)))
    records = Records.from_rows(domain, np.array([[0, 0, 0], [0, 1, 1], [1, 2, 0], [0, 0, 1]]))
    expected = []
    for codes in product(range(2), range(3)):
        for signs in product((False, True), repeat=2):  # negated
            rows = records.to_rows()
            held = [
                (rows[:, j] == code) ^ sign for j, (code, sign) in enumerate(zip(codes, signs, strict=True))
            ]
            expected.append(abs(float(all(signs)) - np.mean(held[0] & held[1])))
    texts = [
        f"{'!' if one else ''}(two = {a}) & {'!' if other else ''}(three = {b})"
        for a, b in product("ab", "xyz")
        for one, other in product((False, True), repeat=2)
    ]
    workload = from_texts(domain, texts)
    assert zeros_errors(workload, workload.fractions(records)).mean == pytest.approx(np.mean(expected))
    item = from_texts(domain, [domain.name(2)])
    assert zeros_errors(item, item.fractions(records)).mean == pytest.approx(0.5)


def test_the_papers_rounds_are_those_of_theorem_4_3_as_printed(invented_data: Data) -> None:
    records = invented_data.records("adult")
    workload = random_conjunctions(records.domain, 3, 500, 1)
    rounds = papers_rounds(records, workload, 5.0, 1e-3, learning_rate=0.2, samples=20)
    by = {
        played: dual_query_epsilons(
            learning_rate=0.2, samples=20, rounds=played, rows=records.rows, delta=1e-3
        )
        for played in (rounds, rounds + 1)
    }
    assert by[rounds][Accounting.THEOREM_4_3] <= 5 < by[rounds + 1][Accounting.THEOREM_4_3]


def test_algorithm_2_promises_what_theorem_4_3_pays_for(invented_data: Data, tmp_path: Path) -> None:
    rows = rows_after_run(dualquery_theory.EXPERIMENT, Setting(invented_data, Size.TOY), tmp_path)
    (own,) = [row for row in rows if row["method"] == dualquery_theory.OWN]
    asked = asked_at_random(invented_data, "adult", 500)
    for factor, paid in ((1.001, True), (0.98, False)):
        learning = dualquery_theory.algorithm_2(asked, factor * own["promised"])
        assert (dualquery_theory.cost(learning, asked.records.rows) <= own["epsilon"]) is paid


def test_projection_gains_over_noise_and_keeps_its_promise(invented_data: Data, tmp_path: Path) -> None:
    rows = rows_after_run(dualquery_projection.EXPERIMENT, Setting(invented_data, Size.TOY), tmp_path)
    errors = {row["method"]: row for row in rows}
    squares, noise = errors[dualquery_projection.SQUARES], errors[dualquery_projection.NOISE]
    assert squares["root_mean_square"] <= squares["promised"]
    assert squares["mean_error"] < noise["mean_error"]
    assert 0.99 <= squares["epsilon_spent"] <= 1


def test_the_own_rule_is_told_with_what_it_leaves_and_where_errors_do_not_fall(
    invented_data: Data, tmp_path: Path
) -> None:
    rows = rows_after_run(dualquery_own.EXPERIMENT, Setting(invented_data, Size.TOY), tmp_path)
    assert all(0 < row["epsilon_spent"] <= row["epsilon"] for row in rows)
    assert all(row["mean_error"] <= row["max_error"] for row in rows)
    rising = [{**row, "mean_error": row["epsilon"] / 100, "max_error": 1 / row["epsilon"]} for row in rows]
    told = dualquery_own.find(rising)
    assert "**The mean error does not fall** on NLTCS from ε = 0.1 to 1 (0.001 to 0.01)" in told
    assert "- The max error falls from each ε to the next on all 1 tables." in told


def test_figure_1_counts_what_there_is(invented_data: Data, tmp_path: Path) -> None:
    rows = rows_after_run(dualquery_figure_1.EXPERIMENT, Setting(invented_data, Size.TOY), tmp_path)
    adult = invented_data.records("adult")
    assert [row["table"] for row in rows] == ["Adult", "czech"]
    sizes = adult.domain.sizes
    assert 2 in sizes
    assert rows[0]["values_as_bits"] == sizes.sum()
    assert rows[0]["binary_attributes"] == sizes.sum() - (sizes == 2).sum()  # two values are one attribute
    assert rows[1]["binary_attributes"] == rows[1]["values_as_bits"] == rows[1]["attributes"] == 6


def test_the_papers_samples_meet_both_ends() -> None:
    assert figure_4.papers_samples(50) == 200
    assert figure_4.papers_samples(512_000) == 50_000
