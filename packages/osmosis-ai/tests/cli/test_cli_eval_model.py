import json
from pathlib import Path

import evaluation_workspace as ew
from osmosis_ai.cli.local_models import model_name, runs_here
from osmosis_cli import environment, osmosis
from stub_provider import StubProvider

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
