"""The rollout's environment: what uv is asked, when it is not asked, whose SDK gets in."""

import csv
import hashlib
import io
import os
import subprocess
import sys
import threading
import zipfile
from importlib import metadata
from pathlib import Path

import pytest
from osmosis_ai.errors import ValidationError
from osmosis_ai.evaluation import environment
from osmosis_ai.evaluation.environment import RolloutEnvironmentError, prepare_environment

PROJECT = """[project]
name = "r"
version = "0"
requires-python = ">=3.12"
dependencies = [{dependencies}]
{more}
"""


class Uv:
    """Stands for uv: notes what it is asked, makes the interpreter's place."""

    def __init__(self, *statuses: int, lines: tuple[str, ...] = ()) -> None:
        self.calls: list[list[str]] = []
        self.environs: list[dict[str, str]] = []
        self.overrides: list[str] = []
        self.statuses = list(statuses)
        self.lines = list(lines)

    def __call__(self, command: list[str], env: dict[str, str]) -> tuple[int, list[str]]:
        self.calls.append(command[1:])
        self.environs.append(env)
        if "--overrides" in command:
            self.overrides.append(Path(command[command.index("--overrides") + 1]).read_text())
        status = self.statuses.pop(0) if self.statuses else 0
        if status == 0:
            place = env.get("UV_PROJECT_ENVIRONMENT") or (command[-3] if "venv" in command else None)
            if place:
                (Path(place) / "bin").mkdir(parents=True, exist_ok=True)
                (Path(place) / "bin/python").unlink(missing_ok=True)
                (Path(place) / "bin/python").symlink_to(sys.executable)
        return status, self.lines

    def words(self) -> list[str]:
        return [" ".join(call[:2]) if call[0] == "pip" else call[0] for call in self.calls]


def rollout(tmp_path: Path, dependencies: str = '"osmosis-ai[server,strands]>=0.3.4,<0.4"', more: str = "") -> Path:
    folder = tmp_path / "rollouts/r"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "pyproject.toml").write_text(PROJECT.format(dependencies=dependencies, more=more))
    return folder


def prepare(folder: Path, uv: Uv, **options):
    root = folder.parents[1] / "cache/environments"
    return prepare_environment(folder, run_uv=uv, log=lambda _: None, root=root, **options)


def test_ours_goes_in_with_the_extras_the_rollout_asked_for(tmp_path):
    uv = Uv()
    found = prepare(rollout(tmp_path), uv)
    assert uv.words() == ["venv", "pip install"] and not found.pinned and not found.reused
    assert uv.overrides[0].startswith("osmosis-ai[server,strands] @ file://")
    assert all(call[-1] != "--offline" and "--python" in call for call in uv.calls)


def test_uv_gets_our_interpreter_and_no_virtual_environment(tmp_path):
    uv = Uv()
    prepare(rollout(tmp_path), uv, environ={"VIRTUAL_ENV": "/x", "PYTHONDONTWRITEBYTECODE": "1", "HOME": "/h"})
    for env in uv.environs:
        assert "VIRTUAL_ENV" not in env and "PYTHONDONTWRITEBYTECODE" not in env
        assert env["UV_PYTHON_DOWNLOADS"] == "never" and env["UV_COMPILE_BYTECODE"] == "1" and env["HOME"] == "/h"
    assert uv.calls[0][-2:] == ["--python", sys.executable]


def test_nothing_is_asked_when_nothing_changed(tmp_path):
    folder = rollout(tmp_path)
    prepare(folder, Uv())
    uv = Uv()
    assert prepare(folder, uv).reused and uv.calls == []
    (folder / "main.py").write_text("print()")
    assert prepare(folder, uv).reused and uv.calls == []


