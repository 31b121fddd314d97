"""`doctor`, `template` and `upgrade`: what works without a platform, and mostly without a network."""

import os
import sys
from pathlib import Path

import pytest
from osmosis_ai.cli import self_upgrade
from osmosis_ai.cli.output import make_output
from osmosis_ai.errors import PlatformError
from osmosis_cli import environment, make_workspace, osmosis
from stub_api import Answer, StubApi

NOWHERE = {"https_proxy": "http://127.0.0.1:9", "HTTPS_PROXY": "http://127.0.0.1:9"}


def test_a_starter_is_applied_without_a_network_and_passes_the_checks(tmp_path):
    ws = make_workspace(tmp_path / "ws")
    env = environment(tmp_path, **NOWHERE)
    names = osmosis("--plain", "template", "list", cwd=ws, env=env).stdout.split()
    assert {"multiply-local-strands", "multiply-local-openai"} <= set(names) == set(sorted(names))
    shown = osmosis("template", "apply", "lookup-local-loop", cwd=ws, env=env)
    assert "osmosis eval run configs/eval/lookup-local-loop.toml --dataset-file data/lookup.jsonl" in shown.stdout
    assert osmosis("dataset", "validate", "data/lookup.jsonl", cwd=ws, env=env).status == 0


def test_every_starter_listed_can_be_applied(tmp_path):
    ws = make_workspace(tmp_path / "ws")
    for item in osmosis("--json", "template", "list", cwd=ws).json["items"]:
        assert osmosis("--json", "template", "apply", item["name"], cwd=ws).status == 0


def test_the_doctor_names_what_is_missing_and_mends_it_offline(tmp_path):
    ws = make_workspace(tmp_path / "ws")
    env = environment(tmp_path, **NOWHERE)
    sick = osmosis("--json", "doctor", cwd=ws, env=env)
    assert sick.status == 1 and sick.error["details"]["missing"] == ["AGENTS.md", "CLAUDE.md", "configs/AGENTS.md"]
    mended = osmosis("doctor", "--fix", cwd=ws / "data", env=env)
    assert mended.status == 0 and "Created: AGENTS.md" in mended.stdout
    assert osmosis("--json", "doctor", str(ws / "AGENTS.md"), cwd=tmp_path, env=env).json["resource"]["valid"] is True


@pytest.mark.parametrize("path", ["nope", "nope/deeper"])
def test_a_path_that_does_not_exist_is_a_usage_error(tmp_path, path):
    done = osmosis("--json", "doctor", path, cwd=tmp_path)
    assert done.status == 2 and "nope" in done.error["message"]


@pytest.mark.parametrize(
    "answer",
    [
        {"workspace": None},
        {"workspace": "lab"},
        Answer({"error": "x"}, 500),
        Answer({"code": "TOKEN_EXPIRED"}, 401),
        Answer(data=b"<html>"),
    ],
)
def test_a_link_that_cannot_be_found_out_is_null(tmp_path, answer):
    ws = make_workspace(tmp_path / "ws")
    osmosis("doctor", "--fix", cwd=ws)
    with StubApi({"GET /api/cli/verify": answer}) as api:
        done = osmosis("--json", "doctor", cwd=ws, env=environment(tmp_path, **api.environment()))
        assert done.json["resource"]["workspace"] is None
        assert api.asked[0].headers["x-osmosis-git"] == "acme/demo-repo"


def test_the_linked_workspace_is_named(tmp_path):
    ws = make_workspace(tmp_path / "ws")
    osmosis("doctor", "--fix", cwd=ws)
    lab = {"id": "w", "name": "lab", "role": "owner"}
    with StubApi({"GET /api/cli/verify": {"workspace": lab}}) as api:
        env = environment(tmp_path, **api.environment())
        assert osmosis("--json", "doctor", cwd=ws, env=env).json["resource"]["workspace"] == lab
        assert "Linked workspace: lab" in osmosis("doctor", cwd=ws, env=env).stdout


def test_an_origin_elsewhere_is_a_remark_and_no_failure(tmp_path):
    ws = make_workspace(tmp_path / "ws", origin="https://gitlab.com/acme/demo.git")
    done = osmosis("--json", "doctor", "--fix", cwd=ws)
    assert done.json["resource"]["git"]["identity"] is None
    assert "github.com" in done.json["resource"]["git"]["warning"]
    assert "⚠" in osmosis("doctor", cwd=ws).stdout


