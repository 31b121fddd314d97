"""Carrying a training out: engine, environment, rollout server, gateway, the loop, and the end of all of them.

Owns the order of the stages, the signals, and that everything started is ended. The loop is `loop`'s.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from osmosis_ai.errors import OsmosisError
from osmosis_ai.evaluation.hosting import RolloutHost, sdk_mismatch
from osmosis_ai.evaluation.pool import RolloutPool
from osmosis_ai.evaluation.runlog import RunLog
from osmosis_ai.evaluation.surroundings import handle_signals, library_logs, many_open_files, variables
from osmosis_ai.evaluation.walk import Interrupted, Limits, Stop, StopSwitch
from osmosis_ai.gateway.server import Gateway
from osmosis_ai.redaction import Redactor, ambient_secret_values

from osmosis_trainer.engine.protocol import PolicyEngine
from osmosis_trainer.loop.lines import Lines, read_lines
from osmosis_trainer.loop.loop import TrainingLoop
from osmosis_trainer.loop.observer import TrainingObserver, TrainingRelay
from osmosis_trainer.loop.rollout_policy import RolloutPolicy
from osmosis_trainer.loop.rollouts import Walk
from osmosis_trainer.loop.writers import MetricWriter, open_writers

if TYPE_CHECKING:
    from osmosis_trainer.loop.checkpoints import Saved
    from osmosis_trainer.training import TrainingReport, TrainingRun

METRICS_FILE, ROLLOUTS_FILE = "metrics.jsonl", "rollouts.jsonl"
# A rollout that fails through neither agent nor grader is tried once more, then left out.
_TRIES = 2
_END_GRACE_S = 5.0


class TrainingExecution:
    """One invocation's work on a training; used once."""

    def __init__(
        self, run: TrainingRun, engine: PolicyEngine, values: Mapping[str, str], observer: TrainingObserver
    ) -> None:
        self._run = run
        self._engine = engine
        self._secrets = dict(values)
        self._ambient = dict(os.environ)
        self._redactor = Redactor([*self._secrets.values(), *ambient_secret_values(os.environ)])
        self._log = RunLog(run.run_dir, self._redactor)
        self._relay = TrainingRelay(observer)
        self._stop = StopSwitch()
        self._signals = 0
        self._phase: Literal["start", "loop", "end"] = "start"
        self._loop: TrainingLoop | None = None
        self._pool: RolloutPool | None = None
        self._main: asyncio.Task[Any] | None = None

    async def run(self) -> TrainingReport:
        """Carry the training out.

        Raises:
            OsmosisError: A stage failed, or an alarm; what was saved stays and can be gone on from.
            Interrupted: A signal before the first step.
        """
        self._main = asyncio.current_task()
        self.note("INFO", "run", "started", {"run": self._run.name, "from": self._run.done_steps})
        try:
            with (
                handle_signals(self._on_signal),
                variables(self._secrets),
                library_logs(self.note),
                many_open_files(),
            ):
                report = await self._stages()
        except asyncio.CancelledError:
            if not self._signals:
                raise
            raise Interrupted(
                f"Interrupted before the first step; the same command with --name {self._run.name} --resume begins it."
            ) from None
        except BaseException as error:
            self.note("ERROR", "run", f"ended: {error}" if str(error) else f"ended: {type(error).__name__}", {})
            raise
        finally:
            self._log.close()
            broken = self._relay.close()
        if broken is not None:
            raise broken
        return report

    def note(self, level: str, step: str, message: str, details: Mapping[str, Any]) -> None:
        """Add a line to logs.txt, and show it to a verbose observer."""
        self._log.line(level, step, message, details)  # ty: ignore[invalid-argument-type]
        if self._run.request.verbose:
            self._relay.log(self._redactor.text(f"[{step}] {message}"))

    async def _stages(self) -> TrainingReport:
        run, config = self._run, self._run.config
        began = time.monotonic()
        limits = Limits(
            concurrency=config.max_in_flight,
            agent_timeout_s=config.agent_workflow_timeout_s,
            grader_timeout_s=config.grader_timeout_s,
            tries=_TRIES,
        )
        host = RolloutHost(
            run.request.source,
            run_dir=run.run_dir,
            log_path=self._log.path,
            environ={**self._ambient, **run.request.file.env, **self._secrets},
            ambient=self._ambient,
            redactor=self._redactor,
            note=self.note,
        )
        self._relay.stage("Preparing the rollout environment")
        environment = await host.environment()
        pool = self._pool = RolloutPool(host.server_spec(environment, limits), log=self.note)
        policy = RolloutPolicy(
            run.model.name,
            run.model.folder,
            self._engine,
            seed=config.seed,
            max_prompt_length=config.max_prompt_length,
            max_response_length=config.max_response_length,
        )
        gateway = Gateway(policy)
        files: list[Lines] = []
        writers: list[MetricWriter] = []
        try:
            self._relay.stage("Starting the rollout server")
            await pool.start()
            self.note("INFO", "server", "ready", {"capacity": pool.capacity, "sdk_version": pool.sdk_version})
            if (text := sdk_mismatch(pool.sdk_version or environment.sdk_version)) is not None:
                self.note("WARNING", "run", text, {})
                self._relay.warning("ROLLOUT_SDK_VERSION_MISMATCH", text)
            await gateway.start()
            metrics, rollouts, validated = _open_lines(run.run_dir, run.saved)
            files += [metrics, rollouts]
            writers = open_writers(config.writer_names, run.run_dir, run.name, config.to_json())
            walk = Walk(
                run_dir=run.run_dir,
                rows=run.contents,
                pool=pool,
                gateway=gateway,
                policy=policy,
                limits=limits,
                stop=self._stop,
                lines=rollouts,
                redact=self._redactor.text,
                note=self.note,
                progress=self._relay.progress,
            )
            loop = self._loop = TrainingLoop(
                config,
                run.order,
                run.held_out,
                engine=self._engine,
                walk=walk,
                store=run.store,
                metrics=metrics,
                writers=writers,
                observer=self._relay,
                note=self.note,
                steps=run.steps,
                validated=validated,
                facts={"identity": run.inputs, "run_name": run.name},
                embedded=run.request.engine == "numpy",
            )
            self._relay.stage(f"Training {run.steps - run.done_steps} steps")
            self._phase = "loop"
            await loop.run(run.saved)
            self._relay.stage("Stopping the rollout server")
        finally:
            self._phase = "end"
            await self._end(gateway, pool, files, writers)
        if self._log.failed:
            self._relay.warning(None, self._log.failed)
        return run.report(loop.progress, seconds=time.monotonic() - began)

    async def _end(self, gateway: Gateway, pool: RolloutPool, files: list[Lines], writers: list[MetricWriter]) -> None:
        """End everything that was started, whatever happened."""
        ends = (pool.stop(self._grace), gateway.aclose())
        results: list[Any] = list(await asyncio.gather(*ends, return_exceptions=True))
        for writer in writers:
            try:
                writer.close()
            except Exception as error:
                results.append(error)
        for file in files:
            try:
                file.force()
            except OsmosisError as error:
                results.append(error)
            file.close()
        for result in results:
            if isinstance(result, BaseException):
                self.note("ERROR", "run", f"while ending: {type(result).__name__}: {result}", {})

    def _grace(self) -> float:
        return 1.0 if self._stop.level is not Stop.NO else _END_GRACE_S

    def _on_signal(self) -> None:
        """First: stop at the step's end. Second: give up the rollouts in flight. Third: at once."""
        self._signals += 1
        if self._signals >= 3:
            self._kill()
        if self._phase == "start" and self._main is not None:
            self._main.cancel()
        if self._phase != "loop" or self._loop is None:
            return
        if not self._loop.stopping:
            self._loop.stopping = True
            self._relay.stage("Interrupted: stopping at the end of this step (once more to give its rollouts up)")
            self.note("WARNING", "cancel", "stopping at the end of this step", {})
        else:
            self._stop.rise()
            self._relay.stage("Interrupted again: giving up the rollouts in flight")
            self.note("WARNING", "cancel", "giving up the rollouts in flight", {})

    def _kill(self) -> None:
        if self._pool is not None:
            self._pool.kill()
        raise KeyboardInterrupt


def _open_lines(run_dir: Path, saved: Saved | None) -> tuple[Lines, Lines, set[int]]:
    """metrics.jsonl, rollouts.jsonl, and the steps after which a validation pass has ended.

    What is not of the saved state goes: later steps, rollouts begun ahead, validation passes that did not end. All of
    it is carried out again.
    """

    def known(line: Mapping[str, Any]) -> bool:
        return saved is not None and line.get("step", 0) <= saved.step

    def told(line: Mapping[str, Any]) -> bool:
        return known(line) and (line.get("phase") != "validation" or line.get("step") in validated)

    metrics = Lines.open(run_dir / METRICS_FILE, known)
    validated = {line["step"] for line in read_lines(metrics.path) if line.get("kind") == "validation"}
    return metrics, Lines.open(run_dir / ROLLOUTS_FILE, told), validated
