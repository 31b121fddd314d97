import os
import sys
import time
from pathlib import Path

import pytest
from osmosis_ai.errors import ValidationError
from osmosis_ai.workspace.entrypoint_check import check_entrypoint, missing_dependencies


def check(tree: Path, source: str, entrypoint: str = "main.py", *, limit: float = 30, env: dict | None = None):
    path = tree / "rollouts" / "a-b" / entrypoint
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(source)
    return check_entrypoint(tree, "a-b", entrypoint, env=env or {}, time_limit_s=limit)


def declare(tree: Path, dependencies: str) -> Path:
    folder = tree / "rollouts" / "a-b"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "pyproject.toml").write_text(f'[project]\nname = "a"\nversion = "0"\ndependencies = {dependencies}\n')
    return folder


def test_an_entrypoint_is_imported_and_not_started(tmp_path: Path):
    mark = tmp_path / "started"
    assert check(tmp_path, f"if __name__ == '__main__':\n    open({str(mark)!r}, 'w')\n") is None
    assert not mark.exists()


def test_neighbours_and_packages_are_found(tmp_path: Path):
    folder = tmp_path / "rollouts" / "a-b"
    (folder / "agents").mkdir(parents=True)
    (folder / "tools.py").write_text("")
    (folder / "agents" / "__init__.py").write_text("import tools\n")
    (folder / "agents" / "near.py").write_text("")
    assert check(tmp_path, "import near, tools\nfrom . import near\n", "agents/main.py") is None


def test_variables_of_the_config_are_there_and_the_login_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OSMOSIS_TOKEN", "secret")
    source = "import os\nassert os.environ['LEVEL'] == '1'\nassert 'OSMOSIS_TOKEN' not in os.environ\n"
    assert check(tmp_path, source, env={"LEVEL": "1"}) is None


@pytest.mark.parametrize("source", ["raise SystemExit(7)", "import sys; sys.exit(7)", "import os; os._exit(7)"])
def test_code_that_ends_its_interpreter_is_a_finding(tmp_path: Path, source: str):
    with pytest.raises(ValidationError, match=r"exit status 7.*__main__"):
        check(tmp_path, source)


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("raise KeyError('k')", "KeyError: 'k'"),
        ("def (:", "SyntaxError: invalid syntax"),
        ("raise ValueError('no good')", "\n  no good"),
        ("raise ValueError", "\n  ValueError"),
        ("import os; os.kill(os.getpid(), 9)", "(signal 9)"),
        ("from os import nothing_like_it", "cannot import name"),
        ("print('x' * 10**7)\nraise RuntimeError('after the flood')", "RuntimeError: after the flood"),
    ],
)
def test_an_import_that_fails_names_file_and_reason(tmp_path: Path, source: str, said: str):
    with pytest.raises(ValidationError) as caught:
        check(tmp_path, source)
    assert "rollouts/a-b/main.py" in caught.value.message
    assert said in caught.value.message


def test_a_missing_module_is_a_warning(tmp_path: Path):
    warning = check(tmp_path, "import no_such_module_xyz")
    assert warning is not None
    assert "no_such_module_xyz" in warning


def test_an_import_that_never_ends_is_stopped_with_its_children(tmp_path: Path):
    mark = tmp_path / "child"
    source = (
        "import subprocess, sys, time\n"
        f"child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\nopen({str(mark)!r}, 'w')"
        ".write(str(child.pid))\ntime.sleep(60)\n"
    )
    began = time.monotonic()
    warning = check(tmp_path, source, limit=3)
    assert time.monotonic() - began < 20
    assert warning is not None
    assert "more than 3 s" in warning
    child = int(mark.read_text())
    for _ in range(50):
        if not Path(f"/proc/{child}").exists() or "State:\tZ" in Path(f"/proc/{child}/status").read_text():
            break
        time.sleep(0.1)
    else:
        os.kill(child, 9)
        pytest.fail("the child is alive")


def test_a_missing_file_is_told(tmp_path: Path):
    declare(tmp_path, "[]")
    with pytest.raises(ValidationError, match=r"no file rollouts/a-b/none\.py"):
        check_entrypoint(tmp_path, "a-b", "none.py", env={})


def test_dependencies_that_are_not_here_skip_the_import(tmp_path: Path):
    declare(tmp_path, '["no-such-dist-xyz>=1", "httpx>=99", "click"]')
    warning = check(tmp_path, "raise RuntimeError")
    assert warning is not None
    assert "no-such-dist-xyz>=1: not installed" in warning
    assert "httpx>=99: version" in warning
    assert f"{sys.executable} -m pip install" in warning


def test_what_a_marker_or_nobody_asks_for_is_not_missed(tmp_path: Path):
    lines = """["click", "nothing-xyz; python_version < '3'", "not a requirement!", "httpx[nosuchextra]"]"""
    assert missing_dependencies(declare(tmp_path, lines)) == {}
    (tmp_path / "rollouts" / "a-b" / "pyproject.toml").write_text("[project")
    assert missing_dependencies(tmp_path / "rollouts" / "a-b") == {}
