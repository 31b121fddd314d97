"""What executes rollouts: in this process (`local`); in Harbor trials (`harbor`, imported on its own)."""

from osmosis_ai.rollout.backend.base import ExecutionBackend
from osmosis_ai.rollout.backend.local import LocalBackend

__all__ = ["ExecutionBackend", "LocalBackend"]
