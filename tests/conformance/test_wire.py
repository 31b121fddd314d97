"""One protocol between clients and rollout servers: the published ones and ours, crosswise, through every kind of ending."""

import pytest
from published import CONFORMANCE, OURS, PUBLISHED, drive, needs_published, rollout_request, serving

ENTRYPOINT = CONFORMANCE / "rollouts/plain/main.py"
PAIRS = [
    pytest.param(OURS, OURS, id="ours-ours"),
    pytest.param(OURS, PUBLISHED, id="server_ours-client_published", marks=needs_published),
    pytest.param(PUBLISHED, OURS, id="server_published-client_ours", marks=needs_published),
]


@pytest.mark.parametrize(("server", "client"), PAIRS)
def test_every_ending_arrives_as_it_happened(server, client, tmp_path):
    texts = ("ok", "sleep 0.3", "fail boom", "skip", "unset", "nan", "broken-grader")
    steps = [{"run": rollout_request(text, f"r-{index}")} for index, text in enumerate(texts)]
    steps += [
        {"run": rollout_request("ok", "r-ungraded", grade=False)},
        {"run": rollout_request("sleep 30", "r-late", agent_timeout_sec=0.3)},
        {"run": rollout_request("sleep 30", "r-cancelled"), "cancel_after": 0.2},
    ]
    with serving(server, ENTRYPOINT, tmp_path) as url:
        answer = drive(client, tmp_path, url, steps, wait_idle=True)
    ok, slept, failed, skipped, unset, nan, broken, ungraded, late, cancelled = answer["results"]
    for result in (ok, slept):
        assert (result["status"], result["sample"]["reward"]) == ("success", 1.0)
        assert result["sample"]["messages"][-1] == {"role": "assistant", "content": "done"}
    assert (failed["status"], failed["err_category"], failed["err_message"]) == ("failure", "agent_error", "boom")
    assert failed["sample"] is None
    assert (skipped["status"], skipped["sample"]["reward"], skipped["sample"]["remove_sample"]) == (
        "success",
        None,
        True,
    )
    assert unset["sample"]["reward"] is None
    if server == OURS:  # the seed decides: ungraded, counted as skipped by old and new clients
        assert (unset["status"], unset["sample"]["remove_sample"]) == ("success", True)
    for result in (nan, broken):
        assert (result["status"], result["err_category"]) == ("failure", "validation_error")
        assert result["sample"]["reward"] is None
    assert (ungraded["status"], ungraded["sample"]["reward"]) == ("success", None)
    assert (late["status"], late["err_category"]) == ("failure", "timeout")
    assert "0.3s deadline" in late["err_message"]
    assert (cancelled["status"], cancelled["err_message"]) == ("cancelled", "cancelled")
    assert answer["health"]["status"] == "ok"
    assert answer["health"]["concurrency"]["max_concurrent"] == 8
    assert answer["idle"]["lifecycle"] == {"accepting_rollouts": True, "active_rollouts": 0}
    assert answer["idle"]["process_id"] == answer["health"]["process_id"]


@pytest.mark.parametrize(("server", "client"), PAIRS)
def test_a_client_that_stops_polling_loses_the_rollout(server, client, tmp_path):
    steps = [{"run": rollout_request("sleep 30", "r-stopped"), "stop_for": 3}]
    with serving(server, ENTRYPOINT, tmp_path, TEST_LEASE="1") as url:
        answer = drive(client, tmp_path, url, steps)
        after = drive(client, tmp_path, url, [], wait_idle=True)
    (result,) = answer["results"]
    assert (result["status"], result["err_category"]) == ("failure", "lease_expired")
    assert after["idle"]["lifecycle"]["active_rollouts"] == 0  # and its execution was cancelled


@pytest.mark.parametrize(("server", "client"), PAIRS)
def test_polling_renews_the_lease(server, client, tmp_path):
    steps = [{"run": rollout_request("sleep 2", "r-long")}]
    with serving(server, ENTRYPOINT, tmp_path, TEST_LEASE="1") as url:
        (result,) = drive(client, tmp_path, url, steps)["results"]
    assert (result["status"], result["sample"]["reward"]) == ("success", 1.0)


@pytest.mark.parametrize(("server", "client"), PAIRS)
def test_keys_and_ids_are_checked(server, client, tmp_path):
    with serving(server, ENTRYPOINT, tmp_path, TEST_API_KEY="right") as url:
        (wrong,) = drive(client, tmp_path, url, [{"run": rollout_request("ok", "r")}], api_key="wrong", health=False)[
            "results"
        ]
        twice = [{"run": rollout_request("sleep 0.5", "same")}, {"run": rollout_request("sleep 0.5", "same")}]
        results = drive(client, tmp_path, url, twice, api_key="right")["results"]
    assert (wrong["raised"], wrong["status_code"]) == ("RolloutProtocolError", 401)
    assert sorted(result.get("status") or "" for result in results) == ["", "success"]
    (refused,) = [result for result in results if "raised" in result]
    assert (refused["raised"], refused["status_code"]) == ("RolloutProtocolError", 409)
