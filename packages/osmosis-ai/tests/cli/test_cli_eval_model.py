import json
from pathlib import Path

import evaluation_workspace as ew
import pytest
from osmosis_ai.cli.local_models import model_name, runs_here
from osmosis_cli import environment, osmosis
from stub_provider import StubProvider

TEMPLATE = Path(__file__).resolve().parents[4] / "workspace-template"
RUN = ("eval", "run", "configs/eval/loop.toml", "--dataset-file", "data/rows.jsonl")


def test_another_model_is_evaluated_without_editing_the_config(tmp_path: Path):
    with StubProvider() as provider:
        env = environment(tmp_path, XDG_CACHE_HOME=str(ew.CACHE), **provider.environ())
        work = ew.make_workspace(tmp_path / "w", [{"user_prompt": "one", "ground_truth": "one"}])
        done = osmosis(*RUN, "--model", "openai/other", "--name", "r", "-y", cwd=work, env=env)
        assert done.status == 0, done.stderr
        assert "openai/other" in done.stderr  # the plan
        manifest = json.loads((work / ".osmosis/evals/r/manifest.json").read_text())
        assert manifest["inputs"]["model_path"] == "openai/other"
        again = osmosis("--json", *RUN, "--name", "r", "-y", cwd=work, env=env)
        assert again.error["code"] == "CONFLICT"  # the config's model is not what the run is made of
        assert osmosis(*RUN, "--model", "openai/other", "--name", "r", "-y", cwd=work, env=env).status == 0
    assert osmosis("--json", *RUN, "--model", " ", "-y", cwd=work, env=env).error["message"].startswith("--model")


@pytest.mark.parametrize("model", ["osmosis/nanno", "./nowhere", "nosuchprovider/x"])
def test_a_model_that_there_is_not_is_refused_before_the_plan_and_the_question(tmp_path: Path, model: str):
    env = environment(tmp_path, XDG_CACHE_HOME=str(ew.CACHE))
    work = ew.make_workspace(tmp_path / "w", [{"user_prompt": "one", "ground_truth": "one"}])
    for consent in (("-y",), ()):
        done = osmosis(*RUN, "--model", model, "--name", "r", *consent, cwd=work, env=env)
        assert done.status == 1 and model in done.stderr
        assert "Work Items" not in done.stdout + done.stderr and "--yes" not in done.stderr
    assert not (work / ".osmosis/evals/r").exists()


def test_an_evaluation_of_the_embedded_model_can_be_repeated(tmp_path: Path):
    env = environment(tmp_path, XDG_CACHE_HOME=str(ew.CACHE))
    main = (TEMPLATE / "rollouts/multiply-local-loop/main.py").read_text()
    rows = [json.loads(line) for line in (TEMPLATE / "data/multiply.jsonl").read_text().splitlines()[:6]]
    work = ew.make_workspace(tmp_path / "w", rows, model="osmosis/nano", main=main)
    config = work / "configs/eval/loop.toml"
    config.write_text(config.read_text().replace("[evaluation]", "[evaluation]\nn = 2"))

    def answers(name: str, *more: str) -> dict[tuple[int, int], list[str]]:
        done = osmosis("--json", *RUN, "--name", name, "-y", *more, cwd=work, env=env, timeout=120)
        assert done.status in (0, 1) and done.json["resource"]["total_work_items"] > 1, done.stderr
        run, found = work / ".osmosis/evals" / name, {}
        for line in (run / "index.jsonl").read_text().splitlines():
            item = json.loads(line)
            steps = json.loads((run / "rollout_trials" / item["rollout_id"] / "trajectory.json").read_text())["steps"]
            texts = [json.dumps([step.get("message"), step.get("tool_calls")]) for step in steps]
            found[item.get("source_row_index", item["row_index"]), item["run_index"]] = texts
        return found

    first = answers("first")
    assert answers("second", "--max-in-flight", "1") == first
    assert len({tuple(texts) for texts in first.values()}) > 6  # the two attempts of a row differ


def test_a_folder_is_named_from_where_one_stands(tmp_path: Path, monkeypatch):
    adapter = tmp_path / "w/adapters/a"
    adapter.mkdir(parents=True)
    monkeypatch.chdir(adapter.parent)
    assert model_name("a", tmp_path / "w") == "./adapters/a"
    assert model_name("a", tmp_path / "elsewhere") == str(adapter)
    assert model_name("osmosis/nano@r/2", tmp_path) == "osmosis/nano@r/2"
    assert model_name("openai/gpt-5-mini", tmp_path) == "openai/gpt-5-mini"
    assert [runs_here(name) for name in ("./adapters/a", "/a", "osmosis/nano@r", "openai/a")] == [
        True,
        True,
        True,
        False,
    ]
