"""Two real executor processes count as one machine does, and one that is killed changes nothing."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pytest

from dualquery.counting import MemoryCounter
from dualquery.counting.spark import SparkCounter, open_session
from dualquery.queries.families import from_spec
from dualquery.table.encoding import encode
from tests.counting.test_spark import folder, table
from tests.counting.test_streams import PEOPLE

pytestmark = pytest.mark.long
__all__ = ["folder", "table"]  # fixtures


@pytest.fixture(scope="module")
def session() -> Iterator[Any]:
    opened = open_session("local-cluster[2,1,2048]")
    yield opened
    opened.stop()


def test_an_executor_that_is_killed_changes_nothing(session: Any, table: pa.Table, folder: Any) -> None:
    counter = SparkCounter(session.read.parquet(str(folder)), PEOPLE)
    group = from_spec(PEOPLE.domain, ["marginals:3"]).groups[0]
    expected = MemoryCounter(encode(table, PEOPLE)).true_counts(group)
    (executor, *others) = executor_processes()
    assert others
    killed = threading.Event()

    def kill() -> None:
        executor.kill()
        killed.set()

    threading.Timer(0.3, kill).start()
    while not killed.is_set():  # before it, and during it
        assert np.array_equal(counter.true_counts(group), expected)
    for _ in range(3):  # and after it
        assert np.array_equal(counter.true_counts(group), expected)


def executor_processes() -> list[psutil.Process]:
    """The executors of the cluster that this process has started."""
    found = []
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):  # one that has ended since
            if "CoarseGrainedExecutorBackend" in " ".join(process.cmdline()):
                found.append(process)
    return found
