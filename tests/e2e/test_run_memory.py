"""What a run of many rows costs the supervisor in memory, whatever it has recorded already."""

import json
import os
import subprocess
import sys

import evaluation_workspace as ew
from osmosis_ai.evaluation.run import EvaluationRun
from osmosis_cli import OSMOSIS
from stub_provider import StubProvider

ROWS = 10_000
LEFT = 20
LIMIT_KIB = 120 * 1024

MEASURE = """
import resource, subprocess, sys
status = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL).returncode
print(status, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""


def test_ten_thousand_rows_stay_below_120_megabytes(tmp_path):
    rows = [{"user_prompt": f"say {row}", "ground_truth": f"say {row}"} for row in range(ROWS)]
    workspace = ew.make_workspace(tmp_path, rows)
    with EvaluationRun.open(ew.request_for(workspace, name="r"), warn=lambda code, text: None) as run:
        run_dir = run.run_dir
    with (run_dir / "events.jsonl").open("w") as journal:
        for row in range(ROWS - LEFT):
            record = {
                "row_index": row, "run_index": 0, "source_row_index": row, "rollout_id": f"{row:032x}",
                "status": "success", "reward": 1.0, "tokens": 60, "duration_ms": 12.5,
            }  # fmt: skip
            journal.write(json.dumps(record) + "\n")
    with StubProvider(record=False) as provider:
        environ = os.environ | provider.environ() | {"XDG_CACHE_HOME": str(ew.CACHE)}
        words = [
            OSMOSIS, "--json", "eval", "run", "configs/eval/loop.toml", "--dataset-file", "data/rows.jsonl",
            "--name", "r", "--yes",
        ]  # fmt: skip
        done = subprocess.run(
            [sys.executable, "-c", MEASURE, *words], cwd=workspace, env=environ, capture_output=True, text=True
        )
    status, peak_kib = map(int, done.stdout.split())
    assert status == 0, done.stderr
    assert peak_kib <= LIMIT_KIB
    assert len((run_dir / "events.jsonl").read_text().splitlines()) == ROWS
