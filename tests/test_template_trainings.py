"""Every agent of the workspace template trains: what was drawn through its framework is what is learnt from."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import evaluation_workspace as ew
import pytest
from osmosis_ai.workspace.scaffold import TEMPLATE_ROOT
from osmosis_cli import environment, osmosis

STEPS = 2


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "dataset"),
    [
        ("multiply-local-loop", "multiply"),
        ("multiply-local-openai", "multiply"),
        ("multiply-local-strands", "multiply"),
        ("lookup-local-loop", "lookup"),
    ],
)
def test_a_template_agent_trains_with_no_token_mistaken(tmp_path: Path, name: str, dataset: str):
    work = tmp_path / "work"
    shutil.copytree(TEMPLATE_ROOT, work, ignore=shutil.ignore_patterns("scaffold", ".git", "__pycache__"))
    subprocess.run(["git", "init", "-q", str(work)], check=True)
    done = osmosis(
        "--json", "train", "run", f"configs/training/{name}.toml", "--dataset-file", f"data/{dataset}.jsonl",
        "--name", "r", "--max-steps", str(STEPS), "-y",
        cwd=work, timeout=300,
        env=environment(tmp_path, XDG_CACHE_HOME=str(ew.CACHE), SSL_CERT_FILE=os.environ.get("SSL_CERT_FILE")),
    )  # fmt: skip
    if "Failed to fetch" in done.stderr:
        pytest.skip("the frameworks of the template's agents can be installed neither from a cache nor from a registry")
    assert done.status == 0, done.stderr
    run = work / ".osmosis/trainings/r"
    rollouts = [json.loads(line) for line in (run / "rollouts.jsonl").read_text().splitlines()]
    assert {line["kind"] for line in rollouts} == {"graded"}
    assert max(line["turns"] for line in rollouts) > 1
    # the framework gave every turn back as it was drawn: one conversation, no answer lost
    assert {(line["branches"], line["lost_calls"]) for line in rollouts} == {(1, 0)}
    steps = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    trained = [line for line in steps if line["kind"] == "training" and line["groups_trained"]]
    assert trained and max(line["logprob_gap_max"] for line in trained) < 1e-4
