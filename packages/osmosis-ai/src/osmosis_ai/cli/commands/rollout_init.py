"""`osmosis rollout init`: a new rollout with its configs. What the files hold is the workspace room's."""

from __future__ import annotations

import click

from osmosis_ai.cli.results import OperationResult


@click.command("init")
@click.argument("name")
@click.option("-f", "--force", is_flag=True, help="Replace the rollout's folder and configs when they exist.")
def command(name: str, force: bool) -> OperationResult:
    """Write the five files of a new rollout NAME.

    An agent and its grader under rollouts/NAME, and one config for evaluation and one for training. NAME has small
    letters, digits and hyphens, and begins with a letter.
    """
    from osmosis_ai.workspace.repository import find_work_tree, require_directories
    from osmosis_ai.workspace.scaffold import scaffold_rollout

    work_tree = find_work_tree()
    require_directories(work_tree)
    made = scaffold_rollout(work_tree, name, force=force)
    configs = {kind: f"configs/{kind}/{name}.toml" for kind in ("eval", "training")}
    folder = f"rollouts/{name}"
    return OperationResult(
        operation="rollout.init",
        message=f"Initialized rollout '{name}'.",
        resource={
            "name": name,
            "workspace_directory": str(work_tree),
            "rollout_dir": folder,
            "configs": configs,
            "files": list(made.files),
        },
        next_steps=[
            f"Write the agent and the grader: {folder}/main.py",
            f"Choose model and dataset: {configs['eval']}",
            f"Then: osmosis eval run {configs['eval']} --dataset-file data/<your dataset>.jsonl",
        ],
    )
