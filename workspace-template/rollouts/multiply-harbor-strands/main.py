"""Multiply two numbers with a tool, each try in a sandbox of its own: a Strands agent in Harbor trials."""

import os
from pathlib import Path

from harbor.models.trial.config import EnvironmentConfig
from harbor.trial.queue import TrialQueue
from multiply_agent.workflow import MultiplyGrader, MultiplyWorkflow
from osmosis_ai.rollout.backend.harbor import HarborBackend
from osmosis_ai.rollout.server import create_rollout_server

SANDBOXES = 4  # at the same time

backend = HarborBackend(
    orchestrator=TrialQueue(n_concurrent=SANDBOXES),
    tasks_dir=Path(__file__).resolve().parent / "task",
    agent=MultiplyWorkflow,  # packed into a wheel and installed in the sandbox, as is the grader
    grader=MultiplyGrader,
    environment_config=EnvironmentConfig(type=os.environ.get("SANDBOX", "docker")),
    max_queue_depth=4 * SANDBOXES,
)
app = create_rollout_server(backend=backend)

if __name__ == "__main__":
    import uvicorn

    uvicorn.run(
        app,
        host=os.environ.get("_OSMOSIS_ROLLOUT_HOST", "127.0.0.1"),
        port=int(os.environ.get("_OSMOSIS_ROLLOUT_PORT", "8000")),
        timeout_keep_alive=2160,  # longer than the platform's load balancer keeps a connection
        access_log=False,
    )
