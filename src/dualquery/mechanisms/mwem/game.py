"""MWEM: the query player best-responds, the data player learns (Hardt, Ligett, McSherry 2012, Figure 1).

Each round the exponential mechanism finds a query (or a whole table) that the distribution gets wrong, it is
measured with noise, and multiplicative weights take the measurement in. Figure 1 is `--iterate average
--updates once`; the defaults are the paper's own improvements, the last iterate and repeated updates. Pure ε
pays with Laplace noise, ρ with Gaussian noise and bounded range, by the same code.
"""

from __future__ import annotations

import math
from math import prod

import numpy as np

from dualquery.distributions.factored import Factored
from dualquery.distributions.multiplicative_weights import (
    ONCE,
    MultiplicativeWeights,
    Schedule,
    StepSize,
    nearest_probabilities,
)
from dualquery.game.best_response_query_player import BestResponseQueryPlayer, Questions
from dualquery.game.learning_data_player import Belief, LearningDataPlayer
from dualquery.game.moves import Heard
from dualquery.mechanisms.mechanism import Mechanism, Outcome, Plan, Progress, Step, Task
from dualquery.mechanisms.mwem.parameters import (
    PASSES,
    MwemParameters,
    Updates,
    parameters_of,
    whole_table,
)
from dualquery.mechanisms.outcomes import Iterates, play_iterates
from dualquery.mechanisms.wishes import MwemWishes
from dualquery.privacy.budget import Accounting
from dualquery.privacy.curator import Curator
from dualquery.privacy.events import Selection
from dualquery.privacy.noise import Noise
from dualquery.privacy.scores import selection_event
from dualquery.privacy.selection import Rate


def mwem(
    curator: Curator,
    questions: Questions[Heard, Factored],
    *,
    rate: Rate,
    noise: Noise,
    belief: Belief[Heard, Factored],
    task: Task,
    iterates: Iterates,
    rng: np.random.Generator,
    progress: Progress,
) -> Outcome:
    """The game of Figure 1; its last reply, or the average of all, is what is released."""
    query_player = BestResponseQueryPlayer(curator, questions, rate=rate, noise=noise)
    data_player = LearningDataPlayer(belief)
    return play_iterates(query_player, data_player, task, iterates, rng, progress)


def belief_of(parameters: MwemParameters, start: Factored, public_rows: int) -> MultiplicativeWeights:
    """A distribution that hears as planned, content where its gaps are as small as the noise."""
    schedule = Schedule(StepSize.FULL, PASSES, parameters.noise / public_rows)
    if parameters.updates is Updates.ONCE:
        schedule = ONCE
    return MultiplicativeWeights(start, schedule=schedule, floor=0.5 / public_rows)


def starting(plan: Plan[MwemParameters], curator: Curator) -> Factored:
    """A₀: uniform, or half uniform and half a noisy count of every cell (section 2.3.2), so that none is excluded."""
    task, noise = plan.task, plan.parameters.start_noise
    distribution = Factored(task.domain, part_cells=plan.parameters.part_cells)
    if noise is not None:
        noisy = curator.measure(whole_table(task), noise=noise) / task.rows
        start = 0.5 * nearest_probabilities(noisy) + 0.5 / len(noisy)
        factors = len(noisy) * start.reshape(task.domain.sizes)
        distribution.multiply(tuple(range(task.domain.width)), factors, mass=float(factors.mean()))
    return distribution


def plan(task: Task, wanted: MwemWishes) -> Plan[MwemParameters]:
    """All parameters from the task and the wishes; see `parameters` for the rule."""
    task.workload.product_rows(task.workload.starts[:-1])  # refuses what a distribution could not answer
    chosen = parameters_of(task, wanted)
    universe = prod(task.domain.sizes.tolist())
    part = min(universe, chosen.part_cells)
    noise = chosen.noise / task.rows
    selection = selection_event(chosen.asked.score, task.budget.neighbours, rate=chosen.rate, draws=1)
    assert selection is not None, "errors can move"
    searched = math.log(2 * chosen.asked.size) / (float(selection.range) * task.rows)
    passes = PASSES if chosen.updates is Updates.REPEATED else 1
    notes = []
    if universe > part:
        notes.append(
            f"the universe has 2^{task.domain.log2_size:.0f} cells: the distribution is kept in parts of at "
            f"most {part:,}, and a query that would need a larger one is not measured"
        )
    source = "as asked" if wanted.rounds is not None else "from log2|X| and n epsilon"
    rounds = chosen.rounds
    return Plan(
        mechanism="mwem",
        task=task,
        reason=f"{rounds} rounds {source}, measuring {chosen.measured.value}",
        parameters=chosen,
        steps=_steps(task, chosen, selection),
        mean_error=min(0.5, noise + 0.05 / math.sqrt(rounds)),
        max_error=min(1.0, 3 * noise + searched + 0.3 / math.sqrt(rounds)),
        seconds=2.0 + rounds**2 * passes * part * 1e-9 + rounds * chosen.asked.size * 2e-8,
        bytes=32 * part + 64 * chosen.asked.size,
        notes=tuple(notes),
    )


def _steps(task: Task, chosen: MwemParameters, selection: Selection) -> tuple[Step, ...]:
    neighbours = task.budget.neighbours
    measurement = chosen.measurement.event(chosen.asked.statistic.sensitivity(neighbours))
    steps = [
        Step("choose what the distribution gets wrong", selection, chosen.rounds),
        Step("measure it", measurement, chosen.rounds),
    ]
    if chosen.start_noise is not None:
        event = chosen.start_noise.event(whole_table(task).sensitivity(neighbours))
        steps.insert(0, Step("measure every cell, for a start", event))
    return tuple(steps)


def run(
    plan: Plan[MwemParameters], curator: Curator, rng: np.random.Generator, progress: Progress
) -> Outcome:
    """Play the planned game against the curator."""
    chosen, task = plan.parameters, plan.task
    start = starting(plan, curator)
    return mwem(
        curator,
        chosen.asked.questions(start.snapshot()),
        rate=chosen.rate,
        noise=chosen.measurement,
        belief=belief_of(chosen, start, task.rows),
        task=task,
        iterates=chosen,
        rng=rng,
        progress=progress,
    )


WORDS = "multiplicative weights over records, corrected by the worst-answered queries (Hardt et al. 2012)"
MWEM = Mechanism("mwem", WORDS, MwemWishes, plan, run, paid_by=(Accounting.ZCDP, Accounting.PURE))
