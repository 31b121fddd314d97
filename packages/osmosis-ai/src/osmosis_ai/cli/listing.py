"""A page of the platform's things as a result; the lists of every kind are fetched and shown the same way."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from osmosis_ai.cli.paging import check_paging
from osmosis_ai.cli.results import Cell, Column, ListResult, Table
from osmosis_ai.errors import NotFoundError

if TYPE_CHECKING:
    from osmosis_ai.cli.root import Invocation
    from osmosis_ai.client.scope import Scope
    from osmosis_ai.client.session import Page, PlatformClient
    from osmosis_ai.client.wire import Record


@dataclass(frozen=True, slots=True)
class Listing:
    """One kind of thing that can be listed.

    Attributes:
        path: Where the platform lists it.
        key: Under which a reply has the items.
        record: Makes an item of the JSON contract from one that the platform sent.
        columns: Headings of the table.
        row: Makes the cells of an item.
        empty: What to say, and which command comes next, when there is none.
        title: Heading above the table.
    """

    path: str
    key: str
    record: Callable[[Record], dict[str, Any]]
    columns: Sequence[Column]
    row: Callable[[Mapping[str, Any]], Sequence[Cell]]
    empty: str
    title: str = ""
    params: Mapping[str, Any] = field(default_factory=dict)

    def fetch(self, client: PlatformClient, limit: int, everything: bool) -> Page:
        """Ask for a page, or for every page.

        Raises:
            OsmosisError: The platform's error.
        """
        return client.pages(self.path, key=self.key, limit=limit, fetch_all=everything, params=self.params)

    def result(self, page: Page, *, extras: Mapping[str, Any], hints: Sequence[str] = ()) -> ListResult:
        """The page as a result."""
        items = [self.record(item) for item in page.items]
        return ListResult(
            items=items,
            table=Table(self.columns, [self.row(item) for item in items], title=self.title),
            total_count=page.total_count,
            has_more=page.has_more,
            next_offset=page.next_offset,
            hints=[*([] if items else [self._next(extras)]), *hints],
            extras=extras,
        )

    def _next(self, extras: Mapping[str, Any]) -> str:
        """What to do about an empty list, in the same workspace."""
        if "workspace" not in extras:
            return self.empty
        named = f"osmosis --workspace {shlex.quote(extras['workspace']['name'])} "
        return self.empty.replace("osmosis ", named)


@contextmanager
def naming(command: str) -> Generator[None]:
    """Around a request for one thing by its name: when there is none, say which command lists the names.

    Raises:
        NotFoundError: With that remedy. A repository that is not connected to a workspace stays what it is.
    """
    try:
        yield
    except NotFoundError as error:
        from osmosis_ai.client.refusals import looked_for

        if looked_for(error) and command not in error.message:
            error.message += f"\nSee the names: {command}"
        raise


def show_list(
    invocation: Invocation,
    listing: Listing,
    things: str,
    limit: int,
    everything: bool,
    *,
    scope: Callable[[], Scope] | None = None,
    extras: Mapping[str, Any] | None = None,
) -> ListResult:
    """Fetch and show a list.

    Args:
        invocation: The root options.
        listing: What is listed.
        things: Its name in the plural.
        limit: Most items.
        everything: Walk every page instead.
        scope: Finds the scope; by default `--workspace` or the repository.
        extras: More keys of the JSON object.

    Raises:
        OsmosisError: Options that exclude each other, no scope, no login, or the platform's error.
    """
    check_paging(limit, everything)
    from osmosis_ai.client.scope import resolve_scope
    from osmosis_ai.client.session import open_client

    found = scope() if scope else resolve_scope(invocation.workspace)
    with open_client(found, warn=invocation.output.warn) as client, invocation.output.working(f"Fetching {things}..."):
        page = listing.fetch(client, limit, everything)
    return listing.result(page, extras={**found.extras(), **(extras or {})})
