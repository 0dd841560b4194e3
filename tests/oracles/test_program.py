"""The integer program: the maximum over all records, by several solvers, and as a file that others read."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from dualquery import example
from dualquery.cli.app import app
from dualquery.oracles.program import exact_response, mps

pywraplp = pytest.importorskip("ortools.linear_solver.pywraplp")


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_the_program_is_the_maximum_over_all_records(data, small_clauses, universe_values):
    clauses = data.draw(small_clauses)
    fallback = np.array([data.draw(st.integers(0, size - 1)) for size in clauses.sizes.tolist()], np.int32)
    response = exact_response(clauses, fallback, time_limit=20.0, backend="scip")
    values = universe_values(clauses)
    assert response.value == response.bound == max(values.values()) == values[tuple(response.record.tolist())]


@pytest.mark.parametrize("backend", ["cbc", "scip"])
def test_other_solvers_agree(backend, random_clauses):
    clauses = random_clauses([2] * 9, 60, 10, 3)
    fallback = np.zeros(9, np.int32)
    proof = exact_response(clauses, fallback, time_limit=20.0)
    assert exact_response(clauses, fallback, time_limit=20.0, backend=backend).value == proof.value


def test_what_is_written_out_has_the_same_maximum(random_clauses, tmp_path):
    clauses = random_clauses([2] * 8, 40, 8, 1)
    written = mps(clauses)
    assert " a1_" in written
    from ortools.linear_solver.python import model_builder

    model = model_builder.Model()
    assert model.import_from_mps_string(written)
    solver = model_builder.Solver("scip")
    solver.solve(model)
    proof = exact_response(clauses, np.zeros(8, np.int32), time_limit=20.0)
    assert round(solver.objective_value) == proof.value


def test_the_command_writes_a_program_that_a_solver_solves(tmp_path):
    from ortools.linear_solver.python import model_builder

    schema, out = tmp_path / "schema.toml", tmp_path / "round.mps"
    schema.write_text(example.SCHEMA, encoding="utf-8")
    asked = ["--schema", str(schema), "--queries", "marginals:2", "--samples", "20", "--out", str(out)]
    assert CliRunner().invoke(app, ["program", *asked]).exit_code == 0
    model = model_builder.Model()
    assert model.import_from_mps_string(out.read_text(encoding="utf-8"))
    solver = model_builder.Solver("scip")
    solver.solve(model)
    assert 1 <= solver.objective_value <= 20
