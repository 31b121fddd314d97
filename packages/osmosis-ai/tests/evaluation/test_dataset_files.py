"""Datasets as files: what is read, what is refused, and that every refusal names file, place and remedy."""

import csv
import io
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from osmosis_ai.errors import OsmosisError, ValidationError
from osmosis_ai.evaluation import readers
from osmosis_ai.evaluation.dataset import open_dataset, read_rows
from osmosis_ai.evaluation.rows import Selection, select, work_items

GOOD = {"user_prompt": "q", "ground_truth": "a"}


def write(path: Path, content: bytes | str) -> Path:
    path.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8", "surrogatepass"))
    return path


def jsonl(*rows: object) -> str:
    return "".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows)


def items(path: Path, **how: object) -> list:
    dataset = open_dataset(path)
    return list(work_items(dataset, select(dataset, **how), 1))


def prompts(path: Path) -> list[str]:
    return [item.messages[-1]["content"] for item in items(path)]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"user_prompt,ground_truth\na,1\nb,2\n", ["a", "b"]),
        (b"\xef\xbb\xbfuser_prompt,ground_truth\r\na,1\r\nb,2\r\n", ["a", "b"]),
        (b'user_prompt,ground_truth\n"two\nlines",1\n"a ""word""",2\n', ["two\nlines", 'a "word"']),
        (b'user_prompt,ground_truth\r\n"two\r\nlines",1\r\n', ["two\r\nlines"]),
        (b"user_prompt,ground_truth\n\na,1\n\n\nb,2", ["a", "b"]),
        ("user_prompt,label\nünï,1\n".encode(), ["ünï"]),
    ],
    ids=["plain", "bom and crlf", "quoted newline", "quoted crlf", "blank lines, no last newline", "label, utf-8"],
)
def test_csv_dialects_people_have_are_read(tmp_path: Path, content: bytes, expected: list[str]) -> None:
    assert prompts(write(tmp_path / "d.csv", content)) == expected


def test_jsonl_with_bom_crlf_and_blank_lines_is_read_and_blank_lines_take_no_index(tmp_path: Path) -> None:
    lines = ["\ufeff" + json.dumps({**GOOD, "user_prompt": "a"}), "", json.dumps({**GOOD, "user_prompt": "b"})]
    path = write(tmp_path / "d.jsonl", "\r\n".join(lines))
    dataset = open_dataset(path)
    assert dataset.total_rows == 2
    assert [(row.source_row_index, row.line_number) for row in read_rows(dataset)] == [(0, 1), (1, 3)]
    assert prompts(path) == ["a", "b"]


