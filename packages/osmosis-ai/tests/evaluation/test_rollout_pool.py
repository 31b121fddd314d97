"""The pool's own faults: what happens to a server that nobody watches any more."""

import asyncio
import sys
from pathlib import Path

from osmosis_ai.evaluation.pool import RolloutPool
from osmosis_ai.evaluation.rollout_server import RolloutServer, ServerSpec
from osmosis_ai.redaction import Redactor
from osmosis_cli import environment

PLAIN = Path(__file__).resolve().parents[4] / "tests/conformance/rollouts/plain/main.py"


class Blind(RolloutPool):
    """Its first watch fails by a fault of its own; the others watch."""

    watches = 0

    async def _watch(self, server: RolloutServer) -> None:
        self.watches += 1
        if self.watches == 1:
            raise LookupError("a fault of the watch")
        await super()._watch(server)


async def test_a_watch_that_fails_is_said_and_its_server_is_replaced(tmp_path):
    said: list[tuple[str, str]] = []
    spec = ServerSpec(
        python=Path(sys.executable),
        rollout_dir=PLAIN.parent,
        entrypoint=PLAIN,
        shown="rollouts/plain/main.py",
        environ=environment(tmp_path),
        api_key="k",
        artifact_root=tmp_path / "artifacts",
        record_path=tmp_path / "server.json",
        log_path=tmp_path / "logs.txt",
        redactor=Redactor(()),
    )
    pool = Blind(spec, log=lambda level, _what, text, _facts: said.append((level, text)))
    await pool.start()
    first = pool._server
    assert first is not None
    try:
        assert "a fault of the watch" in await asyncio.wait_for(first.lost, 10)
        second = await asyncio.wait_for(pool.acquire(), 30)
        assert second is not first and not second.lost.done()
        assert next(text for level, text in said if level == "ERROR").endswith("LookupError: a fault of the watch")
    finally:
        assert await pool.stop(lambda: 1.0)
