"""What is saved: whole or not at all, recognised when damaged, as many as asked for."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from osmosis_ai.errors import NotFoundError, ValidationError
from osmosis_trainer import embedded_policy
from osmosis_trainer.engine.arrays import np
from osmosis_trainer.engine.numpy_engine import NumpyEngine
from osmosis_trainer.loop.checkpoints import CheckpointStore, find_checkpoint, read_saved
from osmosis_trainer.loop.lines import Lines, read_lines
from safetensors.numpy import load_file, save_file


@pytest.fixture
async def engine(nano_folder):
    engine = NumpyEngine(nano_folder, base="osmosis/nano", slots=1)
    await engine.create_adapter("policy", rank=2)
    yield engine
    await engine.aclose()


@pytest.fixture
def store(tmp_path: Path) -> CheckpointStore:
    return CheckpointStore(tmp_path / "run", keep=2)


async def checkpoint(store: CheckpointStore, engine: NumpyEngine, step: int) -> Path:
    return await store.save_checkpoint(engine, "policy", await engine.publish("policy"), step, {"progress": {}})


async def test_a_checkpoint_is_a_peft_adapter_with_a_state_beside_it(store, engine):
    folder = await checkpoint(store, engine, 5)
    assert {path.name for path in folder.iterdir()} == {
        "adapter_config.json",
        "adapter_model.safetensors",
        "loop.json",
        "state.safetensors",
    }
    assert json.loads((folder / "adapter_config.json").read_text())["base_model_name_or_path"] == "osmosis/nano"
    assert read_saved(folder).step == 5


async def test_the_latest_whole_one_is_found_and_damage_is_told(store, engine):
    await checkpoint(store, engine, 4)
    await store.save_state(engine, "policy", 5, {"progress": {}})
    newest = await checkpoint(store, engine, 6)
    (newest / "adapter_model.safetensors").write_bytes(b"")
    told: list[str] = []
    found = store.latest(told.append)
    assert found is not None and found.step == 5
    assert len(told) == 1 and "step_6 is damaged: adapter_model.safetensors has changed" in told[0]
    store.drop_after(5)
    assert store.steps() == [4]


@pytest.mark.parametrize("broken", ["", "[]", '{"format": "other"}', '{"format": "osmosis-training-state-1"}'])
async def test_facts_that_cannot_be_read_are_damage(store, engine, broken):
    folder = await checkpoint(store, engine, 1)
    (folder / "loop.json").write_text(broken)
    with pytest.raises(ValidationError, match="step_1 is damaged"):
        read_saved(folder)


async def test_old_ones_go_and_what_a_killed_save_left_is_cleared(store, engine, tmp_path):
    for step in (1, 2, 3):
        await checkpoint(store, engine, step)
        await store.save_state(engine, "policy", step, {})
    assert store.steps() == [2, 3]
    assert sorted(path.name for path in (tmp_path / "run/state").iterdir()) == ["step_2", "step_3"]
    (tmp_path / "run/state/.step_4.x.tmp").mkdir()
    store.clear()
    assert not list((tmp_path / "run/state").glob(".*"))


async def test_a_checkpoint_is_found_by_its_step_or_is_the_last_one_unless_it_is_damaged(store, engine, tmp_path):
    with pytest.raises(NotFoundError, match="There is no training 'run'"):
        find_checkpoint(tmp_path / "run", None)
    for step in (2, 4):
        await checkpoint(store, engine, step)
    assert find_checkpoint(tmp_path / "run", 2).name == "step_2"
    with pytest.raises(NotFoundError, match="has no checkpoint after step 3; it has 2, 4"):
        find_checkpoint(tmp_path / "run", 3)
    assert find_checkpoint(tmp_path / "run", None).name == "step_4"
    (tmp_path / "run/checkpoints/step_4/loop.json").unlink()
    with pytest.raises(ValidationError, match=r"step_4 is not whole: .* The last whole one is @run/2; ask for it"):
        find_checkpoint(tmp_path / "run", None)
    with pytest.raises(ValidationError, match=r"loop\.json is missing"):
        find_checkpoint(tmp_path / "run", 4)


async def test_an_adapter_of_another_base_or_kind_is_refused(store, engine, tmp_path):
    folder = await checkpoint(store, engine, 1)
    path = folder / "adapter_config.json"
    config = json.loads(path.read_text())
    embedded_policy(str(folder), workspace=tmp_path)
    for change, message in (
        ({"base_model_name_or_path": "Qwen/Qwen3-0.6B"}, "of the base model 'Qwen/Qwen3-0.6B', which is neither"),
        ({"use_dora": True}, "use_dora is True"),
        ({"target_modules": ["lm_head"]}, r"target_modules is \['lm_head'\]"),
        ({"r": 4}, "is of another base model"),
    ):
        path.write_text(json.dumps(config | change))
        with pytest.raises((ValidationError, NotFoundError), match=message):
            embedded_policy(str(folder), workspace=tmp_path)


async def test_an_adapter_whose_numbers_are_not_finite_is_refused(store, engine, tmp_path):
    folder = await checkpoint(store, engine, 1)
    path = folder / "adapter_model.safetensors"
    tensors = load_file(path)
    name = min(tensors)
    save_file(tensors | {name: np.full_like(tensors[name], np.nan)}, path)
    with pytest.raises(ValidationError, match="holds numbers that are not finite"):
        embedded_policy(str(folder), workspace=tmp_path)


async def test_an_adapter_of_other_weights_of_the_same_name_is_refused(store, engine, tmp_path):
    version = await engine.publish("policy")
    folder = await store.save_checkpoint(engine, "policy", version, 1, {"identity": {"model_digest": "other"}})
    with pytest.raises(ValidationError, match="was trained on another osmosis/nano"):
        embedded_policy(str(folder), workspace=tmp_path)


def test_lines_of_later_steps_than_the_saved_one_go(tmp_path):
    path = tmp_path / "metrics.jsonl"
    lines = Lines.open(path)
    lines.add({"step": 1})
    lines.add({"step": 2})
    lines.close()
    with path.open("ab") as stream:
        stream.write(b'{"step": 3')
    assert [line["step"] for line in read_lines(path)] == [1, 2]
    again = Lines.open(path, lambda line: line["step"] <= 1)
    again.add({"step": 2, "again": True})
    again.close()
    assert list(read_lines(path)) == [{"step": 1}, {"step": 2, "again": True}]


def test_a_torn_last_line_is_dropped(tmp_path):
    path = tmp_path / "lines.jsonl"
    path.write_bytes(b'{"a":1}\n{"b"')
    lines = Lines.open(path)
    lines.add({"c": 1})
    lines.close()
    assert list(read_lines(path)) == [{"a": 1}, {"c": 1}]
