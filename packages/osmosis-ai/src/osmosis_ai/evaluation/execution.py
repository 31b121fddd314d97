"""Carrying a run out: preflight, environment, rollout server, gateway, tunnel, the walk, and the end of all of them.

Owns the order of the stages (eval-run.md 5), the signals (5.2), and that everything started is ended. The walk itself
is the `runner`'s.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from osmosis_ai.errors import OsmosisError
from osmosis_ai.evaluation.environment import cache_dir
from osmosis_ai.evaluation.hosting import TRIALS, RolloutHost, sdk_mismatch
from osmosis_ai.evaluation.observer import Noting, Observer, Relay, Tally
from osmosis_ai.evaluation.pool import RolloutPool
from osmosis_ai.evaluation.preflight import forget, preflight
from osmosis_ai.evaluation.report import RunReport
from osmosis_ai.evaluation.rows import work_items
from osmosis_ai.evaluation.run import TUNNEL_RECORD, EvaluationRun
from osmosis_ai.evaluation.runlog import RunLog
from osmosis_ai.evaluation.runner import Runner
from osmosis_ai.evaluation.surroundings import handle_signals, library_logs, many_open_files, variables
from osmosis_ai.evaluation.trials import TrialFiles
from osmosis_ai.evaluation.tunnel import Tunnel
from osmosis_ai.evaluation.verdict import Outcome
from osmosis_ai.evaluation.walk import Interrupted, Limits, RunOutcome, Stop, StopSwitch
from osmosis_ai.gateway.server import Gateway
from osmosis_ai.redaction import Redactor, ambient_secret_values

if TYPE_CHECKING:
    from osmosis_ai.evaluation.projection import Projection
    from osmosis_ai.gateway.policy import Policy

END_GRACE_S = 5.0
INTERRUPTED_GRACE_S = 330.0


class Execution:
    """One invocation's work on a run; used once."""

    def __init__(self, run: EvaluationRun, policy: Policy, values: Mapping[str, str], observer: Observer) -> None:
        self._run = run
        self._policy = policy
        self._secrets = dict(values)
        self._ambient = dict(os.environ)
        self._redactor = Redactor([*self._secrets.values(), *ambient_secret_values(os.environ)])
        self._log = RunLog(run.run_dir, self._redactor)
        self._relay = Relay(observer)
        self._stop = StopSwitch()
        self._phase: Literal["start", "walk", "end"] = "start"
        self._signals = 0
        self._main: asyncio.Task[Any] | None = None
        self._pool: RolloutPool | None = None
        self._tunnel: Tunnel | None = None

    async def run(self) -> RunReport:
        """Carry the run out.

        Raises:
            OsmosisError: A stage before the walk failed, or the journal could not be written at the end.
            Interrupted: A signal before the walk, or a second one.
        """
        self._main = asyncio.current_task()
        run = self._run
        self.note("INFO", "run", "started", {"run": run.name, "pending": run.pending_count, "total": run.total_count})
        if run.resumed_count:
            self.note("INFO", "resume", f"{run.resumed_count} of {run.total_count} items have their verdict", {})
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
            self.note("WARNING", "run", "interrupted before the first rollout", {})
            raise self._interrupted() from None
        except Interrupted:
            self.note("WARNING", "run", "interrupted for the second time", {})
            raise self._interrupted() from None
        except BaseException as error:
            self.note("ERROR", "run", f"ended: {error}" if str(error) else f"ended: {type(error).__name__}", {})
            raise
        finally:
            self._log.close()
            broken = self._relay.close()
        if broken is not None:
            raise broken  # the run is whole; who watched it has to know
        return report

    def _interrupted(self) -> Interrupted:
        name = self._run.name
        return Interrupted(
            f"Interrupted. Every verdict so far is kept; the same command with --name {name} goes on from there.",
            details={"run_name": name},
        )

    def note(self, level: str, step: str, message: str, details: Mapping[str, Any]) -> None:
        """Add a line to logs.txt, and show it to a verbose observer."""
        self._log.line(level, step, message, details)  # ty: ignore[invalid-argument-type]
        if self._run.request.verbose:
            self._relay.log(self._redactor.text(f"[{step}] {message}"))

    # -- stages

    async def _stages(self) -> RunReport:
        run, request = self._run, self._run.request
        runner: Runner | None = None
        self._relay.stage(f"Checking the model {self._policy.model}")
        await preflight(
            self._policy,
            os.environ,
            cache_dir=cache_dir(),
            log=lambda level, message: self.note(level, "preflight", message, {}),
        )
        self._relay.stage("Preparing the rollout environment")
        host = RolloutHost(
            request.source,
            run_dir=run.run_dir,
            log_path=self._log.path,
            environ={**self._ambient, **request.config.env, **self._secrets},
            ambient=self._ambient,
            redactor=self._redactor,
            note=self.note,
        )
        environment = await host.environment()
        spec = host.server_spec(environment, self._limits(), request.rollout_port)
        pool = self._pool = RolloutPool(spec, log=self.note)
        gateway = Gateway(
            self._policy, on_call=lambda rollout_id, call: runner.call_ended(rollout_id, call) if runner else None
        )
        trials: TrialFiles | None = None
        try:
            self._relay.stage("Starting the rollout server")
            await pool.start()
            self.note("INFO", "server", "ready", {"capacity": pool.capacity, "sdk_version": pool.sdk_version})
            self._compare_sdk(pool.sdk_version or environment.sdk_version)
            await gateway.start(port=request.listener_port or 0)
            self.note("INFO", "listener", "listening", {"url": gateway.url})
            await self._advertise(gateway, pool)
            projection = run.projection(self._warn)
            trials = TrialFiles(
                run.run_dir / TRIALS, projection, lambda text: self.note("WARNING", "trajectory", text, {})
            )
            limits = self._limits()
            self.note("INFO", "schedule", "dispatching", {"concurrency": limits.in_flight(pool.capacity)})
            rollouts = "1 rollout" if run.pending_count == 1 else f"{run.pending_count} rollouts"
            self._relay.stage(f"Running {rollouts}, {limits.in_flight(pool.capacity)} at a time")
            runner = Runner(
                work_items(request.dataset, run.selection, request.config.n, only=run.pending),
                pool=pool,
                gateway=gateway,
                journal=run.journal,
                keeper=trials,
                limits=limits,
                observer=Noting(self._relay, self.note),
                stop=self._stop,
                tally=self._tally(),
                threshold=request.config.pass_threshold,
                redact=self._redactor.text,
            )
            outcome = await self._walk(runner)
            self._relay.stage("Stopping the rollout server")
        finally:
            await self._end(gateway, pool, trials)
        return self._finish(outcome, projection)

    def _limits(self) -> Limits:
        request = self._run.request
        return Limits(
            concurrency=request.max_in_flight or request.config.batch_size,
            agent_timeout_s=request.config.agent_timeout_s,
            grader_timeout_s=request.config.grader_timeout_s,
            max_cost_usd=request.max_cost_usd,
        )

    def _compare_sdk(self, version: str | None) -> None:
        if (text := sdk_mismatch(version)) is not None:
            self._warn(text, code="ROLLOUT_SDK_VERSION_MISMATCH")

    async def _advertise(self, gateway: Gateway, pool: RolloutPool) -> None:
        request = self._run.request
        if request.advertise_url:
            gateway.advertise(request.advertise_url, keep_alive=True)
            self.note("INFO", "tunnel", "agents use the given URL", {"url": request.advertise_url})
            return
        if request.tunnel is None and not pool.needs_public_url:
            return
        self._relay.stage("Opening a cloudflared tunnel")
        tunnel = self._tunnel = Tunnel(
            record_path=self._run.run_dir / TUNNEL_RECORD, log_path=self._log.path, log=self._tunnel_note
        )
        gateway.advertise(await tunnel.open(gateway.url), keep_alive=True)

    def _tunnel_note(self, level: str, step: str, message: str, details: Mapping[str, Any]) -> None:
        if level == "WARNING":
            self._relay.warning(None, message)
        self.note(level, step, message, details)

    def _tally(self) -> Tally:
        records = self._run.journal.records()
        kept = [entry for key, entry in records.items() if key not in self._run.pending]
        rewards = [entry.reward for entry in kept if entry.reward is not None]
        return Tally(
            done=len(kept),
            total=self._run.total_count,
            graded=len(rewards),
            passed=sum(reward >= self._run.request.config.pass_threshold for reward in rewards),
            failed=sum(entry.outcome is Outcome.FAILED for entry in kept),
            skipped=sum(entry.outcome is Outcome.SKIPPED for entry in kept),
        )

    async def _walk(self, runner: Runner) -> RunOutcome:
        watch = asyncio.create_task(self._watch_tunnel(runner)) if self._tunnel is not None else None
        started = time.monotonic()
        self._phase = "walk"
        try:
            outcome = await runner.run()
        finally:
            if watch is not None:
                watch.cancel()
        outcome.duration_ms = (time.monotonic() - started) * 1000
        return outcome

    async def _watch_tunnel(self, runner: Runner) -> None:
        """Halt when the tunnel ends, and give up what is in flight: its agents no longer reach the policy."""
        assert self._tunnel is not None
        runner.halt("tunnel_exit", await self._tunnel.death())
        self._stop.rise()

    async def _end(self, gateway: Gateway, pool: RolloutPool, trials: TrialFiles | None) -> None:
        """End everything that was started, whatever happened."""
        self._phase = "end"
        ends = [pool.stop(self._grace), gateway.aclose()]
        if self._tunnel is not None:
            ends.append(self._tunnel.stop())
        if trials is not None:
            ends.append(trials.close())
        results = await asyncio.gather(*ends, return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                self.note("ERROR", "run", f"while ending: {type(result).__name__}: {result}", {})

    def _finish(self, outcome: RunOutcome, projection: Projection) -> RunReport:
        run = self._run
        if outcome.halt_reason is not None:
            self.note("WARNING", "dispatch", f"halted: {outcome.halt_reason}", {"code": outcome.halt_code})
        if (outcome.halt_code or "").startswith("policy_"):
            forget(self._policy.model, os.environ, cache_dir=cache_dir())
        status = run.status(outcome)
        try:
            document = projection.finish(status)
        except OsmosisError as error:
            if outcome.halt_reason is None:
                raise
            self._warn(error.message)  # the disk that ended the walk; the next start makes the snapshots
            document = projection.metrics("incomplete")
        if outcome.error is not None and not isinstance(outcome.error, OsmosisError):
            raise outcome.error
        if self._log.failed:
            self._relay.warning(None, self._log.failed)
        report = run.report(outcome, document)
        counts = {"graded": report.succeeded, "failed": report.failed, "skipped": report.skipped}
        self.note("INFO", "run", status, counts | {"cancelled": report.cancelled})
        return report

    def _warn(self, message: str, code: str | None = None) -> None:
        self.note("WARNING", "run", message, {})
        self._relay.warning(code, message)

    # -- signals

    def _grace(self) -> float:
        """Seconds between SIGTERM and SIGKILL for the rollout server; a further signal shortens them."""
        if self._stop.level is Stop.DRAIN and self._signals == 1:
            return INTERRUPTED_GRACE_S
        return 1.0 if self._stop.level is Stop.NO and self._signals else END_GRACE_S

    def _on_signal(self) -> None:
        self._signals += 1
        if self._signals >= 3:
            if self._pool is not None:
                self._pool.kill()
            if self._tunnel is not None:
                self._tunnel.kill()
            raise KeyboardInterrupt
        if self._phase == "walk":
            if self._stop.rise() is Stop.DRAIN:
                self._relay.stage("Interrupted: cancelling what is in flight (once more to stop at once)")
                self.note("WARNING", "cancel", "cancelling what is in flight", {})
        elif self._phase == "start" and self._main is not None:
            self._main.cancel()
