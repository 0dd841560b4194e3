"""How many queries a family has, and how many are too many: refused with their number, before any work."""

from __future__ import annotations

from dualquery.errors import QueryError
from dualquery.table.domain import Domain

MOST_QUERIES = 20_000_000  # written out one by one
MOST_TABLES = 2_000_000
MOST_CELLS = 1_000_000_000
_BEYOND = 10**30  # no need to count further


def check_order(domain: Domain, k: int, what: str) -> None:
    if k < 1:
        raise QueryError(f"{what} need at least one attribute, and K is {k}")
    if k > domain.width:
        raise QueryError(f"{what} of {k} attributes cannot be made: the schema has {domain.width}")


def check_count(count: int) -> None:
    if count < 1:
        raise QueryError(f"the number of queries must be at least 1, and is {count}")
    if count > MOST_QUERIES:
        raise QueryError(f"there would be {_spelled(count)} queries; at most {MOST_QUERIES:,} are allowed")


def check_tables(domain: Domain, k: int, attribute: int | None = None) -> None:
    """Refuse all tables over k attributes, or those that hold a certain one, where they are too many."""
    sizes = domain.sizes.tolist()
    own = 1 if attribute is None else sizes.pop(attribute)
    others = k if attribute is None else k - 1
    tables = _number_of_sets(len(sizes), others)
    if tables > MOST_TABLES:
        raise QueryError(
            f"there are {_spelled(tables)} tables over {k} attributes; at most {MOST_TABLES:,} are allowed"
        )
    cells = own * _number_of_cells(sizes, others)
    if cells > MOST_CELLS:
        raise QueryError(
            f"the tables over {k} attributes have {_spelled(cells)} cells; at most {MOST_CELLS:,} are allowed"
        )


def affordable_order(domain: Domain, k: int, attribute: int | None = None) -> int:
    """The largest order up to k whose tables are not too many; 1 always is, or `check_tables` says why not."""
    while 1 < k <= domain.width:
        try:
            check_tables(domain, k, attribute)
        except QueryError:
            k -= 1
        else:
            break
    return k


def number_of_sets_up_to(width: int, k: int) -> int:
    """The number of non-empty sets of at most k out of `width`, or anything past _BEYOND."""
    count = 0
    for order in range(1, k + 1):
        count += _number_of_sets(width, order)
        if count > _BEYOND:
            break
    return count


def _number_of_sets(width: int, k: int) -> int:
    """The number of sets of k out of `width`, or anything past _BEYOND."""
    count = 1
    for i in range(min(k, width - k)):
        count = count * (width - i) // (i + 1)
        if count > _BEYOND:
            break
    return count


def _number_of_cells(sizes: list[int], k: int) -> int:
    """Σ over sets of k attributes of Π sizes, or anything past _BEYOND."""
    if k - sizes.count(1) > _BEYOND.bit_length():
        return 2 * _BEYOND  # every table has more than 2^(k − ones) cells
    cells = [1] + [0] * k  # the elementary symmetric polynomials: no need to list the sets
    for size in sizes:
        for i in range(k, 0, -1):
            cells[i] += cells[i - 1] * size
    return cells[k]


def _spelled(number: int) -> str:
    return f"{number:,}" if number <= _BEYOND else "more than 10^30"
