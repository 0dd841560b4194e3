"""Streams of questions: what they ask, and the experiment over them at toy size."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dualquery.queries.language.reader import Reader
from dualquery.table.domain import Categorical, Domain, Numeric
from experiments import online
from experiments.data import Data
from experiments.harness import Setting, Size, where
from experiments.online_streams import DASHBOARD, STREAMS
from tests.experiments.outputs import rows_after_run

DOMAIN = Domain(
    (
        *(Categorical(f"a{j}", tuple("abcdefg"[: j + 2])) for j in range(5)),
        Numeric("age", tuple(float(x) for x in range(0, 100, 10)), integer=True),
    )
)


@pytest.mark.parametrize("name", STREAMS)
def test_a_stream_is_repeatable_readable_and_as_long_as_asked(name: str) -> None:
    reader = Reader(DOMAIN)
    asked: list[str] = []

    def answer(text: str) -> float:
        asked.append(text)
        return 0.1

    texts = list(STREAMS[name](DOMAIN, 500, np.random.default_rng(3), answer))
    assert texts == asked
    assert len(texts) == 500
    assert texts == list(STREAMS[name](DOMAIN, 500, np.random.default_rng(3), lambda text: 0.1))
    for text in texts:
        assert reader.read(text).text(DOMAIN) == text


def test_natural_streams_repeat_and_drills_go_deep() -> None:
    texts = list(STREAMS["natural"](DOMAIN, 3000, np.random.default_rng(1), lambda text: 0.0))
    seen = {text: texts.count(text) for text in set(texts)}
    often = sorted(seen.values())[-DASHBOARD // 2 :]
    assert min(often) >= 5
    deep = list(STREAMS["drill"](DOMAIN, 300, np.random.default_rng(1), lambda text: 0.5))
    shallow = list(STREAMS["drill"](DOMAIN, 300, np.random.default_rng(1), lambda text: 0.0))
    assert max(text.count("&") for text in deep) == 5
    assert max(text.count("&") for text in shallow) == 0


def test_the_experiment_at_toy_size(invented_data: Data, tmp_path: Path) -> None:
    rows = rows_after_run(online.EXPERIMENT, Setting(invented_data, Size.TOY), tmp_path)
    streams = [row for row in rows if row["stream"] in STREAMS]
    assert len(streams) == 3
    for row in streams:
        assert row["verified"] + row["unverified"] <= row["questions"]
        assert row["online_mean"] < 0.2
    (planted,) = where(rows, stream=online.PLANTED)
    assert planted["unnoticed"] <= 0.05
    assert planted["above_bound"] <= 12  # of 60 at 5%
