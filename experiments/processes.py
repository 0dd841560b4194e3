"""A process that is held to processor seconds, to some cores and to some memory, and what it used."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import Literal

from experiments.environments import last_words

DONE = "done"
STOPPED = "stopped after"
PATIENCE = (
    10.0  # so many times the limit by the clock, for a process that waits, or a machine busy with others
)
THREADS = (  # what the libraries of peers read to know how many threads they may have
    "MKL_NUM_THREADS",
    "NUMBA_NUM_THREADS",
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "POLARS_MAX_THREADS",
    "RAYON_NUM_THREADS",
)


@dataclass(frozen=True)
class Ran:
    """A process that ended by itself or was stopped."""

    outcome: str
    process_seconds: float
    processor_seconds: float
    peak_gb: float


def run_within(command: Sequence[str], limit: float, cores: int, memory: float) -> Ran:
    """Run a command in a process group of its own, on so many cores, and stop the group at its limit.

    The limit is in processor seconds, so that a busy machine does not decide who answers.
    """
    started = time.monotonic()
    with TemporaryFile("w+") as complaints:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=complaints,
            env={**os.environ, **dict.fromkeys(THREADS, str(cores))},
            start_new_session=True,
        )
        try:
            _confine(process.pid, cores, memory)
            ended, peak = _wait(process.pid, limit, started + PATIENCE * limit)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        _, status, usage = ended or os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        complaints.seek(0)
        words = last_words(complaints.read()) or f"exit code {process.returncode}"
    if ended is None:
        outcome = f"{STOPPED} {limit:g} processor seconds"
    elif process.returncode:
        outcome = f"failed: {words}"
    else:
        outcome = DONE
    return Ran(outcome, time.monotonic() - started, usage.ru_utime + usage.ru_stime, peak / 1e9)


def _confine(process: int, cores: int, memory: float) -> None:
    """Hold a process that has only just begun to some cores and some memory, where the system can."""
    with suppress(ProcessLookupError):
        if hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(process, sorted(os.sched_getaffinity(0))[-cores:])
        if hasattr(resource, "prlimit"):
            most = int(memory * 1e9)
            resource.prlimit(process, resource.RLIMIT_AS, (most, most))


def _wait(
    process: int, limit: float, until: float
) -> tuple[tuple[int, int, resource.struct_rusage] | None, int]:
    """How the process ended and what it used, or None when its time is up; and its peak memory in bytes."""
    peak = 0
    while time.monotonic() < until and _processor_seconds(process) < limit:
        ended = os.wait4(process, os.WNOHANG)
        if ended[0]:
            return ended, peak
        peak = max(peak, peak_bytes(process))
        time.sleep(0.02)
    return None, peak


def _processor_seconds(process: int) -> float:
    """What a process has used so far, all its threads together; 0 where the system does not tell."""
    try:
        used = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[11:13]
    except OSError:
        return 0.0
    return sum(map(int, used)) / os.sysconf("SC_CLK_TCK")


def peak_bytes(process: int | Literal["self"]) -> int:
    """The most memory that a process has had so far; 0 where the system does not tell.

    The usage that the system reports at the end would not do: it begins with the memory of the process from which
    this one was made.
    """
    try:
        status = Path(f"/proc/{process}/status").read_text()
    except OSError:
        return 0
    kilobytes = [line.split()[1] for line in status.splitlines() if line.startswith("VmHWM:")]
    return 1024 * int(kilobytes[0]) if kilobytes else 0
