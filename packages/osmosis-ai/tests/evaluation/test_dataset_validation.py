"""`dataset validate`: the strict rules, all findings in one report."""

import json
from pathlib import Path

import pytest
from osmosis_ai.errors import OsmosisError
from osmosis_ai.evaluation import validate
from osmosis_ai.evaluation.validate import validate_dataset

GOOD = {"user_prompt": "q", "ground_truth": "a"}


def jsonl(path: Path, *rows: object) -> Path:
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows), "utf-8")
    return path


def metadata(*values: object) -> list[dict[str, object]]:
    return [{"metadata": value} for value in values]


def messages(path: Path) -> list[str]:
    report = validate_dataset(path)
    assert report.valid == (not report.errors)
    return [str(error["message"]) for error in report.errors]


def test_a_valid_file_has_the_published_shape(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "A.JSONL", GOOD, GOOD, "", GOOD, GOOD)
    assert validate_dataset(path).to_json() == {
        "valid": True,
        "file": str(path),
        "file_name": "A.JSONL",
        "extension": "jsonl",
        "file_size": path.stat().st_size,
        "errors": [],
        "warnings": [],
    }


CASES = {
    "too few rows": ([GOOD] * 3, ["Dataset too small: 3 rows. A minimum of 4 rows is required."]),
    "missing columns": ([{"prompt": "q"}] * 4, ["Missing required columns: ground_truth, user_prompt."]),
    "case of columns": ([{"User_Prompt": "q", "label": "x"}] * 4, ["Missing required columns: user_prompt."]),
    "mixed schemas": (
        [GOOD, {"user_prompt": "q", "extra": 1}, GOOD, {**GOOD, "more": 2}],
        ["Line 2: top-level fields differ from the first row (missing: ground_truth; extra: extra)", "Line 4: top-level"],
    ),
    "empty metadata": (metadata({"a": 1}, {}, "", None), ["Line 2: invalid metadata", "Line 3: ", "Line 4: "]),
    "nested empty object": (metadata(*[{"a": 1}] * 3, {"a": {"b": {}}}), ["Line 4: invalid metadata - contains an empty"]),
    "integer past 64 bits": (metadata({"a": 2**63}, {"a": -(2**63)}, {"a": 1}, {"a": 1}), ["Line 1: invalid metadata - contains an integer too large"]),
    "type change": (
        metadata({"a": 1, "b": "x"}, {"a": "s", "b": 1}, {"a": None, "b": "y"}, {"a": 1.5, "b": "z"}),
        ["Line 2: invalid metadata - value type at $.a is inconsistent across rows (number vs str)", "Line 2: invalid metadata - value type at $.b"],
    ),
    "bool is no number": (metadata({"a": 1}, {"a": True}, {"a": 1}, {"a": 1}), ["Line 2: invalid metadata - value type at $.a is inconsistent across rows (number vs bool)"]),
    "types inside lists": (metadata({"a": [1]}, {"a": ["x"]}, {"a": []}, {"a": [2]}), ["Line 2: invalid metadata - value type at $.a[]"]),
    "metadata text": (metadata('{"a": 1}', "nope", [1], 5), ["Line 2: invalid metadata - is not valid JSON", "Line 3: ", "Line 4: "]),
    "duplicate keys": ([GOOD, GOOD, GOOD, '{"user_prompt":"a","user_prompt":"b","ground_truth":"x"}'], ["Line 4: the key 'user_prompt'"]),
    "duplicate keys in metadata text": (metadata('{"a": 1, "a": 2}', *[{"a": 1}] * 3), ["Line 1: invalid metadata - the key 'a'"]),
    "torn line": ([GOOD, GOOD, GOOD, GOOD, '{"user'], ["Line 5: "]),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_every_rule_names_its_line(tmp_path: Path, name: str) -> None:
    rows, expected = CASES[name]
    found = messages(jsonl(tmp_path / "d.jsonl", *rows))
    assert len(found) == len(expected), found
    for text, start in zip(found, expected, strict=True):
        assert text.startswith(start), text


def test_valid_metadata_of_all_kinds_passes(tmp_path: Path) -> None:
    rows = metadata({"a": 1}, {"a": 1.5}, {"a": None}, {"a": 2, "b": [{"c": "x"}, {"c": None}], "d": {"e": True}})
    assert messages(jsonl(tmp_path / "d.jsonl", *rows)) == []


def test_csv_rows_are_counted_with_the_header_as_row_one(tmp_path: Path) -> None:
    path = tmp_path / "d.csv"
    path.write_bytes(b'user_prompt,ground_truth\r\nq0,0\r\n"two\r\nlines",1\r\nq2,2\r\nq3,3,4\r\nonly\r\n')
    found = messages(path)
    assert found[0].startswith("Row 5 (line 6): expected 2 columns, got 3")
    assert found[1].startswith("Row 6 (line 7): expected 2 columns, got 1")
    report = validate_dataset(path)
    assert [(error["line"]) for error in report.errors] == [6, 7]
    path.write_text("user_prompt,user_prompt,ground_truth\n" + "a,b,c\n" * 4)
    assert messages(path)[0].startswith("Row 1: the header names column 'user_prompt' twice")
    path.write_text('metadata\nnope\n"{""a"": 2}"\n"{""a"": 3}"\n"{""a"": ""s""}"\n')
    assert [text.split(" -")[0] for text in messages(path)] == ["Row 2: invalid metadata", "Row 5: invalid metadata"]


def test_five_errors_are_shown_and_all_are_in_the_data(tmp_path: Path) -> None:
    report = validate_dataset(jsonl(tmp_path / "d.jsonl", GOOD, *["{bad"] * 8))
    assert report.error_count == len(report.errors) == 8
    lines = report.message.splitlines()
    assert lines[0] == "Validation failed:"
    assert len(lines) == 7
    assert "showing first 5" in lines[-1]


def test_millions_of_errors_are_counted_but_not_kept(tmp_path: Path) -> None:
    report = validate_dataset(jsonl(tmp_path / "d.jsonl", *["{bad"] * 3000))
    assert report.error_count == 3000
    assert len(report.errors) == 1000


def test_what_only_eval_run_would_refuse_is_a_warning(tmp_path: Path) -> None:
    report = validate_dataset(jsonl(tmp_path / "d.jsonl", GOOD, GOOD, GOOD, {**GOOD, "ground_truth": ""}))
    assert report.valid
    assert report.warnings[0].startswith("Line 4: ground_truth is empty")


def test_files_that_are_no_datasets_are_errors(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("{}")
    (tmp_path / "empty.csv").touch()
    (tmp_path / "dir.csv").mkdir()
    for name, mentioned in (
        ("nope.jsonl", "File not found"),
        ("a.json", "Supported: csv, jsonl, parquet"),
        ("empty.csv", "File is empty"),
        ("dir.csv", "directory"),
    ):
        with pytest.raises(OsmosisError, match=mentioned) as caught:
            validate_dataset(tmp_path / name)
        assert caught.value.error_code == "VALIDATION"


def test_a_file_above_the_limit_is_refused_unread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(validate, "max_size_bytes", 10)
    assert messages(jsonl(tmp_path / "d.jsonl", GOOD))[0].startswith("Dataset too large")


def test_parquet_columns_are_judged_by_type_and_content(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    path = tmp_path / "d.parquet"

    def check(table: object) -> list[str]:
        parquet.write_table(table, path)
        return messages(path)

    assert check(pa.table({"user_prompt": ["q"] * 4, "label": ["a"] * 4})) == []
    assert check(pa.table({"x": [1] * 4}))[0].startswith("Missing required columns")
    assert check(pa.table({"metadata": [1] * 4}))[0].startswith("Invalid metadata column")
    assert check(pa.table({"metadata": [{"a": 1}] * 4})) == []
    assert check(pa.table({"metadata": ['{"a":1}', '{"a":"s"}', "{}", '{"a":2}']})) == [
        "Row 2: invalid metadata - value type at $.a is inconsistent across rows (number vs str)",
        "Row 3: invalid metadata - metadata mode requires a non-empty JSON object in every row",
    ]
    assert check(pa.table({"user_prompt": ["q"], "label": ["a"]}))[0].startswith("Dataset too small: 1 row.")
    path.write_bytes(bytes(32))
    assert messages(path)[0].startswith("Invalid parquet file")


def test_parquet_without_pyarrow_is_accepted_with_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "pyarrow", None)
    path = tmp_path / "d.parquet"
    path.write_bytes(b"PAR1")
    report = validate_dataset(path)
    assert report.valid
    assert "osmosis-ai[parquet]" in report.warnings[0]
