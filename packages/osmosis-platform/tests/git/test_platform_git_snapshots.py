"""Source snapshots: the same bytes for the same tree, safe to unpack, made once."""

import hashlib
import io
import tarfile

import pytest
import zstandard
from osmosis_platform.errors import MissingError
from osmosis_platform.git.plumbing import RepositoryLimitError
from osmosis_platform.git.snapshots import UnsafeSourceError, snapshot
from real_git import git

BOTH = pytest.mark.parametrize("database_url", ["sqlite", "postgresql"], indirect=True)


def commit(path, body):
    """A commit on `main` from lines of fast-import."""
    stream = "commit refs/heads/main\ncommitter Ada <ada@example.com> 1700000000 +0000\ndata 1\nx\n" + body
    git("--git-dir", path, "fast-import", "--quiet", "--force", input=stream)
    return git("--git-dir", path, "rev-parse", "main")


def unpacked(services, made):
    packed = b"".join(services.blobs.open(made.blob_key))
    assert (len(packed), hashlib.sha256(packed).hexdigest()) == (made.size_bytes, made.sha256)
    plain = zstandard.ZstdDecompressor().stream_reader(io.BytesIO(packed)).read()
    return tarfile.open(fileobj=io.BytesIO(plain))


def test_a_snapshot_is_the_tree(lab, services, tmp_path):
    sha = commit(
        lab.path,
        "from refs/heads/main^0\n"
        'M 100755 inline "run.sh"\ndata 3\nls\n\n'
        'M 120000 inline "rollouts/link"\ndata 9\n../run.sh\n'
        f"M 160000 {'1' * 40} module\n"
        'M 100644 inline ".gitattributes"\ndata 20\nrun.sh export-ignore\n',
    )
    made = snapshot(services, lab.workspace_id, sha)
    assert made.blob_key == f"{lab.workspace_id}/src/{made.tree_sha}.tar.zst"
    with unpacked(services, made) as tar:
        tar.extractall(tmp_path / "out", filter="data")
        assert {(one.mtime, one.uid, one.gid, one.uname) for one in tar.getmembers()} == {(0, 0, 0, "")}
    assert (tmp_path / "out/run.sh").read_text() == "ls\n"
    assert (tmp_path / "out/run.sh").stat().st_mode & 0o100
    assert (tmp_path / "out/rollouts/link").read_text() == "ls\n"
    assert (tmp_path / "out/module").is_dir()
    assert (tmp_path / "out/rollouts/multiply-local-loop/main.py").is_file()


@BOTH
def test_the_same_tree_is_stored_once_and_gives_the_same_bytes(lab, services):
    first = snapshot(services, lab.workspace_id, lab.branches()["main"])
    same_tree = commit(lab.path, "from refs/heads/main^0\n")
    assert snapshot(services, lab.workspace_id, same_tree) == first
    with services.database.write() as work:
        from osmosis_platform.db.tables.git import source_snapshots

        work.execute(source_snapshots.delete())
    again = snapshot(services, lab.workspace_id, same_tree)
    assert (again.sha256, again.size_bytes) == (first.sha256, first.size_bytes)


def test_a_link_out_of_the_tree_is_refused(lab, services):
    for target in ("/etc/passwd", "../x", "a/../../x", "..", "deep/../../.."):
        sha = commit(lab.path, f'from refs/heads/main^0\nM 120000 inline "evil"\ndata {len(target)}\n{target}\n')
        with pytest.raises(UnsafeSourceError) as raised:
            snapshot(services, lab.workspace_id, sha)
        assert "evil" in raised.value.message, target


def test_a_source_over_the_limit_is_refused(lab, services):
    sha = commit(lab.path, 'from refs/heads/main^0\nM 100644 inline "big"\ndata 300000\n' + "x" * 300_000 + "\n")
    object.__setattr__(services, "settings", services.settings.model_copy(update={"max_push_bytes": 200_000}))
    with pytest.raises(RepositoryLimitError) as raised:
        snapshot(services, lab.workspace_id, sha)
    assert raised.value.error_code == "SOURCE_TOO_LARGE"


def test_a_commit_that_is_not_there_has_no_snapshot(lab, services):
    with pytest.raises(MissingError):
        snapshot(services, lab.workspace_id, "0" * 40)
