"""Lists on pages: every row is reached by following links, whatever the address says."""

import re
from html import unescape

import pytest
from osmosis_platform.db.repositories.datasets import DatasetRepository, new_dataset_id
from osmosis_platform.db.repositories.memberships import MembershipRepository
from osmosis_platform.db.repositories.repositories import RepositoryRepository
from osmosis_platform.db.repositories.rollouts import FoundRollout, RolloutRepository
from osmosis_platform.db.repositories.syncs import SyncRepository
from osmosis_platform.db.repositories.users import UserRepository
from osmosis_platform.db.repositories.workspaces import WorkspaceRepository
from osmosis_platform.domain.permissions import Role
from osmosis_platform.identity.accounts import create_user
from osmosis_platform.identity.members import invite
from osmosis_platform.identity.sessions import open_session
from osmosis_platform.identity.tokens import actor_of, issue_token
from osmosis_platform.secrets.keeping import set_secret

COUNT = 101


@pytest.fixture
def full(ada, services):
    """More of everything than one page holds."""
    with services.database.write() as work:
        user = UserRepository(work).by_email("ada@example.com")
        actor, place = actor_of(user), WorkspaceRepository(work).by_name("difference")
        repository = RepositoryRepository(work).find_connected(place.id)
        for number in range(COUNT):
            dataset_id = new_dataset_id()
            DatasetRepository(work).add(
                place.id, dataset_id=dataset_id, name=f"set-{number:03}", original_format="jsonl", size_bytes=1,
                blob_key=dataset_id, upload={}, replaces_id=None, created_by=user.id,
            )  # fmt: skip
            set_secret(services.vault, work, place.id, actor, scope="user", name=f"KEY_{number:03}", value="x")
            if number:  # the first sync is that of the workspace's own making
                SyncRepository(work).add(place.id, repository.id, "push", status="syncing")
            person = create_user(work, f"person{number:03}@example.com")
            MembershipRepository(work).add(place.id, person.id, Role.MEMBER)
            invite(work, actor, place.id, role=Role.VIEWER, email=f"guest{number:03}@example.com")
            for workspace_id in (None, place.id):
                issue_token(
                    work, user.id, kind="personal", name=f"key {number:03}", scopes=["all"], expires_at=None,
                    workspace_id=workspace_id,
                )  # fmt: skip
            open_session(work, user.id, days=1, ip=f"192.0.2.{number}")
        found = [FoundRollout(f"rollout-{number:03}", "0" * 40, None) for number in range(COUNT)]
        RolloutRepository(work).record(place.id, repository.id, {"main": ("0" * 40, found)})
    return ada


def walk(browser, path, pattern, *, part=None):
    """Every match of a list's rows, page by page along its links; and back again to the first page."""
    rows, pages, back = [], 0, None
    while path:
        text = browser.get(path).text
        pages += 1
        rows.append(re.findall(pattern, text))
        links = {rel: unescape(href) for rel, href in re.findall(r'rel="(next|prev)" href="([^"]+)"', text)
                 if href.partition("#")[2] == (part or "")}  # fmt: skip
        if pages > 1:
            assert re.findall(pattern, browser.get(links["prev"]).text) == rows[-2]
        else:
            assert "prev" not in links
        path, back = links.get("next"), links.get("prev")
        assert pages < 20
    assert pages == 1 or back is not None
    return [row for page in rows for row in page], pages


def test_every_row_of_every_list_is_reached_by_its_links(full):
    lists = [
        ("/difference/datasets", r">(set-\d{3})<", None),
        ("/difference/secrets", r"<code>(KEY_\d{3})</code>", None),
        ("/difference/rollouts", r">(rollout-\d{3})<", None),
        ("/difference/integrations/git/syncs", r"/syncs/(sy_\w+)", None),
        ("/difference/members", r"(person\d{3}@example.com)</bdi>", None),
        ("/difference/members", r"(guest\d{3}@example.com)</strong>", "invitations"),
        ("/difference/api-keys", r"<bdi>(key \d{3})</bdi>", None),
        ("/account", r"<bdi>(key \d{3})</bdi>", "tokens"),
        ("/account", r"(192\.0\.2\.\d+)</p>", "sessions"),
    ]
    for path, pattern, part in lists:
        rows, pages = walk(full, path, pattern, part=part)
        wanted = 2 * COUNT if part == "tokens" else COUNT
        assert (len(rows), len(set(rows))) == (wanted, COUNT), (path, part, pages)
        assert pages > 2
    rows, _ = walk(full, "/difference/audit", r'<time datetime="[^"]+">([^<]+)</time>')
    assert len(rows) == len(full.get("/api/v1/workspaces/difference/audit.ndjson").text.splitlines())


def test_an_address_that_names_no_page_of_a_list_breaks_nothing(full):
    first = full.get("/difference/datasets").text
    for wrong in ("0", "-1", "x", "1e3", "٣", "9" * 5000, ""):
        assert full.get(f"/difference/datasets?page={wrong}").text == first
    beyond = full.get("/difference/datasets?page=9999999")
    assert beyond.status_code == 200 and "The list ends before this page" in beyond.text
    assert "/difference/datasets?page=3" in beyond.text and "No dataset yet" not in beyond.text
    assert full.get("/difference/audit?before=99999999999999999999").status_code == 400
    assert full.get("/difference/audit?after=999999").status_code == 200
    assert full.get("/difference/rollouts?branch=nope").status_code == 404
