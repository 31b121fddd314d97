"""Datasets on a platform: what is asked before an upload, what travels, what a download leaves behind."""

import json
import os
import threading

import pytest
from osmosis_cli import Terminal, environment, make_workspace, osmosis
from stub_api import Answer, StubApi

ROWS = "".join(f'{{"user_prompt": "q{n}", "ground_truth": "{n}"}}\n' for n in range(4))
DATASET = {
    "id": "ds_1", "file_name": "m", "file_size": 5, "status": "uploaded", "file_format": "jsonl",
    "created_at": "2026-11-01T10:00:00Z", "updated_at": "2026-11-01T10:05:00Z",
}  # fmt: skip


@pytest.fixture
def ws(tmp_path):
    make_workspace(tmp_path / "ws")
    (tmp_path / "ws/data/m.jsonl").write_text(ROWS)
    return tmp_path / "ws"


@pytest.fixture
def api():
    with StubApi() as serving:
        url = {"method": "simple", "presigned_url": f"{serving.url}/put/1", "upload_headers": {"X-Kind": "raw"}}
        serving.routes |= {
            "POST /api/cli/datasets": {**DATASET, "status": "uploading", "upload": url},
            "PUT /put/1": Answer({}),
            "POST /api/cli/datasets/ds_1/complete": {**DATASET, "status": "processing"},
            "POST /api/cli/datasets/ds_1/abort": Answer(status=204),
            "GET /api/cli/datasets/m": DATASET,
            "GET /api/cli/datasets/m/download": {"presigned_url": f"{serving.url}/get/m.jsonl"},
            "GET /get/m.jsonl": Answer(data=b"hello"),
        }
        yield serving


@pytest.fixture
def env(tmp_path, api):
    return environment(tmp_path, **api.environment())


def test_an_upload_sends_exactly_the_file(ws, api, env):
    done = osmosis("--json", "dataset", "upload", "data/m.jsonl", "--yes", cwd=ws, env=env)
    assert done.json["resource"]["status"] == "processing"
    assert [one.path for one in api.asked] == ["/api/cli/datasets", "/put/1", "/api/cli/datasets/ds_1/complete"]
    assert api.asked[0].json == {"file_name": "m", "file_size": len(ROWS), "extension": "jsonl"}
    assert api.asked[1].body.decode() == ROWS
    assert api.asked[1].headers["x-kind"] == "raw" and "authorization" not in api.asked[1].headers


def test_parts_are_named_to_the_platform_as_it_wants_them(ws, api, env):
    half = len(ROWS) // 2 + 1
    parts = [{"part_number": n, "presigned_url": f"{api.url}/part/{n}"} for n in (1, 2)]
    api.routes["POST /api/cli/datasets"] = {
        **DATASET,
        "upload": {"method": "multipart", "part_size": half, "total_parts": 2, "presigned_urls": parts},
    }
    api.routes |= {f"PUT /part/{n}": Answer({}, headers={"ETag": f'"e{n}"'}) for n in (1, 2)}
    assert osmosis("--json", "dataset", "upload", "data/m.jsonl", "--yes", cwd=ws, env=env).status == 0
    sent = {one.path: one.body.decode() for one in api.asked if one.path.startswith("/part")}
    assert sent["/part/1"] + sent["/part/2"] == ROWS
    assert api.asked[-1].json == {
        "file_extension": "jsonl",
        "parts": [{"PartNumber": 1, "ETag": "e1"}, {"PartNumber": 2, "ETag": "e2"}],
    }


@pytest.mark.parametrize(
    ("keys", "sends", "words"),
    [
        ("y\n", True, "Dataset uploaded"),
        ("\n", True, "Dataset uploaded"),
        ("n\n", False, ""),
        ("\x1b", False, ""),
        ("\x03", False, ""),
    ],
)
def test_a_plain_upload_asks_and_yes_is_the_default(ws, api, env, keys, sends, words):
    with Terminal("dataset", "upload", "data/m.jsonl", cwd=ws, env=env) as terminal:
        terminal.expect("Proceed with upload? [Y/n]")
        terminal.send(keys)
        assert terminal.finish() == 0
        assert (words or "Cancelled.") in terminal.text
    assert bool(api.asked) is sends


