"""Where metrics go besides metrics.jsonl: Weights & Biases, MLflow, TensorBoard, trackio, through their own libraries."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import io
import os
from collections.abc import Callable, Generator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from osmosis_ai.errors import ValidationError
from osmosis_ai.redaction import Redactor, named_secret_values

PROJECT = "osmosis"
"""What runs are filed under, where the library has projects and the environment names none."""


class MetricWriter(Protocol):
    """Takes the metrics of steps."""

    def write(self, step: int, values: Mapping[str, float]) -> None:
        """Take a step's, or a validation pass's."""
        ...

    def close(self) -> None:
        """Hand over what is held."""
        ...


class _Wandb:
    def __init__(self, module: Any, folder: Path, name: str, config: Mapping[str, Any]) -> None:
        settings = module.Settings(silent=True)
        self._run = module.init(project=PROJECT, name=name, config=dict(config), dir=str(folder), settings=settings)
        # a validation pass ends while later steps go on, and wandb's own steps may not go back
        self._run.define_metric("*", step_metric="step")

    def write(self, step: int, values: Mapping[str, float]) -> None:
        self._run.log({**values, "step": step})

    def close(self) -> None:
        self._run.finish()


class _Trackio:
    def __init__(self, module: Any, name: str, config: Mapping[str, Any]) -> None:
        self._module = module
        with _quiet():
            module.init(project=PROJECT, name=name, config=dict(config))

    def write(self, step: int, values: Mapping[str, float]) -> None:
        self._module.log(dict(values), step=step)

    def close(self) -> None:
        with _quiet():
            self._module.finish()


class _Mlflow:
    def __init__(self, module: Any, name: str, config: Mapping[str, Any]) -> None:
        self._module = module
        if not module.active_run():
            module.set_experiment(PROJECT)
        module.start_run(run_name=name)
        module.log_params({key: str(value) for key, value in config.items()})

    def write(self, step: int, values: Mapping[str, float]) -> None:
        self._module.log_metrics(dict(values), step=step)

    def close(self) -> None:
        self._module.end_run()


class _TensorBoard:
    def __init__(self, folder: Path) -> None:
        self._writer = importlib.import_module("tensorboard.summary").Writer(str(folder))

    def write(self, step: int, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            self._writer.add_scalar(name, value, step=step)

    def close(self) -> None:
        self._writer.close()


@contextlib.contextmanager
def _quiet() -> Generator[None]:
    """Keep a library's chatter off standard output, where a command's result goes."""
    with contextlib.redirect_stdout(io.StringIO()):
        yield


_REMEDIES = {
    "wandb": "Log in with `wandb login` (or set WANDB_API_KEY), or set WANDB_MODE=offline.",
    "mlflow": "Check MLFLOW_TRACKING_URI and that its server answers.",
    "tensorboard": "Check that the run's directory can be written.",
    "trackio": "Check TRACKIO_DIR, and the login of Hugging Face where a space is used.",
}
_MODULES = {
    "wandb": ("wandb",),
    "mlflow": ("mlflow",),
    "tensorboard": ("tensorboard",),
    "trackio": ("trackio",),
}


def check_writers(names: Sequence[str]) -> None:
    """Make sure that what was asked for is installed, before anything starts.

    Raises:
        ValidationError: A library is missing; says how to install it.
    """
    for name in names:
        missing = [module for module in _MODULES[name] if importlib.util.find_spec(module) is None]
        if missing:
            raise ValidationError(
                f"advanced.training.writers asks for {name}, which needs {' and '.join(missing)}. Install with: pip "
                f"install {' '.join(missing)}; or leave it out, metrics.jsonl has the same figures."
            )


def open_writers(names: Sequence[str], run_dir: Path, name: str, config: Mapping[str, Any]) -> list[MetricWriter]:
    """Open writers.

    Args:
        names: Of `config.WRITERS`, each installed.
        run_dir: The run's directory; libraries that write locally write into it.
        name: The run's name.
        config: Shown beside the metrics.

    Raises:
        ValidationError: A library cannot begin (no login, no server, a full disk). Those opened before are closed.
    """
    makers: Mapping[str, Callable[[], MetricWriter]] = {
        "wandb": lambda: _Wandb(importlib.import_module("wandb"), run_dir, name, config),
        "trackio": lambda: _Trackio(importlib.import_module("trackio"), name, config),
        "mlflow": lambda: _Mlflow(importlib.import_module("mlflow"), name, config),
        "tensorboard": lambda: _TensorBoard(run_dir / "tensorboard"),
    }
    opened: list[MetricWriter] = []
    for writer in names:
        try:
            opened.append(makers[writer]())
        except Exception as error:  # each library has errors of its own
            for other in opened:
                with contextlib.suppress(Exception):
                    other.close()
            said = " ".join(Redactor(named_secret_values(os.environ)).text(str(error)).split())[:300]
            raise ValidationError(
                f"advanced.training.writers asks for {writer}, and it cannot begin: {type(error).__name__}: {said}"
                f"\n{_REMEDIES[writer]} Or leave {writer} out; metrics.jsonl has the same figures."
            ) from None
    return opened