BAD = {
    "undecodable jsonl": ("d.jsonl", jsonl(GOOD).encode() + b'{"user_prompt":"\xff"}\n', ["Line 2", "0xff", "UTF-8"]),
    "undecodable csv": ("d.csv", b"user_prompt,ground_truth\na,1\n\xe9,2\n", ["Line 3", "0xe9", "UTF-8"]),
    "utf-16": ("d.csv", "user_prompt,ground_truth\na,1\n".encode("utf-16"), ["UTF-16", "save it as UTF-8"]),
    "torn last line": ("d.jsonl", jsonl(GOOD) + '{"user_prompt": "q", "grou', ["Line 2", "cut off"]),
    "broken json": ("d.jsonl", jsonl(GOOD, "{bad"), ["Line 2", "invalid JSON"]),
    "not an object": ("d.jsonl", jsonl(GOOD, "[1]", "null"), ["Line 2", "Line 3", "object"]),
    "lone surrogate": (
        "d.jsonl",
        jsonl(GOOD, '{"user_prompt":"\\ud800","label":"x"}'),
        ["Line 2", "surrogate", "$.user_prompt"],
    ),
    "NUL in json": ("d.jsonl", jsonl(GOOD, '{"user_prompt":"a\\u0000","label":"x"}'), ["Line 2", "NUL", "remove"]),
    "NUL in csv": ("d.csv", b"user_prompt,ground_truth\na\x00,1\n", ["Row 2", "NUL"]),
    "1e400": ("d.jsonl", jsonl(GOOD, '{"user_prompt":"a","label":1e400}'), ["Line 2", "1e400", "text"]),
    "NaN token": ("d.jsonl", jsonl(GOOD, '{"user_prompt":"a","label":NaN}'), ["Line 2", "NaN"]),
    "Infinity token": ("d.jsonl", jsonl(GOOD, '{"metadata":{"a":-Infinity}}'), ["Line 2", "-Infinity"]),
    "giant integer": ("d.jsonl", jsonl(GOOD, '{"user_prompt":' + "9" * 5000 + ',"label":"x"}'), ["Line 2", "4300"]),
    "nested too deeply": ("d.jsonl", jsonl('{"metadata":' + "[" * 100_000 + "]" * 100_000 + "}"), ["Line 1", "deeply"]),
    "unclosed quote": ("d.csv", b'user_prompt,ground_truth\na,1\n"b,2\nc,3\n', ["Lines 3 to 4", "never closed"]),
    "stray quote": ("d.csv", b'user_prompt,ground_truth\n"a"b,1\n', ["Line 2", "quote"]),
    "old mac line ends": ("d.csv", b"user_prompt,ground_truth\ra,1\r", ["carriage return", "LF"]),
    "nan label": (
        "d.csv",
        b"user_prompt,ground_truth\na,1\nb,nan\n",
        ["Row 3", "ground_truth", "missing value", "jsonl"],
    ),
    "empty label": ("d.csv", b"user_prompt,ground_truth\na,1\nb,\n", ["Row 3", "ground_truth is empty"]),
    "short row": ("d.csv", b"user_prompt,ground_truth\nonly\n", ["Row 2", "ground_truth"]),
    "no prompt": ("d.jsonl", jsonl({"ground_truth": "x"}), ["Line 1", "user_prompt"]),
    "another column name": (
        "d.csv",
        b" user_prompt,answer\nq,a\n",
        ["Row 2", "user_prompt is missing: there is ' user_prompt', 'answer'"],
    ),
    "prompt is a list": (
        "d.jsonl",
        jsonl({"user_prompt": [{"role": "user"}], "label": "x"}),
        ["Line 1", "must be text"],
    ),
    "metadata no object": ("d.jsonl", jsonl({"metadata": [1]}, {"metadata": "x"}), ["Line 1", "Line 2", "metadata"]),
    "nothing in a row": ("d.jsonl", jsonl({"metadata": {}}), ["Line 1", "metadata"]),
    "an array": ("d.jsonl", b'[\n{"user_prompt":"a","label":"x"}\n]\n', ["Line 1", "one object per line"]),
    "semicolons": ("d.csv", b"user_prompt;ground_truth\na;1\n", ["Row 2", "separated by commas", "';'"]),
    "header only": ("d.csv", b"user_prompt,ground_truth\n", ["no rows"]),
    "blank lines only": ("d.jsonl", "\n\n", ["no rows"]),
    "empty file": ("d.jsonl", b"", ["empty"]),
    "no parquet": ("d.parquet", b"PAR1 not really", ["parquet"]),
    "other suffix": ("d.json", b"{}", ["'.json'", "csv, jsonl, parquet"]),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_data_is_refused_with_file_place_and_remedy(tmp_path: Path, name: str) -> None:
    file_name, content, mentioned = BAD[name]
    path = write(tmp_path / file_name, content)
    with pytest.raises(OsmosisError) as caught:
        items(path)
    for text in [str(path), *mentioned]:
        assert text in caught.value.message, caught.value.message
    assert caught.value.error_code == "VALIDATION"
    caught.value.message.encode()  # printable anywhere


def test_all_bad_rows_come_in_one_report_that_shows_five_and_counts_all(tmp_path: Path) -> None:
    path = write(tmp_path / "d.jsonl", jsonl(GOOD, *["{bad"] * 8))
    with pytest.raises(ValidationError) as caught:
        items(path)
    assert "showing first 5 of 8" in caught.value.message
    assert caught.value.message.count("Line ") == 5
    assert [f"Line {line}" in caught.value.message for line in range(2, 8)] == [True] * 5 + [False]


def test_only_selected_rows_are_judged(tmp_path: Path) -> None:
    path = write(tmp_path / "d.jsonl", jsonl(GOOD, "{bad", GOOD))
    assert [item.source_row_index for item in items(path, rows="0,2")] == [0, 2]
    path = write(tmp_path / "d.csv", b"user_prompt,ground_truth\na,1\n\xff,2\nc,3\n")
    assert [item.row_index for item in items(path, rows="0,2")] == [0, 1]


def test_surplus_cells_and_duplicate_keys_are_warnings_in_a_run(tmp_path: Path) -> None:
    path = write(tmp_path / "d.csv", b"user_prompt,ground_truth\na,1,left,over\n")
    dataset = open_dataset(path)
    selection = select(dataset)
    assert "Row 2: expected 2 columns, got 4" in selection.warnings[0]
    assert next(work_items(dataset, selection, 1)).label == "1"
    path = write(tmp_path / "d.jsonl", jsonl('{"user_prompt":"a","user_prompt":"b","label":"x"}'))
    dataset = open_dataset(path)
    assert "'user_prompt' occurs twice" in select(dataset).warnings[0]
    assert prompts(path) == ["b"]


def test_long_integers_and_numbers_as_labels_are_text(tmp_path: Path) -> None:
    path = write(tmp_path / "d.jsonl", jsonl({**GOOD, "ground_truth": 2**70}, {**GOOD, "ground_truth": True}))
    assert [item.label for item in items(path)] == [str(2**70), "True"]


def test_a_directory_a_pipe_and_a_link_loop_are_no_datasets(tmp_path: Path) -> None:
    (tmp_path / "dir.csv").mkdir()
    os.mkfifo(tmp_path / "pipe.csv")
    (tmp_path / "loop.csv").symlink_to(tmp_path / "loop.csv")
    for name, mentioned in (("dir.csv", "directory"), ("pipe.csv", "regular file"), ("loop.csv", "cannot be read")):
        with pytest.raises(ValidationError, match=mentioned) as caught:
            open_dataset(tmp_path / name)
        assert name in caught.value.message
    with pytest.raises(OsmosisError, match="File not found") as missing:
        open_dataset(tmp_path / "no.csv")
    assert missing.value.error_code == "VALIDATION"


@pytest.fixture
def ordinary_user() -> Iterator[Path]:
    """A directory of an ordinary user, and that user for the length of a test: root reads everything."""
    directory = Path(tempfile.mkdtemp())
    user = os.geteuid()
    if user == 0:
        os.chown(directory, 65534, 65534)
        os.seteuid(65534)
    yield directory
    os.seteuid(user)
    shutil.rmtree(directory)


def test_an_unreadable_file_is_named(ordinary_user: Path) -> None:
    path = write(ordinary_user / "d.jsonl", jsonl(GOOD))
    path.chmod(0)
    with pytest.raises(ValidationError, match="cannot be read: Permission denied") as caught:
        open_dataset(path)
    assert str(path) in caught.value.message


def test_a_file_that_changes_during_the_run_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "d.jsonl", jsonl(GOOD))
    dataset = open_dataset(path)
    write(path, jsonl(GOOD, GOOD))
    with pytest.raises(ValidationError, match="changed while it was in use"):
        list(work_items(dataset, Selection(((0, 0),), 1), 1))


