"""Live previews: written while a rollout runs, redacted, bounded, and only when they are wanted."""

import asyncio
import json
import time

import httpx
import pytest
from osmosis_ai.rollout import RolloutContext, RolloutSample, RolloutStatus, SampleSource, get_rollout_context, preview
from osmosis_ai.rollout.context import RolloutProgress
from osmosis_ai.rollout.preview import preview_path, previewed, redact
from osmosis_ai.rollout.server import create_rollout_server
from osmosis_ai.rollout.trajectory.atif import load_trajectory, validate_trajectory
from osmosis_ai.rollout.types import POLLING_LEASE_HEADER
from rollout_host import hosted, local_backend


@pytest.fixture(autouse=True)
def roots(monkeypatch, tmp_path):
    monkeypatch.setenv("_OSMOSIS_ROLLOUT_ARTIFACT_ROOT", str(tmp_path / "artifacts"))
    monkeypatch.setenv("_OSMOSIS_ROLLOUT_PREVIEW_ROOT", str(tmp_path / "previews"))
    monkeypatch.delenv("_OSMOSIS_ROLLOUT_API_KEY", raising=False)
    monkeypatch.setattr(preview, "INTERVAL_S", 0.05)
    return tmp_path


class Conversation(SampleSource):
    def __init__(self):
        self.messages = []

    async def get_sample(self):
        return RolloutSample(messages=self.messages)

    async def get_preview(self, max_messages):
        return RolloutSample(messages=self.messages[-max_messages:])


async def shown(path, condition=lambda document: True):
    for _ in range(1000):
        document = load_trajectory(path)
        if document is not None and condition(document):
            return document
        await asyncio.sleep(0.01)
    raise AssertionError("no such preview")


def a_context(tmp_path, **options):
    return RolloutContext(
        rollout_id="r1", api_key="sk-the-model-key", preview_path=tmp_path / "p/preview.json", **options
    )


async def test_the_conversation_is_shown_while_it_grows(roots):
    context, source = a_context(roots), Conversation()
    progress = RolloutProgress(status=RolloutStatus.RUNNING)
    async with previewed(context, progress, label="42"):
        context.set_sample_source(source)
        source.messages.append({"role": "user", "content": "what is sk-the-model-key?"})
        first = await shown(context.preview_path)
        validate_trajectory(first)
        assert first["steps"][0]["message"] == "what is [REDACTED]?"
        facts = first["extra"]["osmosis"]
        assert {
            key: facts[key] for key in ("rollout_id", "preview", "turn", "truncated", "status", "preview_version")
        } == {
            "rollout_id": "r1",
            "preview": True,
            "turn": 0,
            "truncated": False,
            "status": "running",
            "preview_version": 1,
        }
        written = context.preview_path.stat().st_mtime_ns
        await asyncio.sleep(0.3)
        assert context.preview_path.stat().st_mtime_ns == written  # unchanged: not written again
        source.messages.append({"role": "assistant", "content": "a key"})
        await shown(context.preview_path, lambda document: document["extra"]["osmosis"]["turn"] == 1)
        await progress.set_status(RolloutStatus.GRADING)
        await shown(context.preview_path, lambda document: document["extra"]["osmosis"]["status"] == "grading")
    source.messages.append({"role": "user", "content": "afterwards"})
    await asyncio.sleep(0.2)
    assert len((await shown(context.preview_path))["steps"]) == 2


async def test_opting_out(roots):
    context, source = a_context(roots, preview_enabled=False), Conversation()
    source.messages.append({"role": "user", "content": "private"})
    async with previewed(context, RolloutProgress()):
        context.set_sample_source(source)
        await asyncio.sleep(0.3)
    assert not context.preview_path.exists()


async def test_opting_out_later_only_stops_further_snapshots(roots):
    context, source = a_context(roots), Conversation()
    source.messages.append({"role": "user", "content": "public"})
    async with previewed(context, RolloutProgress()):
        context.set_sample_source(source)
        await shown(context.preview_path)
        context.preview_enabled = False
        source.messages.append({"role": "user", "content": "private"})
        await asyncio.sleep(0.3)
    assert "private" not in context.preview_path.read_text()


