"""The account's workspaces as a list. They are fetched by the client room."""

from __future__ import annotations

from typing import TYPE_CHECKING

from osmosis_ai.cli.dates import ABSENT
from osmosis_ai.cli.results import Column, ListResult, Table, Text

if TYPE_CHECKING:
    from osmosis_ai.cli.output import Output

_COLUMNS = (Column("Name", keep=True), Column("Role"), Column("Repository"), Column("Billing"))


def list_all(output: Output) -> ListResult:
    """`workspace list`.

    Raises:
        OsmosisError: No login, or the platform's error.
    """
    from osmosis_ai.client.session import open_client
    from osmosis_ai.client.workspaces import fetch_workspaces

    with open_client(None, warn=output.warn) as client, output.working("Fetching workspaces..."):
        workspaces = fetch_workspaces(client)
        platform_url = client.platform_url
    rows = [
        (
            one.name,
            one.role or ABSENT,
            one.repository or Text("none connected", "dim"),
            ABSENT if one.billing_ready is None else "set up" if one.billing_ready else Text("missing", "warn"),
        )
        for one in workspaces
    ]
    empty = [] if workspaces else [f"This account belongs to no workspace yet; create one at {platform_url}."]
    return ListResult(
        items=[one.to_json() for one in workspaces],
        table=Table(_COLUMNS, rows, title="Workspaces"),
        total_count=len(workspaces),
        hints=empty,
        extras={"platform_url": platform_url},
    )
