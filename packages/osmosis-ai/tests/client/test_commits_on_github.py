import os
from pathlib import Path

import pytest
from osmosis_ai.client.commits import commit_on_github


def program(folder: Path, name: str, script: str) -> None:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


@pytest.mark.parametrize(
    ("script", "answer"),
    [
        ('test "$3" = repos/acme/lab/commits/abc1234 || exit 3; exit 0', True),
        ('echo "gh: No commit found for SHA: abc1234 (HTTP 422)" >&2; exit 1', False),
        ('echo "gh: Not Found (HTTP 404)" >&2; exit 1', None),
        ('echo "error connecting to api.github.com" >&2; exit 1', None),
    ],
)
def test_gh_says_yes_no_or_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, answer: bool | None):
    program(tmp_path, "gh", script)
    program(tmp_path, "git", "exit 1")  # no credential helper that knows a token
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}/usr/bin:/bin")
    assert commit_on_github("acme/lab", "abc1234") is answer
