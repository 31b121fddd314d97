"""The kept copy of a platform's dataset while another run fetches it too."""

import os

import pytest
from osmosis_ai.cli.output import make_output
from osmosis_ai.cli.platform_dataset import fetch_dataset
from osmosis_ai.client.session import open_client
from osmosis_ai.client.transfer.partial import partial_file
from osmosis_ai.errors import OsmosisError
from osmosis_cli import environment
from stub_api import Answer, StubApi

DATA = b'{"user_prompt": "q", "ground_truth": "a"}\n' * 9000
DATASET = {
    "id": "ds_1", "file_name": "m", "file_size": len(DATA), "status": "uploaded", "file_format": "jsonl",
    "created_at": "2026-11-01T10:00:00Z", "updated_at": "2026-11-01T10:05:00Z",
}  # fmt: skip


def test_two_runs_that_fetch_a_dataset_neither_wait_nor_leave_anything(tmp_path, monkeypatch):
    folder = tmp_path / ".cache/osmosis/datasets/ds_1"
    folder.mkdir(parents=True)
    with StubApi() as api:
        api.routes |= {
            "GET /api/cli/datasets/m": DATASET,
            "GET /api/cli/datasets/m/download": {"presigned_url": f"{api.url}/m.jsonl"},
            "GET /m.jsonl": [Answer(data=DATA, cut_after=300_000, headers={"ETag": '"v1"'}), Answer(status=503)],
        }
        monkeypatch.setattr(os, "environ", environment(tmp_path, **api.environment()))
        output = make_output("json", interactive=False)
        with open_client(None, warn=output.warn) as client, partial_file(folder / "arriving.jsonl.partial"):
            with pytest.raises(OsmosisError):
                fetch_dataset(output, client, "m")
            assert [path.name for path in folder.iterdir()] == ["arriving.jsonl.partial"]
            api.routes["GET /m.jsonl"] = Answer(data=DATA)
            assert fetch_dataset(output, client, "m").dataset.total_rows == 9000
            assert sum(path.suffix == ".jsonl" for path in folder.iterdir()) == 1
