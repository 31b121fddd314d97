"""What must hold before a local run makes anything: extras, the rollout's files, the dataset; then the user's consent.

Owns: these checks and this question, which evaluations and trainings share.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from osmosis_ai.errors import AuthRequiredError, ValidationError
from osmosis_ai.evaluation.dataset import open_dataset
from osmosis_ai.extras import optional_imports
from osmosis_ai.workspace.secrets import read_secrets_file, resolve_secrets

if TYPE_CHECKING:
    from osmosis_ai.cli.output import Output
    from osmosis_ai.cli.results import Fields
    from osmosis_ai.client.session import PlatformClient
    from osmosis_ai.evaluation.dataset import Dataset


class NamesRollout(Protocol):
    """A config that says which rollout to run."""

    @property
    def path(self) -> Path:
        """The config's file."""
        ...

    @property
    def rollout(self) -> str:
        """Folder name under `rollouts/`."""
        ...

    @property
    def entrypoint(self) -> str:
        """File to run in it."""
        ...


def require_modules(extra: str, *modules: str) -> None:
    """Say which extra is missing before anything is made, without importing it.

    Raises:
        ModuleNotFoundError: A module is not installed; the message says how to install the extra.
    """
    with optional_imports(extra):
        for module in modules:
            if find_spec(module) is None:
                raise ModuleNotFoundError(f"No module named {module!r}", name=module)


def require_rollout(work_tree: Path, config: NamesRollout) -> None:
    """The rollout's files must be there before a run directory is made. The entrypoint is not imported.

    Raises:
        ValidationError: The folder or the entrypoint does not exist.
    """
    folder = Path("rollouts") / config.rollout
    path = config.path
    shown = path.relative_to(work_tree) if path.is_relative_to(work_tree) else path
    if not (work_tree / folder).is_dir():
        near = sorted(path.name for path in (work_tree / "rollouts").iterdir() if path.is_dir())
        there = f" There is: {', '.join(near[:10])}." if near else ""
        raise ValidationError(
            f"There is no rollout folder {folder}/, which {shown} names.{there}"
            f" Make it with `osmosis rollout init {config.rollout}`, or correct experiment.rollout."
        )
    if not (work_tree / folder / config.entrypoint).is_file():
        raise ValidationError(
            f"There is no file {folder / config.entrypoint}; correct experiment.entrypoint in {shown}."
        )


def connect(output: Output, work_tree: Path, local: str) -> PlatformClient:
    """A client for the platform whose workspace the repository belongs to, for something that needs it.

    Args:
        output: Gets the platform's warnings.
        work_tree: Root of the Git work tree.
        local: How to do without.

    Raises:
        ValidationError: No origin, or one that is not fit.
        AuthRequiredError: No login.
        OsmosisError: The login cannot be read, or is not for this platform.
    """
    from osmosis_ai.client.scope import resolve_git_scope
    from osmosis_ai.client.session import open_client

    try:
        return open_client(resolve_git_scope(work_tree), warn=output.warn)
    except (ValidationError, AuthRequiredError) as error:
        error.message = f"{error.message} Or {local}."
        raise


def local_dataset(given: str) -> Dataset:
    """The dataset of `--dataset-file`.

    Raises:
        ValidationError: It does not exist, or is no dataset.
    """
    path = Path(given)
    if not path.exists():
        raise ValidationError(f"--dataset-file {given} is not a file; relative paths start at the current directory.")
    return open_dataset(path)


def agree(
    output: Output, plan: Fields, question: str, *, yes: bool, secret_names: Sequence[str], secrets_file: str | None
) -> dict[str, str]:
    """Show the plan, ask, and gather the secrets' values.

    Args:
        output: Where it is shown and asked.
        plan: What is about to happen; without anybody to ask, the refusal shows it.
        question: Asked unless `yes`.
        yes: The user agreed on the command line.
        secret_names: The names that need a value.
        secrets_file: Where values may be, as typed.

    Raises:
        Cancelled: The answer was no.
        InteractiveRequiredError: Nobody can be asked.
        ValidationError: The secrets file is wrong.
    """
    if yes or output.interactive:
        output.present(plan)
    if not yes:
        output.confirm(question, default=False, summary={label: str(value) for label, value in plan.rows})
    return resolve_secrets(
        secret_names,
        file_values=read_secrets_file(secrets_file) if secrets_file else {},
        environ=os.environ,
        ask=output.ask_hidden if output.interactive else None,
    )
