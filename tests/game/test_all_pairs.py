"""The residual of all pairs at once: kept up to date by every move, and answered by the rows."""

from __future__ import annotations

import numpy as np

from dualquery.game.all_pairs import AllPairsDataPlayer
from dualquery.game.moves import Residual, Transcript

SIZES = np.array([3, 2, 4, 3, 2])
FIRST = np.concatenate([[0], np.cumsum(SIZES)]).astype(np.int64)


def one_hot(rows):
    out = np.zeros((len(rows), FIRST[-1]))
    for j in range(len(SIZES)):
        out[np.arange(len(rows)), FIRST[j] + rows[:, j]] = 1
    return out


def table(rows, seed):
    """Attributes that follow the first one, more or less."""
    rng = np.random.default_rng(seed)
    drawn = np.column_stack([rng.integers(0, k, rows) for k in SIZES])
    follow = rng.random((rows, len(SIZES))) < 0.6
    return np.where(follow, drawn[:, :1] % SIZES, drawn).astype(np.uint8)


TRUTH = one_hot(table(4000, 1))
ONES = TRUTH.mean(axis=0)
PAIRS = TRUTH.T @ TRUTH / len(TRUTH)


def player(seed=0, weight=1.5, rows=500):
    rng = np.random.default_rng(seed)
    start = np.stack([table(rows, 7), table(rows, 8)])
    for j in range(len(SIZES)):
        start[:, :, j] = rng.permuted(start[:, :, j], axis=1)
    return AllPairsDataPlayer(FIRST, ONES, PAIRS, weight, start, rng)


def played(one, temperatures):
    transcript = Transcript()
    for temperature in temperatures:
        challenge = Residual(temperature)
        reply = one.reply(transcript, challenge)
        transcript = transcript.append(challenge, reply)
    return transcript.replies[-1]


def test_the_residual_is_what_the_rows_leave_of_the_targets():
    one = player()
    rows = played(one, [20.0, 5.0, 5.0])
    for chain in range(2):
        held = one_hot(rows[chain])
        singles = 1.5 * (500 * ONES - held.sum(axis=0))
        pairs = 500 * PAIRS - held.T @ held
        for j in range(len(SIZES)):
            pairs[FIRST[j] : FIRST[j + 1], FIRST[j] : FIRST[j + 1]] = 0
        np.testing.assert_allclose(one._ones[chain], singles, atol=1e-2)
        np.testing.assert_allclose(one._pairs[chain], pairs, atol=1e-2)


def test_rows_answer_the_residual():
    before, after = one_hot(played(player(), [1e6])[0]), one_hot(played(player(), [8.0, 4.0, 2.0, 2.0])[0])

    def error(held):
        return np.abs(held.T @ held / len(held) - PAIRS).sum()

    assert error(after) < 0.15 * error(before)


def test_very_hot_rows_only_lean():
    held = one_hot(played(player(rows=5000), [1e7])[0])
    assert np.abs(held.mean(axis=0) - ONES).max() < 0.03


def test_the_same_seed_gives_the_same_rows():
    first, again, other = (played(player(seed), [3.0, 3.0]) for seed in (1, 1, 2))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)
