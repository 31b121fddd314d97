"""Datasets, secrets, usage and signing out on pages; who may do what there; links that count no more."""

import re
from datetime import timedelta

import pytest
from osmosis_platform.api.pages import datasets, repository, secrets, things, workspace
from osmosis_platform.api.scope import declared
from osmosis_platform.db.repositories.datasets import DatasetRepository, new_dataset_id
from osmosis_platform.db.repositories.secrets import SecretRepository
from osmosis_platform.db.repositories.users import UserRepository
from osmosis_platform.db.repositories.workspaces import WorkspaceRepository
from osmosis_platform.domain.dataset import DatasetStatus
from osmosis_platform.domain.permissions import RULES, Role
from osmosis_platform.secrets.keeping import resolve

PASSWORD = "a few easy words"
NAME = "it's <b>٣🐙"


@pytest.fixture
def dataset(ada, services):
    """An uploaded dataset of Ada's with 25 rows of preview and its bytes."""
    dataset_id = new_dataset_id()
    with services.database.write() as work:
        user, place = UserRepository(work).by_email("ada@example.com"), WorkspaceRepository(work).by_name("difference")
        key = f"{place.id}/datasets/{dataset_id}/original"
        DatasetRepository(work).add(
            place.id, dataset_id=dataset_id, name=NAME, original_format="jsonl", size_bytes=3, blob_key=key, upload={},
            replaces_id=None, created_by=user.id,
        )  # fmt: skip
        rows = [{"user_prompt": f"row {number}", "ground_truth": "<i>" * 200} for number in range(25)]
        DatasetRepository(work).move(
            place.id, dataset_id, [DatasetStatus.UPLOADING], DatasetStatus.UPLOADED, preview=rows, file_format="jsonl",
            file_blob_key=key, row_count=25, upload=None,
        )  # fmt: skip
    services.blobs.put(key, [b"{}\n"])
    return f"/difference/datasets/{dataset_id}"


def test_a_dataset_shows_its_rows_and_gives_its_bytes(ada, dataset):
    first, third = ada.get(dataset).text, ada.get(f"{dataset}?rows=3").text
    assert "row 0<" in first and "row 9<" in first and "row 10<" not in first and "row 24<" in third
    assert "<b>" not in first and "<i>" not in first and "…" in first
    assert (
        "osmosis dataset download &#39;it&#39;&#34;&#39;&#34;&#39;s &lt;b&gt;٣🐙&#39;" in first
    )  # as a shell takes it
    found = ada.get(f"{dataset}/download")
    assert found.status_code == 303 and ada.get(found.headers["location"]).content == b"{}\n"


def test_a_dataset_is_renamed_and_deleted_by_who_may(ada, grace, dataset):
    assert ada.submit(f"{dataset}/rename", name="a/b").status_code == 400
    assert ada.submit(f"{dataset}/rename", name="questions").headers["location"] == f"{dataset}?done=renamed"
    assert grace.submit(f"{dataset}/delete").status_code == 403 and "Delete for good" not in grace.get(dataset).text
    assert ada.submit(f"{dataset}/delete").status_code == 303
    assert ada.get(dataset).status_code == 404 and "No dataset yet" in ada.get("/difference/datasets").text


def test_secrets_are_set_and_deleted_and_never_shown(ada, grace, services):
    lines = "-----BEGIN\r\nline\r\n-----END\r\n"
    for browser, scope, value in ((ada, "workspace", "w0rk-secret\r\n"), (grace, "user", lines)):
        assert browser.submit("/difference/secrets", name="API_KEY", value=value, scope=scope).status_code == 303
    assert grace.submit("/difference/secrets", name="X", value="y", scope="workspace").status_code == 403
    wrong = ada.submit("/difference/secrets", name="lower", value="w0rk-secret", scope="user")
    assert wrong.status_code == 400 and "w0rk-secret" not in wrong.text and 'id="name-note"' in wrong.text
    assert "w0rk-secret" not in ada.get("/difference/secrets").text
    with services.database.read() as work:
        place = WorkspaceRepository(work).by_name("difference").id
        for email, value in (("ada@example.com", "w0rk-secret"), ("grace@example.com", lines.replace("\r", ""))):
            user = UserRepository(work).by_email(email)
            assert resolve(services.vault, work, place, user.id, ["API_KEY"]).values == {"API_KEY": value}
    assert grace.submit("/difference/secrets/delete", name="API_KEY", scope="workspace").status_code == 403
    assert grace.submit("/difference/secrets/delete", name="API_KEY", scope="user").status_code == 303
    assert ada.submit("/difference/secrets/delete", name="API_KEY", scope="user").status_code == 404
    assert ada.submit("/difference/secrets/delete", name="API_KEY", scope="workspace").status_code == 303
    with services.database.read() as work:
        assert SecretRepository(work).page(place, user.id, ["workspace", "user"], limit=9, offset=0)[1] == 0


