import hashlib
import json
import os
import shutil
from pathlib import Path

import evaluation_workspace as ew
import pytest
from osmosis_cli import environment, osmosis
from stub_api import Answer, Asked, StubApi
from stub_platform import StubPlatform
from stub_provider import StubProvider

CONFIG = ("eval", "run", "configs/eval/loop.toml")
ROWS = [{"user_prompt": text, "ground_truth": "one"} for text in ("one", "artifact one", "raise now", "two")]


@pytest.fixture(scope="module")
def stub():
    with StubProvider() as provider:
        yield provider


@pytest.fixture
def platform():
    with StubPlatform() as platform:
        yield platform


@pytest.fixture(scope="module")
def finished(stub, tmp_path_factory) -> Path:
    """A workspace with a finished run called `r`."""
    folder = tmp_path_factory.mktemp("finished")
    work = ew.make_workspace(folder / "w", ROWS)
    run_git(work)
    done = osmosis(
        "--json", *CONFIG, "--dataset-file", "data/rows.jsonl", "--name", "r", "-y",
        cwd=work, env=local(stub, folder),
    )  # fmt: skip
    assert done.json["status"] == "success"
    return work


@pytest.fixture
def work(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "w", symlinks=True))


def run_git(work: Path) -> None:
    os.system(f"git -C {work} remote add origin https://github.com/Acme/Lab.git 2>/dev/null")


def local(stub: StubProvider, home: Path, **extra: str) -> dict[str, str]:
    return environment(home, XDG_CACHE_HOME=str(ew.CACHE), **stub.environ(), **extra)


def login(platform: StubPlatform) -> dict[str, str]:
    return {
        "OSMOSIS_PLATFORM_URL": platform.url,
        "OSMOSIS_TOKEN": platform.token,
        "OSMOSIS_TOKEN_PLATFORM_URL": platform.url,
    }


def upload(work: Path, platform: StubPlatform, *arguments: str, **extra: str):
    env = environment(work.parent, **login(platform), **extra)
    return osmosis("--json", "eval", "upload", *arguments, cwd=work, env=env)


def test_a_finished_run_is_published_with_its_files_only(work: Path, platform: StubPlatform):
    done = upload(work, platform, "r")
    resource = done.json["resource"]
    assert (resource["status"], resource["eval_run_name"], resource["platform_url"]) == (
        "finalized", "r", f"{platform.url}/lab/evals/ev_1",
    )  # fmt: skip
    assert resource["uploaded_files"] == resource["expected_files"] == len(platform.objects)
    assert {path.split("/")[0] for path in platform.objects} == {
        "index.jsonl", "progress.json", "logs.txt", "rollout_trials",
    }  # fmt: skip
    assert platform.finalized
    (declared,) = platform.declarations
    assert declared["reimport"] is False
    assert [file["path"] for file in declared["files"]] == sorted(file["path"] for file in declared["files"])


def test_secrets_of_the_environment_are_cut_out_of_the_log_first(work: Path, platform: StubPlatform):
    log = work / ".osmosis/evals/r/logs.txt"
    log.write_text(log.read_text() + "printed sk-very-secret-value\n")
    upload(work, platform, "r", OPENAI_API_KEY="sk-very-secret-value")
    assert b"sk-very-secret-value" not in platform.objects["logs.txt"]
    assert b"[REDACTED]" in platform.objects["logs.txt"]


def damage(run: Path, what: str) -> None:
    index = run / "index.jsonl"
    lines = index.read_text().splitlines()
    first = json.loads(lines[0])
    trial = run / "rollout_trials" / first["rollout_id"]
    match what:
        case "last line gone":
            index.write_text("\n".join(lines[:-1]) + "\n")
        case "line torn":
            index.write_text(index.read_text()[:-5])
        case "rollout twice":
            index.write_text(
                "\n".join([lines[0], lines[0].replace('"row_index": 0', '"row_index": 1'), *lines[2:]]) + "\n"
            )
        case "status":
            index.write_text(index.read_text().replace('"success"', '"great"'))
        case "metrics":
            metrics = json.loads((run / "metrics.json").read_text())
            metrics["eval_run"]["status"] = "incomplete"
            (run / "metrics.json").write_text(json.dumps(metrics))
        case "trajectory":
            (trial / "trajectory.json").write_text('{"schema_version": "ATIF-v1.7", "steps": []}')
        case "artifact link":
            (trial / "artifacts").mkdir(exist_ok=True)
            (trial / "artifacts" / "link").symlink_to("/etc/passwd")
        case "other name":
            manifest = json.loads((run / "manifest.json").read_text())
            (run / "manifest.json").write_text(json.dumps({**manifest, "run_name": "other"}))


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("last line gone", "1 of 4 work items have no verdict"),
        ("line torn", "not complete"),
        ("rollout twice", "occurs twice"),
        ("status", "the status is none of"),
        ("metrics", "not finished"),
        ("trajectory", "no valid trajectory"),
        ("artifact link", "it is a link"),
        ("other name", "of run 'other'"),
    ],
)
def test_a_damaged_run_is_refused_before_anything_is_sent(work: Path, platform: StubPlatform, what: str, said: str):
    damage(work / ".osmosis/evals/r", what)
    error = upload(work, platform, "r").error
    assert error["code"] == "VALIDATION"
    assert said in error["message"]
    assert platform.calls == []


