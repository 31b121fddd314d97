"""The recorded cases replayed on the published client itself, so that recorded facts stay facts.

A tenth of them by default, since its start costs a second; `OSMOSIS_ALL_CASES=1` replays all (ten minutes). Those of
`eval rubric` are left out: there LiteLLM writes log lines of its own, which depend on the network.
"""

import json
import os
from pathlib import Path

import pytest
from cli_cases import differences, run_case
from published import VENV, needs_published

pytestmark = needs_published

HERE = Path(__file__).parent
CASES = [
    json.loads(line)
    for name in ("cli_cases.jsonl", "cli_cases_own.jsonl")
    for line in (HERE / name).read_text(encoding="utf-8").splitlines()
]
CASES = [case for case in CASES if not case["id"].startswith("rubric-")]
CHOSEN = CASES if os.environ.get("OSMOSIS_ALL_CASES") == "1" else CASES[::10]


@pytest.mark.parametrize("case", CHOSEN, ids=lambda case: case["id"])
def test_a_recorded_case_is_what_the_published_client_does(case, tmp_path):
    assert not differences(case, run_case(case, tmp_path.resolve(), VENV / "bin/osmosis"))
