"""What happens in a sync is told in order: every change once, also when the platform dies in it."""

import pytest
from osmosis_platform.db.repositories.streams import StreamRepository
from osmosis_platform.db.repositories.syncs import SyncRepository
from osmosis_platform.git import sync as room
from osmosis_platform.git.sync import sync_now
from real_git import GIT_ENVIRONMENT, git

BOTH = pytest.mark.parametrize("database_url", ["sqlite", "postgresql"], indirect=True)


def commit(path, name):
    text = "commit refs/heads/main\ncommitter A <a@example.com> 1700000000 +0000\ndata 1\nx\nfrom refs/heads/main^0\n"
    text += f"M 100644 inline {name}\ndata 1\nx\n"
    git("--git-dir", path, "fast-import", "--quiet", "--force", input=text.encode())


def told(lab, sync_id):
    with lab.services.database.read() as work:
        found = StreamRepository(work).events_after(lab.workspace_id, sync_id, 0, 100)
    assert [event.seq for event in found] == list(range(1, len(found) + 1))
    return [(event.kind, event.payload.get("status") or event.payload.get("step")) for event in found]


def history(lab):
    with lab.services.database.read() as work:
        return SyncRepository(work).page(lab.workspace_id, lab.repository.id, limit=50, offset=0)[0]


@BOTH
def test_a_sync_tells_its_way_and_what_it_found(lab):
    assert GIT_ENVIRONMENT
    commit(lab.path, "new.txt")
    done = sync_now(lab.services, lab.workspace_id, lab.repository.id, "manual")
    assert told(lab, done.id) == [("sync.status", "syncing"), ("sync.progress", "branches"), ("sync.status", "success")]
    with lab.services.database.read() as work:
        last = StreamRepository(work).events_after(lab.workspace_id, done.id, 2, 10)[-1]
        stream = StreamRepository(work).find(lab.workspace_id, done.id)
    assert last.payload["commit_sha"] == done.commit_sha
    assert stream.closed_at is not None


def test_a_poll_that_finds_nothing_leaves_nothing(lab):
    sync_now(lab.services, lab.workspace_id, lab.repository.id, "manual")
    before = [one.id for one in history(lab)]
    polled = sync_now(lab.services, lab.workspace_id, lab.repository.id, "poll")
    assert [one.id for one in history(lab)] == before
    with lab.services.database.read() as work:
        assert StreamRepository(work).find(lab.workspace_id, polled.id) is None


@BOTH
@pytest.mark.parametrize("place", ["sync.after-begin", "sync.in-end"])
def test_a_sync_that_was_killed_ends_once_and_the_next_tells_all(lab, monkeypatch, place):
    commit(lab.path, "new.txt")

    def die(name):
        if name == place:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(room.crashpoints, "reach", die)
        sync_now(lab.services, lab.workspace_id, lab.repository.id, "manual")
    killed = history(lab)[0]
    assert killed.status == "syncing"
    done = sync_now(lab.services, lab.workspace_id, lab.repository.id, "manual")
    assert [status for kind, status in told(lab, killed.id) if kind == "sync.status"] == ["syncing", "failed"]
    assert [status for kind, status in told(lab, done.id) if kind == "sync.status"] == ["syncing", "success"]