def test_signing_out_everywhere_leaves_the_browser_at_hand(ada, open_browser):
    others = [open_browser() for _ in range(2)]
    for other in others:
        other.submit("/sign-in", csrf=False, email="ada@example.com", password=PASSWORD, next="/")
        assert other.get("/account").status_code == 200
    assert ada.submit("/account/sessions/close-others").headers["location"] == "/account?done=closed-others"
    assert ada.get("/account").status_code == 200
    for other in others:
        assert other.get("/account").headers["location"] == "/sign-in?next=/account"
        assert other.post("/account/name", data={"name": "x"}).headers["location"] == "/sign-in"


def test_usage_is_shown_for_a_span(ada, grace):
    assert "Nothing in this time" in ada.get("/difference/usage?days=7").text
    assert ada.get("/difference/usage?days=0").status_code == 400
    assert grace.get("/difference/usage").status_code == 403


def test_a_login_is_decided_once_and_not_after_its_time(ada, services):
    def begin():
        return ada.post("/api/cli/device/authorize", json={"deviceName": "laptop"}).json()["user_code"]

    code = begin()
    assert "refused" in ada.submit("/device", code=code, decision="deny").text  # without the box
    for decision in ("approve", "deny"):
        assert ada.submit("/device", code=code, decision=decision, compared="yes").status_code == 404
    code, clock = begin(), services.clock
    services.database.clock = lambda: clock() + timedelta(minutes=11)
    late = ada.submit("/device", code=code, decision="approve", compared="yes")
    assert late.status_code == 404 and "codes count ten minutes" in late.text
    for _ in range(5):
        ada.get("/device?code=BBBB-BBBB")
    slow = ada.get("/device?code=BBBB-BBBB")
    assert slow.status_code == 429 and "wait a minute" in slow.text and slow.headers["retry-after"] == "60"


def test_a_used_set_up_link_and_one_of_another_host_are_told_clearly(open_browser, setup_token, ada):
    again = open_browser().post("/setup", data={"token": setup_token, "email": "x@y.example"})
    assert "Set-up is done" in again.text and "Sign in" in again.text
    elsewhere = open_browser().get("/setup", headers={"host": "localhost:8700"})
    assert "Set-up is done" in elsewhere.text


def test_pages_ask_the_same_table_as_the_api(ada, grace, open_browser, invite):
    vic = open_browser()
    vic.submit("/invitation", csrf=False, token=invite(role="viewer"))
    vic.submit("/invitation/accept", csrf=False, email="vic@example.com", name="", password=PASSWORD)
    people = {Role.MEMBER: (grace, grace.csrf()), Role.VIEWER: (vic, vic.csrf())}
    checked = 0
    for route in [one for room in (datasets, repository, secrets, things, workspace) for one in room.router.routes]:
        if "leave" in route.path:
            continue
        rule = RULES[declared(route).action]
        path = re.sub(r"\{[a-z_]+(:path)?\}", "nothing", route.path.replace("{workspace}", "difference"))
        for role, (browser, csrf) in people.items():
            answer = browser.request(next(iter(route.methods)), path, data={"csrf": csrf})
            assert (answer.status_code == 403) == (role not in rule.roles | rule.own), (role, path, answer.status_code)
            checked += 1
    assert checked > 60


def test_somebody_elses_workspace_is_told_in_words_for_people(ada, grace):
    ada.submit("/workspaces", name="covert")
    answer = grace.get("/covert/datasets")
    assert (
        answer.status_code == 404 and "grace@example.com is a member of" in answer.text and "/api/" not in answer.text
    )


def test_names_are_those_of_the_whole_world(ada):
    for name in ("علی‌رضا", "👩🏽‍🚀 Zoë", "李小龍"):  # with the joiners that they are written with
        assert ada.submit("/account/name", name=name).status_code == 303
        assert f"<bdi>{name}</bdi>" in ada.get("/difference/members").text
    assert ada.submit("/account/name", name="Ada\u202e").status_code == 400  # turns around what follows it


def test_a_moment_is_told_as_people_say_it(services):
    from osmosis_platform.api.pages.rendering import _ago

    now = services.clock().replace(year=2026, month=11, day=30, hour=12)
    told = [
        (0, "just now"), (-10, "in a moment"), (60, "1 minute ago"), (59 * 60, "59 minutes ago"), (3600, "1 hour ago"),
        (23 * 3600, "23 hours ago"), (86_400, "1 day ago"), (-7 * 86_400, "in 7 days"), (31 * 86_400, "30 Oct 2026"),
    ]  # fmt: skip
    assert [_ago(now - timedelta(seconds=seconds), now, "UTC") for seconds, _ in told] == [words for _, words in told]