@pytest.mark.parametrize("change", ["dependency", "lock", "sdk"])
def test_uv_is_asked_again_when_something_changed(tmp_path, change, monkeypatch):
    folder = rollout(tmp_path)
    before = prepare(folder, Uv()).python
    if change == "dependency":
        rollout(tmp_path, '"osmosis-ai[server]", "httpx"')
    elif change == "lock":
        (folder / "uv.lock").write_text("version = 1\n")
    else:
        plain = metadata.distribution("osmosis-ai")

        class Other(metadata.Distribution):
            version = plain.version
            locate_file = plain.locate_file

            def read_text(self, name):
                text = plain.read_text(name)
                return text.replace("METADATA,sha256=", "METADATA,sha256=X") if name == "RECORD" else text

        monkeypatch.setattr(environment, "_installed_sdk", Other)
    uv = Uv()
    assert prepare(folder, uv).python != before and uv.calls


def test_a_lock_is_kept_to_except_for_the_sdk(tmp_path):
    folder = rollout(tmp_path)
    (folder / "uv.lock").write_text("version = 1\n")
    uv = Uv()
    prepare(folder, uv)
    assert uv.words() == ["sync", "pip install"]
    assert uv.calls[0][:5] == ["sync", "--frozen", "--inexact", "--no-install-package", "osmosis-ai"]
    assert (folder / "uv.lock").read_text() == "version = 1\n"


@pytest.mark.parametrize(
    ("dependencies", "more", "pinned"),
    [
        ('"osmosis-ai[server]"', "", False),
        ('"osmosis_ai[server]>=0.3.4,<0.4"', "", False),
        ('"osmosis-ai[server]==0.3.8"', "", True),
        ('"osmosis-ai @ git+https://example.org/sdk"', "", True),
        ('"osmosis-ai"', '[tool.uv.sources]\nosmosis-ai = { path = "../sdk" }', True),
        ('"osmosis-ai"', '[tool.uv.sources]\nother = { path = "../other" }', False),
    ],
)
def test_only_a_version_or_a_source_is_a_pin(tmp_path, dependencies, more, pinned):
    uv = Uv()
    assert prepare(rollout(tmp_path, dependencies, more), uv).pinned is pinned
    assert bool(uv.overrides) is not pinned


def test_a_package_is_installed_itself(tmp_path):
    uv = Uv()
    prepare(rollout(tmp_path, more='[build-system]\nrequires = ["hatchling"]\nbuild-backend = "hatchling.build"'), uv)
    assert uv.calls[1][2:4] == ["--editable", "."]


def test_a_failure_names_the_last_line_and_the_log(tmp_path):
    uv = Uv(0, 1, lines=("resolving", "error: no such package: froboz", ""))
    with pytest.raises(RolloutEnvironmentError, match="no such package: froboz") as caught:
        prepare(rollout(tmp_path), uv, log_path=Path("/run/logs.txt"))
    assert "/run/logs.txt" in caught.value.message and "pyproject.toml" in caught.value.message
    uv = Uv()
    assert not prepare(rollout(tmp_path), uv).reused, "an unfinished environment must not count"


def test_without_network_the_cache_is_tried(tmp_path):
    uv = Uv(0, 2, 0, lines=("error: Failed to fetch: https://pypi.org/simple/httpx/",))
    prepare(rollout(tmp_path), uv)
    assert "--offline" not in uv.calls[1] and uv.calls[2] == [*uv.calls[1], "--offline"]


