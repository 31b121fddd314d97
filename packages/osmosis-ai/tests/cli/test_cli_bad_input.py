"""Whatever a user hands over, the answer is a result or an error that names something: never an internal error."""

import io
import json
import os
import random
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import evaluation_workspace as ew
import pytest
from osmosis_ai.cli import program

DATA = {
    "binary.jsonl": b"\xff\xfe",
    "surrogate.jsonl": b'{"user_prompt": "\\ud800", "ground_truth": 1e400}\n' * 4,
    "deep.jsonl": b"[" * 50_000 + b"\n",
    "torn.csv": b'a,b\n"x',
    "windows.csv": b'\xef\xbb\xbfuser_prompt,ground_truth\r\n"a\nb",nan\r\n',
    "blank.jsonl": b"\n\n",
    "short.parquet": b"PAR1",
    "nested.jsonl": b'{"metadata":' + b'{"a":' * 2000 + b"1" + b"}" * 2001 + b"\n",
    "empty.jsonl": b"",
}
GOOD = '[experiment]\nrollout = "loop"\nentrypoint = "main.py"\nmodel_path = "%s"\ndataset = "d"\n[secrets]\nrequired = []\n'
CONFIGS = {
    "binary.toml": b"\xff",
    "deep.toml": b"a = " + b"[" * 5000,
    "scalar.toml": b"experiment = 1",
    "unknown.toml": (GOOD % "nope").encode(),
    "embedded.toml": (GOOD % "osmosis/none").encode(),
    "nul.toml": (GOOD % "openai/x").replace("main.py", "\\u0000").encode(),
    "huge.toml": b"[evaluation]\nn = 99999999999999999999999\npass_threshold = 1e309\n",
}
VERDICT = b'{"row_index":0,"run_index":0,"rollout_id":"a","status":"success","reward":1e308}\n'
ODD_MANIFEST = {
    "schema_version": 1,
    "local_run_id": "0" * 32,
    "run_name": "r",
    "created_at": "x",
    "inputs": {"dataset": 3, "rollout": [], "n": "x", "model_path": 5},
}
ODD_TRAJECTORY = b'{"steps":[{"message":[1,{"text":2}],"tool_calls":{},"observation":3,"metrics":[]}]}'
RUNS: dict[str, dict[str, bytes]] = {
    "bare": {"events.jsonl": b""},
    "torn": {"manifest.json": b"{"},
    "odd": {"manifest.json": json.dumps(ODD_MANIFEST).encode(), "events.jsonl": VERDICT},
    "half": {"events.jsonl": VERDICT + b'{"row'},
    "strange": {"events.jsonl": VERDICT, "trajectories/row_0_run_0.json": ODD_TRAJECTORY},
    "binary": {"manifest.json": b"\xff"},
    "list": {"metrics.json": b"[]", "summary.jsonl": b"[]\n"},
}


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    work = ew.make_workspace(tmp_path_factory.mktemp("w"))
    for folder, files in (("data", DATA), ("configs/eval", CONFIGS)):
        for name, content in files.items():
            (work / folder / name).write_bytes(content)
    for run, files in RUNS.items():
        for name, content in files.items():
            path = work / ".osmosis/evals" / run / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
    (work / "bad.env").write_bytes(b"A=1\n\xff=\n")
    return work


def command_line(chance: random.Random) -> list[str]:
    """Arguments that make no sense in some way."""
    long = "x" * 5000
    pick = chance.choice
    datasets = [f"data/{name}" for name in DATA] + ["data", "none", "", "/dev/null", "/proc/self/mem", long, "\udcff"]
    configs = [f"configs/eval/{name}" for name in CONFIGS] + [
        "configs/eval",
        "none.toml",
        "",
        f"configs/eval/{long}.toml",
    ]
    runs = [*RUNS, ".osmosis/evals/odd", "nope", ".", "..", "", "data", "a/b", "~", "\udcff", long, ".locks"]
    numbers = ["0", "1", "-1", "x", "9" * 40, "nan"]
    match pick(["view", "compare", "validate", "run", "rubric", "init", "root"]):
        case "view":
            words = ["eval", "view", pick(runs), *pick([[], ["--row", pick(numbers)], ["--failed"], ["--all"]])]
        case "compare":
            words = ["eval", "compare", pick(runs), pick(runs), *pick([[], ["--any-dataset"]])]
        case "validate":
            words = ["dataset", "validate", pick(datasets)]
        case "run":
            words = ["eval", "run", pick(configs), "--dataset-file", pick(datasets)]
            words += pick(
                [[], ["--rows", pick([*numbers, "5-2", ""])], ["--name", pick(["a/b", "..", ".locks", "", long])]]
            )
            words += pick(
                [[], ["--output", pick(["/dev/null", "rollouts/loop", "/proc/x"])], ["--max-cost", pick(numbers)]]
            )
        case "rubric":
            words = [
                "eval",
                "rubric",
                "-d",
                pick(datasets),
                "-r",
                pick(["x", "@", "@data", "@bad.env", ""]),
                "--model",
                "x",
            ]
        case "init":
            words = ["rollout", "init", pick(["A", "", "../x", "a" * 300, "\udcff", "default"])]
        case _:
            words = [
                pick(["", "eval", "help", "--env-file", "--platform"]),
                pick(["", "bad.env", "data", "http://[::1"]),
            ]
    return [*pick([[], ["--json"], ["--plain"]]), *words]


@pytest.mark.parametrize("seed", range(4))
def test_no_input_is_an_internal_error(work: Path, seed: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(work)
    chance = random.Random(seed)
    for _ in range(150):
        arguments = command_line(chance)
        before = dict(os.environ)
        out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2))
        with redirect_stdout(out), redirect_stderr(err):
            status = program.run(list(arguments))
        os.environ.clear()
        os.environ.update(before)
        err.flush()
        said = err.buffer.getvalue().decode()
        assert status in (0, 1, 2), arguments
        assert "INTERNAL" not in said and "internal error" not in said and "Traceback" not in said, (arguments, said)
        assert status == 0 or said, arguments
        if "--json" in arguments and status:
            assert json.loads(said.splitlines()[-1])["error"]["message"]
