"""A real HTTP server for an ASGI application, in a thread of its own, and backends made from plain functions."""

import contextlib
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import uvicorn
from osmosis_ai.rollout import AgentWorkflow, AgentWorkflowConfig, ConcurrencyConfig, Grader, LocalBackend


@contextlib.contextmanager
def hosted(app: Any) -> Iterator[str]:
    """Serve the application on a free loopback port; yields its URL; shuts it down properly."""
    config = uvicorn.Config(
        app, host="127.0.0.1", port=0, log_level="warning", access_log=False, timeout_graceful_shutdown=1
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    deadline = time.monotonic() + 20
    while not server.started:
        assert thread.is_alive() and time.monotonic() < deadline, "the server did not start"
        time.sleep(0.005)
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(timeout=30)
        assert not thread.is_alive(), "the server did not stop"


def local_backend(
    run: Callable[[Any], Awaitable[Any]],
    grade: Callable[[Any], Awaitable[Any]] | None = None,
    *,
    max_concurrent: int | None = 4,
) -> LocalBackend:
    """A LocalBackend whose workflow and grader are the two functions."""

    class FunctionWorkflow(AgentWorkflow):
        async def run(self, ctx):
            return await run(ctx)

    class FunctionGrader(Grader):
        async def grade(self, ctx):
            assert grade is not None
            return await grade(ctx)

    return LocalBackend(
        workflow=FunctionWorkflow,
        workflow_config=AgentWorkflowConfig(name="test", concurrency=ConcurrencyConfig(max_concurrent=max_concurrent)),
        grader=None if grade is None else FunctionGrader,
    )
