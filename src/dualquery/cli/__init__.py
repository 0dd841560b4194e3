"""The command line: thin commands that read flags, call the library, and print.

Whatever the user got wrong is one sentence on the standard error and exit code 2; an interrupt is exit
code 130. Nothing heavy is imported before a command needs it, so that help appears at once.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
import warnings
from collections.abc import Sequence
from types import FrameType

from dualquery.cli.output import say
from dualquery.errors import DualQueryError


class _Interrupts:
    """Raises `KeyboardInterrupt` as Python does, and remembers it: a library that is being imported, or that calls
    back from C, may swallow the exception and fail with another one later."""

    came = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        self.came = True
        signal.default_int_handler(number, frame)


def main() -> None:
    codes: list[int] = []
    atexit.register(_leave, codes)  # the first to be registered is the last to be called
    interrupts = _Interrupts()
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, interrupts)
    warnings.showwarning = lambda message, *_, **__: say("Warning", str(message))
    try:
        code = run(sys.argv[1:])
    except Exception:
        if not interrupts.came:
            raise
        code = _interrupted()
    # All is done and said; an interrupt has nothing left to stop.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    codes.append(code)
    sys.exit(code)


def _leave(codes: list[int]) -> None:
    """Leave without the end of the interpreter: a thread of Arrow that still reads ahead in one of our files would be
    stopped by it, and waited for in vain (a defect stays a traceback, and ends as Python ends)."""
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except (OSError, ValueError):
        return
    if codes:
        os._exit(codes[0])


def run(arguments: Sequence[str]) -> int:
    """Run one command; the exit code."""
    try:
        from dualquery.cli.app import app, command_of
        from dualquery.cli.flags import ask_packages

        command = command_of(app, ask_packages(next(iter(arguments), "")))
        code = command(list(arguments) or ["--help"], prog_name="dualquery", standalone_mode=False)
    except DualQueryError as error:
        return _refuse(str(error))
    except KeyboardInterrupt:
        return _interrupted()
    except MemoryError:
        return _refuse("not enough memory; ask `dualquery plan` for what is needed, or for fewer queries")
    except Exception as error:
        if type(error).__name__ == "Abort":  # typer's word for an interrupt
            return _interrupted()
        # A bad flag: the classes live in different places in different versions of typer.
        explain = getattr(error, "format_message", None)
        if explain is None:
            raise
        return _refuse(explain())
    if code == 130:
        return _interrupted()
    return code if isinstance(code, int) else 0


def _interrupted() -> int:
    print("Interrupted.", file=sys.stderr)
    return 130


def _refuse(sentence: str) -> int:
    say("Error", sentence)
    return 2
