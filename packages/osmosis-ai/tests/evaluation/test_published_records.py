"""The published package reads what we write, and computes what we compute. It is run, in a venv of its own, not read."""

import json
import random
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from osmosis_ai.errors import ValidationError
from osmosis_ai.evaluation.journal import FileJournal
from osmosis_ai.evaluation.manifest import read_manifest, write_manifest
from osmosis_ai.evaluation.metrics import summarise
from osmosis_ai.evaluation.names import check_run_name
from osmosis_ai.evaluation.projection import Projection
from osmosis_ai.evaluation.readers import Row
from osmosis_ai.evaluation.results import read_run
from osmosis_ai.evaluation.rows import format_selector, normalise, parse_selector
from osmosis_ai.evaluation.validate import validate_dataset
from osmosis_ai.evaluation.verdict import Attempt, Failure, Fault, Outcome, Verdict

PUBLISHED_PYTHON = Path(__file__).parents[4] / ".cache/published-0.3.8/bin/python"
PUBLISHED_RUN = Path(__file__).parent / "pub"

pytestmark = pytest.mark.published


def ask(code: str, question: Any) -> Any:
    """Run code in the published package's venv: `question` in, `answer` out."""
    program = f"import json, sys\nfrom pathlib import Path\nquestion = json.load(sys.stdin)\n{code}\nprint(json.dumps(answer))"
    done = subprocess.run([PUBLISHED_PYTHON, "-c", program], input=json.dumps(question), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


async def our_copy_of_the_published_run(root: Path) -> Path:
    """The trials of the published run, recorded and projected by us, with everything we add."""
    theirs = read_run(PUBLISHED_RUN)
    run_dir = root / "ours"
    shutil.copytree(PUBLISHED_RUN / "rollout_trials", run_dir / "rollout_trials")
    assert theirs.manifest is not None
    write_manifest(
        run_dir,
        run_name="ours",
        inputs=theirs.manifest.inputs,
        pass_threshold=1.0,
        provenance=theirs.manifest.provenance,
    )
    manifest = read_manifest(run_dir)
    assert manifest is not None
    journal = FileJournal.open(run_dir)
    projection = Projection(
        run_dir,
        manifest,
        journal.records(),
        dataset_name="multiply",
        total_dataset_rows=64,
        sampled_rows=7,
        pass_threshold=1.0,
    )
    journal.attempt(Attempt(0, 0, "e" * 32, 1, Failure(Fault.INFRASTRUCTURE, "server_died", "gone")))
    for key, entry in theirs.verdicts.items():
        facts: dict[str, Any] = {"outcome": Outcome.GRADED, "reward": entry.reward}
        if key == (1, 1):
            facts = {"outcome": Outcome.FAILED, "failure": Failure(Fault.GRADER, "agent_error", "boom\nü", "Traceback")}
        elif key == (2, 0):
            facts = {"outcome": Outcome.SKIPPED}
        verdict = Verdict(
            *key, entry.rollout_id, source_row_index=entry.source_row_index, tokens=entry.tokens, cost_usd=0.1,
            duration_ms=entry.duration_ms, attempts=2, metrics={"accuracy": 0.5}, **facts,
        )  # fmt: skip
        await journal.record(verdict)
        projection.verdict(verdict)
    projection.finish("finished")
    await journal.close()
    (run_dir / "logs.txt").touch()
    return run_dir


async def test_a_run_of_ours_can_be_uploaded_by_the_published_client(tmp_path: Path) -> None:
    run_dir = await our_copy_of_the_published_run(tmp_path)
    plan = ask(
        "from osmosis_ai.eval.local.upload import build_eval_upload_plan\n"
        "plan = build_eval_upload_plan(Path(question))\n"
        "answer = {'id': plan.local_run_id, 'digest': plan.manifest_digest, 'run': plan.run,"
        " 'files': [file.path for file in plan.files]}",
        str(run_dir),
    )
    manifest = read_manifest(run_dir)
    assert manifest is not None
    assert (plan["id"], plan["digest"]) == (manifest.local_run_id, manifest.digest)
    assert plan["run"]["evaluation_config"] == {"n": 2, "pass_threshold": 1.0}
    assert {"index.jsonl", "progress.json", "logs.txt"} <= set(plan["files"])
    assert sum(path.endswith("/trajectory.json") for path in plan["files"]) == 14
    assert not {"manifest.json", "events.jsonl", "attempts.jsonl", "metrics.json"} & set(plan["files"])


async def test_the_published_client_replays_our_journal(tmp_path: Path) -> None:
    run_dir = await our_copy_of_the_published_run(tmp_path)
    records = ask(
        "from osmosis_ai.eval.local.state import TerminalJournal\n"
        "replay = TerminalJournal(Path(question)).replay()\n"
        "answer = [[r.row_index, r.run_index, r.rollout_id, r.status, r.reward, r.tokens, r.error_type] for r in replay.records]",
        str(run_dir / "events.jsonl"),
    )
    ours = read_run(run_dir).verdicts
    assert records == [
        [*key, entry.rollout_id, entry.outcome.value, entry.reward, entry.tokens, entry.error_type]
        for key, entry in ours.items()
    ]


def test_the_summaries_agree_on_random_runs() -> None:
    generator = random.Random(3)
    questions: list[dict[str, Any]] = []
    expected: list[dict[str, Any]] = []
    for _ in range(60):
        rows, n, threshold = generator.randint(0, 6), generator.randint(1, 9), generator.choice([0.0, 0.5, 1.0])
        verdicts = [
            Verdict(
                row, run, "f" * 32, generator.choice(list(Outcome)),
                reward=generator.choice([None, 0.0, 0.25, 0.5, 1.0, -1.5]), tokens=generator.choice([None, 0, 70]),
            )
            for row in range(rows) for run in range(n) if generator.random() < 0.9
        ]  # fmt: skip
        lines = [
            {"row_index": v.row_index, "run_index": v.run_index, "status": v.outcome.value}
            | ({} if v.reward is None else {"reward": v.reward})
            | ({} if v.tokens is None else {"tokens": v.tokens})
            for v in verdicts
        ]
        questions.append({"rows": lines, "threshold": threshold})
        expected.append(summarise(verdicts, threshold, n))
    answers = ask(
        "from osmosis_ai.eval.local.results import aggregate_metrics\n"
        "answer = [aggregate_metrics(q['rows'], pass_threshold=q['threshold']) for q in question]",
        questions,
    )
    assert rounded(expected) == rounded(answers)


def rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: rounded(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [rounded(inner) for inner in value]
    return round(value, 12) if isinstance(value, float) else value


def test_rows_become_the_same_messages_labels_and_metadata() -> None:
    rows: list[dict[str, Any]] = [
        {"user_prompt": "a", "ground_truth": "b"},
        {"user_prompt": 5, "ground_truth": True},
        {"user_prompt": " ", "ground_truth": " x "},
        {"user_prompt": "a", "ground_truth": "", "label": "L"},
        {"user_prompt": "a", "ground_truth": None, "label": 3},
        {"user_prompt": "a", "label": {"x": 1}},
        {"user_prompt": "a", "metadata": None},
        {"system_prompt": "s", "metadata": {}},
        {"metadata": {"a": [1, {"b": None}]}},
        {"metadata": '{"a": 1}', "system_prompt": "s", "user_prompt": "u", "ground_truth": 1.5},
        {"user_prompt": "a", "metadata": "[1]"},
        {"user_prompt": "a", "metadata": "nope"},
        {"metadata": "{}"},
        {"user_prompt": "a"},
        {"ground_truth": "a"},
        {"user_prompt": "", "ground_truth": "a"},
        {"user_prompt": "a", "ground_truth": ""},
    ]
    answers = ask(
        "from osmosis_ai.eval.local.dataset import normalize_row\n"
        "def one(row):\n"
        "    try:\n"
        "        made = normalize_row(row, row_index=0, source_row_index=0)\n"
        "        return [made.initial_messages, made.label, made.metadata]\n"
        "    except Exception:\n"
        "        return None\n"
        "answer = [one(row) for row in question]",
        rows,
    )
    for row, answer in zip(rows, answers, strict=True):
        content, findings = normalise(Row(0, 1, 1, row), "jsonl")
        assert (None if findings else [list(content.messages), content.label, content.metadata]) == answer, row


def test_selectors_and_run_names_agree() -> None:
    generator = random.Random(5)
    sets = [sorted(generator.sample(range(30), generator.randint(1, 20))) for _ in range(50)]
    names = [
        "a",
        "_x",
        "é-1",
        "²",
        ".a",
        "-a",
        "a b",
        "",
        "a/b",
        "a" * 96,
        "a" * 97,
        "CON",
        "x.archive-1",
        "a\n",
        ".locks",
    ]
    answers = ask(
        "from osmosis_ai.eval.local.dataset import format_row_selector\n"
        "from osmosis_ai.eval.local.state import validate_run_name\n"
        "def good(name):\n"
        "    try: validate_run_name(name); return True\n"
        "    except Exception: return False\n"
        "answer = [[format_row_selector(s) for s in question[0]], [good(n) for n in question[1]]]",
        [sets, names],
    )
    assert [format_selector(indices) for indices in sets] == answers[0]
    assert all(parse_selector(text) for text in answers[0])
    assert [is_name(name) for name in names] == answers[1]


def is_name(name: str) -> bool:
    try:
        return bool(check_run_name(name))
    except ValidationError:
        return False


def test_what_the_published_validation_refuses_we_refuse(tmp_path: Path) -> None:
    generator = random.Random(7)
    values: list[Any] = [1, 1.5, "s", True, None, {}, {"b": 1}, {"b": "x"}, [], [1], ["x"], 2**63, [{"c": {}}]]
    paths = []
    for number in range(40):
        rows = [{"metadata": {"a": generator.choice(values)}} for _ in range(generator.randint(3, 6))]
        if number % 5 == 0:
            rows = [{"user_prompt": "q", generator.choice(["label", "ground_truth"]): "a"} for _ in rows]
        path = tmp_path / f"{number}.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        paths.append(str(path))
    answers = ask(
        "from osmosis_ai.platform.cli.dataset import _validate_file_with_warnings as check\n"
        "answer = [check(Path(p), 'jsonl')[0] for p in question]",
        paths,
    )
    for path, theirs in zip(paths, answers, strict=True):
        ours = [str(error["message"]) for error in validate_dataset(Path(path)).errors]
        assert ours[:5] == theirs[:5], Path(path).read_text()
