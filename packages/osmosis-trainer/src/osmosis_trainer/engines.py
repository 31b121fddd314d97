"""Opens a policy engine by its name; leaves what each can do to the engines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from osmosis_ai.errors import ValidationError

from osmosis_trainer.engine.protocol import PolicyEngine

ENGINES = ("numpy", "torch")
"""Every engine there is; the first is the one to take where nobody says."""

_EXTRA = ("torch", "transformers", "peft", "accelerate", "huggingface_hub")


def open_engine(engine: str, folder: Path, **options: Any) -> PolicyEngine:
    """Load a model folder.

    Args:
        engine: One of `ENGINES`.
        folder: Hugging Face files.
        options: Those of the engine's class.

    Raises:
        ValidationError: There is no such engine, or it cannot run the model.
        ModuleNotFoundError: The engine's extra is not installed; the message says how to.
    """
    if engine == "numpy":
        from osmosis_trainer.engine.numpy_engine import NumpyEngine

        return NumpyEngine(folder, **options)
    if engine == "torch":
        try:
            from osmosis_trainer.engine.torch_engine import TorchEngine
        except ModuleNotFoundError as error:
            if error.name is None or error.name.partition(".")[0] not in _EXTRA:
                raise
            raise ModuleNotFoundError(
                f"The torch engine needs the module {error.name!r}, which is not installed. "
                'Install it with: pip install "osmosis-trainer[torch]"',
                name=error.name,
                path=error.path,
            ) from error
        return TorchEngine(folder, **options)
    raise ValidationError(f"engine is {engine!r}; there is {', '.join(ENGINES)}.")
