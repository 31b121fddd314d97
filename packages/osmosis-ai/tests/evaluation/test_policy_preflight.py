"""The question before a run: who stops it, who passes, when it is not asked."""

import json

import pytest
from osmosis_ai.evaluation.preflight import REMEMBERED_S, PreflightError, forget, preflight
from osmosis_ai.gateway.policy import PolicyError


class Policy:
    model = "openai/m"

    def __init__(self, error: PolicyError | None = None) -> None:
        self.error = error
        self.asked = 0

    async def preflight(self) -> None:
        self.asked += 1
        if self.error:
            raise self.error


ENV = {"OPENAI_API_KEY": "sk-one", "HOME": "/h"}


async def ask(policy, tmp_path, environ=ENV) -> int:
    await preflight(policy, environ, cache_dir=tmp_path, log=lambda level, message: None)
    return policy.asked


async def test_it_is_asked_once_in_ten_minutes(tmp_path):
    policy = Policy()
    assert await ask(policy, tmp_path) == 1
    assert await ask(policy, tmp_path, ENV | {"HOME": "/other"}) == 1
    path = tmp_path / "preflight.json"
    assert path.stat().st_mode & 0o777 == 0o600 and "sk-one" not in path.read_text()
    old = {key: at - REMEMBERED_S - 1 for key, at in json.loads(path.read_text()).items()}
    path.write_text(json.dumps(old))
    assert await ask(policy, tmp_path) == 2


@pytest.mark.parametrize("change", [{"OPENAI_API_KEY": "sk-two"}, {"OPENAI_BASE_URL": "http://x"}])
async def test_another_key_or_address_is_another_question(tmp_path, change):
    policy = Policy()
    await ask(policy, tmp_path)
    assert await ask(policy, tmp_path, ENV | change) == 2


async def test_a_policy_that_failed_for_good_is_asked_again(tmp_path):
    policy = Policy()
    await ask(policy, tmp_path)
    forget(policy.model, ENV, cache_dir=tmp_path)
    assert await ask(policy, tmp_path) == 2


@pytest.mark.parametrize(
    "kind", ["authentication", "quota", "not_found", "unavailable", "timeout", "bad_request", "protocol"]
)
async def test_what_cannot_work_stops_the_run(tmp_path, kind):
    with pytest.raises(PreflightError, match="openai/m") as caught:
        await ask(Policy(PolicyError("no luck", kind=kind)), tmp_path)
    assert "no luck" in caught.value.message and len(caught.value.message.splitlines()) == 2
    assert not (tmp_path / "preflight.json").exists()


async def test_a_rate_limit_passes(tmp_path):
    assert await ask(Policy(PolicyError("slow down", kind="rate_limit")), tmp_path) == 1


@pytest.mark.parametrize("text", ["", "[]", "{", '{"a": "b"}', "null"])
async def test_a_broken_memory_costs_one_question(tmp_path, text):
    (tmp_path / "preflight.json").write_text(text)
    policy = Policy()
    assert await ask(policy, tmp_path) == 1
    assert await ask(policy, tmp_path) == 1
