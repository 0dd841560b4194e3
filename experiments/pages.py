"""The numbers of README.md and docs: written from the files of experiments and benchmarks, between markers.

python -m experiments.pages            # writes every part that stands between markers
python -m experiments.pages --check    # writes nothing; exit code 1 where a page disagrees with the files
python -m experiments.pages --take     # first takes what benchmarks left in benchmarks/results to docs/benchmarks

A part begins with `<!-- from the files: NAME -->` and ends with `<!-- end -->`. NAME is one of `PARTS`.
"""

from __future__ import annotations

import argparse
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

from experiments.page_parts import benchmarks, evidence, machines, mechanisms, statistics
from experiments.page_parts.files import KEPT, RESULTS, ROOT

LEFT = ROOT / "benchmarks" / "results"
MARKED = re.compile(r"(<!-- from the files: ([\w ]+) -->\n)(.*?)(<!-- end -->)", re.DOTALL)
PARTS: dict[str, Callable[[], str]] = {
    **evidence.PARTS,
    **mechanisms.PARTS,
    **benchmarks.PARTS,
    **machines.PARTS,
    **statistics.PARTS,
}


def pages() -> list[Path]:
    """Those that have a part."""
    texts = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), RESULTS / "benchmarks.md"]
    return [path for path in texts if MARKED.search(path.read_text(encoding="utf-8"))]


def written(text: str) -> str:
    """A page with all its parts written anew."""
    return MARKED.sub(lambda found: f"{found[1]}{PARTS[found[2]]()}{found[4]}", text)


def take() -> None:
    """What benchmarks left, to where pages look for it."""
    KEPT.mkdir(exist_ok=True)
    for path in sorted(LEFT.glob("*.csv")):
        shutil.copy(path, KEPT / path.name)


def main() -> None:
    made = argparse.ArgumentParser(prog="python -m experiments.pages", description=__doc__)
    made.add_argument(
        "--check", action="store_true", help="write nothing; exit code 1 where a page disagrees"
    )
    made.add_argument("--take", action="store_true", help="first take the results of benchmarks")
    given = made.parse_args()
    if given.take:
        take()
    wrong = []
    for path in pages():
        before = path.read_text(encoding="utf-8")
        after = written(before)
        if after != before:
            wrong.append(str(path.relative_to(ROOT)))
            if not given.check:
                path.write_text(after, encoding="utf-8")
    print(f"{'disagree with the files' if given.check else 'written anew'}: {', '.join(wrong) or 'none'}")
    if given.check and wrong:
        sys.exit(1)


if __name__ == "__main__":
    main()
