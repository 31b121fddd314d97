"""What a person hands to a coding agent after the set-up: where it is, what is wanted, which commands lead there."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from osmosis_ai.client.workspaces import Intent

DOCS = (
    ("Overview", "https://docs.osmosis.ai"),
    ("Rollouts: an agent and its grader", "https://docs.osmosis.ai/sdk/overview"),
    ("Evaluations", "https://docs.osmosis.ai/cli/evaluation"),
    ("Config files", "https://docs.osmosis.ai/cli/config-files"),
)

_STEPS: dict[str, tuple[str, ...]] = {
    "eval": (
        "See what is there: rollouts/, configs/eval/, `osmosis template list`, `osmosis dataset list`.",
        "Write the agent and its grader: `osmosis rollout init NAME`, or `osmosis template apply NAME` and change it.",
        "Make a dataset of rows with user_prompt and ground_truth under data/, and check it with `osmosis dataset"
        " validate FILE`.",
        "Evaluate a few rows on this machine: `osmosis eval run CONFIG --dataset-file FILE`, and read what happened with"
        " `osmosis eval view RUN`.",
        "When it is right: commit and push, `osmosis dataset upload FILE`, `osmosis eval submit CONFIG`, and follow it"
        " with `osmosis eval info RUN`.",
    ),
    "train": (
        "When the evaluation shows rewards that differ between attempts: fill configs/training/NAME.toml; `osmosis model"
        " list --type base` shows the models.",
        "`osmosis train submit CONFIG`, then follow it with `osmosis train info RUN`.",
    ),
    "benchmark": (
        "See what there is: `osmosis benchmark list`, `osmosis benchmark info KEY`.",
        "Write a config under configs/benchmark/ with the agents to compare, and check it with `osmosis config validate"
        " FILE`.",
        "`osmosis benchmark submit CONFIG`, then follow it with `osmosis benchmark runs info RUN`.",
    ),
}
_GOALS = {
    "train": "train a model with reinforcement learning on a task of ours",
    "eval": "evaluate a model on a task of ours",
    "benchmark": "run a benchmark and compare agents on it",
}


def agent_prompt(intent: Intent, task: str | None, workspace: str, directory: Path) -> str:
    """The text for one goal.

    Args:
        intent: What the person wants to do; not `explore`.
        task: Their own sentence about the task.
        workspace: The workspace's name.
        directory: The clone.
    """
    steps = [*(_STEPS["eval"] if intent == "train" else ()), *_STEPS[intent]]
    lines = [
        f"In the Osmosis workspace {workspace!r}, cloned at {directory}, I want to {_GOALS[intent]}.",
        *([f"The task: {task}"] if task else []),
        "Read AGENTS.md first; it says how this repository is laid out. `osmosis COMMAND --help` explains every command.",
        "Steps:",
        *(f"{number}. {step}" for number, step in enumerate(steps, 1)),
        "Secrets never go into files: register them with `osmosis secret set NAME` and name them in [secrets].required.",
        "Before anything that costs money or takes long, show me what would be sent (--dry-run of every submit) and ask.",
    ]
    return "\n".join(lines)
