"""Whole-file writes: the old file or the new one, never half of either."""

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from osmosis_ai.errors import OsmosisError
from osmosis_ai.evaluation.atomic import json_bytes, write_atomic


def test_a_file_is_replaced_whole_with_mode_600(tmp_path: Path) -> None:
    path = tmp_path / "metrics.json"
    path.write_text("old")
    path.chmod(0o644)
    with path.open() as reader:
        write_atomic(path, b"new")
        assert reader.read() == "old"
    assert path.read_bytes() == b"new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [entry.name for entry in tmp_path.iterdir()] == ["metrics.json"]


def test_a_link_is_replaced_not_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_text("keep")
    (tmp_path / "index.jsonl").symlink_to(outside)
    write_atomic(tmp_path / "index.jsonl", b"new", durable=False)
    assert outside.read_text() == "keep"
    assert not (tmp_path / "index.jsonl").is_symlink()


FULL = """
import resource, signal, sys
from pathlib import Path
from osmosis_ai.errors import OsmosisError
from osmosis_ai.evaluation.atomic import write_atomic
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
try:
    write_atomic(Path(sys.argv[1]), b"x" * 5000)
except OsmosisError as error:
    print(error.error_code, error.message)
"""


def test_a_full_disk_is_named_and_the_old_file_stays(tmp_path: Path) -> None:
    path = tmp_path / "index.jsonl"
    path.write_text("old")
    said = subprocess.run([sys.executable, "-c", FULL, str(path)], capture_output=True, text=True, check=True).stdout
    assert said.startswith(f"STORAGE {path} cannot be written: File too large. ")
    assert path.read_text() == "old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["index.jsonl"]


def test_a_missing_directory_is_named(tmp_path: Path) -> None:
    with pytest.raises(OsmosisError, match="No such file or directory") as caught:
        write_atomic(tmp_path / "no/index.jsonl", b"x")
    assert caught.value.details == {"file": str(tmp_path / "no/index.jsonl"), "errno": "ENOENT"}


def test_documents_keep_text_and_nulls_and_refuse_nan() -> None:
    assert json_bytes({"b": "ü", "a": None}) == '{\n  "b": "ü",\n  "a": null\n}\n'.encode()
    assert json.loads(json_bytes({"half": "\ud800"})) == {"half": "\\ud800"}
    with pytest.raises(ValueError, match="JSON compliant"):
        json_bytes({"a": float("nan")})
    assert os.linesep.encode() in json_bytes({})
