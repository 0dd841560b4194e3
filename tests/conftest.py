"""Where the public data sets are, and which tests wait until they are asked for.

Tests marked `data` read the folder named by DUALQUERY_DATA, or `shared/data` beside the checkout. Without
either they are skipped, except where CI is set: there they must run. Tests marked `long` run with `-m long`,
and those marked `mutants` with `-m mutants`. `long_cases.txt` lists cases that are long, too: of what has many
cases, some stay in every run.
"""

from __future__ import annotations

import fcntl
import gc
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from numba.core.compiler_lock import global_compiler_lock
from numba.core.dispatcher import Dispatcher

from dualquery.fitting import fitter

# The first example of a test may compile a kernel: time says nothing about it.
settings.register_profile("no deadline", deadline=None, max_examples=60)
settings.load_profile("no deadline")

LATER = ("long", "mutants")
BESIDE = Path(__file__).resolve().parents[2] / "shared" / "data"

gc.disable()  # until all tests are here: modules and tests stay, and to look for garbage in them takes seconds

if not os.environ.get("DUALQUERY_DATA") and BESIDE.is_dir():
    os.environ["DUALQUERY_DATA"] = str(BESIDE)


def mark_long_cases(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Those that the file lists, as they are called here: a name that nobody has any more is an error."""
    listed = set((Path(__file__).parent / "long_cases.txt").read_text(encoding="utf-8").splitlines())
    for item in items:
        if item.nodeid in listed:
            item.add_marker(pytest.mark.long)
    if config.args in (["tests"], [str(Path(__file__).parent)]):
        unknown = listed - {item.nodeid for item in items}
        if unknown:
            raise pytest.UsageError(f"long_cases.txt lists what is not there: {', '.join(sorted(unknown))}")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    mark_long_cases(config, items)
    if not config.getoption("-m"):
        waiting = [item for item in items if any(map(item.get_closest_marker, LATER))]
        later = set(map(id, waiting))
        items[:] = [item for item in items if id(item) not in later]
        config.hook.pytest_deselected(items=waiting)
    place = os.environ.get("DUALQUERY_DATA")
    if (place and Path(place).is_dir()) or os.environ.get("CI"):
        return
    skip = pytest.mark.skip(reason="set DUALQUERY_DATA to the folder of the public data sets")
    for item in items:
        if item.get_closest_marker("data"):
            item.add_marker(skip)


@pytest.fixture(scope="session", autouse=True)
def _loops_are_compiled_once(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Of several workers one compiles a loop of ours; the others wait and read what it wrote."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        Dispatcher.compile = compiled_once(Dispatcher.compile, tmp_path_factory.getbasetemp().parent)


def compiled_once(compile_: Callable[..., Any], folder: Path) -> Callable[..., Any]:
    """`compile_` behind one lock a loop, taken where this process compiles nothing else.

    A loop is compiled within the one that calls it, and its lock is taken there.
    """
    mine: set[str] = set()

    def waiting(self: Any, signature: Any) -> Any:
        name = f"{self.py_func.__module__}.{self.py_func.__qualname__}"
        with global_compiler_lock:
            if not name.startswith("dualquery.") or name in mine:
                return compile_(self, signature)
            mine.add(name)
            with open(folder / f"{name}.lock", "w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                try:
                    return compile_(self, signature)
                finally:
                    mine.remove(name)

    return waiting


def pytest_collection_finish() -> None:
    """Nine thousand tests stay until the end: nobody looks through them for what could be thrown away."""
    gc.freeze()
    gc.enable()


def pytest_unconfigure() -> None:
    gc.unfreeze()


@pytest.fixture(scope="module")
def few_rows() -> Iterator[None]:
    """A twentieth of the rows that releases are fitted with, for tests of what does not hang on their number."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fitter, "LONG", fitter.LONG._replace(rows=750))
        yield


@pytest.fixture
def data_folder() -> Path:
    """The folder of the public data sets."""
    place = os.environ.get("DUALQUERY_DATA")
    if not place or not Path(place).is_dir():
        pytest.fail("DUALQUERY_DATA does not name the folder of the public data sets")
    return Path(place)