@pytest.mark.parametrize("keys", ["\n", "n\n", "\x1b", "\x03"])
def test_replacing_a_dataset_asks_and_no_is_the_default(ws, api, env, keys):
    with Terminal("dataset", "upload", "data/m.jsonl", "--overwrite", cwd=ws, env=env) as terminal:
        terminal.expect("overwrite the existing dataset with the same name. Proceed with upload? [y/N]")
        terminal.send(keys)
        assert terminal.finish() == 0
        assert "Cancelled." in terminal.text
    assert api.asked == []


def test_a_taken_name_is_replaced_only_when_told_to(ws, api, env):
    def create(asked):
        if "overwrite_dataset_id" in asked.json:
            return {**DATASET, "upload": {"presigned_url": f"{api.url}/put/1"}}
        return Answer({"error": "taken", "existing_dataset_id": "ds_9"}, 409)

    api.routes["POST /api/cli/datasets"] = create
    refused = osmosis("--json", "dataset", "upload", "data/m.jsonl", "--yes", cwd=ws, env=env)
    assert refused.error["code"] == "CONFLICT" and "--overwrite" in refused.error["message"]
    assert osmosis("--json", "dataset", "upload", "data/m.jsonl", "--yes", "--overwrite", cwd=ws, env=env).status == 0
    assert [one.json.get("overwrite_dataset_id") for one in api.asked if one.path == "/api/cli/datasets"] == [
        None, None, "ds_9",
    ]  # fmt: skip


def test_an_upload_that_the_store_refuses_is_taken_back(ws, api, env):
    api.routes["PUT /put/1"] = Answer(status=403, data=b"<Message>Expired</Message>")
    done = osmosis("--json", "dataset", "upload", "data/m.jsonl", "--yes", cwd=ws, env=env)
    assert done.error["code"] == "VALIDATION"
    assert done.error["message"] == "Upload failed: m.jsonl: HTTP 403. Expired"
    assert api.calls[-1] == "POST /api/cli/datasets/ds_1/abort"


def test_an_upload_that_is_interrupted_is_taken_back(ws, api, env):
    arrived, released = threading.Event(), threading.Event()

    def hang(_asked):
        arrived.set()
        released.wait(30)
        return Answer({})

    api.routes["PUT /put/1"] = hang
    with Terminal("dataset", "upload", "data/m.jsonl", "--yes", cwd=ws, env=env) as terminal:
        assert arrived.wait(30)
        terminal.send("\x03")
        assert terminal.finish() == 130
    released.set()
    assert api.calls[-1] == "POST /api/cli/datasets/ds_1/abort"


def test_completing_is_tried_again(ws, api, env):
    api.routes["POST /api/cli/datasets/ds_1/complete"] = [Answer(status=503), {**DATASET, "status": "processing"}]
    assert osmosis("--json", "dataset", "upload", "data/m.jsonl", "--yes", cwd=ws, env=env).status == 0
    assert api.calls.count("POST /api/cli/datasets/ds_1/complete") == 2


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("none.jsonl", None, "none.jsonl"),
        ("a.txt", "x", "csv, jsonl"),
        ("bad.jsonl", "{}\n", "ground_truth"),
        ("latin.jsonl", b"\xff\xfe", "UTF-8"),
        ("folder.jsonl", "", "folder"),
    ],
)
def test_a_file_that_will_not_do_is_refused_before_anything_is_sent(ws, api, env, name, content, told):
    path = ws / "data" / name
    if name == "folder.jsonl":
        path.mkdir()
    elif content is not None:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    error = osmosis("--json", "dataset", "upload", f"data/{name}", "--yes", cwd=ws, env=env).error
    assert error["code"] == "VALIDATION" and told in error["message"].replace("directory", "folder")
    assert api.asked == []


def test_a_download_goes_into_place_only_when_it_is_whole(ws, api, env):
    assert osmosis("dataset", "download", "m", cwd=ws, env=env).status == 0
    assert (ws / "m.jsonl").read_bytes() == b"hello"
    api.routes["GET /get/m.jsonl"] = Answer(data=b"hello", cut_after=3)
    cut = osmosis("--json", "dataset", "download", "m", "--overwrite", cwd=ws, env=env)
    assert cut.error["code"] == "VALIDATION" and "broke off" in cut.error["message"]
    assert (ws / "m.jsonl").read_bytes() == b"hello"
    assert not list(ws.glob("*.partial"))


def test_a_file_that_is_longer_than_its_record_says_is_kept_and_told(ws, api, env):
    api.routes["GET /get/m.jsonl"] = Answer(data=b"longer than said")
    done = osmosis("--json", "dataset", "download", "m", cwd=ws, env=env).json
    assert "It has 16 bytes, the platform's record says 5." in done["message"]
    assert (ws / "m.jsonl").read_bytes() == b"longer than said"


