"""Where a walk's rollouts run: the rollout's source checked, its environment made, its server described.

Every driver of a walk (an evaluation, a training) gets its servers from here; keeping them up is `pool`'s.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from osmosis_ai.consts import PACKAGE_VERSION
from osmosis_ai.errors import NotFoundError, ValidationError
from osmosis_ai.evaluation import bootstrap
from osmosis_ai.evaluation.artifacts import trials_name
from osmosis_ai.evaluation.environment import RolloutEnvironment, prepare_environment, read_project
from osmosis_ai.redaction import Redactor

if TYPE_CHECKING:
    from osmosis_ai.evaluation.rollout_server import Log, ServerSpec
    from osmosis_ai.evaluation.walk import Limits

SERVER_RECORD = "server.json"
TRIALS = trials_name


@dataclass(frozen=True, slots=True)
class RolloutSource:
    """The code of a rollout.

    Attributes:
        rollout_dir: Its folder.
        entrypoint: Its script, relative to the folder.
        shown: The script as people know it: `rollouts/x/main.py`.
        config_path: The config that names it, for error texts.
    """

    rollout_dir: Path
    entrypoint: str
    shown: str
    config_path: Path

    def check(self, output_root: Path) -> None:
        """Find what is wrong before anything is made or started.

        Raises:
            ValidationError: pyproject.toml, the entrypoint or the output root is wrong.
        """
        read_project(self.rollout_dir)
        script = self.rollout_dir / self.entrypoint
        inside = script.resolve().is_relative_to(self.rollout_dir.resolve())
        if not inside or not script.is_file():
            raise NotFoundError(
                f"The entrypoint {self.shown} does not exist"
                + ("" if inside else " inside its rollout's folder")
                + f".\nMake it, or correct `entrypoint` in {self.config_path}.",
                code="VALIDATION",
            )
        root = output_root.resolve()
        if root == self.rollout_dir.resolve():
            raise ValidationError(
                f"--output {output_root} is the rollout's own folder: results would change its source digest.\n"
                "Choose another directory, or leave --output out."
            )
        if root.exists() and not root.is_dir():
            raise ValidationError(f"--output {output_root} is not a directory; choose another one.")


class RolloutHost:
    """Makes the environment and the server's description for one invocation of a run.

    Args:
        source: The rollout's code.
        run_dir: Where the server's record and its rollouts' files go.
        log_path: The run's log, named in errors.
        environ: What the server inherits, the run's own variables and secrets included.
        ambient: The environment of this process as it was, for uv.
        redactor: Learns the server's key.
        note: Takes lines for the run's log.
    """

    def __init__(
        self,
        source: RolloutSource,
        *,
        run_dir: Path,
        log_path: Path,
        environ: Mapping[str, str],
        ambient: Mapping[str, str],
        redactor: Redactor,
        note: Log,
    ) -> None:
        self._source = source
        self._run_dir = run_dir
        self._log_path = log_path
        self._environ = environ
        self._ambient = ambient
        self._redactor = redactor
        self._note = note
        self._uv: subprocess.Popen[str] | None = None
        self._given_up = False

    async def environment(self) -> RolloutEnvironment:
        """Make the rollout's environment, or find it made; cancelling this ends uv.

        Raises:
            OsmosisError: It cannot be made.
        """
        work = asyncio.create_task(
            asyncio.to_thread(
                prepare_environment,
                self._source.rollout_dir,
                run_uv=self._run_uv,
                log=lambda text: self._note("INFO", "deps", text, {}),
                environ=self._ambient,
                log_path=self._log_path,
            )
        )
        try:
            environment = await asyncio.shield(work)
        except asyncio.CancelledError:
            self._given_up = True  # before the look at uv: one that starts meanwhile is ended by its thread
            self._end_uv()
            await asyncio.gather(work, return_exceptions=True)
            raise
        how = "unchanged" if environment.reused else "made"
        self._note("INFO", "deps", f"environment {how}", {"python": str(environment.python)})
        return environment

    def server_spec(self, environment: RolloutEnvironment, limits: Limits, port: int | None = None) -> ServerSpec:
        """Describe the server, with a key of its own."""
        from osmosis_ai.evaluation.rollout_server import ServerSpec

        api_key = secrets.token_urlsafe(32)
        self._redactor.add(api_key)
        return ServerSpec(
            python=environment.python,
            rollout_dir=self._source.rollout_dir,
            entrypoint=self._source.rollout_dir / self._source.entrypoint,
            shown=self._source.shown,
            api_key=api_key,
            environ=self._environ,
            artifact_root=self._run_dir / TRIALS,
            record_path=self._run_dir / SERVER_RECORD,
            log_path=self._log_path,
            redactor=self._redactor,
            port=port,
            admission_timeout_s=limits.deadline_s * max(1, limits.concurrency or 1),
            agent_timeout_s=limits.agent_timeout_s,
            grader_timeout_s=limits.grader_timeout_s,
        )

    def _end_uv(self) -> None:
        if (process := self._uv) is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)

    def _run_uv(self, command: list[str], env: dict[str, str]) -> tuple[int, list[str]]:
        """Run uv in a session of its own (in a worker thread) that dies with us; its output goes to the log."""
        self._note("INFO", "deps", " ".join(command), {})
        lines: list[str] = []
        guard, ours = os.pipe()
        try:
            process = subprocess.Popen(
                [sys.executable, bootstrap.__file__, "--exec", *command],
                cwd=self._source.rollout_dir,
                env={**env, bootstrap.GUARD_VARIABLE: str(guard)},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                start_new_session=True,
                pass_fds=(guard,),
            )
        except BaseException:
            os.close(ours)
            raise
        finally:
            os.close(guard)
        try:
            self._uv = process
            if self._given_up:
                self._end_uv()
            with process:
                assert process.stdout is not None
                for line in process.stdout:
                    if line.strip():
                        lines.append(self._redactor.text(line.rstrip()))
                        self._note("INFO", "deps", line.rstrip(), {})
        finally:
            self._uv = None
            os.close(ours)
        return process.returncode, lines[-50:]


def sdk_mismatch(version: str | None) -> str | None:
    """What to tell the user when the rollout's environment has another SDK than this command, else None."""
    if version in (None, "unknown", PACKAGE_VERSION):
        return None
    return (
        f"The rollout's environment has osmosis-ai {version}, this command is {PACKAGE_VERSION}. "
        "That need not matter; if rollouts misbehave, remove the pin in the rollout's pyproject.toml."
    )
