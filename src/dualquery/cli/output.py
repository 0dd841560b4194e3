"""What commands show to people: facts, tables, warnings, and progress with the time left on the standard error."""

from __future__ import annotations

import json
import math
import os
import shutil
import sys
import textwrap
import time
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dualquery.mechanisms.mechanism import Step


MOST_OF_A_QUERY = 200  # characters that a line of a table shows
NARROW = 24  # columns beside names, below which values stand under them
CYAN, BOLD = "36", "1"


def print_json(data: object) -> None:
    print(json.dumps(_finite(data), indent=2, ensure_ascii=False))


def _finite(data: object) -> object:
    """JSON has no word for infinite or undefined numbers: null."""
    if isinstance(data, float):
        return data if math.isfinite(data) else None
    if isinstance(data, Mapping):
        return {key: _finite(value) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [_finite(value) for value in data]
    return data


def print_facts(facts: Mapping[str, str]) -> None:
    """A name and a value per line; on a terminal, long values are folded under themselves."""
    room = _width()
    if room is None:
        for name, value in facts.items():
            print(f"{name}\t{value}")
        return
    left = max(map(len, facts), default=0) + 2
    if room - left < NARROW:  # values below their names
        for name, value in facts.items():
            print(_styled(name, CYAN))
            print(*wrapped(value, room, 2, 2), sep="\n")
        return
    for name, value in facts.items():
        below = "\n".join(wrapped(value, room, left, left)).lstrip(" ")
        print(_styled(name, CYAN) + " " * (left - len(name)) + below)


def print_table(title: str, columns: Iterable[str], rows: Iterable[Iterable[str]]) -> None:
    """A title and aligned columns on a terminal, a row below the other where it is narrow; tabs in a pipe."""
    heads, cells = list(columns), [list(row) for row in rows]
    room = _width()
    if room is None:
        print("\n".join([title, *("\t".join(row) for row in [heads, *cells])]))
        return
    print(_styled(title, BOLD))
    widths = [max(map(len, column)) for column in zip(heads, *cells, strict=True)]
    if sum(widths) + 2 * len(widths) > room:
        for row in cells:
            print()
            print_facts(dict(zip(heads, row, strict=True)))
        print()
        return
    print(_styled(_aligned(heads, widths), BOLD))
    print("─" * (sum(widths) + 2 * (len(widths) - 1)))
    for row in cells:
        print(_aligned(row, widths))
    print()


def print_lines(rows: Iterable[Iterable[str]]) -> None:
    """Lines of a few cells, the first ones aligned on a terminal; a tab between them in a pipe."""
    cells = [list(row) for row in rows]
    if _width() is None:
        print("\n".join("\t".join(row) for row in cells), end="\n" if cells else "")
        return
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for row in cells:
        print("  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip())


def _aligned(row: Iterable[str], widths: Iterable[int]) -> str:
    first, *rest = [
        f"{cell:>{width}}" if i else f"{cell:<{width}}"
        for i, (cell, width) in enumerate(zip(row, widths, strict=True))
    ]
    return "  ".join([first, *rest]).rstrip()


def _width() -> int | None:
    """The columns of the terminal; None where the output goes to a pipe or a file, which have no width."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def wrapped(text: str, room: int, first: int, others: int) -> list[str]:
    """Lines that are broken between words only: a path that is too long for a line stays whole."""
    return textwrap.wrap(
        text,
        width=max(room, others + 1),
        initial_indent=" " * first,
        subsequent_indent=" " * others,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _styled(text: str, style: str) -> str:
    """Colour and weight, for terminals that can and people who want it (no-color.org)."""
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return text
    return f"\x1b[{style}m{text}\x1b[0m"


def say(kind: str, sentence: str) -> None:
    print(f"{kind}: {sentence[:1].upper()}{sentence[1:]}", file=sys.stderr)


def print_warnings(warnings: Iterable[str]) -> None:
    for warning in warnings:
        say("Warning", warning)


def seconds(value: float) -> str:
    """A predicted time, with no more precision than a prediction has."""
    if value < 1:
        return "under a second"
    if value < 90:
        return f"about {value:.0f} s"
    return f"about {value / 60:.0f} minutes"


def size(count: float) -> str:
    for unit in ("bytes", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} TB"


def fraction(value: float | None) -> str:
    if value is None or value != value:
        return "unknown"
    return f"{value:.2g}" if value < 0.001 else f"{value:.4f}"


def errors(mean: float | None, maximum: float | None, kind: str) -> str:
    from dualquery.kinds import kind_named

    return f"mean {fraction(mean)}, max {fraction(maximum)} ({kind_named(kind).fractions})"


def shortened(query: str) -> str:
    """A query for a line of a table: of one that names hundreds of vertices, where it begins and where it ends."""
    return query if len(query) <= MOST_OF_A_QUERY else f"{query[:130]} … {query[-40:]}"


def parameter(value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:.6g}"


def steps(planned: Iterable[Step]) -> tuple[list[str], list[list[str]]]:
    """The columns and rows of a table of steps: those of one kind together, with the price of all of them."""
    together: dict[str, list[Step]] = {}
    for step in planned:
        together.setdefault(step.words, []).append(step)
    rows = []
    for words, alike in together.items():
        times = sum(step.times for step in alike)
        pure = [step.times * step.event.pure for step in alike if hasattr(step.event, "pure")]
        rho = [step.times * step.event.rho for step in alike if hasattr(step.event, "rho")]
        priced = (f"{float(sum(p)):.4g}" if len(p) == len(alike) else "none" for p in (pure, rho))
        rows.append([words, f"{times:,}", *priced])
    return ["step", "times", "pure ε", "ρ"], rows


COMPILING = "compiling kernels (first run only)"


class ProgressBars:
    """Use as `with Bars(wanted) as progress`, then call `progress(stage, done, total)`.

    A stage is known by its words up to a colon; what follows, such as a pace, may change.

    Bars are shown where they are wanted and somebody watches a terminal; otherwise nothing is written. A
    kernel that has to be compiled shows as a stage of its own, whoever called it.
    """

    def __init__(self, wanted: bool) -> None:
        self._lines = os.environ.get("DUALQUERY_PROGRESS") == "lines"  # for a program that watches
        self._wanted = wanted and sys.stderr.isatty() and not self._lines
        self._bars: Any = None
        self._said = ("", 0.0)  # the last line: its stage, and when
        self._tasks: dict[str, Any] = {}
        self._listener: Any = None

    def __enter__(self) -> ProgressBars:
        if self._wanted:
            self._show()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._listener is not None:
            from numba.core import event

            event.unregister("numba:compile", self._listener)
        if self._bars is not None:
            self._bars.stop()

    def __call__(self, stage: str, done: int, total: int) -> None:
        if self._lines:
            self._say(stage, done, total)
        if self._bars is None:
            return
        name = stage.partition(":")[0]
        if name not in self._tasks:
            for other in self._tasks.values():  # stages follow one another
                self._bars.update(other, visible=False)
            self._tasks[name] = self._bars.add_task(stage, total=total)
        self._bars.update(self._tasks[name], description=stage, completed=done, total=total, visible=True)

    def _say(self, stage: str, done: int, total: int) -> None:
        """One line of JSON a stage, and at most ten a second within one."""
        now, begun = time.monotonic(), self._said[0] != stage
        if begun or now - self._said[1] > 0.1 or done >= total:
            self._said = (stage, now)
            said = {"stage": stage, "done": int(done), "total": int(total)}
            print(json.dumps(said), file=sys.stderr, flush=True)

    def _show(self) -> None:
        from rich import progress
        from rich.console import Console

        shown = (
            *(progress.SpinnerColumn(), progress.TextColumn("{task.description}"), progress.BarColumn()),
            *(progress.TaskProgressColumn(), progress.TimeElapsedColumn()),
            *(progress.TextColumn("left"), progress.TimeRemainingColumn()),
        )
        self._bars = progress.Progress(*shown, console=Console(stderr=True), transient=True)
        self._bars.start()
        self("starting", 0, 1)
        self._listen()
        self("starting", 1, 1)

    def _listen(self) -> None:
        """Count the kernels that the compiler is called for; those cached on disk it is not called for."""
        from numba.core import event

        bars = self

        class Compilations(event.Listener):
            compiled = 0

            def on_start(self, happening: Any) -> None:
                bars(COMPILING, self.compiled, max(_kernels(), self.compiled + 1))

            def on_end(self, happening: Any) -> None:
                self.compiled += 1
                bars(COMPILING, self.compiled, max(_kernels(), self.compiled))

        self._listener = Compilations()
        event.register("numba:compile", self._listener)


def _kernels() -> int:
    """How many kernels the loaded modules have: what a first run may have to compile."""
    from numba.core.registry import CPUDispatcher

    from dualquery.loops import Later

    modules = [module for name, module in list(sys.modules.items()) if name.startswith("dualquery.")]
    known = {id(each): each for module in modules for each in vars(module).values()}
    return sum(isinstance(each, CPUDispatcher | Later) for each in known.values())
