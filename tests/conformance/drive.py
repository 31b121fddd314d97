"""Drives a rollout server with the `RolloutClient` of whichever SDK runs this file; prints one JSON document.

Usage: drive.py '{"url": ..., "api_key": ..., "steps": [...]}'. A step has the keyword arguments of `run_rollout` under `run`,
or `cancel_after` seconds beside it, or `stop_for` seconds (the process stops itself once the rollout runs, so polls cease).
"""

import asyncio
import json
import os
import signal
import subprocess
import sys
from typing import Any

from osmosis_ai.rollout.client import RolloutClient


async def step(client: RolloutClient, spec: dict[str, Any]) -> dict[str, Any]:
    try:
        handle = await client.run_rollout_async(**spec["run"])
        if "cancel_after" in spec:
            await asyncio.sleep(spec["cancel_after"])
            await client.cancel_rollout(spec["run"]["rollout_id"])
        if "stop_for" in spec:
            await handle.wait_for_running()
            subprocess.Popen(["sh", "-c", f"sleep {spec['stop_for']}; kill -CONT {os.getpid()}"])
            os.kill(os.getpid(), signal.SIGSTOP)
        result = await handle
        return result.model_dump(mode="json")
    except Exception as error:
        return {"raised": type(error).__name__, "text": str(error), "status_code": getattr(error, "status_code", None)}


async def main() -> None:
    spec = json.loads(sys.argv[1])
    client = RolloutClient(url=spec["url"], api_key=spec.get("api_key"))
    health = await client.health() if spec.get("health", True) else None
    results = await asyncio.gather(*(step(client, item) for item in spec["steps"]))
    idle = await client.wait_idle(timeout_sec=20, poll_interval_sec=0.1) if spec.get("wait_idle") else None
    await client.aclose()
    print(json.dumps({"health": health, "results": results, "idle": idle}))


asyncio.run(main())
