"""Progress bars with the time left, on the standard error, for people only."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Any

COMPILING = "compiling kernels (first run only)"


class ProgressBars:
    """Use as `with Bars(wanted) as progress`, then call `progress(stage, done, total)`.

    A stage is known by its words up to a colon; what follows, such as a pace, may change.

    Bars are shown where they are wanted and somebody watches a terminal; otherwise nothing is written. A
    kernel that has to be compiled shows as a stage of its own, whoever called it.
    """

    def __init__(self, wanted: bool) -> None:
        self._wanted = wanted and sys.stderr.isatty()
        self._bars: Any = None
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
        if self._bars is None:
            return
        name = stage.partition(":")[0]
        if name not in self._tasks:
            for other in self._tasks.values():  # stages follow one another
                self._bars.update(other, visible=False)
            self._tasks[name] = self._bars.add_task(stage, total=total)
        self._bars.update(self._tasks[name], description=stage, completed=done, total=total, visible=True)

    def _show(self) -> None:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            Progress,
            SpinnerColumn,
            TaskProgressColumn,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )

        self._bars = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(),
            TaskProgressColumn(),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            transient=True,
        )
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

    from dualquery.compiled import Later

    modules = [module for name, module in list(sys.modules.items()) if name.startswith("dualquery.")]
    known = {id(each): each for module in modules for each in vars(module).values()}
    return sum(isinstance(each, CPUDispatcher | Later) for each in known.values())
