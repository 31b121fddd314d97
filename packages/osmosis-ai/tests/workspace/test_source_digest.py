"""The digest of a source tree."""

import hashlib
import json
import subprocess
from pathlib import Path

import pytest
from osmosis_ai.errors import ValidationError
from osmosis_ai.source_scan import iter_source_files, reject_directory_symlinks, source_digest

REPOSITORY = Path(__file__).parents[4]
PUBLISHED_PYTHON = REPOSITORY / ".cache/published-0.3.8/bin/python"


def tree(root: Path, files: dict[str, bytes]) -> Path:
    for name, data in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return root


MIXED = {
    "main.py": b"1", "a-b/x": b"2", "a/b": b"3", "a.c": b"4", "B": b"5", "é": b"6", ".hidden": b"7", "empty": b"",
    "deep/er/still": b"8", "a b": b"9", "a0": b"10", "a!": b"11", "UV.lock": b"12", "X.EGG-INFO": b"13",
}  # fmt: skip
NO_SOURCE = {
    name: b"x"
    for name in (
        "uv.lock", "sub/uv.lock", "p.egg-info/PKG-INFO", ".venv/a", "venv/a", ".git/HEAD", "sub/__pycache__/m.pyc", "dist/w",
        "build/w", "node_modules/m", ".pytest_cache/c", ".ruff_cache/c",
    )
}  # fmt: skip


def test_it_is_the_hash_of_relative_paths_and_bytes_in_order(tmp_path: Path) -> None:
    tree(tmp_path, {"b.py": b"two", "a/z.py": b"one"})
    assert source_digest(tmp_path) == hashlib.sha256(b"a/z.py" + b"one" + b"b.py" + b"two").hexdigest()
    assert source_digest(tmp_path, extra="x") == hashlib.sha256(b"xa/z.pyonebb.pytwo".replace(b"bb", b"b")).hexdigest()


def test_what_is_never_source_does_not_change_it(tmp_path: Path) -> None:
    before = source_digest(tree(tmp_path, MIXED))
    tree(tmp_path, NO_SOURCE)
    assert source_digest(tmp_path) == before
    assert {path.relative_to(tmp_path).as_posix() for path in iter_source_files(tmp_path)} == MIXED.keys()


@pytest.mark.parametrize("change", [{"new": b""}, {"main.py": b"other"}, {"sub/main.py": b"1"}])
def test_every_change_of_source_changes_it(tmp_path: Path, change: dict[str, bytes]) -> None:
    before = source_digest(tree(tmp_path, MIXED))
    assert source_digest(tree(tmp_path, change)) != before


def test_the_excluded_directory_does_not_count(tmp_path: Path) -> None:
    before = source_digest(tree(tmp_path, MIXED))
    tree(tmp_path, {"out/run/manifest.json": b"x"})
    assert source_digest(tmp_path, exclude=tmp_path / "out") == before
    assert source_digest(tmp_path) != before


def test_links_to_files_are_followed_and_other_links_are_refused(tmp_path: Path) -> None:
    root = tree(tmp_path / "root", {"main.py": b"1"})
    (root / "link.py").symlink_to("main.py")
    assert source_digest(root) == hashlib.sha256(b"link.py1main.py1").hexdigest()
    reject_directory_symlinks(root)
    for target in (tmp_path, tmp_path / "missing", root / "odd"):
        (root / "odd").symlink_to(target)
        with pytest.raises(ValidationError, match=r"rollout contains a directory or broken symlink: .*/odd ->"):
            reject_directory_symlinks(root, label="rollout")
        with pytest.raises(ValueError, match="replace it"):
            reject_directory_symlinks(root)
        (root / "odd").unlink()
    (root / "build").symlink_to(tmp_path)
    reject_directory_symlinks(root)


def test_a_missing_tree_has_the_digest_of_nothing(tmp_path: Path) -> None:
    assert source_digest(tmp_path / "no") == hashlib.sha256().hexdigest()


@pytest.mark.published
def test_the_published_package_computes_the_same_digest(tmp_path: Path) -> None:
    tree(tmp_path, MIXED | NO_SOURCE)
    (tmp_path / "link").symlink_to("main.py")
    code = (
        "import sys, json; from pathlib import Path; from osmosis_ai.source_scan import source_digest\n"
        "root = Path(sys.argv[1]); print(json.dumps([source_digest(root), source_digest(root, extra='é', exclude=root / 'a')]))"
    )
    theirs = subprocess.run([PUBLISHED_PYTHON, "-c", code, tmp_path], capture_output=True, text=True, check=True)
    ours = [source_digest(tmp_path), source_digest(tmp_path, extra="é", exclude=tmp_path / "a")]
    assert json.loads(theirs.stdout) == ours
