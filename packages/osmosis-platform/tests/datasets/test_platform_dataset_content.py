"""What the job makes of files: good ones in each format, and bad ones of every kind, in its limited process."""

import io
import json
import os
import subprocess
import sys

import pyarrow as pa
import pytest
from pyarrow import parquet

PROMPTS = [{"user_prompt": f"q{n}", "ground_truth": f"a{n}"} for n in range(5)]


@pytest.fixture
def database_url(tmp_path):
    """What a file holds does not depend on the database."""
    return f"sqlite:///{tmp_path / 'platform.sqlite3'}"


def _jsonl(rows):
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def _parquet(rows, **options):
    file = io.BytesIO()
    parquet.write_table(pa.Table.from_pylist(rows), file, **options)
    return file.getvalue()


def _stored_parquet(ada, dataset):
    key = f"{ada.workspace_id}/datasets/{dataset['id']}/parquet"
    return parquet.read_table(io.BytesIO(b"".join(ada.services.blobs.open(key))))


def test_csv_becomes_text_columns_with_formulas_kept_as_data(ada):
    content = "\ufeffuser_prompt,ground_truth,note\n" + "".join(f'q{n},a{n},"=cmd|calc!A{n}"\n' for n in range(4))
    dataset = ada.uploaded(content.encode(), extension="csv")
    assert dataset["status"] == "uploaded", dataset["error_message"]
    assert dataset["data_preview"][1] == {"user_prompt": "q1", "ground_truth": "a1", "note": "=cmd|calc!A1"}
    table = _stored_parquet(ada, dataset)
    assert table.column("note").to_pylist()[3] == "=cmd|calc!A3"


def test_json_types_are_kept_and_what_is_mixed_becomes_json_text(ada):
    rows = [
        {**row, "count": n, "share": n / 2 if n else 0, "ok": bool(n % 2), "mixed": n if n else "x", "big": 1 << 70}
        for n, row in enumerate(PROMPTS)
    ]
    dataset = ada.uploaded(_jsonl(rows))
    assert dataset["status"] == "uploaded", dataset["error_message"]
    table = _stored_parquet(ada, dataset)
    kinds = {name: str(table.schema.field(name).type) for name in ("count", "share", "ok", "mixed", "big")}
    assert kinds == {"count": "int64", "share": "double", "ok": "bool", "mixed": "large_string", "big": "large_string"}
    assert table.column("mixed").to_pylist()[:2] == ['"x"', "1"]


def test_metadata_objects_are_a_dataset_too(ada):
    dataset = ada.uploaded(_jsonl([{"metadata": {"task": n, "tags": ["a", "b"]}} for n in range(4)]))
    assert dataset["status"] == "uploaded", dataset["error_message"]
    assert json.loads(_stored_parquet(ada, dataset).column("metadata").to_pylist()[2])["task"] == 2


def test_parquet_is_served_as_it_is_and_not_copied(ada):
    content = _parquet([{**row, "at": n, "bytes": b"\x00\xff"} for n, row in enumerate(PROMPTS)])
    dataset = ada.uploaded(content, extension="parquet")
    assert (dataset["status"], dataset["row_count"]) == ("uploaded", 5), dataset["error_message"]
    keys = [info.key for info in ada.services.blobs.list(f"{ada.workspace_id}/datasets/{dataset['id']}")]
    assert [key.rpartition("/")[2] for key in keys] == ["original"]
    assert dataset["data_preview"][0]["bytes"] == "AP8="


def test_names_and_cells_that_databases_do_not_take_are_shown_with_a_mark(ada):
    dataset = ada.uploaded(_parquet([{**row, "x\0y": "a\0b"} for row in PROMPTS]), extension="parquet")
    assert dataset["status"] == "uploaded", dataset["error_message"]
    told = ada.call("GET", f"/api/v1/workspaces/lab/datasets/{dataset['id']}/statistics").json()
    names = [column["name"] for column in told["column_statistics"]["columns"]]
    assert names == ["user_prompt", "ground_truth", "x\ufffdy"]
    assert dataset["data_preview"][0]["x\ufffdy"] == "a\ufffdb"


def test_long_cells_are_cut_in_the_preview_only(ada):
    dataset = ada.uploaded(_jsonl([{**row, "text": "x" * 10_000} for row in PROMPTS]))
    assert dataset["data_preview"][0]["text"] == "x" * 2000 + "…"
    assert len(_stored_parquet(ada, dataset).column("text").to_pylist()[0]) == 10_000


def _lying_footer():
    content = bytearray(_parquet([{**row, "x": "y" * 50} for row in PROMPTS], compression="none", use_dictionary=False))
    content[4:60] = os.urandom(56)
    return bytes(content)


