"""A folder beside the final one, in which a release is written before it is renamed.

Whoever writes holds a lock on the folder itself (flock), which the operating system gives back when the process ends,
however it ends. So the next release of the same name can tell what a killed one left from what a living one writes.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

try:
    import fcntl
except ImportError:  # not posix: age alone tells what was left
    fcntl = None  # type: ignore[assignment]

OLD = 24 * 3600  # seconds after which what cannot be locked at all counts as left


@contextmanager
def written_aside(path: Path) -> Iterator[Path]:
    """A folder beside `path`, on the same file system; whatever is left of it at the end is removed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    sweep(path)
    while True:
        with _made(path.parent / f".{path.name}.{secrets.token_hex(8)}.partial") as aside:
            if aside is not None:
                yield aside
                return


@contextmanager
def _made(folder: Path) -> Iterator[Path | None]:
    """A new folder with our lock on it, gone at the end; None where somebody was quicker than the lock."""
    lock: int | None = None
    mine = True  # said before it is made, so that an interrupt at any moment finds what to remove
    try:
        try:
            os.mkdir(folder)
        except OSError:
            mine = False
            raise
        try:
            lock = _opened(folder)
            ours = _lock(lock) is not False and folder.exists()
        except FileNotFoundError:
            ours = False
        yield folder if ours else None
    finally:
        if mine:
            _remove(folder)
        if lock is not None:
            os.close(lock)


def _remove(folder: Path) -> None:
    """Remove a folder, even if an interrupt comes meanwhile."""
    try:
        shutil.rmtree(folder, ignore_errors=True)
    except KeyboardInterrupt:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def sweep(path: Path) -> None:
    """Remove what killed releases of the same name have left beside `path`; living ones keep theirs."""
    left = re.compile(re.escape(f".{path.name}.") + r"[0-9a-f]{16}\.partial")
    with suppress(OSError):
        for each in sorted(path.parent.iterdir()):
            if left.fullmatch(each.name) and each.is_dir() and not each.is_symlink():
                _sweep_one(each)


def _sweep_one(folder: Path) -> None:
    with suppress(OSError):
        lock = _opened(folder)
        try:
            locked = _lock(lock)
            if locked or (locked is None and time.time() - folder.stat().st_mtime > OLD):
                shutil.rmtree(folder, ignore_errors=True)
        finally:
            if lock is not None:
                os.close(lock)


def _opened(folder: Path) -> int | None:
    return None if fcntl is None else os.open(folder, os.O_RDONLY)


def _lock(handle: int | None) -> bool | None:
    """Whether the lock was free and is ours now; None where this file system has no locks."""
    if handle is None:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return False if error.errno in (errno.EWOULDBLOCK, errno.EACCES) else None
    return True
