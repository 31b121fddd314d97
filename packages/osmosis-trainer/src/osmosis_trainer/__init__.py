"""The policy engine of Osmosis: `embedded_policy("osmosis/nano")` answers chat calls in this process, `training` trains.

Importing this package loads nothing heavy; making a policy does.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from osmosis_trainer.models import EMBEDDED_MODELS

if TYPE_CHECKING:
    from osmosis_trainer.policy import EnginePolicy

__all__ = ["EMBEDDED_MODELS", "embedded_policy"]


def embedded_policy(model_path: str, *, workspace: Path | None = None, slots: int = 64, seed: int = 0) -> EnginePolicy:
    """Load a model that this package can run: one that ships in it, or an adapter that a training left.

    Args:
        model_path: One of `EMBEDDED_MODELS`; `osmosis/nano@<run>/<step>`, or `osmosis/nano@<run>` for its last
            checkpoint; or the path of an adapter's or model's folder.
        workspace: Relative paths and the trainings of `@<run>` are looked for here; None takes the working directory's
            Git work tree.
        slots: How many answers are decoded at once.
        seed: Changes every answer.

    Returns:
        An `osmosis_ai.gateway.policy.Policy`. Its thread starts with the first call and ends with `aclose`.

    Raises:
        ValidationError: There is no such model, or the adapter is damaged or of another base.
        NotFoundError: There is no such training or checkpoint.
    """
    from osmosis_trainer.models import find_model
    from osmosis_trainer.policy import EnginePolicy

    source = find_model(model_path, workspace or _work_tree(Path.cwd()))
    return EnginePolicy(model_path, source.folder, adapter=source.adapter, slots=slots, seed=seed)


def _work_tree(folder: Path) -> Path:
    """The nearest folder upwards that holds `.git`; the folder itself where none does."""
    return next((parent for parent in (folder, *folder.parents) if (parent / ".git").exists()), folder)