BAD = {
    "three rows": (_jsonl(PROMPTS[:3]), "jsonl", "DATASET_INVALID", "too small"),
    "other columns": (_jsonl([{"a": 1}] * 5), "jsonl", "DATASET_INVALID", "Missing required columns"),
    "no JSON": (b"nonsense\n" * 5, "jsonl", "DATASET_INVALID", "invalid JSON"),
    "deeply nested": (
        b'{"metadata": ' + b'{"a":' * 100_000 + b"\n" * 5,
        "jsonl",
        "DATASET_INVALID",
        "nested too deeply",
    ),
    "not UTF-8": (b"user_prompt,ground_truth\n" + b"\xe9,x\n" * 5, "csv", "DATASET_INVALID", "not UTF-8"),
    "UTF-16": ("user_prompt,ground_truth\na,b\n".encode("utf-16"), "csv", "DATASET_INVALID", "UTF-16"),
    "NUL": (b"user_prompt,ground_truth\n" + b"a\0b,x\n" * 5, "csv", "DATASET_INVALID", "NUL"),
    "an open quote": (b'user_prompt,ground_truth\n"a,x\n' * 5, "csv", "DATASET_INVALID", "malformed CSV"),
    "a million columns": (
        b",".join(b"c%d" % n for n in range(1_000_000)) + b"\n",
        "csv",
        "DATASET_TOO_WIDE",
        "1000000",
    ),
    "too many keys": (_jsonl([dict.fromkeys(map(str, range(5000)), 1)] * 5), "jsonl", "DATASET_TOO_WIDE", "5000"),
    "no Parquet": (b"PAR1 but not really PAR1", "parquet", "DATASET_INVALID", "invalid parquet file"),
    "a zip": (b"PK\x03\x04" + os.urandom(200), "parquet", "DATASET_INVALID", "invalid parquet file"),
    "damaged Parquet pages": (_lying_footer(), "parquet", "DATASET_", "read"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_file_is_an_error_that_says_why(ada, case):
    content, extension, code, message = BAD[case]
    services = ada.services
    object.__setattr__(services, "settings", services.settings.model_copy(update={"upload_part_bytes": 64 << 20}))
    services.blobs._settings = services.settings
    dataset = ada.uploaded(content, extension=extension)
    assert dataset["status"] == "error"
    assert dataset["error_code"].startswith(code)
    assert message in dataset["error_message"]
    assert str(services.settings.data_dir) not in dataset["error_message"]
    levels = [entry["level"] for entry in ada.cli("GET", "/sums/logs").json()["logs"]]
    assert levels[0] == "info" and levels[-1] == "error"
    assert list((services.settings.data_dir / "tmp").iterdir()) == []


def _examined(path, format, **environ):
    order = {"path": str(path), "format": format, "parquet": str(path) + ".copy", "output_bytes": 1 << 30}
    child = subprocess.Popen(
        [sys.executable, "-m", "osmosis_platform.jobs.dataset_child"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "ARROW_DEFAULT_MEMORY_POOL": "system", **environ},
    )
    child.stdin.write(json.dumps(order).encode() + b"\n")
    child.stdin.flush()
    last = json.loads(child.stdout.read().splitlines()[-1])
    child.stdin.close()
    child.wait()
    return last


def test_memory_stays_the_same_for_a_large_file(tmp_path):
    """24 MiB in 120,000 rows cost little more than 1 MiB does."""
    used = []
    for name, rows in (("small", 5_000), ("large", 120_000)):
        path = tmp_path / f"{name}.jsonl"
        with path.open("wb") as file:
            for n in range(rows):
                file.write(b'{"user_prompt": "%d %s", "ground_truth": "%d"}\n' % (n, b"x" * 150, n))
        last = _examined(path, "jsonl")
        assert last["content"]["row_count"] == rows
        used.append(last["max_rss_bytes"])
    assert used[1] < 200 << 20
    assert used[1] - used[0] < 48 << 20


def test_a_parquet_bomb_runs_into_the_limit_of_the_process(tmp_path):
    """1,024 rows that share one value of 4 MiB: kilobytes on the disk, gigabytes as values."""
    path = tmp_path / "bomb.parquet"
    text = pa.DictionaryArray.from_arrays(pa.array([0] * (1 << 10), pa.int32()), pa.array(["z" * (4 << 20)]))
    parquet.write_table(pa.table({"user_prompt": text, "ground_truth": pa.array(["q"] * (1 << 10))}), path)
    assert path.stat().st_size < 1 << 20
    last = _examined(path, "parquet")
    assert last["error"][0] in {"DATASET_LIMITS", "DATASET_UNREADABLE", "DATASET_INVALID"}


def test_the_reader_dies_with_its_parent(tmp_path):
    """A file that takes a minute to read; then the pipe from the parent ends."""
    path = tmp_path / "slow.jsonl"
    with path.open("wb") as file:
        for n in range(200_000):
            file.write(b'{"user_prompt": "%d", "ground_truth": "%d"}\n' % (n, n))
    order = {"path": str(path), "format": "jsonl", "parquet": None, "output_bytes": 1 << 20}
    command = [sys.executable, "-m", "osmosis_platform.jobs.dataset_child"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        child.stdin.write(json.dumps(order).encode() + b"\n")
        child.stdin.close()
        assert child.wait(30) == 1
        assert b"content" not in child.stdout.read()