class Machine:
    """A machine with its own index and installers; the interpreter says what the installers left."""

    def __init__(self, root: Path, api: StubApi, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root = root
        self.bin = root / "bin"
        self.bin.mkdir()
        self.monkeypatch = monkeypatch
        self.api = api
        monkeypatch.setenv("PATH", f"{self.bin}{os.pathsep}/usr/bin{os.pathsep}/bin")
        monkeypatch.setattr(self_upgrade, "_INDEX_URL", f"{api.url}/pypi/osmosis-ai/json")
        self.tool("python", f'echo "python $*" >> {root}/ran; cat {root}/installed 2>/dev/null || echo 0.3.9')
        monkeypatch.setattr(sys, "executable", str(self.bin / "python"))
        self.record({})

    def tool(self, name: str, script: str) -> None:
        path = self.bin / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    def record(self, direct_url: dict, prefix: str = "/home/a/venv") -> None:
        self.monkeypatch.setattr(self_upgrade, "_direct_url", lambda: direct_url)
        self.monkeypatch.setattr(sys, "prefix", prefix)

    def latest(self, version: object) -> None:
        self.api.routes["GET /pypi/osmosis-ai/json"] = {"info": {"version": version}}

    def upgrade(self):
        return self_upgrade.upgrade(make_output("json", interactive=False))


@pytest.fixture
def machine(tmp_path, monkeypatch):
    with StubApi() as api:
        yield Machine(tmp_path, api, monkeypatch)


def test_the_newest_release_needs_no_upgrade(machine):
    for version in ("0.3.9", "0.3.8", "0.1"):
        machine.latest(version)
        assert machine.upgrade().status == "no_update"


@pytest.mark.parametrize(
    ("prefix", "tool", "command"),
    [
        ("/home/a/.local/share/uv/tools/osmosis-ai", "uv", "uv tool upgrade osmosis-ai"),
        ("/home/a/.local/pipx/venvs/osmosis-ai", "pipx", "pipx upgrade osmosis-ai"),
        ("/home/a/venv", "uv", "uv pip install --python"),
    ],
)
def test_the_tool_that_installed_it_upgrades_it(machine, prefix, tool, command):
    machine.latest("0.4.0")
    machine.record({}, prefix)
    machine.tool(tool, f"echo 0.4.0 > {machine.root}/installed; echo done")
    result = machine.upgrade()
    assert result.status == "success" and result.resource["command"].startswith(command)
    assert (result.resource["latest_version"], result.resource["stdout"]) == ("0.4.0", "done\n")


def test_without_uv_pip_is_tried(machine):
    machine.latest("0.4.0")
    machine.tool(
        "python", f"case $* in *pip*) echo 0.4.0 > {machine.root}/installed;; *) cat {machine.root}/installed;; esac"
    )
    assert "-m pip install --upgrade osmosis-ai" in machine.upgrade().resource["command"]


def test_an_upgrade_that_changes_nothing_is_an_error_with_the_commands(machine):
    machine.latest("0.4.0")
    machine.record({}, "/home/a/.local/pipx/venvs/osmosis-ai")
    machine.tool("pipx", "echo no room >&2; exit 1")
    with pytest.raises(PlatformError, match="pipx upgrade osmosis-ai") as caught:
        machine.upgrade()
    assert caught.value.details["manual_commands"] == ["pipx upgrade osmosis-ai"]
    assert caught.value.details["attempts"][0]["stderr"] == "no room\n"


@pytest.mark.parametrize(
    ("record", "source", "step"),
    [
        (
            {"url": "file:///src/my%20osmosis", "dir_info": {"editable": True}},
            "/src/my osmosis",
            "git -C '/src/my osmosis' pull",
        ),
        (
            {"url": "https://ada:hunter2@git.example/o", "vcs_info": {"vcs": "git"}},
            "git+https://git.example/o",
            "uv pip install --upgrade",
        ),
    ],
)
def test_a_development_install_is_left_alone(machine, record, source, step):
    machine.latest("0.4.0")
    machine.record(record)
    machine.tool("uv", f"touch {machine.root}/ran-uv")
    result = machine.upgrade()
    assert result.status == "noop" and source in result.message and result.next_steps[0].startswith(step)
    assert not (machine.root / "ran-uv").exists()


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("file:///srv/a@b/osmosis_ai-0.3.9-py3-none-any.whl", "file:///srv/a@b/osmosis_ai-0.3.9-py3-none-any.whl"),
        ("https://ada:hunter2@osmosis.corp/osmosis_ai.whl?k=hunter2", "https://osmosis.corp/osmosis_ai.whl"),
    ],
)
def test_a_wheel_from_elsewhere_is_not_replaced_by_what_the_index_has_under_this_name(machine, url, shown):
    machine.latest("0.4.0")
    machine.record({"url": url, "archive_info": {}})
    machine.tool("uv", f"touch {machine.root}/ran-uv")
    result = machine.upgrade()
    assert result.status == "noop" and result.resource["method"] == "archive"
    assert f"comes from {shown}," in result.message and "hunter2" not in result.message
    assert not (machine.root / "ran-uv").exists()


def test_this_checkout_is_recognised_as_a_development_install():
    found = self_upgrade.detect_installation()
    assert found.kind == "development" and (Path(found.source) / "pyproject.toml").is_file()


def test_the_project_around_it_has_no_say_in_an_upgrade(machine, tmp_path, monkeypatch):
    machine.latest("0.4.0")
    machine.tool("uv", f"pwd > {tmp_path}/place; exit 1")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(PlatformError):
        machine.upgrade()
    assert (tmp_path / "place").read_text() == "/\n"


@pytest.mark.parametrize(
    "answer",
    [
        Answer({}),
        Answer([1]),
        Answer(data=b"<html>"),
        Answer({"info": {"version": "x y"}}),
        Answer({"info": {"version": 3}}),
        Answer({}, 503),
    ],
)
def test_an_index_that_names_no_version_is_an_error(machine, answer):
    machine.api.routes["GET /pypi/osmosis-ai/json"] = answer
    with pytest.raises(PlatformError, match="Cannot find out the latest release"):
        machine.upgrade()
