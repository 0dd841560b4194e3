"""Many small matrices: the threads of a linear algebra library gain nothing on them, and spin on when they are done.

On two cores they took a fifth of the time of a fit from its own threads.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

from threadpoolctl import ThreadpoolController


@contextmanager
def one_thread() -> Iterator[None]:
    """Linear algebra by one thread inside; as it was afterwards."""
    with _libraries().limit(limits=1, user_api="blas"):
        yield


@cache
def _libraries() -> ThreadpoolController:
    return ThreadpoolController()  # looks at what is loaded: once