async def test_a_source_without_previews_or_with_an_error_shows_nothing(roots):
    class Broken(Conversation):
        async def get_preview(self, max_messages):
            raise RuntimeError("no")

    class Silent(SampleSource):
        async def get_sample(self):
            return RolloutSample(messages=[{"role": "user", "content": "x"}])

    for source in (Broken(), Silent()):
        context = a_context(roots, sample_source=source)
        async with previewed(context, RolloutProgress()):
            await asyncio.sleep(0.2)
        assert not context.preview_path.exists()


async def test_long_conversations_are_cut_from_the_front(roots, monkeypatch):
    monkeypatch.setattr(preview, "MAX_OUTPUT_BYTES", 6000)
    context, source = a_context(roots), Conversation()
    source.messages = [{"role": "user", "content": f"{number} {'x' * 200}"} for number in range(300)]
    async with previewed(context, RolloutProgress()):
        context.set_sample_source(source)
        document = await shown(context.preview_path)
    validate_trajectory(document)
    assert context.preview_path.stat().st_size <= 6000
    assert document["steps"][-1]["message"].startswith("299 ") and document["extra"]["osmosis"]["truncated"] is True


async def test_a_source_that_is_too_large_is_cut(roots, monkeypatch):
    monkeypatch.setattr(preview, "MAX_SOURCE_BYTES", 3000)
    context, source = a_context(roots), Conversation()
    source.messages = [{"role": "user", "content": "x" * 900} for _ in range(10)]
    async with previewed(context, RolloutProgress()):
        context.set_sample_source(source)
        document = await shown(context.preview_path)
    assert len(document["steps"]) == 3 and document["extra"]["osmosis"]["truncated"] is True


def test_what_may_not_be_shown():
    clean = redact(
        {
            "content": "key sk-abcdefghijklmnop1234 and Bearer abcdefghijklmnop1234 and mine-secret",
            "api_key": "k",
            "headers": {"Authorization": "Basic x", "n": 1},
            "logprobs": [-0.1],
            "prompt_token_ids": [1],
            "long": "y" * 20_000,
        },
        ["mine-secret", "k"],  # so short a key would be found in every word
    )
    assert clean["content"] == "key [REDACTED] and [REDACTED] and [REDACTED]"
    assert clean["api_key"] == "[REDACTED]" and clean["headers"] == {"Authorization": "[REDACTED]", "n": 1}
    assert "logprobs" not in clean and "prompt_token_ids" not in clean
    assert len(clean["long"]) == 16_385


def test_where_previews_may_go(roots, monkeypatch):
    path = preview_path("r-1.a:b_c")
    assert path == roots / "previews/r-1.a:b_c/preview.json"
    for bad in (".hidden", "-x", "a b", "ä", "x" * 257, "a/b", ""):
        assert preview_path(bad) is None
    monkeypatch.setenv("_OSMOSIS_ROLLOUT_PREVIEW_ROOT", "relative")
    assert preview_path("r1") is None
    (roots / "real").mkdir()
    (roots / "link").symlink_to(roots / "real")
    monkeypatch.setenv("_OSMOSIS_ROLLOUT_PREVIEW_ROOT", str(roots / "link/deep"))
    assert preview_path("r1") is None
    monkeypatch.delenv("_OSMOSIS_ROLLOUT_PREVIEW_ROOT")
    assert preview_path("r1") is None


def test_the_server_writes_them(roots):
    async def run(ctx):
        source = Conversation()
        context = get_rollout_context()
        assert context is not None
        context.set_sample_source(source)
        source.messages.append({"role": "user", "content": "shown"})
        await asyncio.sleep(0.6)

    async def grade(ctx):
        ctx.set_reward(1)

    app = create_rollout_server(backend=local_backend(run, grade), configure_logging=False)
    with hosted(app) as url, httpx.Client(base_url=url, timeout=40) as http:
        body = {"initial_messages": [], "rollout_id": "r1", "chat_completions_url": "http://m.invalid", "label": "x"}
        token = http.post("/rollout", json=body).json()["polling_lease_token"]
        path = roots / "previews/r1/preview.json"
        deadline = time.monotonic() + 20
        while not path.exists():
            assert time.monotonic() < deadline
            time.sleep(0.02)
        assert json.loads(path.read_text())["extra"]["osmosis"]["preview"] is True
        status = ""
        while status != "success":
            status = http.get("/rollout/r1/result", headers={POLLING_LEASE_HEADER: token}).json()["status"]
