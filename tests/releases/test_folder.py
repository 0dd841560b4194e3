"""The folder: all of it or nothing, and nothing that does not match its certificate."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

import dualquery
from dualquery import Items, Records, Release, ReleaseError
from dualquery.releases import folder as folders
from dualquery.releases.certificate import Certificate
from dualquery.releases.seal import CERTIFICATE, digests, sealed
from dualquery.table.records import BitItems, SparseItems

pytestmark = pytest.mark.usefixtures("few_rows")

Make = Callable[..., Release]


def left_behind(place: Path) -> list[str]:
    return sorted(path.name for path in place.iterdir())


def test_a_folder_gives_back_the_release(make: Make, tmp_path: Path) -> None:
    release = make()
    release.save(tmp_path / "out", csv=True)
    assert left_behind(tmp_path) == ["out"]
    assert left_behind(tmp_path / "out") == [
        "certificate.json",
        "report.html",
        "synthetic.csv",
        "synthetic.parquet",
    ]
    again = Release.load(tmp_path / "out")
    assert again.to_arrow().equals(release.to_arrow())
    seal = again.certificate["seal"]
    assert {**again.certificate, "files": {}} == {**release.certificate, "files": {}, "seal": seal}
    assert str(again.answer("sex = male")) == str(release.answer("sex = male"))
    text = pyarrow.csv.read_csv(tmp_path / "out" / "synthetic.csv")
    assert text.num_rows == release.to_arrow().num_rows
    assert text["region"].to_pylist() == release.to_arrow()["region"].to_pylist()
    mode = (tmp_path / "out").stat().st_mode & 0o777
    mask = os.umask(0)
    os.umask(mask)
    assert mode == 0o777 & ~mask


def test_people_open_as_many_rows_as_the_table_has(make: Make, tmp_path: Path) -> None:
    """By default; answers come from all rows, and a number that was asked for is kept."""
    release = make(mechanism="projection")
    release.save(tmp_path / "out", csv=True)
    few = pyarrow.parquet.read_table(tmp_path / "out" / "synthetic.parquet")
    assert few.num_rows == pyarrow.csv.read_csv(tmp_path / "out" / "synthetic.csv").num_rows == 500
    assert pyarrow.parquet.read_table(tmp_path / "out" / "rows.parquet").num_rows == len(release) > 500
    assert "not independent records" in few.schema.metadata[b"dualquery"].decode()
    again = Release.load(tmp_path / "out")
    assert again.to_arrow().equals(release.to_arrow())
    assert str(again.answer("sex = male")) == str(release.answer("sex = male"))
    share = (np.array(few["sex"].to_pylist()) == "male").mean()
    assert abs(share - release.answer("sex = male").value) < 0.1
    asked = make(synthetic_rows=700)
    asked.save(tmp_path / "asked")
    assert pyarrow.parquet.read_table(tmp_path / "asked" / "synthetic.parquet").num_rows == 700
    assert not (tmp_path / "asked" / "rows.parquet").exists()


def test_items_survive_the_folder(make: Make, tmp_path: Path, budget: Any) -> None:
    domain = dualquery.Domain((Items("item", 40, first=5), dualquery.Categorical("sex", ("f", "m"))))
    rng = np.random.default_rng(1)
    records = Records.from_rows(domain, (rng.random((90, 41)) < 0.2).astype(np.int64))
    release = make(table=records, synthetic_rows=400)
    assert release.records is not None
    assert isinstance(release.records.columns[0], BitItems)
    release.save(tmp_path / "out", csv=True)
    again = Release.load(tmp_path / "out")
    assert again.records is not None
    assert isinstance(again.records.columns[0], SparseItems)
    assert np.array_equal(again.records.to_rows(), release.records.to_rows())
    assert again.answer("item[7] & sex = m").value == release.answer("item[7] & sex = m").value
    from_text = dualquery.encode(tmp_path / "out" / "synthetic.csv", domain)
    assert np.array_equal(from_text.to_rows(), release.records.to_rows())


def test_an_empty_folder_may_be_filled(make: Make, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    make().save(tmp_path / "out")
    assert Release.load(tmp_path / "out")


def test_what_stands_there_is_kept(make: Make, tmp_path: Path) -> None:
    release = make()
    release.save(tmp_path / "out")
    before = (tmp_path / "out" / "certificate.json").read_text()
    with pytest.raises(ReleaseError, match="already holds a release"):
        release.save(tmp_path / "out")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "notes.txt").write_text("mine")
    with pytest.raises(ReleaseError, match="not empty"):
        release.save(tmp_path / "full")
    with pytest.raises(ReleaseError, match="is a file"):
        release.save(tmp_path / "full" / "notes.txt")
    with pytest.raises(ReleaseError, match="a file stands in the way"):
        release.save(tmp_path / "full" / "notes.txt" / "below")
    assert (tmp_path / "out" / "certificate.json").read_text() == before
    assert left_behind(tmp_path) == ["full", "out"]
    assert left_behind(tmp_path / "full") == ["notes.txt"]


@pytest.mark.parametrize("writer", ["report.report_html", "folder._to_disk", "folder.digests"])
def test_a_full_disk_leaves_nothing_behind(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, writer: str
) -> None:
    def full(*_: object) -> str:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(f"dualquery.releases.{writer}", full)
    with pytest.raises(ReleaseError, match="disk is full; nothing was written"):
        make().save(tmp_path / "out")
    assert left_behind(tmp_path) == []


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_in_the_parquet_writer(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = pyarrow.parquet.write_table
    monkeypatch.setattr(
        pyarrow.parquet, "write_table", lambda table, place, **named: write(table, "/dev/full", **named)
    )
    with pytest.raises(ReleaseError, match="disk is full"):
        make().save(tmp_path / "out")
    assert left_behind(tmp_path) == []


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root may write everywhere")
def test_no_permission(make: Make, tmp_path: Path) -> None:
    (tmp_path / "locked").mkdir(mode=0o500)
    with pytest.raises(ReleaseError, match="permission denied"):
        make().save(tmp_path / "locked" / "out")


def test_permission_denied_is_one_sentence(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied(*_: object, **__: object) -> str:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(folders.os, "mkdir", denied)
    with pytest.raises(ReleaseError, match="permission denied; nothing was written"):
        make().save(tmp_path / "out")


@pytest.mark.parametrize("name", ["synthetic.parquet", "replicas.parquet", "answers.parquet"])
def test_rows_are_counted_before_they_are_read(
    make: Make, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """0.8 MB of Parquet can hold 20 million equal rows: 1.2 GB, before anybody looked at the certificate."""
    mechanism = "gaussian" if name == "answers.parquet" else "projection"
    wanted = {} if name == "answers.parquet" else {"synthetic_rows": 40}
    folder = tmp_path / "released"
    make(mechanism=mechanism, **wanted).save(folder)
    Release.load(folder)
    rows = pyarrow.parquet.read_table(folder / name)
    many = pa.concat_tables([rows] * 20)
    pyarrow.parquet.write_table(many, folder / name, compression="zstd")
    text = Certificate.from_json((folder / CERTIFICATE).read_text(encoding="utf-8"))
    forged = sealed(text.with_files(digests(folder)), None)
    (folder / CERTIFICATE).write_text(forged.to_json(), encoding="utf-8")

    read: list[Path] = []
    for module, function in ((folders, "encode"), (pyarrow.parquet, "read_table")):
        real = getattr(module, function)
        monkeypatch.setattr(
            module,
            function,
            lambda file, *rest, real=real, **more: (read.append(Path(file)), real(file, *rest, **more))[1],
        )
    with pytest.raises(ReleaseError, match="damaged, or was changed by hand"):
        Release.load(folder)
    assert folder / name not in read


def test_damage_is_noticed(make: Make, tmp_path: Path) -> None:
    make().save(tmp_path / "out")
    data, certificate = tmp_path / "out" / "synthetic.parquet", tmp_path / "out" / "certificate.json"
    whole, written = data.read_bytes(), certificate.read_text()
    data.write_bytes(whole[:-20])
    with pytest.raises(ReleaseError, match="does not match its certificate"):
        Release.load(tmp_path / "out")
    data.write_bytes(whole)
    certificate.write_text(written[:200])
    with pytest.raises(ReleaseError, match="not JSON"):
        Release.load(tmp_path / "out")
    certificate.write_text("{}")
    with pytest.raises(ReleaseError, match="not a certificate"):
        Release.load(tmp_path / "out")
    certificate.write_text(json.dumps({**json.loads(written), "format": 99}))
    with pytest.raises(ReleaseError, match="another version"):
        Release.load(tmp_path / "out")
    certificate.write_text(resealed({**json.loads(written), "schema": "nonsense"}))
    with pytest.raises(ReleaseError, match="damaged"):
        Release.load(tmp_path / "out")
    data.unlink()
    certificate.write_text(written)
    with pytest.raises(ReleaseError, match=r"'synthetic\.parquet' is missing"):
        Release.load(tmp_path / "out")
    without = {name: each for name, each in json.loads(written)["files"].items() if name != data.name}
    certificate.write_text(resealed({**json.loads(written), "files": without}))
    with pytest.raises(ReleaseError, match="no data file"):
        Release.load(tmp_path / "out")
    with pytest.raises(ReleaseError, match="does not exist"):
        Release.load(tmp_path / "nowhere")
    with pytest.raises(ReleaseError, match="is not a release"):
        Release.load(tmp_path)


def resealed(data: dict[str, Any]) -> str:
    """A certificate that somebody edited with care."""
    return sealed(Certificate.of(data)).to_json()
