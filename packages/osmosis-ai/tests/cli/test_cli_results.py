import pytest
from osmosis_ai.cli.figures import (
    cause_text,
    count_text,
    dollars_text,
    duration_text,
    plural,
    rate_text,
    reward_text,
    size_text,
)
from osmosis_ai.cli.output import make_output
from osmosis_ai.cli.results import (
    Column,
    DetailResult,
    Fields,
    Lines,
    ListResult,
    ListsResult,
    OperationResult,
    Table,
    Text,
    exit_status,
    payload,
)
from osmosis_ai.errors import InteractiveRequiredError


def a_list(title: str = "Things", **facts) -> ListResult:
    table = Table(
        [Column("Name", keep=True), Column("Size", right=True)], [("a\tb", "1 KB"), (Text("c", "good"), "2")], title
    )
    return ListResult(items=[{"name": "a"}, {"name": "c"}], table=table, total_count=2, **facts)


def test_a_list_in_json():
    extras = {"git": {"identity": "a/b"}, "items": "never"}
    assert payload(a_list(has_more=True, next_offset=2, extras=extras)) == {
        "schema_version": 1,
        "items": [{"name": "a"}, {"name": "c"}],
        "total_count": 2,
        "has_more": True,
        "next_offset": 2,
        "git": {"identity": "a/b"},
    }


def test_two_lists_in_json():
    found = payload(ListsResult({"base_models": a_list(), "lora_models": a_list()}, extras={"schema_version": 9}))
    assert list(found) == ["schema_version", "base_models", "lora_models"]
    assert found["schema_version"] == 1
    assert list(found["lora_models"]) == ["items", "total_count", "has_more", "next_offset"]


def test_details_and_operations_in_json():
    assert payload(DetailResult({"a": 1}, [])) == {"schema_version": 1, "data": {"a": 1}}
    bare = OperationResult("test.do")
    assert payload(bare) == {"schema_version": 1, "status": "success", "operation": "test.do"}
    full = OperationResult(
        "test.do", "noop", {"id": 1}, "Done.", next_steps=["text"], next_steps_structured=[{"action": "x"}],
        extras={"platform_url": "u", "status": "never"},
    )  # fmt: skip
    assert list(payload(full)) == [
        "schema_version", "status", "operation", "resource", "message", "next_steps_structured", "platform_url",
    ]  # fmt: skip
    assert payload(full)["status"] == "noop"


@pytest.mark.parametrize(
    ("result", "status"),
    [
        (OperationResult("t", "partial"), 1), (OperationResult("t", "cancelled"), 0), (OperationResult("t", "noop"), 0),
        (OperationResult("t", exit_status=1), 1), (OperationResult("t", "partial", exit_status=0), 0),
        (DetailResult({}, [], exit_status=1), 1), (a_list(), 0),
    ],
)  # fmt: skip
def test_exit_statuses(result, status: int):
    assert exit_status(result) == status


def test_a_plain_list_is_one_line_an_item_without_header_or_hints(capsys: pytest.CaptureFixture[str]):
    make_output("plain", interactive=True).show(a_list(has_more=True, next_offset=2, hints=["a hint"]))
    assert capsys.readouterr().out == "a b\t1 KB\nc\t2\n"
    make_output("plain", interactive=True).show(ListsResult({"x": a_list("First"), "y": a_list("Second")}))
    assert capsys.readouterr().out == "First:\na b\t1 KB\nc\t2\nSecond:\na b\t1 KB\nc\t2\n"


def test_plain_details_and_operations(capsys: pytest.CaptureFixture[str]):
    blocks = [Fields([("Name", "x\ny"), ("State", Text("good", "good"))]), Lines(["one", "two"], "Log", 2), Lines([])]
    make_output("plain", interactive=False).show(DetailResult({}, blocks, hints=["then this"]))
    assert capsys.readouterr().out == "Name: x y\nState: good\nLog:\n  one\n  two\nthen this\n"
    make_output("plain", interactive=False).show(OperationResult("test.do", "noop", next_steps=["osmosis next"]))
    assert capsys.readouterr().out == "test.do: noop\nosmosis next\n"


def test_a_rich_list_says_when_there_is_more(capsys: pytest.CaptureFixture[str]):
    make_output("rich", interactive=False).show(a_list(has_more=True, next_offset=2))
    out = capsys.readouterr().out
    assert "Things" in out and "Name" in out
    assert "Showing 2 of 2. Use --all, or --limit, to see more." in out


@pytest.mark.parametrize("format", ["rich", "plain", "json"])
def test_nobody_to_ask_is_an_error_with_everything_one_would_have_read(format, capsys: pytest.CaptureFixture[str]):
    output = make_output(format, interactive=False)
    with pytest.raises(InteractiveRequiredError) as caught:
        output.confirm("Sure?", default=False, summary={"Model": "m"}, notes=["a note"], warnings=["a warning"])
    assert caught.value.details == {
        "prompt": "Sure?",
        "summary": {"Model": "m"},
        "notes": ["a note"],
        "warnings": ["a warning"],
    }
    out, err = capsys.readouterr()
    shown, other = (out, err) if format == "rich" else (err, out)
    assert other == ""
    for text in ("Sure?", "Model", "a note", "a warning"):
        assert (text in shown) is (format != "json")


def test_figures_for_people():
    assert [count_text(n) for n in (7, 999, 1234, 126_926, 1_234_567)] == ["7", "999", "1.23k", "127k", "1.23M"]
    assert [size_text(n) for n in (172, 1536, 5 * 2**20)] == ["172 B", "1.5 KB", "5.0 MB"]
    assert [duration_text(s) for s in (0.04, 9.96, 75, 59.7, 3660)] == ["0.0s", "10.0s", "1m 15s", "1m 00s", "1h 01m"]
    shown = [dollars_text(d) for d in (0, 0.00001, 0.0042, 0.25, 1.25, 1234.5)]
    assert shown == ["$0", "less than $0.0001", "$0.0042", "$0.25", "$1.25", "$1,234.50"]
    assert [reward_text(r) for r in (0, 1, 0.72727, -0.5, 1e-9)] == ["0.0", "1.0", "0.7273", "-0.5", "1e-09"]
    assert rate_text(0.2188) == "21.9%"
    assert (plural(1, "row"), plural(2000, "row")) == ("1 row", "2,000 rows")
    assert cause_text("grader", "agent_error") == "grader error"
    assert cause_text("infrastructure", "policy_timeout") == "infrastructure: policy_timeout"
