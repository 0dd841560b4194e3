"""Parquet files as a Spark DataFrame, and the session that reads them.

Only Parquet: what a record is must not depend on the others (docs/schema.md), and Spark's reader of CSV lets a quote
that is not closed swallow the records after it. Every part is looked at before anything is counted, because Spark
would fill a column that a part does not have with nulls.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from dualquery.counting.spark import spark_words
from dualquery.errors import DataError, DualQueryError
from dualquery.table.reading.arrow import PARQUET_FILES
from dualquery.table.reading.source import choose, kind_of, reading

REMOTE = "sc://"  # a Spark Connect server
CONNECT_PORT = 15002  # where no other is named
MASTERS = re.compile(r"local(\[.+\])?|local-cluster\[.+\]|yarn|(k8s|spark|sc)://.+")
JAVA = 17
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "OFF",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "200000",
    # Some million rows a task: executors share them evenly, and a lost one loses little.
    "spark.sql.files.maxPartitionBytes": "32m",
    # A column is read by its name as it is written, as everywhere else in this program.
    "spark.sql.caseSensitive": "true",
    # Few persons need few partitions, also where what they become is kept.
    "spark.sql.optimizer.canChangeCachedPlanOutputPartitioning": "true",
}


def spark_frame(source: str, names: Sequence[str], master: str) -> Any:
    """The Parquet files that a path, a pattern or a URL names, with the columns asked for in every one of them."""
    _refuse_other_kinds(source)
    session = open_session(master)
    with spark_words():
        frame = session.read.parquet(source)
        parts = sorted(frame.inputFiles())
    _check_parts(session, parts, names)
    return frame


def open_session(master: str) -> Any:
    """A session of the cluster that `master` names, be it one of Spark Connect."""
    if MASTERS.fullmatch(master) is None:
        raise DualQueryError(
            "--master is local[N], local-cluster[N,CORES,MB], yarn, k8s://…, spark://… or sc://…, and "
            f"'{master}' is none of them"
        )
    warnings.filterwarnings(
        "ignore", category=FutureWarning, module="pyspark"
    )  # of pandas, which is not used
    try:
        from pyspark.sql import SparkSession

        return (_remote if master.startswith(REMOTE) else _here)(SparkSession.builder, master)
    except DualQueryError:
        raise
    except ImportError:  # Spark Connect wants more packages than Spark
        raise DualQueryError(
            "--engine spark needs pyspark; install it with: pip install 'dualquery[spark]'"
        ) from None
    except Exception as problem:  # of Java, of its gateway, or of a server: they have no type in common
        raise DualQueryError(
            f"no Spark session could be opened with --master '{master}' ({type(problem).__name__}); see whether it "
            "can be reached, and Spark's own messages"
        ) from None


def _here(builder: Any, master: str) -> Any:
    """A session whose driver is this process."""
    check_java()
    builder = builder.master(master).appName("dualquery")
    for key, value in SETTINGS.items():
        builder = builder.config(key, value)
    if master.startswith("local"):  # the executors are on this machine: they run this Python and this program
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        builder = builder.config("spark.executorEnv.PYTHONPATH", os.pathsep.join(_paths()))
    return builder.getOrCreate()


def _remote(builder: Any, master: str) -> Any:
    """A session of a Spark Connect server; its client would knock for ten minutes where nobody answers."""
    address = urlsplit(master)
    try:
        socket.create_connection((address.hostname or "", address.port or CONNECT_PORT), timeout=20).close()
    except (OSError, ValueError):
        raise DualQueryError(
            f"no Spark Connect server answers at '{master}'; look at the host, the port and the server"
        ) from None
    session = builder.remote(master).getOrCreate()
    for key, value in SETTINGS.items():
        if key.startswith("spark.sql."):  # the others are the server's own
            session.conf.set(key, value)
    return session


def check_java() -> None:
    """Refuse where there is no Java, or one that is too old."""
    home = os.environ.get("JAVA_HOME")
    program = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    advice = f"install Java {JAVA} (Debian: openjdk-17-jre-headless), or set JAVA_HOME to where it is"
    if program is None:
        raise DualQueryError(f"Spark needs Java {JAVA}, and there is none here; {advice}")
    try:
        told = subprocess.run([program, "-version"], capture_output=True, text=True, timeout=60).stderr
    except (OSError, subprocess.SubprocessError):
        raise DualQueryError(f"Spark needs Java {JAVA}, and '{program}' does not start; {advice}") from None
    number = re.search(r'version "(\d+)', told)
    if number is None or int(number[1]) < JAVA:
        raise DualQueryError(f"Spark needs Java {JAVA}, and '{program}' is an older one; {advice}")


def _paths() -> list[str]:
    """Where Python finds this program, and whatever was put in its way before."""
    given = [each for each in os.environ.get("PYTHONPATH", "").split(os.pathsep) if each]
    return [str(Path(__file__).resolve().parents[2]), *map(os.path.abspath, given)]


def _refuse_other_kinds(source: str) -> None:
    kind = kind_of(Path(source.rstrip("/")))
    if kind and kind not in PARQUET_FILES and "*" not in kind:
        raise DataError(
            f"with --engine spark a table is Parquet, and '{source}' is not; write it as Parquet first"
        )


def _check_parts(session: Any, parts: Sequence[str], names: Sequence[str]) -> None:
    """Every part has every column, of the kind that it has in the first part."""
    if not parts:
        raise DataError("there is no Parquet file in the table")
    wanted: list[str] | None = None
    for part in parts:
        found = _columns(session, part)
        chosen = choose(names, list(found), f"'{part}'")
        kinds = [list(found.values())[i] for i in chosen]
        for name, kind, before in zip(names, kinds, wanted or kinds, strict=True):
            if kind != before:
                raise DataError(
                    f"'{part}': column '{name}' holds {kind} there and {before} in the parts before it; write all "
                    "parts with the same type"
                )
        wanted = wanted or kinds


def _columns(session: Any, part: str) -> dict[str, str]:
    """The columns of one file and their kinds: read here where the file is here, by Spark where it is not."""
    address = urlsplit(part)
    if address.scheme in ("", "file"):
        import pyarrow.parquet

        path = Path(unquote(address.path))
        with reading(path):
            schema = pyarrow.parquet.read_schema(path)
        return {field.name: str(field.type) for field in schema}
    with spark_words():
        return {
            field.name: field.dataType.simpleString() for field in session.read.parquet(part).schema.fields
        }
