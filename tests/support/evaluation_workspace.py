"""A workspace with one tiny rollout, and runs of it: for tests and measurements of the runner.

In a test: `workspace = make_workspace(tmp_path)`, then `await evaluate(workspace, ...)`, or as a process of its own:

    python tests/support/evaluation_workspace.py WORKSPACE [--name NAME] [--model MODEL] [--retry-failed] ...

which prints the report as one JSON line. The policy is a stub provider (OPENAI_BASE_URL). Environments of rollouts lie
in the repository's .cache, so that only the first test makes one.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
CACHE = ROOT / ".cache" / "tests"

PYPROJECT = """[project]
name = "loop"
version = "0"
requires-python = ">=3.12"
dependencies = ["osmosis-ai[server]>=0.3.4,<0.4", "httpx>=0.28,<1"]
"""

MAIN = '''"""One model call; the answer is graded by the label. Some prompts make trouble."""

import asyncio, os, signal, sys, time
import httpx
from osmosis_ai.rollout import (
    AgentWorkflow, AgentWorkflowConfig, ConcurrencyConfig, Grader, LocalBackend, get_rollout_context,
)
from osmosis_ai.rollout.server import create_rollout_server

CLIENT = None


def once(name):
    """Whether this is the first time, over all server processes of the run."""
    path = os.path.join(os.environ["MARKS"], name)
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL))
        return True
    except FileExistsError:
        return False


class Loop(AgentWorkflow):
    async def run(self, ctx):
        global CLIENT
        CLIENT = CLIENT or httpx.AsyncClient(timeout=60)
        text = ctx.prompt[-1]["content"]
        word, _, argument = text.partition(" ")
        if word == "sleep":
            await asyncio.sleep(float(argument))
        elif word == "block":
            time.sleep(float(argument))
        elif word == "hog":
            sum(range(10**13))
        elif word == "raise":
            raise RuntimeError("no idea")
        elif word == "exit":
            sys.exit(int(argument))
        elif word == "die":
            os._exit(int(argument))
        elif word == "dieonce" and once(argument):
            os._exit(9)
        elif word == "killonce" and once(argument):
            os.kill(os.getpid(), signal.SIGKILL)
        elif word == "blockonce" and once(argument):
            time.sleep(600)
        elif word == "artifact":
            (ctx.artifacts_dir / "note.txt").write_text(text)
        rollout = get_rollout_context()
        messages = list(ctx.prompt)
        response = await CLIENT.post(
            f"{rollout.chat_completions_url}/chat/completions",
            headers={"Authorization": f"Bearer {rollout.api_key}"},
            json={"model": "osmosis-rollout", "messages": messages},
        )
        response.raise_for_status()
        messages.append(response.json()["choices"][0]["message"])
        return messages


class Exact(Grader):
    async def grade(self, ctx):
        if ctx.label == "unset":
            return
        if ctx.label == "slowgrade":
            time.sleep(5)
        if ctx.label == "broken":
            raise ValueError("the grader cannot")
        ctx.set_reward(1.0 if ctx.sample.messages[-1]["content"] == ctx.label else 0.0)


backend = LocalBackend(
    workflow=Loop,
    workflow_config=AgentWorkflowConfig(name="loop", concurrency=ConcurrencyConfig(max_concurrent=CAPACITY)),
    grader=Exact,
)
app = create_rollout_server(backend=backend)

if __name__ == "__main__":
    import uvicorn

    uvicorn.run(app, host="127.0.0.1", port=int(os.environ["_OSMOSIS_ROLLOUT_PORT"]), access_log=False)
'''


def make_workspace(
    root: Path,
    rows: list[dict[str, Any]] | None = None,
    *,
    model: str = "openai/echo",
    main: str | None = None,
    capacity: int = 8,
    evaluation: str = "",
    env: str = "",
    secrets: str = "required = []",
) -> Path:
    """A Git work tree with configs/eval/loop.toml, rollouts/loop and data/rows.jsonl."""
    for folder in ("rollouts/loop", "configs/eval", "configs/training", "data", "marks"):
        (root / folder).mkdir(parents=True, exist_ok=True)
    (root / "rollouts/loop/pyproject.toml").write_text(PYPROJECT)
    (root / "rollouts/loop/main.py").write_text((main or MAIN).replace("CAPACITY", str(capacity)))
    (root / "configs/eval/loop.toml").write_text(
        f"""[experiment]
rollout = "loop"
entrypoint = "main.py"
model_path = "{model}"
dataset = "rows"

[evaluation]
{evaluation}

[secrets]
{secrets}

[env]
MARKS = "{root / "marks"}"
{env}
"""
    )
    write_rows(
        root, rows if rows is not None else [{"user_prompt": f"say {i}", "ground_truth": f"say {i}"} for i in range(4)]
    )
    (root / ".gitignore").write_text(".osmosis/\nmarks/\n")
    subprocess.run(["git", "init", "-q", "-b", "main", str(root)], check=True)
    return root


def write_rows(root: Path, rows: list[dict[str, Any]]) -> None:
    """Write the dataset."""
    (root / "data/rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def request_for(workspace: Path, **options: Any) -> Any:
    """A RunRequest of the workspace's config."""
    from osmosis_ai.evaluation.dataset import open_dataset
    from osmosis_ai.evaluation.run import RunRequest
    from osmosis_ai.workspace.eval_config import load_eval_config

    config = load_eval_config(workspace / "configs/eval/loop.toml", workspace)
    dataset = open_dataset(workspace / "data/rows.jsonl")
    options.setdefault("output_root", workspace / ".osmosis/evals")
    return RunRequest(workspace_dir=workspace, config=config, dataset=dataset, **options)


async def evaluate(
    workspace: Path,
    *,
    environ: dict[str, str] | None = None,
    observer: Any = None,
    secrets: dict[str, str] | None = None,
    warnings: list[str] | None = None,
    policy: Any = None,
    **options: Any,
) -> Any:
    """Open a run of the workspace and carry it out; the report."""
    from osmosis_ai.evaluation.observer import SilentObserver
    from osmosis_ai.evaluation.run import EvaluationRun
    from osmosis_ai.gateway.provider import provider_policy

    seen = warnings if warnings is not None else []
    with EvaluationRun.open(request_for(workspace, **options), warn=lambda code, text: seen.append(text)) as run:
        if run.complete:
            return run.report()
        made = policy or provider_policy(run.request.config.model_path, dict(os.environ) | (environ or {}))
        try:
            return await run.execute(policy=made, secrets=secrets or {}, observer=observer or SilentObserver())
        finally:
            if policy is None:
                await made.aclose()


def main() -> None:
    """Run one evaluation; print its report."""
    parser = argparse.ArgumentParser()
    parser.add_argument("workspace", type=Path)
    parser.add_argument("--name", default="r")
    parser.add_argument("--retry-failed", action="store_true")
    parser.add_argument("--fresh", action="store_true")
    parser.add_argument("--max-in-flight", type=int)
    arguments = vars(parser.parse_args())
    workspace = arguments.pop("workspace")

    class Lines:
        def __getattr__(self, name: str) -> Any:
            return lambda *values: print(json.dumps({"event": name}), file=sys.stderr, flush=True)

    report = asyncio.run(evaluate(workspace, observer=Lines(), **arguments))
    print(json.dumps(asdict(report), default=str))
    sys.exit(0 if report.status == "finished" else 1)


if __name__ == "__main__":
    main()
