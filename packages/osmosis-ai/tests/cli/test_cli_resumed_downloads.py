"""Downloads that were cut, killed or interrupted go on in the next process; the store is a real process that can die."""

import json
import signal
import subprocess
import time

import pytest
from object_store import ObjectStore
from osmosis_cli import OSMOSIS, Terminal, environment, make_workspace, osmosis
from stub_api import Answer, StubApi

API = "/api/cli"
CONTENT = bytes(range(256)) * 24_576  # 6 MiB
CUT = 4_000_000
DATASET = {
    "id": "ds_1", "file_name": "m", "file_size": len(CONTENT), "status": "uploaded", "file_format": "jsonl",
    "created_at": "2026-11-01T10:00:00Z", "updated_at": "2026-11-01T10:05:00Z",
}  # fmt: skip
RUN = {"id": "r_1", "name": "lynx", "status": "finished", "created_at": "2026-11-01T10:00:00Z"}
COMMANDS = {
    "dataset": (("dataset", "download", "m"), "m.jsonl"),
    "eval": (("eval", "download", "lynx", "--type", "logs"), ".osmosis/evals/lynx/logs.txt"),
    "benchmark": (("benchmark", "runs", "download", "lynx", "--type", "logs"), ".osmosis/benchmarks/lynx/logs.txt"),
}


@pytest.fixture
def ws(tmp_path):
    return make_workspace(tmp_path / "ws")


@pytest.fixture
def api():
    with StubApi() as serving:
        yield serving


@pytest.fixture
def env(tmp_path, api):
    return environment(tmp_path / "home", **api.environment())


def serve(api, store, content=CONTENT):
    """Let the platform sign URLs of this store."""

    def signed(asked):
        return {"items": [{**item, "url": f"{store.url}/{item['path']}?sig=s3cret"} for item in asked.json["items"]]}

    manifest = {"files": [{"path": "logs.txt", "size": len(content)}], "totals": {}}
    api.routes |= {
        f"GET {API}/datasets/m": DATASET,
        f"GET {API}/datasets/m/download": {"presigned_url": f"{store.url}/m.jsonl?sig=s3cret"},
        f"GET {API}/eval-runs/lynx": {"eval_run": RUN},
        f"GET {API}/eval-runs/r_1/samples/manifest": manifest,
        f"POST {API}/eval-runs/r_1/samples/download-urls": signed,
        f"GET {API}/benchmark-runs/lynx": {"benchmark_run": RUN},
        f"GET {API}/benchmark-runs/r_1/outputs/manifest": manifest,
        f"POST {API}/benchmark-runs/r_1/outputs/download-urls": signed,
    }


def leave_partial(ws, api, env, tmp_path, name, content=CONTENT):
    """Kill a download with -9 while the store stalls; how many bytes it has left."""
    command, place = COMMANDS[name]
    partial = ws / f"{place}.partial"
    with ObjectStore(content, tmp_path / "first", stalls_after=CUT) as store:
        serve(api, store, content)
        started = subprocess.Popen([OSMOSIS, "--json", *command], cwd=ws, env=env)
        end = time.monotonic() + 30
        while not partial.exists() or partial.stat().st_size < CUT - 300_000:
            assert time.monotonic() < end and started.poll() is None
            time.sleep(0.02)
        started.send_signal(signal.SIGKILL)
        started.wait()
    return partial.stat().st_size


@pytest.mark.parametrize("name", COMMANDS)
def test_a_killed_download_goes_on_where_it_was(ws, api, env, tmp_path, name):
    command, place = COMMANDS[name]
    held = leave_partial(ws, api, env, tmp_path, name)
    with ObjectStore(CONTENT, tmp_path / "second") as store:
        serve(api, store)
        done = osmosis("--json", *command, cwd=ws, env=env)
        assert done.status == 0 and done.json["operation"].endswith("download") and done.stderr == ""
        assert [one["range"] for one in store.asked] == [None, f"bytes={held}-"]
    assert (ws / place).read_bytes() == CONTENT
    assert [path.name for path in (ws / place).parent.iterdir() if "partial" in path.name] == []