def test_concurrent_starts_make_one_environment(tmp_path):
    folder = rollout(tmp_path)
    uv = Uv()
    found: list = []
    threads = [threading.Thread(target=lambda: found.append(prepare(folder, uv))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(uv.calls) == 2 and sum(not environment.reused for environment in found) == 1


def test_equal_plain_rollouts_share_an_environment_and_tied_ones_do_not(tmp_path):
    plain = [prepare(rollout(tmp_path / name), Uv()).python.parts[-3] for name in "ab"]
    tied = [prepare(rollout(tmp_path / name, more="[tool.x]"), Uv()).python.parts[-3] for name in "ab"]
    assert plain[0] == plain[1] and tied[0] != tied[1]


@pytest.mark.parametrize(
    ("text", "named"),
    [(None, "does not exist"), ("[project", "TOML"), ("[tool.x]\n", r"\[project\]"), ("\xff", "TOML")],
)
def test_what_is_no_project_is_said(tmp_path, text, named):
    folder = tmp_path / "rollouts/r"
    folder.mkdir(parents=True)
    if text is not None:
        (folder / "pyproject.toml").write_bytes(text.encode("latin-1"))
    with pytest.raises(ValidationError, match=named):
        prepare(folder, Uv())


def test_a_missing_uv_is_named_with_the_command_that_installs_it(tmp_path, monkeypatch):
    monkeypatch.setattr(environment.sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(sys.modules, "uv", None)
    with pytest.raises(RolloutEnvironmentError, match="pip install"):
        prepare(rollout(tmp_path), Uv())


def test_the_wheel_of_an_installed_sdk_is_whole(tmp_path):
    site = tmp_path / "site"
    files = {
        "osmosis_ai/__init__.py": b"x = 1\n",
        "osmosis_ai/data/a b.txt": b"text",
        "osmosis_ai-9.9.dist-info/METADATA": b"Metadata-Version: 2.1\nName: osmosis-ai\nVersion: 9.9\n",
        "osmosis_ai-9.9.dist-info/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        "osmosis_ai-9.9.dist-info/entry_points.txt": b"[console_scripts]\n",
        "osmosis_ai-9.9.dist-info/INSTALLER": b"uv",
        "osmosis_ai-9.9.dist-info/direct_url.json": b"{}",
        "osmosis_ai/__pycache__/__init__.cpython-312.pyc": b"\0",
    }
    for name, data in files.items():
        (site / name).parent.mkdir(parents=True, exist_ok=True)
        (site / name).write_bytes(data)
    names = [*files, "../../bin/osmosis", "osmosis_ai-9.9.dist-info/RECORD"]
    (site / "osmosis_ai-9.9.dist-info/RECORD").write_text("".join(f"{name},,\n" for name in names))
    (distribution,) = metadata.distributions(name="osmosis-ai", path=[str(site)])
    wheel = environment._wheel(distribution, tmp_path / "wheels")
    assert wheel.name == "osmosis_ai-9.9-py3-none-any.whl" and wheel == environment._wheel(
        distribution, tmp_path / "wheels"
    )
    with zipfile.ZipFile(wheel) as archive:
        inside = {name: archive.read(name) for name in archive.namelist()}
    record = list(csv.reader(io.StringIO(inside.pop("osmosis_ai-9.9.dist-info/RECORD").decode())))
    assert set(inside) == set(list(files)[:5])
    assert {row[0] for row in record} == {*inside, "osmosis_ai-9.9.dist-info/RECORD"}
    for name, checksum, size in record[:-1]:
        assert len(inside[name]) == int(size)
        assert checksum == "sha256=" + __import__("base64").urlsafe_b64encode(
            hashlib.sha256(inside[name]).digest()
        ).decode().rstrip("=")


def test_a_real_environment_runs_our_sdk_and_leaves_the_rollout_alone(tmp_path):
    """With the real uv, from its cache when there is no network."""
    folder = rollout(tmp_path, '"osmosis-ai[server]>=0.3.4,<0.4", "httpx>=0.28,<1"')
    before = sorted(path.name for path in folder.iterdir())
    output: list[str] = []

    def run_uv(command: list[str], env: dict[str, str]) -> tuple[int, list[str]]:
        done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)
        output.extend((done.stdout + done.stderr).splitlines())
        return done.returncode, output

    root = Path(__file__).parents[4] / ".cache/tests/osmosis/environments"
    found = prepare_environment(folder, run_uv=run_uv, log=output.append, root=root)
    assert sorted(path.name for path in folder.iterdir()) == before
    assert found.sdk_version == metadata.version("osmosis-ai")
    code = "import osmosis_ai, osmosis_ai.rollout.server, fastapi; print(osmosis_ai.__file__)"
    env = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    shown = subprocess.run([str(found.python), "-c", code], capture_output=True, text=True, env=env, check=True)
    assert shown.stdout.strip() == environment.__file__.replace("evaluation/environment.py", "__init__.py")
