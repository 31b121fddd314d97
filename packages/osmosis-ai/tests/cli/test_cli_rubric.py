import json
from pathlib import Path

import pytest
from osmosis_cli import environment, osmosis
from stub_provider import StubProvider

GOOD = 'openai/text:{"score": 0.5, "explanation": "It will do."}'


@pytest.fixture(scope="module")
def stub():
    with StubProvider() as provider:
        yield provider


@pytest.fixture
def env(stub, tmp_path: Path) -> dict[str, str]:
    return environment(tmp_path, **stub.environ())


@pytest.fixture
def answers(tmp_path: Path) -> Path:
    records = [
        {"id": "first", "solution_str": "42", "ground_truth": "42"},
        {"messages": [{"role": "assistant", "content": [{"type": "text", "text": "Hi"}]}, {"role": "user", "content": "x"}]},
    ]  # fmt: skip
    path = tmp_path / "answers.jsonl"
    path.write_text("\n".join(["", *map(json.dumps, records), ""]))
    return path


def test_every_answer_is_scored(env, answers: Path, tmp_path: Path):
    done = osmosis(
        "--json", "eval", "rubric", "-d", str(answers), "-r", "Is it good?", "--model", GOOD, "-n", "2",
        cwd=tmp_path, env=env,
    )  # fmt: skip
    assert (done.status, done.stderr) == (0, "")
    resource = done.json["resource"]
    assert done.json["operation"] == "eval.rubric"
    assert list(resource) == ["model", "data_path", "number", "statistics", "record_count", "error_count", "records"]
    assert [record["label"] for record in resource["records"]] == ["first", "record[1]"]
    assert resource["records"][0]["scores"] == [0.5, 0.5]
    assert resource["records"][0]["index"] == 1
    assert resource["statistics"] == {"average": 0.5, "variance": 0.0, "stdev": 0.0, "min": 0.5, "max": 0.5}


@pytest.mark.parametrize(("output", "made"), [("report.json", "report.json"), ("out/", "out/rubric_eval_result.json")])
def test_the_report_is_a_file(env, answers: Path, tmp_path: Path, output: str, made: str):
    (tmp_path / "rubric.txt").write_text("Is it good?")
    done = osmosis(
        "eval", "rubric", "-d", str(answers), "-r", "@rubric.txt", "--model", GOOD, "-o", output, cwd=tmp_path, env=env
    )
    assert done.status == 0
    assert "2 answers scored, 0.5 on average." in done.stdout
    report = json.loads((tmp_path / made).read_text())
    assert report["rubric"] == "Is it good?"
    assert [record["errors"] for record in report["records"]] == [[], []]


def test_a_failed_judgement_fails_the_command_after_the_report_is_written(env, answers: Path, tmp_path: Path):
    done = osmosis(
        "--json", "eval", "rubric", "-d", str(answers), "-r", "x", "--model", "openai/text:no verdict", "-o", "r.json",
        cwd=tmp_path, env=env,
    )  # fmt: skip
    assert (done.status, done.error["code"]) == (1, "PLATFORM_ERROR")
    assert done.error["details"]["error_count"] == 2
    assert done.error["details"]["output_path"] == "r.json"
    assert json.loads((tmp_path / "r.json").read_text())["records"][0]["errors"]


def test_an_argument_key_is_deprecated_and_never_shown(env, answers: Path, tmp_path: Path):
    done = osmosis(
        "--json", "eval", "rubric", "-d", str(answers), "-r", "x", "--model", GOOD, "--api-key", "sk-very-secret",
        cwd=tmp_path, env=env,
    )  # fmt: skip
    assert done.status == 0
    assert done.objects[0]["warning"]["code"] == "DEPRECATION"
    assert "sk-very-secret" not in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["-n", "0"], "--number"),
        (["--timeout", "0"], "--timeout"),
        (["--score-min", "1", "--score-max", "1"], "--score-max"),
        (["--score-max", "nan"], "--score-max"),
        (["-r", "@nowhere.txt"], "nowhere.txt"),
        (["-r", " "], "--rubric"),
        (["-d", "."], "directory"),
        (["-d", "none.jsonl"], "none.jsonl"),
        (["--model", " "], "--model"),
    ],
)
def test_arguments_are_checked_first(answers: Path, tmp_path: Path, flags: list[str], said: str):
    given = {"-d": str(answers), "-r": "x", "--model": "openai/x"} | dict(zip(flags[::2], flags[1::2], strict=True))
    done = osmosis("--json", "eval", "rubric", *(word for pair in given.items() for word in pair), cwd=tmp_path)
    assert (done.status, done.error["code"]) == (1, "VALIDATION")
    assert said in done.error["message"]
    assert len(done.objects) == 1


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b"{bad", "line 2"), (b"[1]", "object"), (b'{"messages": []}', "assistant"), (b'{"solution_str": " "}', "text"),
        (b'{"solution_str": "x", "ground_truth": 3}', "ground_truth"), (b'{"solution_str": "\xff"}', "UTF-8"),
        (b"[" * 100000, "line 2"), (b'{"solution_str": "x", "metadata": []}', "metadata"),
    ],
)  # fmt: skip
def test_a_bad_line_is_named(tmp_path: Path, line: bytes, said: str):
    (tmp_path / "a.jsonl").write_bytes(b'{"solution_str": "ok"}\n' + line + b"\n")
    done = osmosis("--json", "eval", "rubric", "-d", "a.jsonl", "-r", "x", "--model", "openai/x", cwd=tmp_path)
    assert (done.status, done.error["code"]) == (1, "VALIDATION")
    assert "line 2" in done.error["message"] and said in done.error["message"]
