"""The workspace template as users get it: in the wheel, complete, and made of rollouts that build."""

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import uv
from osmosis_ai.workspace.scaffold import TEMPLATE_ROOT, scaffold_rollout

PACKAGE = Path(__file__).resolve().parents[2]
ROOT = PACKAGE.parents[1]
ROLLOUTS = sorted(path.name for path in (TEMPLATE_ROOT / "rollouts").iterdir())


def build(project: Path, out: Path, *options: str) -> list[Path]:
    command = [uv.find_uv_bin(), "build", "--quiet", "--python", sys.executable, "--out-dir", out, *options, project]
    done = subprocess.run(command, capture_output=True, text=True, timeout=110, check=False)
    assert done.returncode == 0, done.stderr
    return sorted(out.glob("*.whl"))


def test_the_wheel_holds_the_whole_template_and_scaffolds_from_it(tmp_path):
    (wheel,) = build(PACKAGE, tmp_path / "dist")  # by way of the sdist, as a release is made
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "workspace-template"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    tracked = {line.removeprefix("workspace-template/") for line in listed.stdout.splitlines()}
    assert len(tracked) > 25
    with zipfile.ZipFile(wheel) as archive:
        prefix = "osmosis_ai/workspace/template/"
        names = {name.removeprefix(prefix) for name in archive.namelist() if name.startswith(prefix)}
        assert names == tracked
        archive.extractall(tmp_path / "site")
    program = (
        "from pathlib import Path\n"
        "from osmosis_ai.workspace import scaffold\n"
        "assert 'site' in scaffold.__file__, scaffold.__file__\n"
        "print(len(scaffold.scaffold_rollout(Path('tree'), 'my-agent').files))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env={"PYTHONPATH": str(tmp_path / "site"), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.stdout, done.returncode) == ("5\n", 0), done.stderr


@pytest.mark.parametrize("name", [*ROLLOUTS, "scaffolded"])
def test_a_rollout_builds_into_a_wheel_with_its_module(name, tmp_path):
    if name == "scaffolded":
        project = scaffold_rollout(tmp_path, name).rollout_dir
    else:
        project = tmp_path / name
        shutil.copytree(
            TEMPLATE_ROOT / "rollouts" / name, project, ignore=shutil.ignore_patterns(".venv", "__pycache__")
        )
    (wheel,) = build(project, tmp_path / "dist", "--wheel")
    with zipfile.ZipFile(wheel) as archive:
        packed = [path for path in archive.namelist() if ".dist-info/" not in path]
        (metadata,) = [archive.read(path).decode() for path in archive.namelist() if path.endswith("/METADATA")]
    sandboxed = ["multiply_agent/__init__.py", "multiply_agent/workflow.py"]  # main.py stays outside the sandbox
    assert packed == (sandboxed if name == "multiply-harbor-strands" else ["main.py"])
    assert f"Name: {name}" in metadata
    assert "Requires-Dist: osmosis-ai[" in metadata
