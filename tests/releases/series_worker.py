"""A process that appends one period to a series, to be raced and killed.

    series_worker.py FOLDER PERIOD DRAWN

Before it draws anything it writes its period into the file DRAWN.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from dualquery import Budget, Neighbours, Series
from dualquery.privacy.curator import Curator


def main(folder: Path, period: str, drawn: str) -> None:
    line, measure = os.open(drawn, os.O_WRONLY | os.O_APPEND | os.O_CREAT), Curator.measure

    def watched(self: Curator, *given: Any, **named: Any) -> Any:
        os.write(line, f"{period}\n".encode())
        return measure(self, *given, **named)

    Curator.measure = watched  # type: ignore[method-assign]
    series = Series(folder / "v.ledger", folder / "schema.toml", folder / "series")
    print("begins", flush=True)
    series.append(
        folder / "v.csv", Budget(1, 1e-6, Neighbours.ADD_REMOVE), period=period, check=0, synthetic_rows=300
    )
    print("done", flush=True)
    os._exit(0)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3])
