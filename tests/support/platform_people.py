"""People of a platform in the test's process: made with a role in a workspace, they call its API with a token of theirs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fastapi.testclient import TestClient
from osmosis_platform.api.app import create_app
from osmosis_platform.db.repositories.memberships import MembershipRepository
from osmosis_platform.db.repositories.workspaces import WorkspaceRepository
from osmosis_platform.domain.actor import Actor
from osmosis_platform.domain.permissions import Role
from osmosis_platform.identity.accounts import create_user
from osmosis_platform.identity.tokens import actor_of, issue_token
from osmosis_platform.services import Services


@dataclass(frozen=True)
class Person:
    """One person in one workspace."""

    http: TestClient
    token: str
    workspace: str
    workspace_id: str
    actor: Actor

    def call(self, method: str, path: str, body: Any = None, **parameters: Any) -> Any:
        """Calls the API; a body goes as JSON in ASCII, so that lone surrogates can be sent too."""
        headers = {"Authorization": f"Bearer {self.token}", "X-Osmosis-Workspace": self.workspace}
        if body is None:
            return self.http.request(method, path, headers=headers, params=parameters)
        headers["Content-Type"] = "application/json"
        return self.http.request(method, path, content=json.dumps(body), headers=headers, params=parameters)


class People:
    """Makes people of a platform.

    Args:
        services: The platform.
    """

    def __init__(self, services: Services) -> None:
        self._services = services
        self._http = TestClient(
            create_app(services), base_url=services.settings.base_url, raise_server_exceptions=False
        )

    def make(
        self, name: str, role: Role | None = Role.OWNER, workspace: str = "lab", *,
        scopes: Sequence[str] = ("all",), administrator: bool = False,
    ) -> Person:  # fmt: skip
        """A person `Name` with an address `name@example.test`; the workspace is made when it is new."""
        with self._services.database.write() as work:
            user = create_user(work, f"{name}@example.test", name=name.title(), is_administrator=administrator)
            found = WorkspaceRepository(work).by_name(workspace)
            found = found or WorkspaceRepository(work).add(workspace, created_by=user.id)
            if role is not None:
                MembershipRepository(work).add(found.id, user.id, role)
            token = issue_token(work, user.id, kind="personal", name="test", scopes=list(scopes), expires_at=None)
        return Person(self._http, token.secret, workspace, found.id, actor_of(user))