def test_a_link_to_a_run_is_refused(work: Path, platform: StubPlatform):
    (work / "linked").symlink_to(work / ".osmosis/evals/r")
    assert "no link" in upload(work, platform, "linked").error["message"]


def test_without_the_run_or_a_login_it_says_so(work: Path, platform: StubPlatform):
    assert "There is no run nope" in upload(work, platform, "nope").error["message"]
    assert not (work / ".osmosis/evals/.locks/nope.lock").exists()
    done = osmosis("--json", "eval", "upload", "r", cwd=work, env=environment(work.parent))
    assert done.error["code"] == "AUTH_REQUIRED"


class Import:
    """An import over `StubApi`, to break off or to answer wrongly."""

    def __init__(self, stub: StubApi, *, part_size: int = 10**9) -> None:
        self.stub = stub
        self.part_size = part_size
        self.files: dict[str, dict] = {}
        self.stored: dict[str, bytes] = {}
        self.done: set[str] = set()
        self.refuse: str | None = None
        stub.routes = {
            "POST /api/cli/eval-runs/imports": self.start,
            "POST /api/cli/eval-runs/imports/s1/uploads": self.uploads,
            "POST /api/cli/eval-runs/imports/s1/uploads/complete": self.complete,
            "POST /api/cli/eval-runs/imports/s1/finalize": lambda _: self.session("finalized"),
        }

    def start(self, asked: Asked) -> Answer | dict:
        self.files = {file["path"]: file for file in asked.json["files"]}
        return self.session("uploading")

    def session(self, status: str) -> dict:
        files = [{**file, "state": "uploaded" if path in self.done else "pending"} for path, file in self.files.items()]
        return {
            "session_id": "s1", "status": status, "expected_files": len(files), "uploaded_files": len(self.done),
            "files": files, "eval_run_id": "e", "eval_run_name": "r", "platform_url": "https://p.example/e",
        }  # fmt: skip

    def uploads(self, asked: Asked) -> dict:
        assert 1 <= len(asked.json["paths"]) <= 100
        return {"files": [self.instruct(path) for path in asked.json["paths"] if path not in self.done]}

    def instruct(self, path: str) -> dict:
        size = self.files[path]["size"]
        count = max(1, -(-size // self.part_size))
        name = hashlib.sha256(path.encode()).hexdigest()
        for number in range(1, count + 1):
            self.stub.routes[f"PUT /o/{name}/{number}"] = self.put(path, number)
        if count == 1:
            return {**self.files[path], "upload": {"presigned_url": f"{self.stub.url}/o/{name}/1"}}
        parts = [
            {"part_number": number, "presigned_url": f"{self.stub.url}/o/{name}/{number}"}
            for number in range(1, count + 1)
        ]
        upload = {
            "method": "multipart", "part_size": self.part_size, "total_parts": count, "presigned_urls": parts,
        }  # fmt: skip
        return {**self.files[path], "upload": upload}

    def put(self, path: str, number: int):
        def store(asked: Asked) -> Answer:
            if path == self.refuse:
                return Answer(status=403)
            self.stored[f"{path}#{number}"] = asked.body
            return Answer(headers={"ETag": f'"{number}"'})

        return store

    def complete(self, asked: Asked) -> dict:
        body = asked.json
        for at, part in enumerate(body.get("parts", []), 1):
            assert part == {"part_number": at, "etag": str(at)}
        count = len(body.get("parts", [])) or 1
        data = b"".join(self.stored[f"{body['path']}#{number}"] for number in range(1, count + 1))
        assert hashlib.sha256(data).hexdigest() == self.files[body["path"]]["sha256"]
        self.done.add(body["path"])
        return {}


@pytest.fixture
def api():
    with StubApi() as stub:
        yield stub


def publish(work: Path, api: StubApi, *arguments: str):
    return osmosis(
        "--json", "eval", "upload", "r", *arguments, cwd=work, env=environment(work.parent, **api.environment())
    )


def test_large_files_travel_in_parts(work: Path, api: StubApi):
    taken = Import(api, part_size=300)
    assert publish(work, api).json["resource"]["uploaded_files"] == len(taken.files)
    assert any("#2" in name for name in taken.stored)


def test_an_upload_that_broke_off_goes_on_where_it_was(work: Path, api: StubApi):
    taken = Import(api)
    taken.refuse = "progress.json"
    error = publish(work, api).error
    assert "osmosis eval upload" in error["message"]
    assert "progress.json" in error["message"]
    taken.refuse, before = None, len(taken.done)
    assert before == len(taken.stored)
    api.asked.clear()
    assert publish(work, api).status == 0
    sent = [one.path for one in api.asked if one.method == "PUT"]
    assert len(sent) == len(taken.files) - before


def test_results_that_are_published_already_name_replace(work: Path, api: StubApi):
    taken = Import(api)
    api.routes["POST /api/cli/eval-runs/imports"] = Answer({"error": "imported before"}, 409)
    error = publish(work, api).error
    assert error["code"] == "CONFLICT"
    assert "--replace" in error["message"]
    api.routes["POST /api/cli/eval-runs/imports"] = taken.start
    assert publish(work, api, "--replace").status == 0
    assert [one.json["reimport"] for one in api.asked if one.path.endswith("imports")] == [False, True]


def test_a_platform_that_lists_other_files_gets_nothing(work: Path, api: StubApi):
    taken = Import(api)

    def wrong(asked: Asked) -> dict:
        session = taken.start(asked)
        session["files"][0]["sha256"] = "0" * 64
        return session

    api.routes["POST /api/cli/eval-runs/imports"] = wrong
    assert publish(work, api).error["code"] == "PLATFORM_ERROR"
    assert not taken.stored


def test_a_run_is_uploaded_when_it_is_finished(stub, platform: StubPlatform, tmp_path: Path):
    work = ew.make_workspace(tmp_path / "w", ROWS[:2])
    run_git(work)
    env = local(stub, tmp_path, **login(platform))
    run = ("--json", *CONFIG, "--dataset-file", "data/rows.jsonl", "--name", "r", "-y", "--upload")
    resource = osmosis(*run, cwd=work, env=env).json["resource"]
    assert resource["platform_url"] == resource["upload"]["platform_url"] == f"{platform.url}/lab/evals/ev_1"
    assert platform.finalized
    again = osmosis(*run, cwd=work, env=env).json["resource"]
    assert (again["dispatched"], again["upload"]["status"]) == (0, "finalized")


def test_a_dataset_of_the_platform_is_fetched_once_for_each_version(stub, api: StubApi, tmp_path: Path):
    work = ew.make_workspace(tmp_path / "w", ROWS[:1])
    run_git(work)
    data = (json.dumps(ROWS[0]) + "\n").encode()
    name = next(
        line.split('"')[1] for line in (work / CONFIG[2]).read_text().splitlines() if line.startswith("dataset")
    )
    record = {
        "id": f"ds/{tmp_path.name}",
        "file_name": name,
        "file_size": len(data),
        "status": "uploaded",
        "updated_at": "v1",
    }
    api.routes = {
        f"GET /api/cli/datasets/{name}": lambda _: record,
        f"GET /api/cli/datasets/{name}/download": lambda _: {
            "presignedUrl": f"{api.url}/blob", "fileName": f"{name}.jsonl",
        },
        "GET /blob": Answer(data=data),
    }  # fmt: skip
    env = {**local(stub, tmp_path), **api.environment()}

    def source() -> str:
        return osmosis("--json", *CONFIG, "-y", cwd=work, env=env).json["resource"]["dataset_source"]

    assert [source(), source()] == ["download", "cache"]
    assert api.calls.count("GET /blob") == 1
    record["updated_at"] = "v2"
    assert source() == "download"
    record["file_size"] = 3
    record["updated_at"] = "v3"
    assert osmosis("--json", *CONFIG, "-y", cwd=work, env=env).error["code"] == "PLATFORM_ERROR"
    record["status"] = "processing"
    error = osmosis("--json", *CONFIG, "-y", cwd=work, env=env).error
    assert (error["code"], "processing" in error["message"]) == ("VALIDATION", True)