@pytest.mark.parametrize("name", ["dataset", "eval"])
def test_a_download_whose_store_dies_keeps_what_came_and_says_so(ws, api, env, tmp_path, name):
    command, place = COMMANDS[name]
    with ObjectStore(CONTENT, tmp_path / "first", dies_after=CUT) as store:
        serve(api, store)
        cut = osmosis("--json", *command, cwd=ws, env=env)
    assert cut.status == 1
    told = json.dumps(cut.json["resource"]["files_failed"]) if name == "eval" else cut.error["message"]
    assert "s3cret" not in cut.stdout + cut.stderr and "cannot be reached" in told
    held = (ws / f"{place}.partial").stat().st_size
    assert held >= CUT - 300_000 and not (ws / place).exists()
    with ObjectStore(CONTENT, tmp_path / "second") as store:
        serve(api, store)
        assert osmosis("--json", *command, cwd=ws, env=env).status == 0
        assert store.asked[-1]["range"] == f"bytes={held}-"
    assert (ws / place).read_bytes() == CONTENT


def test_an_interrupted_download_goes_on_where_it_was(ws, api, env, tmp_path):
    command, place = COMMANDS["eval"]
    partial = ws / f"{place}.partial"
    with ObjectStore(CONTENT, tmp_path / "first", stalls_after=CUT) as store:
        serve(api, store)
        with Terminal(*command, cwd=ws, env=env) as terminal:
            end = time.monotonic() + 30
            while not partial.exists() or partial.stat().st_size < CUT - 300_000:
                assert time.monotonic() < end
                terminal.read()
            terminal.send("\x03")
            assert terminal.finish() == 130
    held = partial.stat().st_size
    with ObjectStore(CONTENT, tmp_path / "second") as store:
        serve(api, store)
        assert osmosis(*command, cwd=ws, env=env).status == 0
        assert store.asked[-1]["range"] == f"bytes={held}-"
    assert (ws / place).read_bytes() == CONTENT


def test_a_changed_object_starts_over(ws, api, env, tmp_path):
    leave_partial(ws, api, env, tmp_path, "dataset")
    changed = CONTENT[::-1]
    with ObjectStore(changed, tmp_path / "second") as store:
        serve(api, store, changed)
        assert osmosis("--json", "dataset", "download", "m", cwd=ws, env=env).status == 0
        assert [one["range"] for one in store.asked] == [None]
    assert (ws / "m.jsonl").read_bytes() == changed


def test_two_downloads_of_one_file_do_not_write_at_once(ws, api, env, tmp_path):
    partial = ws / "m.jsonl.partial"
    with ObjectStore(CONTENT, tmp_path / "first", stalls_after=CUT) as store:
        serve(api, store)
        first = subprocess.Popen([OSMOSIS, "--json", "dataset", "download", "m"], cwd=ws, env=env)
        end = time.monotonic() + 30
        while not partial.exists() or partial.stat().st_size < CUT - 300_000:
            assert time.monotonic() < end
            time.sleep(0.02)
        refused = osmosis("--json", "dataset", "download", "m", cwd=ws, env=env)
        assert refused.error["code"] == "CONFLICT" and "m.jsonl.partial" in refused.error["message"]
        assert partial.stat().st_size >= CUT - 300_000 and first.poll() is None
        first.kill()
        first.wait()


def test_a_store_that_names_no_version_leaves_nothing_to_go_on_from(ws, api, env):
    api.routes |= {
        f"GET {API}/datasets/m": {**DATASET, "file_size": 9},
        f"GET {API}/datasets/m/download": {"presigned_url": f"{api.url}/m.jsonl"},
        "GET /m.jsonl": Answer(data=b"123456789", cut_after=5),
    }
    assert osmosis("--json", "dataset", "download", "m", cwd=ws, env=env).error["code"] == "VALIDATION"
    assert list(ws.glob("m.jsonl*")) == []
