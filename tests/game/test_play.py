"""The game: what is remembered of it, when it stops, and what the players make of what they hear."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import islice

import numpy as np
import pytest

from dualquery.counting import MemoryCounter
from dualquery.game import (
    BestResponseDataPlayer,
    Challenge,
    LearningDataPlayer,
    Transcript,
    play,
    played,
)
from dualquery.game.query_players import PARTS, BestResponseQueryPlayer, LearningQueryPlayer, net_weights
from dualquery.privacy.budget import Accounting, Budget, Neighbours
from dualquery.privacy.curator import Curator
from dualquery.privacy.events import GaussianMeasurement
from dualquery.privacy.noise import Gaussian
from dualquery.privacy.scores import SignedErrors, selection_event
from dualquery.privacy.selection import Rate, Selected
from dualquery.queries.derived import Balance
from dualquery.queries.families import from_spec
from dualquery.queries.workload import Workload
from dualquery.table.domain import Categorical, Domain, Items
from dualquery.table.records import Records
from tests.house import curator_of

DOMAIN = Domain((Categorical("a", ("x", "y", "z")), Items("item", 3)))
MIXED = from_spec(DOMAIN, "marginals:2 + random:2:20")
ROWS = 40


def records() -> Records:
    rng = np.random.default_rng(0)
    return Records.from_rows(DOMAIN, np.stack([rng.integers(0, s, ROWS) for s in DOMAIN.sizes], axis=1))


def curator() -> Curator:
    pays = Budget(epsilon=1e6, delta=1e-6, neighbours=Neighbours.REPLACE, accounting=Accounting.ZCDP)
    return curator_of(records(), pays)


class Counting:
    """Asks for the number of the round, and remembers what it was shown."""

    def __init__(self) -> None:
        self.seen: list[Transcript[int, str]] = []

    def challenge(self, transcript: Transcript[int, str]) -> int:
        self.seen.append(transcript)
        return transcript.rounds


class Spelling:
    """Replies with the challenge as text."""

    def reply(self, transcript: Transcript[int, str], challenge: int) -> str:
        assert transcript.rounds == challenge
        return f"reply {challenge}"


# The record of it


@pytest.mark.parametrize("remembers", [None, 1, 2, 5, 50])
def test_a_transcript_keeps_every_challenge_and_the_last_replies(remembers: int | None) -> None:
    transcript: Transcript[int, str] = Transcript(remembers=remembers)
    assert (transcript.rounds, transcript.replies) == (0, ())
    for t in range(12):
        before = transcript
        transcript = transcript.append(t, f"reply {t}")
        assert before.rounds == t  # a transcript is a value: appending makes another
        assert transcript.rounds == t + 1
        assert transcript.challenges == tuple(range(t + 1))
        kept = t + 1 if remembers is None else min(t + 1, remembers)
        assert transcript.replies == tuple(f"reply {i}" for i in range(t + 1 - kept, t + 1))
        assert transcript.last_reply() == f"reply {t}"
        assert transcript.remembers == remembers


def test_the_average_reply_is_a_row_a_reply() -> None:
    transcript: Transcript[Challenge, np.ndarray] = Transcript()
    nothing = Challenge(np.empty(0, np.int64), np.empty(0, np.int64))
    for t in range(3):
        transcript = transcript.append(nothing, np.array([t, t + 1], np.int32))
    np.testing.assert_array_equal(transcript.average_reply(), [[0, 1], [1, 2], [2, 3]])


# Playing


def test_a_game_has_no_end_of_its_own_and_plays_a_round_when_it_is_asked_for() -> None:
    query_player = Counting()
    rounds = played(query_player, Spelling(), remembers=1)
    assert query_player.seen == []  # nothing is played before somebody looks
    for t, transcript in enumerate(islice(rounds, 1000)):
        assert transcript.rounds == t + 1 == len(query_player.seen)
        assert transcript.replies == (f"reply {t}",)
    assert next(rounds).rounds == 1001  # and whoever stopped may go on
    first = list(islice(played(Counting(), Spelling()), 5))
    assert [each.rounds for each in first] == [1, 2, 3, 4, 5]
    assert first[-1].replies[:2] == first[1].replies


@pytest.mark.parametrize("remembers", [None, 1, 3])
def test_a_fixed_number_of_rounds_tells_every_reply_and_how_far_it_is(remembers: int | None) -> None:
    heard: list[str] = []
    progress: list[tuple[int, int]] = []
    query_player = Counting()
    transcript = play(
        query_player,
        Spelling(),
        rounds=7,
        remembers=remembers,
        hears=heard.append,
        progress=lambda done, total: progress.append((done, total)),
    )
    assert heard == [f"reply {t}" for t in range(7)]
    assert progress == [(t + 1, 7) for t in range(7)]
    assert transcript == list(islice(played(Counting(), Spelling(), remembers=remembers), 7))[-1]
    assert [each.rounds for each in query_player.seen] == list(range(7))
    assert play(Counting(), Spelling(), rounds=0) == Transcript()


# The query player that learns


def test_the_learning_query_player_hears_every_reply_once() -> None:
    workload = MIXED
    player = LearningQueryPlayer(
        curator(), workload, rate=Rate.below(0.01, 10_000), samples=4, public_rows=ROWS, recall=1
    )
    rng = np.random.default_rng(1)
    rows = np.stack([rng.integers(0, s, 9) for s in DOMAIN.sizes], axis=1).astype(np.int32)
    transcript: Transcript[Challenge, np.ndarray] = Transcript()
    nothing = Challenge(np.empty(0, np.int64), np.empty(0, np.int64))
    for t, row in enumerate(rows):
        transcript = transcript.append(nothing, row)
        expected = workload.counts(Records.from_rows(DOMAIN, rows[: t + 1]))
        np.testing.assert_array_equal(player.hear(transcript), expected)
        np.testing.assert_array_equal(player.hear(transcript), expected)


def test_its_score_is_the_payoff_summed_over_the_replies_and_the_first_round_is_free() -> None:
    asked: list[SignedErrors] = []

    class Asking:
        def select(self, score: SignedErrors, *, rate: Rate, draws: int = 1) -> Selected:
            asked.append(score)
            return Selected(np.arange(draws), np.zeros(draws, bool))

    player = LearningQueryPlayer(
        Asking(), MIXED, rate=Rate.below(0.01, 10), samples=3, public_rows=ROWS, recall=1
    )
    row = np.array([2, 1, 0, 1], np.int32)
    transcript: Transcript[Challenge, np.ndarray] = Transcript()
    for _ in range(3):
        transcript = transcript.append(player.challenge(transcript), row)
    assert asked[0].range(Neighbours.REPLACE) == 0
    assert selection_event(asked[0], Neighbours.REPLACE, rate=Rate(1, 11), draws=3) is None
    scored = asked[2].of(MemoryCounter(records()))
    truth, answered = MIXED.counts(records()), MIXED.counts(Records.from_rows(DOMAIN, row[None]))
    found = scored.repeats * scored.counts - scored.scale * np.asarray(scored.offsets)
    np.testing.assert_array_equal(found, 2 * truth - ROWS * 2 * answered)


def test_draws_of_a_query_and_of_its_negation_cancel() -> None:
    challenge = net_weights(np.array([5, 3, 5, 7, 3, 5, 2, 3]), np.array([1, -1, 1, 1, -1, -1, -1, 1]))
    assert dict(zip(challenge.queries.tolist(), challenge.weights.tolist(), strict=True)) == {
        2: -1,
        3: -1,
        5: 1,
        7: 1,
    }
    assert len(net_weights(np.array([4, 4]), np.array([-1, 1])).queries) == 0


def test_recalled_draws_fade_by_what_was_replied_since() -> None:
    """By definition: exp(±η Σ_i (mean reply − q(x_i))) over the replies since, at most 1; old ones are forgotten."""
    drawn = iter([(0, False), (1, True), (2, False), (3, False), (4, False), (5, True)])

    class Drawing:
        def select(self, score: SignedErrors, *, rate: Rate, draws: int = 1) -> Selected:
            query, negated = next(drawn)
            said.append((query, -1 if negated else 1))
            return Selected(np.array([query]), np.array([negated]))

    said: list[tuple[int, int]] = []
    rate, recall = Rate.below(0.4 / ROWS, 100 * ROWS), 4
    player = LearningQueryPlayer(Drawing(), MIXED, rate=rate, samples=1, public_rows=ROWS, recall=recall)
    rng = np.random.default_rng(5)
    rows = np.stack([rng.integers(0, s, 6) for s in DOMAIN.sizes], axis=1).astype(np.int32)
    answers = np.stack([MIXED.counts(Records.from_rows(DOMAIN, row[None])) for row in rows])
    transcript: Transcript[Challenge, np.ndarray] = Transcript()
    faded = 0
    for t, row in enumerate(rows):
        challenge = player.challenge(transcript)
        expected: dict[int, int] = {}
        for then, (query, sign) in list(enumerate(said))[-recall:]:
            gained = sum(answers[:t, query].mean() - answers[i, query] for i in range(then, t))
            weight = sign * round(PARTS * min(1.0, math.exp(0.4 * sign * gained)))
            faded += abs(weight) < PARTS
            expected[query] = expected.get(query, 0) + weight
        assert dict(zip(challenge.queries.tolist(), challenge.weights.tolist(), strict=True)) == {
            query: weight for query, weight in expected.items() if weight
        }
        transcript = transcript.append(challenge, row)
    assert faded


# The query players that best-respond


class Quiz:
    """Questions about a workload, judged by replies that are answers in fractions; keeps what it was shown."""

    def __init__(self, workload: Workload) -> None:
        self.workload = workload
        self.replies: list[np.ndarray | None] = []
        self.heard_by_curator: list[tuple[int, bool, int]] = []

    def score(self, reply: np.ndarray | None) -> SignedErrors:
        self.replies.append(reply)
        answers = np.full(self.workload.size, 0.5) if reply is None else reply
        return SignedErrors.of_answers(self.workload, ROWS, answers, np.arange(self.workload.size))

    def statistic(self, chosen: Selected) -> Balance:
        return Balance(self.workload, int(chosen.queries[0]))

    def heard(self, chosen: Selected, noisy: np.ndarray) -> tuple[int, float]:
        if len(noisy) == 0:
            return int(chosen.queries[0]), 1.0 if chosen.negated[0] else -1.0
        self.heard_by_curator.append((int(chosen.queries[0]), bool(chosen.negated[0]), int(noisy[0])))
        return int(chosen.queries[0]), (ROWS + int(noisy[0])) / (2 * ROWS)


class Corrected:
    """A belief in fractions that takes over whatever it hears."""

    def __init__(self, size: int) -> None:
        self.answers = np.full(size, 0.5)

    def hear(self, challenge: tuple[int, float]) -> None:
        self.answers[challenge[0]] = challenge[1]

    def snapshot(self) -> np.ndarray:
        return self.answers.copy()


def test_the_worst_question_is_asked_measured_and_learned() -> None:
    """At a steep rate and with little noise each round mends what the last reply got most wrong."""
    quiz, holder = Quiz(MIXED), curator()
    score = quiz.score(None)
    quiz.replies.clear()
    rate = Rate.below(40 / (1024 * ROWS), score.largest)
    noise = Gaussian(Fraction(1, 100))
    query_player = BestResponseQueryPlayer(holder, quiz, rate=rate, noise=noise)
    data_player = LearningDataPlayer(Corrected(MIXED.size))
    transcript = play(query_player, data_player, rounds=12, remembers=1)
    assert quiz.replies[0] is None
    assert len(quiz.replies) == 12
    np.testing.assert_array_equal(transcript.replies, [transcript.last_reply()])
    truth = MIXED.counts(records()) / ROWS
    errors = [np.abs(truth - (0.5 if reply is None else reply)) for reply in quiz.replies]
    for (query, _, noisy), error in zip(quiz.heard_by_curator, errors, strict=True):
        assert error[query] >= error.max() - 0.2  # a steep exponential mechanism misses by little
        assert abs(noisy - (2 * ROWS * truth[query] - ROWS)) <= 2
    assert np.abs(truth - transcript.last_reply()).mean() < errors[0].mean()
    events = holder.ledger.events
    assert events[0::2] == (selection_event(score, Neighbours.REPLACE, rate=rate, draws=1),) * 12
    assert events[1::2] == (GaussianMeasurement(Fraction(4), noise.variance),) * 12


def test_complaints_cost_one_draw_a_round_and_measure_nothing() -> None:
    quiz, holder = Quiz(MIXED), curator()
    score = quiz.score(None)
    rate = Rate.below(40 / (1024 * ROWS), score.largest)
    transcript = play(
        BestResponseQueryPlayer(holder, quiz, rate=rate, noise=None),
        LearningDataPlayer(Corrected(MIXED.size)),
        rounds=5,
        remembers=1,
    )
    assert holder.ledger.events == (selection_event(score, Neighbours.REPLACE, rate=rate, draws=1),) * 5
    truth = MIXED.counts(records()) / ROWS
    query, sign = transcript.challenges[0]
    assert (sign > 0) == (truth[query] < 0.5)  # what is answered too high is drawn as its negation


# The data player that best-responds


def test_the_oracle_is_given_the_challenge_a_fresh_fallback_and_public_chance() -> None:
    rng = np.random.default_rng(7)
    asked = []

    def oracle(challenge: Challenge, fallback: np.ndarray, chance: np.random.Generator) -> np.ndarray:
        asked.append((challenge, fallback, chance))
        return fallback + 1

    player = BestResponseDataPlayer(oracle, lambda chance: chance.integers(0, 100, 3), rng)
    expected = np.random.default_rng(7)
    for _ in range(4):
        challenge = Challenge(np.array([1]), np.array([-2]))
        reply = player.reply(Transcript(), challenge)
        np.testing.assert_array_equal(reply, expected.integers(0, 100, 3) + 1)
        assert asked[-1][0] is challenge
        assert asked[-1][2] is rng
