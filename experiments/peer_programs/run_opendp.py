"""OpenDP: AIM and MST of `opendp[mbi]`."""

from __future__ import annotations

import math
from functools import partial

import mbi
import numpy as np
import opendp.prelude as dp
import polars as pl
from mbi.estimation import mirror_descent
from protocol import Method, Task, serve

dp.enable_features("contrib")
# Instead of 16 for each attribute, 1,000 after each round, and 80. Single attributes are measured beforehand.
ROUNDS, ITERATIONS, MODEL_MB = 48, 100, 8.0
USUAL_MB = 80.0


def gaussian_scale(sensitivity: float, task: Task) -> float:
    """The least noise that the budget allows for counts that one row moves by this much (L2)."""
    space = dp.vector_domain(dp.atom_domain(T="i64")), dp.l2_distance(T=float)

    def noise(scale: float) -> dp.Measurement:
        return dp.c.make_fix_delta(dp.c.make_zCDP_to_approxDP(dp.m.make_gaussian(*space, scale)), task.delta)

    return dp.binary_search_param(noise, d_in=sensitivity, d_out=(task.epsilon, task.delta), T=float)


def budget(task: Task) -> float:
    """The budget in zero-concentrated privacy: the task's, or by OpenDP's own conversion."""
    if task.rho is not None:
        return task.rho
    return 1 / (2 * gaussian_scale(1.0, task) ** 2)


def payable(rho: float, selections: int) -> float:
    """A budget smaller by at most a millionth that MST can pay with.

    MST (0.16) gives each selection an equal part of a tenth of half its budget, then adds the parts up, rounding
    upwards, and refuses where the sum exceeds the whole by the last digit: for 15 columns six times out of seven.
    """
    for step in range(1000):
        tried = rho * (1 - 1e-9 * step)
        pairs = just_below(just_below(tried - 0.5 * tried))
        whole = just_below(just_below(pairs - 0.9 * pairs))
        parts = [just_below(whole / selections)] * selections
        space = dp.vector_domain(dp.atom_domain(T="f64", nan=False)), dp.linf_distance(T="f64")
        together = dp.c.make_adaptive_composition(*space, dp.zero_concentrated_divergence(), 1.0, parts)
        if together.map(1.0) <= whole:
            return tried
    return rho  # let MST say so itself


def just_below(x: float) -> float:
    return math.nextafter(x, -math.inf)


def synthesise(task: Task, algorithm: dp.mbi.Algorithm, rho: float, rows: str = "round") -> np.ndarray:
    """Synthetic rows, as many as OpenDP finds; codes are cut between one another, so the domain is public."""
    context = dp.Context.compositor(
        data=pl.LazyFrame(task.rows.astype(np.int64), schema=task.names),
        privacy_unit=dp.unit_of(contributions=1),
        privacy_loss=dp.loss_of(rho=rho),
        split_evenly_over=1,
    )
    cuts = {name: range(size - 1) for name, size in zip(task.names, task.sizes, strict=True)}
    table = context.query().contingency_table(cuts=cuts, algorithm=algorithm).release()
    return table.synthesize(method=rows).select(task.names).to_numpy()


def aim(task: Task) -> np.ndarray:
    return synthesise(task, dp.mbi.AIM(queries=asked_of(task)), budget(task))


def aim_of_fewer_rounds(task: Task) -> np.ndarray:
    algorithm = dp.mbi.AIM(queries=asked_of(task), rounds=ROUNDS)
    return synthesise(task, algorithm, budget(task))


def asked_of(task: Task) -> list[dp.mbi.Count]:
    return [dp.mbi.Count(tuple(task.names[j] for j in members)) for members in task.tables]


def short_aim(task: Task) -> np.ndarray:
    """AIM with 48 rounds, 100 iterations after each, and a model of at most 8 MB.

    Where the joint distribution is that small, it is fitted itself instead of a junction tree: messages in a tree
    are slower, and compiled anew for each tree. The limit stays the usual one then: it is about trees, and a smaller
    one would end AIM after its first round. On trees so few iterations make AIM end early (ten fits on Adult's pairs
    instead of 49): a fit that has not arrived looks like one that a measurement did not improve, and AIM then spends
    more at once.
    """
    joint = 8 * math.prod(task.sizes) <= MODEL_MB * 2**20
    algorithm = dp.mbi.AIM(
        queries=asked_of(task),
        rounds=ROUNDS,
        max_size=USUAL_MB if joint else MODEL_MB,
        estimator=partial(fitted, joint=joint),
    )
    return synthesise(task, algorithm, budget(task))


def fitted(
    domain: mbi.Domain,
    loss_fn: list[mbi.LinearMeasurement],
    *,
    potentials: mbi.CliqueVector | None = None,
    joint: bool,
) -> mbi.MarkovRandomField:
    """An estimator of the kind that OpenDP lets one choose."""
    whole = tuple(domain.attributes)
    if joint and (potentials is None or not potentials.supports(whole)):
        potentials = mbi.CliqueVector.zeros(domain, [whole])
    return mirror_descent(domain, loss_fn, potentials=potentials, iters=ITERATIONS)


def mst(task: Task, rows: str = "round") -> np.ndarray:
    rho = payable(budget(task), selections=len(task.names) - 1)
    return synthesise(task, dp.mbi.MST(), rho, rows)


def mst_sampled(task: Task) -> np.ndarray:
    """MST with rows drawn at random.

    The default "rounds": within rows of the same parents it hands out the values of each column in the same order
    of rows (mbi 1.1.0), so that columns that have only a parent in common seem to depend on each other.
    """
    return mst(task, rows="sample")


METHODS: dict[str, Method] = {
    "MST": mst,
    "MST sampled": mst_sampled,
    "AIM": aim,
    "AIM 48": aim_of_fewer_rounds,
    "AIM 48 x 100": short_aim,
}

if __name__ == "__main__":
    serve(METHODS)
