"""`osmosis template apply`: a starter rollout with its configs and data. What is copied is the workspace room's."""

from __future__ import annotations

import click

from osmosis_ai.cli.results import OperationResult


def _complete(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    from osmosis_ai.workspace.recipes import recipe_names

    return [name for name in recipe_names() if name.startswith(incomplete)]


@click.command("apply")
@click.argument("name", shell_complete=_complete)
@click.option("-f", "--force", is_flag=True, help="Replace the rollout's folder, its configs and its data file.")
def command(name: str, force: bool) -> OperationResult:
    """Copy the starter rollout NAME into this workspace.

    Brings rollouts/NAME, its eval and training configs and the data of its task. The files are those of this
    installation; OSMOSIS_WORKSPACE_TEMPLATE_PATH names a folder, and _REPO and _REF a repository on GitHub, to take them
    from instead. `osmosis template list` shows the names.
    """
    import os

    from osmosis_ai.cli.figures import plural
    from osmosis_ai.workspace.recipes import apply_recipe
    from osmosis_ai.workspace.repository import find_work_tree
    from osmosis_ai.workspace.template_source import open_template

    work_tree = find_work_tree()
    with open_template(os.environ) as source:
        applied = apply_recipe(work_tree, source, name, force=force)
    data = next(path for path in applied.files if path.startswith("data/"))
    return OperationResult(
        operation="template.apply",
        resource={
            "name": name,
            "destinations": [str(path) for path in applied.destinations],
            "files": list(applied.files),
        },
        message=f"Applied template '{name}': {plural(len(applied.files), 'file')}.",
        next_steps=[
            *(f"  {path}" for path in applied.files),
            f"Then: osmosis eval run configs/eval/{name}.toml --dataset-file {data}",
        ],
    )
