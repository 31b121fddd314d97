"""Which model a `model_path` means: one that ships here, a folder, or an adapter that a training left."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from osmosis_ai.errors import NotFoundError, ValidationError

EMBEDDED_MODELS = ("osmosis/nano",)
"""Models that ship in this package."""

TRAININGS = Path(".osmosis/trainings")
"""Where a workspace's trainings lie."""

_ADAPTER_FILES = ("adapter_config.json", "adapter_model.safetensors")
_TRAINED = re.compile(r"(?P<base>[^@]+)@(?P<run>[^/@]+)(?:/(?:step_)?(?P<step>\d+))?")


@dataclass(frozen=True, slots=True)
class ModelSource:
    """A model's files.

    Attributes:
        name: As the config says it.
        base: Name of the base model.
        folder: The base model's files.
        adapter: Folder of a PEFT adapter to put on it, or None.
    """

    name: str
    base: str
    folder: Path
    adapter: Path | None = None


def find_model(model_path: str, workspace: Path) -> ModelSource:
    """Find a model's files.

    Args:
        model_path: `osmosis/nano`; `osmosis/nano@<run>/<step>` or `osmosis/nano@<run>` for an adapter of a training of
            the workspace, its last one where no step is given; or the path of a model's or adapter's folder.
        workspace: Relative paths and trainings are looked for here.

    Raises:
        ValidationError: There is no such model, or the adapter is of another base.
        NotFoundError: There is no such training or checkpoint.
    """
    if model_path in EMBEDDED_MODELS:
        return ModelSource(model_path, model_path, _embedded(model_path))
    if (match := _TRAINED.fullmatch(model_path)) and match["base"] in EMBEDDED_MODELS:
        from osmosis_trainer.loop.checkpoints import find_checkpoint

        step = int(match["step"]) if match["step"] is not None else None
        adapter = find_checkpoint(workspace / TRAININGS / match["run"], step)
        if (base := adapter_base(adapter)) != match["base"]:
            raise ValidationError(f"The adapter {adapter} is of the base model {base}, not of {match['base']}.")
        _check_base(adapter, base, _embedded(base))
        return ModelSource(model_path, base, _embedded(base), adapter)
    folder = workspace / model_path
    if all((folder / name).is_file() for name in _ADAPTER_FILES):
        base = adapter_base(folder)
        base_folder = _embedded(base) if base in EMBEDDED_MODELS else workspace / base
        if not (base_folder / "config.json").is_file():
            raise NotFoundError(
                f"The adapter {folder} is of the base model {base!r}, which is neither {', '.join(EMBEDDED_MODELS)} nor "
                "a folder here.",
                code="VALIDATION",
            )
        _check_base(folder, base, base_folder)
        return ModelSource(model_path, base, base_folder, folder)
    if (folder / "config.json").is_file():
        return ModelSource(model_path, model_path, folder)
    raise ValidationError(
        f"model_path {model_path!r} is no embedded model; there is {', '.join(EMBEDDED_MODELS)}, an adapter of a training "
        "as osmosis/nano@<run> or osmosis/nano@<run>/<step>, or the path of a folder with a model's or adapter's files. "
        "For another provider's model write its own prefix, for example openai/<model>."
    )


def folder_digest(folder: Path) -> str:
    """Names a model by what of its files decides what it says."""
    digest = hashlib.sha256()
    for path in sorted(folder.iterdir()):
        if path.suffix in (".safetensors", ".json", ".jinja", ".bin") and path.is_file():
            digest.update(f"\0{path.name}\0".encode())
            with path.open("rb") as stream:
                digest.update(hashlib.file_digest(stream, "sha256").digest())
    return digest.hexdigest()


def _check_base(adapter: Path, base: str, folder: Path) -> None:
    """Refuse an adapter that was trained on other weights of the same name; one from elsewhere does not say.

    Raises:
        ValidationError: It was.
    """
    try:
        facts = json.loads((adapter / "loop.json").read_bytes())
        trained_on = facts["identity"]["model_digest"]
    except (OSError, ValueError, KeyError, TypeError):
        return
    if trained_on != folder_digest(folder):
        raise ValidationError(
            f"The adapter {adapter} was trained on another {base}: the model's files have changed since, so its weights "
            "mean nothing here. Train it again, or use the version of the model that it was trained on."
        )


def adapter_base(folder: Path) -> str:
    """The base model that an adapter's config names.

    Raises:
        ValidationError: The config cannot be read or names none.
    """
    base = adapter_config(folder).get("base_model_name_or_path")
    if not isinstance(base, str) or not base:
        raise ValidationError(f"{folder / 'adapter_config.json'} names no base_model_name_or_path.")
    return base


def adapter_config(folder: Path) -> dict[str, Any]:
    """What `adapter_config.json` says.

    Raises:
        ValidationError: It cannot be read.
    """
    path = folder / "adapter_config.json"
    try:
        config = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise ValidationError(f"{path} cannot be read: {error}.") from error
    if not isinstance(config, dict):
        raise ValidationError(f"{path} is no JSON object.")
    return config


def _embedded(model_path: str) -> Path:
    return Path(__file__).parent / model_path.removeprefix("osmosis/")