def test_a_line_longer_than_the_bound_is_named_and_the_rest_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readers, "max_line_bytes", 1 << 10)
    long = json.dumps({**GOOD, "user_prompt": "x" * 5000})
    path = write(tmp_path / "d.jsonl", jsonl(GOOD, long, GOOD))
    assert open_dataset(path).total_rows == 3
    assert [item.source_row_index for item in items(path, rows="0,2")] == [0, 2]
    with pytest.raises(ValidationError, match="Line 2: longer than"):
        items(path)


def test_parquet_is_streamed_and_its_missing_values_are_named(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    path = tmp_path / "d.parquet"
    table = pa.table(
        {"user_prompt": [f"q{i}" for i in range(1000)], "ground_truth": list(range(1000)), "x": [0] * 1000}
    )
    parquet.write_table(table, path, row_group_size=100)
    dataset = open_dataset(path)
    assert dataset.total_rows == 1000
    chosen = list(work_items(dataset, select(dataset, rows="0,500-501,999"), 1))
    assert [(item.source_row_index, item.label) for item in chosen] == [
        (0, "0"),
        (500, "500"),
        (501, "501"),
        (999, "999"),
    ]
    parquet.write_table(pa.table({"user_prompt": ["a", "b"], "label": [1.0, float("nan")]}), path)
    with pytest.raises(ValidationError, match="Row 2: label is nan"):
        items(path)
    parquet.write_table(pa.table({"metadata": [{"a": b"raw"}]}), path)
    with pytest.raises(ValidationError, match=r"Row 1: metadata holds a bytes at \$\.a"):
        items(path)


def test_parquet_without_pyarrow_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ValidationError, match=r"osmosis-ai\[parquet\]") as caught:
        open_dataset(write(tmp_path / "d.parquet", b"PAR1"))
    assert caught.value.details == {"missing_module": "pyarrow", "extra": "parquet"}


