import json
import re
from itertools import pairwise

import pytest

SECTIONS = [
    "", "/datasets", "/secrets", "/integrations/git", "/integrations/git/connect",
    "/integrations/git/syncs", "/rollouts", "/usage", "/members", "/api-keys", "/audit", "/settings", "/billing",
    "/benchmarks", "/benchmarks/runs/br_1", "/training/tr_1", "/evals/ev_1", "/models/m",
]  # fmt: skip


BOTH = pytest.mark.parametrize("database_url", ["sqlite", "postgresql"], indirect=True)


@BOTH
def test_every_page_that_a_platform_url_leads_to_is_there(ada):
    for section in SECTIONS:
        answer = ada.get(f"/difference{section}")
        assert answer.status_code == 200, (section, answer.text)
        assert "Not here yet" in answer.text or not section.startswith(
            ("/benchmarks", "/training", "/evals", "/models")
        )


def test_pages_carry_a_strict_policy_and_no_inline_code(ada):
    for path in ["/", "/account", "/device", *[f"/difference{section}" for section in SECTIONS]]:
        answer = ada.get(path)
        policy = answer.headers["content-security-policy"]
        assert (
            "default-src 'none'" in policy and "unsafe" not in policy and answer.headers["cache-control"] == "no-store"
        )
        assert not re.search(r"<script(?! src=\"/assets/)|\son\w+=|\sstyle=|<style|javascript:", answer.text)
        assert not re.search(r"(?:src|href)=\"https?:", answer.text)
        ids = re.findall(r"\sid=\"([^\"]+)\"", answer.text)
        assert len(ids) == len(set(ids))
        fields = re.findall(
            r"<(?:input|select)(?![^>]*type=\"(?:hidden|checkbox)\")(?![^>]*aria-hidden)[^>]*\sid=\"([^\"]+)\"",
            answer.text,
        )
        assert set(fields) <= set(re.findall(r"<label[^>]*for=\"([^\"]+)\"", answer.text))


def test_strangers_cannot_tell_a_workspace_from_none(ada, open_browser, invite):
    ada.submit("/workspaces", name="covert")
    stranger = open_browser()
    stranger.submit("/invitation", csrf=False, token=invite())
    stranger.submit("/invitation/accept", csrf=False, email="eve@example.com", name="", password="a few easy words")
    there, nowhere = stranger.get("/covert"), stranger.get("/nowhere")
    assert there.status_code == nowhere.status_code == 404
    assert there.text.replace("covert", "nowhere") == nowhere.text


def test_a_missing_page_is_html_for_people_and_json_for_machines(ada):
    assert "Nothing here" in ada.get("/no/such/page").text
    assert ada.get("/no/such/page", headers={"accept": "*/*"}).json()["code"] == "NOT_FOUND"
    assert ada.get("/api/v1/nothing").json()["code"] == "NOT_FOUND"
    assert ada.get("/git/settings").headers["content-type"].startswith("application/json")


def test_a_token_is_shown_once_and_counts_until_revoked(ada, open_browser):
    shown = ada.submit("/account/tokens", name="CI", days="7", scopes="datasets:read")
    token = re.search(r"osm_pat_\w+", shown.text)[0]
    listed = ada.get("/account").text
    assert token not in listed and "datasets:read" in listed
    machine = open_browser()
    machine.headers["authorization"] = f"Bearer {token}"
    assert machine.get("/api/v1/account").json()["email"] == "ada@example.com"
    assert machine.post("/api/v1/tokens", json={"name": "more"}).json()["code"] == "TOKEN_SCOPE_MISSING"
    token_id = re.search(r"/account/tokens/(to_\w+)/revoke", listed)[1]
    ada.submit(f"/account/tokens/{token_id}/revoke")
    assert machine.get("/api/v1/account").json()["code"] == "TOKEN_REVOKED"


def test_a_token_makes_none_that_reaches_further(ada, open_browser):
    csrf = {"X-Osmosis-CSRF": ada.csrf()}
    wanted = {"name": "narrow", "scopes": ["tokens:write", "datasets:read"], "workspace": "difference"}
    narrow = ada.post("/api/v1/tokens", json=wanted, headers=csrf).json()["token"]
    machine = open_browser()
    machine.headers["authorization"] = f"Bearer {narrow}"
    for beyond in ({"scopes": ["all"], "workspace": "difference"}, {"scopes": ["datasets:read"]}):
        assert machine.post("/api/v1/tokens", json={"name": "wide"} | beyond).json()["code"] == "TOKEN_REACH"
    same = machine.post("/api/v1/tokens", json={"name": "same", "scopes": ["datasets:read"], "workspace": "difference"})
    assert same.status_code == 201


def test_members_get_roles_and_go(ada, grace):
    members = ada.get("/api/v1/workspaces/difference/members").json()["members"]
    assert [one["role"] for one in members] == ["owner", "member"]
    refused = grace.submit(f"/difference/members/{members[0]['user_id']}/remove")
    assert refused.status_code == 403
    ada.submit(f"/difference/members/{members[1]['user_id']}/role", role="admin")
    assert "an admin here" in grace.get("/difference").text
    ada.submit(f"/difference/members/{members[1]['user_id']}/remove")
    assert grace.get("/difference").status_code == 404


def test_the_last_owner_stays(ada):
    answer = ada.submit("/difference/leave")
    assert answer.status_code == 409 and "needs an owner" in answer.text


def test_a_renamed_workspace_is_found_by_both_names(ada):
    wrong = ada.submit("/difference/settings", name="difference", timezone="Mars/Olympus")
    assert wrong.status_code == 400 and "no time zone" in wrong.text
    answer = ada.submit("/difference/settings", name="engine", timezone="Europe/Berlin")
    assert answer.headers["location"] == "/engine/settings?done=saved"
    assert "Times are in Europe/Berlin" in ada.get("/difference").text


def test_deleting_takes_the_typed_name(ada):
    assert ada.submit("/difference/delete", confirm="differenc").status_code == 400
    assert ada.submit("/difference/delete", confirm="difference").headers["location"] == "/"
    assert ada.get("/difference").status_code == 404


@BOTH
def test_the_audit_log_is_exported_whole(ada, grace, services):
    lines = ada.get("/api/v1/workspaces/difference/audit.ndjson").text.splitlines()
    entries = [json.loads(line) for line in lines]
    assert [one["seq"] for one in entries] == list(range(1, len(entries) + 1))
    assert {"workspace.create", "invitation.create", "member.join"} <= {one["action"] for one in entries}
    assert all(two["previous_hash"] == one["hash"] for one, two in pairwise(entries))
    assert grace.get("/difference/audit").status_code == 403
    assert "osm_" not in "".join(lines)


def test_what_people_write_is_text(ada):
    ada.submit("/account/name", name="<img src=x onerror=alert(1)>")
    assert "<img" not in ada.get("/difference/members").text


def test_who_deletes_a_workspace_reads_how_long_it_can_be_brought_back(ada):
    assert "For 7 days an administrator of the platform can bring it back" in ada.get("/difference/settings").text
