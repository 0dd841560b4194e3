"""A table that a real Spark Connect server reads and counts: the release is that of one machine.

A process speaks to one kind of Spark only, so that the release is made by a process of its own.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest

from dualquery.cli import run
from dualquery.table.schema import schema_text
from tests.counting.test_streams import PEOPLE, people

pyspark = pytest.importorskip("pyspark")
pytest.importorskip("grpc")
if shutil.which("java") is None and not os.environ.get("JAVA_HOME"):
    pytest.skip("there is no Java here; install openjdk-17-jre-headless", allow_module_level=True)

SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"
LONGEST = 120  # seconds that it may take to start


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server on loopback, stopped with its Java at the end."""
    home = Path(pyspark.__file__).parent
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    settings = {"spark.connect.grpc.binding.port": port, "spark.connect.grpc.binding.address": "127.0.0.1"}
    command = [str(home / "bin" / "spark-submit"), "--class", SERVER, "--master", "local[1]"]
    command += [word for key, value in settings.items() for word in ("--conf", f"{key}={value}")]
    source = str(Path(__file__).resolve().parents[2] / "src")
    place = {"SPARK_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
    log = tmp_path_factory.mktemp("server") / "log"
    with log.open("w") as told:
        started = subprocess.Popen(
            command, env={**os.environ, **place, "PYTHONPATH": source}, stdout=told, stderr=told
        )
        try:
            yield _answering(started, port, log)
        finally:
            started.terminate()
            started.wait(30)


def _answering(server: subprocess.Popen[bytes], port: int, log: Path) -> str:
    until = time.monotonic() + LONGEST
    while time.monotonic() < until and server.poll() is None:
        with suppress(OSError):
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return f"sc://127.0.0.1:{port}"
        time.sleep(0.2)
    pytest.fail(f"the server did not start: {log.read_text()[-500:]}")


def test_a_release_by_spark_connect_is_that_of_one_machine(server: str, tmp_path: Path) -> None:
    (tmp_path / "schema.toml").write_text(schema_text(PEOPLE))
    (tmp_path / "parts").mkdir()
    for number in range(2):
        pa.parquet.write_table(people(1000, seed=number), tmp_path / "parts" / f"part-{number}.parquet")
    command = ["release", str(tmp_path / "parts"), "--schema", str(tmp_path / "schema.toml"), "--queries"]
    command += ["marginals:2", "--epsilon", "1", "--seed", "1", "--synthetic-rows", "500", "--quiet", "--out"]
    there = [*command, str(tmp_path / "there"), "--engine", "spark", "--master", server]
    done = subprocess.run(
        [sys.executable, "-m", "dualquery", *there], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert run([*command, str(tmp_path / "here")]) == 0
    made = [json.loads((tmp_path / name / "certificate.json").read_text()) for name in ("there", "here")]
    assert [each["engine"] for each in made] == ["Spark", "one machine"]
    assert made[0]["files"]["synthetic.parquet"] == made[1]["files"]["synthetic.parquet"]