def test_a_large_file_is_read_in_little_memory(tmp_path: Path) -> None:
    path = tmp_path / "big.jsonl"
    row = json.dumps({"user_prompt": "x" * 8000, "ground_truth": "y"}) + "\n"
    with path.open("w") as stream:
        for _ in range(12_000):  # about 100 MB
            stream.write(row)
    code = (
        "import sys, resource; from pathlib import Path\n"
        "from osmosis_ai.evaluation.dataset import open_dataset\n"
        "from osmosis_ai.evaluation.rows import select, work_items\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "d = open_dataset(Path(sys.argv[1])); s = select(d)\n"
        "count = sum(1 for _ in work_items(d, s, 1))\n"
        "print(count, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)"
    )
    output = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True).stdout
    count, grown_kib = map(int, output.split())
    assert count == 12_000
    assert grown_kib < 20_000 * (1 if sys.platform == "linux" else 1024)


texts = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=30)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(texts, texts), min_size=1, max_size=8), st.sampled_from(["\n", "\r\n"]), st.booleans())
def test_whatever_a_csv_writer_writes_is_read_back(rows: list[tuple[str, str]], end: str, bom: bool) -> None:
    rows = [pair for pair in rows if not {"nan", "NaN", "NAN"} & set(pair)] or [("a", "b")]
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator=end, quoting=csv.QUOTE_ALL)
    writer.writerow(["user_prompt", "ground_truth"])
    writer.writerows(rows)
    stream = io.BytesIO((b"\xef\xbb\xbf" if bom else b"") + buffer.getvalue().encode())
    read = list(readers.read_csv(stream))
    assert [tuple(row.fields.values()) for row in read if isinstance(row, readers.Row)] == rows
    assert len(read) == len(rows)


values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.dictionaries(texts, values, max_size=4), min_size=1, max_size=6), st.booleans(), st.booleans())
def test_whatever_a_json_writer_writes_is_read_back(rows: list[dict], ascii_only: bool, last_newline: bool) -> None:
    text = "\n".join(json.dumps(row, ensure_ascii=ascii_only) for row in rows) + ("\n" if last_newline else "")
    read = list(readers.read_jsonl(io.BytesIO(text.encode())))
    assert [dict(row.fields) for row in read if isinstance(row, readers.Row)] == rows
    assert [row.source_row_index for row in read if isinstance(row, readers.Row)] == list(range(len(rows)))


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=200), st.sampled_from(["csv", "jsonl"]))
def test_no_bytes_crash_a_reader(data: bytes, kind: str) -> None:
    read = readers.read_csv if kind == "csv" else readers.read_jsonl
    try:
        for record in read(io.BytesIO(data)):
            str(record).encode()
    except ValidationError as error:
        assert "UTF-16" in error.message
