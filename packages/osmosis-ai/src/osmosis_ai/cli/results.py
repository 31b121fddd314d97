"""What a command returns: small data that each output format draws in its own way.

Owns: the kinds of results of the output contract and the blocks they are made of. Knows no format and no terminal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from osmosis_ai.cli.graph import Series

type Role = Literal["good", "bad", "warn", "waiting", "active", "dim", "strong", "accent"]
"""What a piece of text means; a terminal shows it as a colour, the other formats as nothing."""


@dataclass(frozen=True, slots=True)
class Text:
    """Text with a meaning.

    Attributes:
        value: What is written.
        role: What it means.
        short: What a table on a terminal shows in its place, where room is scarce, such as an age for a date.
    """

    value: str
    role: Role | None = None
    short: str | None = None

    def __str__(self) -> str:
        return self.value


type Cell = str | Text


@dataclass(frozen=True, slots=True)
class Column:
    """A table's column.

    Attributes:
        name: Its heading.
        right: Whether numbers stand at the right edge.
        keep: Whether its cells stay on one line as long as they can.
    """

    name: str
    right: bool = False
    keep: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """Rows under headings.

    Attributes:
        label: What one row is, said in front of each in plain text instead of the headings.
    """

    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]
    title: str = ""
    note: str = ""
    label: str = ""


@dataclass(frozen=True, slots=True)
class Fields:
    """Labels with their values."""

    rows: Sequence[tuple[str, Cell]]
    title: str = ""


@dataclass(frozen=True, slots=True)
class Lines:
    """Lines of text, wrapped to the terminal's width where they are longer.

    Attributes:
        indent: Columns in front of every line.
    """

    lines: Sequence[Cell]
    title: str = ""
    indent: int = 0


@dataclass(frozen=True, slots=True)
class Plot:
    """Curves over steps, for people; plain text leaves it out, so a table beside it carries the figures.

    Attributes:
        series: The curves.
        roles: The meaning of each.
        height: Rows of the plot itself.
    """

    series: Sequence[Series]
    roles: Sequence[Role]
    title: str = ""
    height: int = 12


@dataclass(frozen=True, slots=True)
class Graphs:
    """Metrics as sparklines, one a row: title and values. Shown only on terminals of 100 columns and more."""

    rows: Sequence[tuple[str, Sequence[float]]]
    title: str = ""


type Block = Table | Fields | Lines | Plot | Graphs


@dataclass(frozen=True, slots=True)
class ListResult:
    """Things of one kind, a page of them or all."""

    items: Sequence[Mapping[str, Any]]
    table: Table
    total_count: int
    has_more: bool = False
    next_offset: int | None = None
    hints: Sequence[str] = ()
    extras: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ListsResult:
    """Two lists under their keys."""

    lists: Mapping[str, ListResult]
    extras: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DetailResult:
    """One thing, looked at closely.

    Attributes:
        data: What JSON carries under `data`.
        blocks: What the other formats show.
        exit_status: 1 where the thing itself is bad news.
    """

    data: Mapping[str, Any]
    blocks: Sequence[Block]
    title: str = ""
    hints: Sequence[str] = ()
    exit_status: int = 0


type Status = Literal["success", "partial", "noop", "cancelled", "no_update"]


@dataclass(frozen=True, slots=True)
class OperationResult:
    """Something was done.

    Attributes:
        operation: Its stable name, such as `eval.run`.
        status: `partial` ends with exit status 1.
        resource: What JSON carries under `resource`.
        message: One line for people.
        blocks: Shown before the message in the text formats.
        next_steps: Commands or sentences that follow, for people.
        next_steps_structured: The same for machines.
        exit_status: Overrides the status's own.
    """

    operation: str
    status: Status = "success"
    resource: Mapping[str, Any] | None = None
    message: str = ""
    blocks: Sequence[Block] = ()
    next_steps: Sequence[str] = ()
    next_steps_structured: Sequence[Mapping[str, Any]] = ()
    extras: Mapping[str, Any] = field(default_factory=dict)
    exit_status: int | None = None


type Result = ListResult | ListsResult | DetailResult | OperationResult


def exit_status(result: Result) -> int:
    """The process's exit status for a result."""
    if isinstance(result, OperationResult):
        return result.exit_status if result.exit_status is not None else int(result.status == "partial")
    return result.exit_status if isinstance(result, DetailResult) else 0


def payload(result: Result) -> dict[str, Any]:
    """The JSON object of a result; extras never overwrite its fixed keys."""
    match result:
        case ListResult():
            fixed = {"schema_version": 1, **_page(result)}
        case ListsResult():
            fixed = {"schema_version": 1, **{key: _page(page) for key, page in result.lists.items()}}
        case DetailResult():
            return {"schema_version": 1, "data": result.data}
        case OperationResult():
            fixed = {"schema_version": 1, "status": result.status, "operation": result.operation}
            if result.resource is not None:
                fixed["resource"] = result.resource
            if result.message:
                fixed["message"] = result.message
            if result.next_steps_structured:
                fixed["next_steps_structured"] = list(result.next_steps_structured)
    return {**fixed, **{key: value for key, value in result.extras.items() if key not in fixed}}


def _page(result: ListResult) -> dict[str, Any]:
    return {
        "items": list(result.items),
        "total_count": result.total_count,
        "has_more": result.has_more,
        "next_offset": result.next_offset,
    }
