"""Lists on pages: which rows the address asks for, and the links to those before and after. They work without scripts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from fastapi import Request

ROWS = 50
_DIGITS = 7  # more pages than any list has, and an offset that every database takes


@dataclass(frozen=True, slots=True)
class Shown:
    """What a page shows of a list.

    Attributes:
        first: The first row's number, from 1 on.
        last: The last row's; less than `first` where the page is empty.
        total: Rows of the whole list.
        previous: Address of the page before, if there is one; behind the end, of the last page.
        next: Address of the page after, if there is one.
    """

    first: int
    last: int
    total: int
    previous: str | None
    next: str | None


class Pager:
    """One list of a page.

    Args:
        request: Whose address names the page of the list; anything but a number from 1 on is the first.
        path: Where the list is: a form that failed is answered under another path.
        name: The list's parameter; lists on one page differ in it, and their links lead to the element of that id.
        size: Rows of a page.
    """

    def __init__(self, request: Request, path: str, name: str = "page", *, size: int = ROWS) -> None:
        text = request.query_params.get(name, "")
        is_number = text.isascii() and text.isdigit() and len(text) <= _DIGITS
        self._number = max(1, int(text)) if is_number else 1
        self._path, self._name, self.size = path, name, size
        dropped = (name, "done")
        self._others = [(key, value) for key, value in request.query_params.multi_items() if key not in dropped]

    @property
    def offset(self) -> int:
        """Rows before the page."""
        return (self._number - 1) * self.size

    def over(self, total: int) -> Shown:
        """The page of a list with so many rows."""
        pages = max(1, -(-total // self.size))
        before = min(self._number - 1, pages)
        return Shown(
            first=self.offset + 1,
            last=min(self.offset + self.size, total),
            total=total,
            previous=self._address(before) if before else None,
            next=self._address(self._number + 1) if self._number < pages else None,
        )

    def cut(self, items: Sequence[Any]) -> tuple[Sequence[Any], Shown]:
        """The page's rows of a list that is here already."""
        return items[self.offset : self.offset + self.size], self.over(len(items))

    def _address(self, number: int) -> str:
        query = [*self._others, *([(self._name, str(number))] if number > 1 else [])]
        place = "" if self._name == "page" else f"#{self._name}"
        return self._path + (f"?{urlencode(query)}" if query else "") + place
