"""`POST /api/v1/webhooks/git/{repository}`: a push on the other side, as GitHub, Gitea, Forgejo or GitLab tell it.

The body is a hint only: what counts is that it is signed with the repository's secret; the sync looks for itself.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from typing import Annotated

from fastapi import APIRouter, Path, Request
from pydantic import BaseModel

from osmosis_platform.api.repositories import begin_sync
from osmosis_platform.api.scope import ServicesDep, open_to_all
from osmosis_platform.db.database import UnitOfWork
from osmosis_platform.db.repositories.repositories import Repository, RepositoryIndex
from osmosis_platform.errors import UnauthorizedError

router = APIRouter(prefix="/api/v1/webhooks", tags=["webhooks"])

_EVENT_HEADERS = ("x-github-event", "x-gitea-event", "x-forgejo-event", "x-gogs-event", "x-gitlab-event")
_PUSHES = frozenset({"push", "push hook", "tag push hook", "create", "delete", "repository_update"})


class Taken(BaseModel):
    """What was done about a webhook."""

    status: str
    sync_id: str | None = None


@router.post(
    "/git/{repository}", status_code=202, dependencies=[open_to_all("the body is signed with the webhook secret")]
)
async def receive_webhook(
    request: Request, services: ServicesDep, repository: Annotated[str, Path(pattern=r"^re_[0-9a-z]{26}$")]
) -> Taken:
    """Queues a sync. Other events than pushes are thanked for and ignored.

    Raises:
        UnauthorizedError: `WEBHOOK_SIGNATURE`: no such remote, no signature, or a wrong one; nobody learns which.
    """
    from osmosis_platform.git.credentials import open_webhook_secret

    body = await request.body()
    headers = request.headers
    events = [headers[name].lower() for name in _EVENT_HEADERS if name in headers]

    def check(work: UnitOfWork) -> Repository:
        found = RepositoryIndex(work).by_id(repository)
        secret = None if found is None else open_webhook_secret(services.vault, work, found)
        if found is None or secret is None or not is_signed(headers, body, secret):
            message = "The webhook is not signed with this repository's secret; set the secret on the other side again."
            raise UnauthorizedError(message, code="WEBHOOK_SIGNATURE")
        return found

    found = await services.database.reading(check)  # whoever cannot sign never holds up those who write
    if events and not _PUSHES.intersection(events):
        return Taken(status="ignored")
    return Taken(
        status="queued", sync_id=await services.database.writing(lambda work: begin_sync(work, found, "webhook").id)
    )


def is_signed(headers: Mapping[str, str], body: bytes, secret: str) -> bool:
    """Whether the body carries the secret's HMAC-SHA256, or, as GitLab does, the secret itself.

    Args:
        headers: Of the request; names without case.
        body: As it came.
        secret: Of the repository.
    """
    expected = hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
    if (given := headers.get("x-hub-signature-256")) is not None:  # GitHub, and Gitea's compatible form
        return _same(given.removeprefix("sha256="), expected)
    for name in ("x-gitea-signature", "x-forgejo-signature", "x-gogs-signature"):
        if (given := headers.get(name)) is not None:
            return _same(given, expected)
    if (given := headers.get("x-gitlab-token")) is not None:
        return _same(given, secret)
    return False


def _same(given: str, expected: str) -> bool:
    return hmac.compare_digest(given.strip().encode(), expected.encode())
