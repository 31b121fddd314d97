"""Replays recorded command-line cases: builds each case's sandbox, runs `osmosis`, reduces what happened to facts.

Facts are the exit status, which stream carries what, the shape of JSON, the files made. Prose is not compared; a case
may name words (`mention`) that must occur.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

PROSE = {"message", "prompt", "summary", "notes", "warnings", "description"}
EXACT = {
    "code", "status", "operation", "schema_version", "command", "action", "flags", "missing", "key", "name", "valid",
}  # fmt: skip
_RUN = re.compile(r"(\.osmosis/evals/(?:\.locks/)?)[a-z]+-[a-z]+-\d{1,2}\b")


def run_case(case: dict[str, Any], sandbox: Path, binary: Path) -> dict[str, Any]:
    """Run a case in a fresh directory.

    Args:
        case: A line of the case file.
        sandbox: An empty directory; `home` and `ws` are made in it.
        binary: The command under test.
    """

    def filled(text: str) -> str:
        return text.replace("{SBX}", str(sandbox))

    _build(case, sandbox, filled)
    before = _tree(sandbox)
    environment = {
        "PATH": os.environ.get("PATH", "/usr/bin:/bin"),
        "HOME": str(sandbox / "home"),
        "LANG": "C.UTF-8",
        "TZ": "UTC",
        "COLUMNS": "100",
        "NO_COLOR": "1",
        "TERM": "dumb",
        "GIT_CONFIG_GLOBAL": "/dev/null",
        "GIT_CONFIG_NOSYSTEM": "1",
    }
    environment |= {name: filled(value) for name, value in case.get("env", {}).items()}
    done = subprocess.run(
        [binary, *(filled(argument) for argument in case.get("argv", ()))],
        cwd=sandbox / case.get("cwd", "ws"),
        env=environment,
        input=case.get("stdin", ""),
        capture_output=True,
        text=True,
        timeout=120,
    )
    after = _tree(sandbox)
    return {
        "exit_code": done.returncode,
        "stdout": done.stdout,
        "stderr": done.stderr,
        "files": {
            "written": _names(name for name in after if not name.endswith("/") and before.get(name) != after[name]),
            "dirs_created": _names(name for name in after if name.endswith("/") and name not in before),
            "removed": sorted(name for name in before if name not in after),
        },
    }


def facts(case: dict[str, Any], seen: dict[str, Any]) -> dict[str, Any]:
    """What is compared of a run."""
    out, err = seen["stdout"], seen["stderr"]
    found: dict[str, Any] = {"exit_code": seen["exit_code"]}
    if case.get("kind") == "help":
        found["tokens"] = sorted(set(re.findall(r"(?<![\w-])--?[a-zA-Z][\w-]*", out)))
        found["stderr_empty"] = not err.strip()
        return found
    for stream, text, word in (("stdout", out, "json"), ("stderr", err, "json-lines")):
        objects = _objects(text)
        if not text.strip():
            found[stream] = "empty"
        elif objects is None:
            found[stream] = "text"
        else:
            found[stream] = word
            shapes = [_shape(value) for value in objects]
            found[f"{stream}_shape"] = shapes[0] if stream == "stdout" and len(shapes) == 1 else shapes
    if found["stdout"] == "text" and "--plain" in case.get("argv", ()):
        found["stdout_lines"] = len(out.splitlines())
    if found["stderr"] == "text":
        found["error_prefix"] = any(line.startswith("Error:") for line in err.splitlines())
    if any(seen["files"].values()):
        found["files"] = seen["files"]
    return found


def differences(case: dict[str, Any], seen: dict[str, Any]) -> list[str]:
    """How a run differs from what the case expects; keys that we add to objects are no difference."""
    expected = {key: value for key, value in case["expect"].items() if key not in ("mention", "requests")}
    if "files" in expected:
        expected["files"] = {key: value for key, value in expected["files"].items() if key != "modes"}
    found = facts(case, seen)
    different = [
        f"{key}: expected {expected.get(key)}, got {found.get(key)}"
        for key in sorted(expected.keys() | found.keys())
        if not _contains(found.get(key), expected.get(key))
    ]
    text = seen["stdout"] + seen["stderr"]
    return different + [f"{word!r} is not mentioned" for word in case.get("mention", []) if word not in text]


def _contains(found: Any, expected: Any) -> bool:
    if isinstance(expected, dict) and isinstance(found, dict):
        return all(key in found and _contains(found[key], value) for key, value in expected.items())
    if isinstance(expected, list) and isinstance(found, list) and any(isinstance(value, dict) for value in expected):
        return len(expected) == len(found) and all(map(_contains, found, expected))
    return found == expected


def _build(case: dict[str, Any], sandbox: Path, filled: Any) -> None:
    for name in ("home", "ws", *case.get("dirs", [])):
        (sandbox / name).mkdir(parents=True, exist_ok=True)
    for name, content in case.get("files", {}).items():
        path = sandbox / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, dict):
            path.write_bytes(bytes.fromhex(content["hex"]))
        else:
            path.write_text(filled(content), encoding="utf-8")
    for name, target in case.get("links", {}).items():
        (sandbox / name).parent.mkdir(parents=True, exist_ok=True)
        (sandbox / name).symlink_to(filled(target))
    for repository in case.get("git", []):
        place = sandbox / repository["dir"]
        place.mkdir(parents=True, exist_ok=True)
        subprocess.run(["git", "init", "-q", "-b", "main"], cwd=place, check=True)
        if origin := repository.get("origin"):
            subprocess.run(["git", "remote", "add", "origin", origin], cwd=place, check=True)


def _tree(root: Path) -> dict[str, str]:
    found: dict[str, str] = {}
    for path in root.rglob("*"):
        name = path.relative_to(root).as_posix()
        if "/.git/" in f"/{name}/" or "/__pycache__" in f"/{name}":
            continue
        if path.is_symlink():
            found[name] = "link"
        elif path.is_dir():
            found[f"{name}/"] = ""
        else:
            found[name] = path.read_bytes().hex()
    return found


def _names(names: Any) -> list[str]:
    return sorted({_RUN.sub(r"\1<RUN>", name) for name in names})


def _objects(text: str) -> list[Any] | None:
    try:
        return [json.loads(line) for line in text.splitlines() if line.strip()]
    except ValueError:
        return None


def _shape(value: Any, key: str = "") -> Any:
    """A JSON value reduced to types, with the values of keys whose value is part of the contract."""
    if isinstance(value, dict):
        return {
            name: f"<{type(item).__name__}>" if name in PROSE and not isinstance(item, dict) else _shape(item, name)
            for name, item in value.items()
        }
    if key in EXACT:
        return value
    if isinstance(value, list):
        if value and isinstance(value[0], dict | list):
            return [_shape(value[0], key)]
        return [f"<{type(item).__name__}>" for item in value[:1]]
    return f"<{type(value).__name__}>"
