"""A workspace with one tiny rollout, and trainings of it on osmosis/nano: for tests and measurements of the loop.

In a test: `workspace = make_training(tmp_path)`, then `train(workspace, "name", lr=1e-3, ...)`, or as a process:

    python tests/support/training_workspace.py WORKSPACE NAME '{"resume": true, "max_steps": 3}'

which prints each step as a JSON line. Environments of rollouts lie in the repository's .cache.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from evaluation_workspace import make_workspace

MAIN = '''"""Some turns with the model; the first word of the prompt makes trouble, the label says how it is graded."""

import asyncio, os
import httpx
from osmosis_ai.rollout import (
    AgentWorkflow, AgentWorkflowConfig, ConcurrencyConfig, Grader, LocalBackend, get_rollout_context,
)
from osmosis_ai.rollout.server import create_rollout_server

CLIENT = None


class Loop(AgentWorkflow):
    async def run(self, ctx):
        global CLIENT
        CLIENT = CLIENT or httpx.AsyncClient(timeout=60)
        word = ctx.prompt[-1]["content"].split()[0]
        if word == "raise":
            raise RuntimeError("no idea")
        if word == "dieonce":
            try:
                os.close(os.open(os.path.join(os.environ["MARKS"], "died"), os.O_CREAT | os.O_EXCL))
                os._exit(9)
            except FileExistsError:
                pass
        if word == "sleep":
            await asyncio.sleep(30)
        rollout = get_rollout_context()
        messages = list(ctx.prompt)
        for turn in range(2 if word == "twice" else 1):
            if turn:
                messages.append({"role": "user", "content": "And again?"})
            response = await CLIENT.post(
                f"{rollout.chat_completions_url}/chat/completions",
                headers={"Authorization": f"Bearer {rollout.api_key}"},
                # what the agent asks for is not what a training draws with
                json={"model": "osmosis-rollout", "messages": messages, "temperature": 0, "max_tokens": 1, "seed": 4},
            )
            response.raise_for_status()
            messages.append(response.json()["choices"][0]["message"])
        return messages


class Marks(Grader):
    async def grade(self, ctx):
        if ctx.label == "unset":
            return
        if ctx.label == "broken":
            raise ValueError("the grader cannot")
        if ctx.label == "same":
            ctx.set_reward(0.0)
            return
        text = ctx.sample.messages[-1]["content"] or ""
        ctx.set_reward(sum(letter in "aeiou" for letter in text) / (len(text) + 1))


backend = LocalBackend(
    workflow=Loop,
    workflow_config=AgentWorkflowConfig(name="loop", concurrency=ConcurrencyConfig(max_concurrent=32)),
    grader=Marks,
)
app = create_rollout_server(backend=backend)

if __name__ == "__main__":
    import uvicorn

    uvicorn.run(app, host="127.0.0.1", port=int(os.environ["_OSMOSIS_ROLLOUT_PORT"]), access_log=False)
'''

OPTIONS: Mapping[str, Any] = {
    "lr": 1e-3,
    "n_samples_per_prompt": 4,
    "rollout_batch_size": 2,
    "max_response_length": 24,
    "checkpoint_save_freq": 2,
}
"""Small enough that a step takes a quarter of a second."""


def make_training(root: Path, prompts: list[str] | None = None, *, label: str = "vowels") -> Path:
    """A Git work tree with configs/training/loop.toml, rollouts/loop and data/rows.jsonl."""
    prompts = prompts or [f"Say {word}." for word in ("one", "two", "three", "four", "five", "six", "seven", "eight")]
    rows = [{"user_prompt": prompt, "ground_truth": label} for prompt in prompts]
    make_workspace(root, rows, main=MAIN)
    (root / "configs/training/loop.toml").write_text(
        '[experiment]\nrollout = "loop"\nentrypoint = "main.py"\nmodel_path = "osmosis/nano"\ndataset = "rows"\n'
        f'[env]\nMARKS = "{root / "marks"}"\n'
    )
    return root


def request_for(
    workspace: Path, name: str | None, *, resume: bool = False, engine: Any = "numpy", **options: Any
) -> Any:
    """A TrainingRequest of the workspace's config."""
    from osmosis_ai.evaluation.dataset import open_dataset
    from osmosis_ai.workspace.training_config import load_training_config
    from osmosis_trainer.training import TrainingRequest, training_options

    return TrainingRequest(
        workspace_dir=workspace,
        file=load_training_config(workspace / "configs/training/loop.toml", workspace, training_options()),
        dataset=open_dataset(workspace / "data/rows.jsonl"),
        output_root=workspace / ".osmosis/trainings",
        name=name,
        resume=resume,
        engine=engine,
        options={**OPTIONS, **options},
    )


def train(
    workspace: Path,
    name: str | None = "run",
    *,
    observer: Any = None,
    warnings: list[str] | None = None,
    **options: Any,
) -> Any:
    """Open a training of the workspace and carry it out; the report."""
    from osmosis_trainer.training import SilentTrainingObserver, TrainingRun

    seen = warnings if warnings is not None else []
    request = request_for(workspace, name, **options)
    with TrainingRun.open(request, warn=lambda code, text: seen.append(text)) as run:
        return asyncio.run(run.execute({}, observer or SilentTrainingObserver()))


def main() -> None:
    """Train; print each step, and the report's status."""
    from osmosis_trainer.training import SilentTrainingObserver

    class Printing(SilentTrainingObserver):
        def step(self, step: int, steps: int, values: Mapping[str, float]) -> None:
            print(json.dumps({"step": step}), flush=True)

        def progress(self, step: int, phase: str, done: int, total: int) -> None:
            print(json.dumps({"rollouts": done, "step": step, "phase": phase}), flush=True)

        def checkpoint(self, step: int, path: Path) -> None:
            print(json.dumps({"checkpoint": step}), flush=True)

    report = train(Path(sys.argv[1]), sys.argv[2], observer=Printing(), **json.loads(sys.argv[3]))
    print(json.dumps({"status": report.status, "steps": report.steps}), flush=True)


if __name__ == "__main__":
    main()