@pytest.mark.parametrize(
    ("place", "made"), [(None, "m.jsonl"), ("data", "data/m.jsonl"), ("data/", "data/m.jsonl"), ("data/x", "data/x")]
)
def test_a_download_lands_where_it_is_told(tmp_path, ws, api, env, place, made):
    (ws / "data/m.jsonl").unlink()
    done = osmosis("--json", "dataset", "download", "m", *(["-o", place] if place else []), cwd=ws, env=env)
    assert (ws / made).read_bytes() == b"hello"
    assert (ws / done.json["resource"]["output_path"]).resolve() == (ws / made).resolve()


@pytest.mark.parametrize("place", ["none/", "none/x", "data/m.jsonl", "data/sub"])
def test_a_place_that_will_not_do_leaves_everything_as_it_was(ws, api, env, place):
    (ws / "data/sub/m.jsonl").mkdir(parents=True)
    error = osmosis("--json", "dataset", "download", "m", "-o", place, cwd=ws, env=env).error
    assert error["code"] == "VALIDATION"
    assert (ws / "data/m.jsonl").read_text() == ROWS
    assert not (ws / "none").exists()


@pytest.mark.parametrize("name", ["../../evil", "/etc/evil", "..", "a\\..\\evil"])
def test_a_name_from_the_platform_is_never_a_path(ws, api, env, name):
    api.routes["GET /api/cli/datasets/m/download"] = {"presigned_url": f"{api.url}/get/m.jsonl", "file_name": name}
    done = osmosis("--json", "dataset", "download", "m", cwd=ws, env=env)
    made = done.json["resource"]["output_path"]
    assert os.path.dirname(made) == str(ws) and os.path.exists(made)


@pytest.mark.parametrize(("status", "told"), [("processing", "dataset info m"), ("error", "dataset logs m")])
def test_a_dataset_that_is_not_ready_says_what_to_do(ws, api, env, status, told):
    api.routes["GET /api/cli/datasets/m"] = {**DATASET, "status": status}
    error = osmosis("--json", "dataset", "download", "m", cwd=ws, env=env).error
    assert error["code"] == "VALIDATION" and told in error["message"]


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"id": None}, "dataset.id"),
        ({"file_size": "big"}, "dataset.file_size"),
        ({"status": 3}, "dataset.status"),
        ({"row_count": 1.5}, "dataset.row_count"),
    ],
)
def test_a_malformed_record_names_its_field(ws, api, env, change, field):
    api.routes["GET /api/cli/datasets/m"] = {**DATASET, **change}
    error = osmosis("--json", "dataset", "info", "m", cwd=ws, env=env).error
    assert (error["code"], error["details"]["field"]) == ("PLATFORM_ERROR", field)


def test_numbers_that_are_no_json_are_null_in_a_preview(ws, api, env):
    body = json.dumps({**DATASET, "data_preview": [{"a": float("nan")}]}).encode()
    api.routes["GET /api/cli/datasets/m"] = Answer(data=body)
    assert osmosis("--json", "dataset", "preview", "m", cwd=ws, env=env).json["data"]["rows"] == [{"a": None}]


def test_a_name_that_is_no_text_is_told_instead_of_a_crash(ws, api, env):
    for arguments in (("dataset", "info", b"\xff"), ("rollout", "list", "--branch", b"\xff")):
        done = osmosis("--json", *map(os.fsdecode, arguments), cwd=ws, env=env)
        assert done.error["code"] in ("NOT_FOUND", "VALIDATION")


def test_an_empty_list_says_the_next_command(ws, api, env):
    api.routes["GET /api/cli/datasets"] = {"datasets": [], "total_count": 0}
    assert "osmosis dataset upload" in osmosis("dataset", "list", cwd=ws, env=env).stdout
    assert osmosis("--plain", "dataset", "list", cwd=ws, env=env).stdout == ""


def test_long_names_stay_whole_in_a_pipe(ws, api, env):
    name = "n" * 220
    api.routes["GET /api/cli/datasets"] = {"datasets": [{**DATASET, "file_name": name}], "total_count": 1}
    for narrow in ({}, {"COLUMNS": "60"}):
        lines = osmosis("dataset", "list", cwd=ws, env=env | narrow).stdout.splitlines()
        assert sum(name in line for line in lines) == 1
