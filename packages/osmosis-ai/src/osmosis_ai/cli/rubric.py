"""Scores a file of answers with a judge: reads it, asks at most eight at a time, sums up.

Owns: the file's records, the report. How a judge is asked and read is the evaluation room's.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from osmosis_ai.cli.figures import plural, reward_text
from osmosis_ai.cli.output import Output, live_allowed
from osmosis_ai.cli.quiet import quiet_libraries
from osmosis_ai.cli.results import Block, Cell, Column, Fields, OperationResult, Table, Text
from osmosis_ai.errors import OsmosisError, PlatformError, ValidationError

if TYPE_CHECKING:
    from osmosis_ai.evaluation.rubric import RubricJudge

_IN_FLIGHT = 8
_REPORT_NAME = "rubric_eval_result.json"
_ROWS_SHOWN = 50


@dataclass(slots=True)
class Answer:
    """One record of the file, and what the judge made of it.

    Attributes:
        label: Its id, or `record[<number from 0>]`.
        solution: The text to score.
    """

    index: int
    label: str
    solution: str
    ground_truth: str | None = None
    original_input: str | None = None
    metadata: Mapping[str, Any] | None = None
    scores: list[float] = field(default_factory=list)
    explanations: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class RubricJob:
    """What the command line asks for."""

    data: str
    answers: Sequence[Answer]
    rubric: str
    model: str
    number: int
    output: str | None
    api_key: str | None
    timeout_s: float | None
    score_min: float
    score_max: float


def read_rubric(given: str) -> str:
    """The rubric: the text itself, or the file behind an `@`.

    Raises:
        ValidationError: The file cannot be read, or there is no text.
    """
    text = given
    if given.startswith("@"):
        try:
            text = Path(given[1:]).read_text(encoding="utf-8-sig")
        except OSError as error:
            raise ValidationError(f"Cannot read the rubric file {given[1:]}: {error.strerror}") from None
        except ValueError:
            raise ValidationError(f"The rubric file {given[1:]} is not UTF-8 text.") from None
    if not text.strip():
        raise ValidationError("--rubric must not be empty.")
    return text


def read_answers(given: str) -> list[Answer]:
    """The records of a JSONL file; blank lines are passed over.

    Raises:
        ValidationError: The file cannot be read, a line is no usable record (its number is named), or there is none.
    """
    path = Path(given)
    if path.is_dir():
        raise ValidationError(f"--data {given} is a directory; give a JSONL file.")
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise ValidationError(f"Cannot read --data {given}: {error.strerror}") from None
    answers: list[Answer] = []
    for number, line in enumerate(raw.removeprefix(b"\xef\xbb\xbf").split(b"\n"), 1):
        if line.strip():
            try:
                record = json.loads(line.decode("utf-8"))
                answers.append(_answer(record, len(answers)))
            except UnicodeDecodeError:
                raise ValidationError(f"{given}, line {number}: not UTF-8 text.") from None
            except (ValueError, RecursionError) as error:
                reason = f"not JSON ({error})" if isinstance(error, json.JSONDecodeError) else error
                raise ValidationError(f"{given}, line {number}: {reason}") from None
    if not answers:
        raise ValidationError(f"--data {given} holds no records.")
    return answers


def _answer(record: Any, index: int) -> Answer:
    if not isinstance(record, dict):
        raise ValueError("a record must be an object")
    for key in ("ground_truth", "original_input"):
        if record.get(key) is not None and not isinstance(record[key], str):
            raise ValueError(f"{key} must be text")
    if record.get("metadata") is not None and not isinstance(record["metadata"], dict):
        raise ValueError("metadata must be an object")
    identity = next((record[key] for key in ("id", "conversation_id") if record.get(key) not in (None, "")), None)
    return Answer(
        index=index + 1,
        label=str(identity) if identity is not None else f"record[{index}]",
        solution=_solution(record),
        ground_truth=record.get("ground_truth"),
        original_input=record.get("original_input"),
        metadata=record.get("metadata"),
    )


def _solution(record: Mapping[str, Any]) -> str:
    messages = record.get("messages")
    if messages is None:
        solution = record.get("solution_str")
        if not isinstance(solution, str) or not solution.strip():
            raise ValueError("it has neither messages nor a solution_str with text")
        return solution
    if not isinstance(messages, list):
        raise ValueError("messages must be a list")
    for message in reversed(messages):
        if isinstance(message, dict) and message.get("role") == "assistant" and (text := _text(message.get("content"))):
            return text
    raise ValueError("messages hold no assistant message with text")


def _text(content: Any) -> str:
    if isinstance(content, list):
        parts = [part.get("text") for part in content if isinstance(part, dict)]
        content = "\n".join(part for part in parts if isinstance(part, str))
    return content if isinstance(content, str) and content.strip() else ""


def score_answers(output: Output, job: RubricJob) -> OperationResult:
    """Have every answer judged, write the report, sum up.

    Raises:
        PlatformError: Some judgements failed; `details` holds the same facts as a result would.
        OsmosisError: There is no key, or the report cannot be written.
    """
    quiet_libraries()
    target = _target(job.output)
    done = _Counter(output, len(job.answers) * job.number)
    asyncio.run(_judge_all(job, done))
    done.close()
    everything = [score for answer in job.answers for score in answer.scores]
    errors = sum(len(answer.errors) for answer in job.answers)
    records = [_record(answer) for answer in job.answers]
    resource: dict[str, Any] = {
        "model": job.model,
        "data_path": job.data,
        "number": job.number,
        "statistics": _statistics(everything),
        "record_count": len(job.answers),
        "error_count": errors,
    }
    if target is not None:
        _write(target, job, resource["statistics"], records)
        resource["output_path"] = str(target)
    else:
        resource["records"] = records
    if errors:
        first = next(error for answer in job.answers for error in answer.errors)
        where = f" The report is in {target}." if target is not None else ""
        message = f"{plural(errors, 'judgement')} of {done.total} failed: {first}{where}"
        raise PlatformError(message, details=resource)
    mean = reward_text(resource["statistics"]["average"])
    return OperationResult(
        operation="eval.rubric",
        message=f"{plural(len(job.answers), 'answer')} scored, {mean} on average.",
        resource=resource,
        blocks=_blocks(job, resource, target),
    )


class _Counter:
    """Tells how many judgements are done: in place on a terminal, at most ten lines elsewhere."""

    def __init__(self, output: Output, total: int) -> None:
        self.total = total
        self._output = output
        self._done = 0
        self._live = output.format == "rich" and live_allowed()

    def __call__(self) -> None:
        self._done += 1
        text = f"{self._done}/{self.total} judged"
        if self._live:
            sys.stderr.write(f"\r{text}")
            sys.stderr.flush()
        elif self._done == self.total or self._done % max(1, self.total // 10) == 0:
            self._output.note(text)

    def close(self) -> None:
        if self._live:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()


async def _judge_all(job: RubricJob, done: Callable[[], None]) -> None:
    from osmosis_ai.evaluation.rubric import RubricJudge
    from osmosis_ai.extras import optional_imports

    slots = asyncio.Semaphore(_IN_FLIGHT)

    async def judge(with_judge: RubricJudge, answer: Answer) -> None:
        async with slots:
            try:
                result = await with_judge.score(
                    solution_str=answer.solution,
                    rubric=job.rubric,
                    ground_truth=answer.ground_truth,
                    original_input=answer.original_input,
                    metadata=answer.metadata,
                    score_min=job.score_min,
                    score_max=job.score_max,
                )
            except OsmosisError as error:
                answer.errors.append(error.message)
            else:
                answer.scores.append(result.score)
                answer.explanations.append(result.explanation)
        done()

    with optional_imports("rubric"):
        async with RubricJudge(job.model, api_key=job.api_key, timeout=job.timeout_s) as opened:
            try:
                async with asyncio.TaskGroup() as group:
                    for answer in job.answers:
                        for _ in range(job.number):
                            group.create_task(judge(opened, answer))
            except* (OsmosisError, ModuleNotFoundError) as failed:
                raise failed.exceptions[0] from None


def _statistics(values: Sequence[float]) -> dict[str, float]:
    from osmosis_ai.evaluation.statistics import mean, variance

    if not values:
        return dict.fromkeys(("average", "variance", "stdev", "min", "max"), 0.0)
    spread = variance(values, ddof=0)
    return {
        "average": mean(values),
        "variance": spread,
        "stdev": spread**0.5,
        "min": min(values),
        "max": max(values),
    }


def _record(answer: Answer) -> dict[str, Any]:
    return {
        "index": answer.index,
        "label": answer.label,
        "scores": answer.scores,
        "explanations": answer.explanations,
        "errors": answer.errors,
        "statistics": _statistics(answer.scores),
    }


def _target(given: str | None) -> Path | None:
    """Where the report goes; its folder must be there before anything is paid for."""
    if given is None:
        return None
    path = Path(given)
    if path.is_dir() or given.endswith("/"):
        path = path / _REPORT_NAME
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def _write(target: Path, job: RubricJob, statistics: Mapping[str, float], records: list[dict[str, Any]]) -> None:
    document = {
        "generated_at": datetime.now(UTC).isoformat(),
        "model": job.model,
        "rubric": job.rubric,
        "data_path": job.data,
        "number": job.number,
        "overall_statistics": statistics,
        "records": records,
    }
    text = json.dumps(document, indent=2, ensure_ascii=False) + "\n"
    target.write_bytes(text.encode("utf-8", "backslashreplace"))


def _blocks(job: RubricJob, resource: Mapping[str, Any], target: Path | None) -> list[Block]:
    columns = [Column("Answer"), Column("Score", right=True), Column("Why")]
    rows: list[Sequence[Cell]] = []
    for answer in sorted(job.answers, key=lambda answer: sum(answer.scores) / max(1, len(answer.scores))):
        own = _statistics(answer.scores)
        score = reward_text(own["average"]) + (f" ± {own['stdev']:.2g}" if job.number > 1 else "")
        rows.append((answer.label, Text(score, "accent"), answer.explanations[0] if answer.explanations else ""))
    more = len(rows) - _ROWS_SHOWN
    note = f"and {plural(more, 'answer')} more" if more > 0 else ""
    statistics = resource["statistics"]
    fields: list[tuple[str, Cell]] = [
        ("Judge", job.model),
        ("Answers", f"{len(job.answers):,}" + (f", {job.number} judgements each" if job.number > 1 else "")),
        ("Score", f"{reward_text(statistics['average'])}  ({statistics['min']:g} to {statistics['max']:g})"),
    ]
    if target is not None:
        fields.append(("Report", str(target)))
    return [Table(columns, rows[:_ROWS_SHOWN], title="Scores, the lowest first", note=note), Fields(fields)]
