from pathlib import Path

import pytest
from osmosis_cli import osmosis

ROW = '{"user_prompt": "q", "ground_truth": "a"}\n'


def test_a_valid_file(tmp_path: Path):
    (tmp_path / "d.jsonl").write_text(ROW * 4)
    done = osmosis("--json", "dataset", "validate", "d.jsonl", cwd=tmp_path)
    assert done.json["data"] == {
        "valid": True,
        "file": str(tmp_path / "d.jsonl"),
        "file_name": "d.jsonl",
        "extension": "jsonl",
        "file_size": len(ROW) * 4,
        "errors": [],
        "warnings": [],
    }
    text = osmosis("dataset", "validate", "d.jsonl", cwd=tmp_path)
    assert (text.status, text.stderr) == (0, "")
    assert "Valid jsonl file" in text.stdout


def test_all_findings_come_in_one_report_and_people_read_the_first_five(tmp_path: Path):
    (tmp_path / "d.jsonl").write_text(ROW + "{torn\n" * 8 + '{"user_prompt": "q"}\n' + ROW)
    done = osmosis("--json", "dataset", "validate", "d.jsonl", cwd=tmp_path)
    assert (done.status, done.error["code"]) == (1, "VALIDATION")
    assert all(f"  - Line {line}: " in done.error["message"] for line in range(2, 11))
    assert done.error["details"] == {}
    said = osmosis("--plain", "dataset", "validate", "d.jsonl", cwd=tmp_path).stderr
    assert said.count("  - Line ") == 5
    assert "showing first 5 of 9" in said


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("d.jsonl", b"", "empty"),
        ("d.txt", b"x", "Supported"),
        ("d.jsonl", b"\xff\xfe\x00\x01\n" * 4, "UTF-8"),
        ("d.csv", b"a,b\n1,2\n", "user_prompt"),
        ("d.parquet", b"\x00" * 64, "parquet"),
    ],
)
def test_files_that_are_no_dataset(tmp_path: Path, name: str, content: bytes, said: str):
    (tmp_path / name).write_bytes(content)
    done = osmosis("--json", "dataset", "validate", name, cwd=tmp_path)
    assert (done.status, done.error["code"]) == (1, "VALIDATION")
    assert said in done.error["message"]


def test_a_directory_and_a_missing_file_are_named(tmp_path: Path):
    (tmp_path / "d.jsonl").mkdir()
    for name, said in (("d.jsonl", "directory"), ("none.jsonl", "not found")):
        done = osmosis("--json", "dataset", "validate", name, cwd=tmp_path)
        assert (done.status, done.error["code"]) == (1, "VALIDATION")
        assert said in done.error["message"]
