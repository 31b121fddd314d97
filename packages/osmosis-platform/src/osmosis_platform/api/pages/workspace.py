"""The pages of a workspace: overview, members, settings, audit log. Its things are in things.py."""

from __future__ import annotations

from functools import cache
from typing import Annotated, Any
from zoneinfo import available_timezones

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from osmosis_platform.api.pages.pager import Pager, Shown
from osmosis_platform.api.pages.rendering import go_to, page
from osmosis_platform.api.pages.visitors import SentDep, member_may
from osmosis_platform.api.scope import ServicesDep, WorkspaceScope
from osmosis_platform.api.segments import Segment
from osmosis_platform.db.database import UnitOfWork
from osmosis_platform.db.repositories.audit import AuditEntry, AuditRepository
from osmosis_platform.db.repositories.datasets import DatasetRepository
from osmosis_platform.db.repositories.invitations import InvitationRepository
from osmosis_platform.db.repositories.memberships import MembershipRepository
from osmosis_platform.db.repositories.repositories import Repository, RepositoryRepository
from osmosis_platform.db.repositories.rollouts import RolloutRepository
from osmosis_platform.db.repositories.secrets import SecretRepository
from osmosis_platform.db.repositories.users import UserRepository
from osmosis_platform.domain.permissions import Action, Role, is_allowed
from osmosis_platform.errors import InvalidRequestError, ServiceError
from osmosis_platform.identity.accounts import change_workspace, delete_workspace
from osmosis_platform.identity.members import (
    change_role,
    invite,
    leave_workspace,
    remove_member,
    revoke_invitation,
)
from osmosis_platform.services import Services

router = APIRouter(prefix="/{workspace}", include_in_schema=False)

TABS = (
    ("", "Overview", None),
    ("/datasets", "Datasets", Action.DATASETS_READ),
    ("/rollouts", "Rollouts", Action.ROLLOUTS_READ),
    ("/secrets", "Secrets", Action.SECRETS_READ),
    ("/integrations/git", "Git", Action.REPOSITORY_READ),
    ("/members", "Members", Action.MEMBERS_READ),
    ("/api-keys", "API keys", None),
    ("/usage", "Usage", Action.USAGE_READ),
    ("/audit", "Audit", Action.AUDIT_READ),
    ("/settings", "Settings", None),
)
_AUDIT_PAGE = 50
_DONE = {
    "role": "The role is changed.",
    "removed": "The member is removed.",
    "saved": "Saved.",
    "taken-back": "The invitation is taken back.",
    "set": "The secret is set; runs get the new value from now on.",
    "deleted": "It is deleted.",
    "renamed": "It is renamed.",
    "sync": "A sync is queued; it shows below once it is through.",
    "disconnected": "The remote is disconnected; the repository that this platform hosts is connected again.",
    "revoked": "The key is revoked.",
}


def workspace_page(request: Request, template: str, scope: WorkspaceScope, here: str, **facts: Any) -> Response:
    """A page with the workspace's tabs."""
    tabs = [(place, label) for place, label, action in TABS if action is None or may(scope, action)]
    usual: dict[str, Any] = {
        "workspace": request.state.workspace,
        "role": scope.role,
        "tabs": tabs,
        "here": here,
        "done": _DONE.get(request.query_params.get("done", "")) if request.method == "GET" else None,
    }
    return page(request, template, **(usual | facts))


def may(scope: WorkspaceScope, action: Action) -> bool:
    """Whether to show what leads to an action."""
    return is_allowed(scope.role, action, actor=scope.actor)


def clone_command(services: Services, repository: Repository) -> str:
    """How to get a repository's code."""
    hosted = f"{services.settings.base_url}/git/{repository.full_name}.git"
    address = hosted if repository.kind == "hosted" else repository.remote_url
    return f"git clone {address}\ncd {repository.full_name.rpartition('/')[2]}"


@router.get("")
async def show_overview(
    request: Request, services: ServicesDep, scope: Annotated[WorkspaceScope, member_may(Action.WORKSPACE_READ)]
) -> Response:
    """How to get at the code, and what there is."""
    place = scope.workspace_id

    def read(work: UnitOfWork) -> tuple[Repository | None, dict[str, int]]:
        found = RepositoryRepository(work).find_connected(place)
        rollouts = 0 if found is None else RolloutRepository(work).count(place, found.id, found.default_branch)
        counts = {
            "datasets": DatasetRepository(work).page(place, limit=0, offset=0)[1],
            "secrets": SecretRepository(work).page(place, scope.actor.user_id, _SCOPES, limit=0, offset=0)[1],
            "rollouts": rollouts,
            "members": MembershipRepository(work).count(place),
        }
        return found, counts

    repository, counts = await services.database.reading(read)
    return workspace_page(
        request,
        "workspace",
        scope,
        "",
        repository=repository,
        counts=counts,
        clone=None if repository is None else clone_command(services, repository),
        can_manage_repository=may(scope, Action.REPOSITORY_MANAGE),
    )


_SCOPES = ("workspace", "user")


@router.get("/members")
async def show_members(
    request: Request, services: ServicesDep, scope: Annotated[WorkspaceScope, member_may(Action.MEMBERS_READ)]
) -> Response:
    """Who is here, and who may come."""
    return await _members(request, services, scope)


@router.post("/members/{user_id}/role")
async def send_role(
    request: Request,
    services: ServicesDep,
    user_id: Segment,
    form: SentDep,
    scope: Annotated[WorkspaceScope, member_may(Action.MEMBERS_MANAGE)],
) -> Response:
    """Gives a member another role."""

    def change(work: UnitOfWork) -> None:
        change_role(work, scope.actor, scope.workspace_id, user_id, _role(form["role"]))

    return await _try(request, services, scope, change, "role")


@router.post("/members/{user_id}/remove")
async def send_remove(
    request: Request,
    services: ServicesDep,
    user_id: Segment,
    _form: SentDep,
    scope: Annotated[WorkspaceScope, member_may(Action.MEMBERS_MANAGE)],
) -> Response:
    """Lets a member go."""
    return await _try(
        request,
        services,
        scope,
        lambda work: remove_member(work, scope.actor, scope.workspace_id, user_id),
        "removed",
    )


@router.post("/invitations")
async def send_invitation(
    request: Request,
    services: ServicesDep,
    form: SentDep,
    scope: Annotated[WorkspaceScope, member_may(Action.INVITATIONS_MANAGE)],
) -> Response:
    """Makes an invitation and shows its link this once."""
    try:
        issued = await services.database.writing(
            lambda work: invite(
                work, scope.actor, scope.workspace_id, role=_role(form["role"]), email=form["email"].strip() or None
            )
        )
    except ServiceError as error:
        if error.status >= 500:
            raise
        return await _members(request, services, scope, status=error.status, failure=error, given=form.values)
    link = f"{services.settings.base_url}/invitation#{issued.secret}"
    return await _members(request, services, scope, fresh_link=link, fresh_until=issued.expires_at)


@router.post("/invitations/{invitation_id}/revoke")
async def send_revoke(
    request: Request,
    services: ServicesDep,
    invitation_id: Segment,
    _form: SentDep,
    scope: Annotated[WorkspaceScope, member_may(Action.INVITATIONS_MANAGE)],
) -> Response:
    """Takes an invitation back."""
    return await _try(
        request,
        services,
        scope,
        lambda work: revoke_invitation(work, scope.actor, scope.workspace_id, invitation_id),
        "taken-back",
    )


@router.get("/settings")
async def show_settings(
    request: Request, scope: Annotated[WorkspaceScope, member_may(Action.WORKSPACE_READ)]
) -> Response:
    """Name, time zone, leaving and deleting."""
    return _settings(request, scope)


@router.post("/settings")
async def send_settings(
    request: Request,
    services: ServicesDep,
    form: SentDep,
    scope: Annotated[WorkspaceScope, member_may(Action.WORKSPACE_UPDATE)],
) -> Response:
    """Renames, and moves the time zone."""
    try:
        changed = await services.database.writing(
            lambda work: change_workspace(
                work, scope.actor, scope.workspace_id, name=form["name"], timezone=form["timezone"]
            )
        )
    except ServiceError as error:
        if error.status >= 500:
            raise
        return _settings(request, scope, status=error.status, failure=error, given=form.values)
    return go_to(f"/{changed.name}/settings?done=saved")


@router.post("/leave")
async def send_leave(
    request: Request,
    services: ServicesDep,
    _form: SentDep,
    scope: Annotated[WorkspaceScope, member_may(Action.WORKSPACE_LEAVE)],
) -> Response:
    """Lets the person go."""
    try:
        await services.database.writing(lambda work: leave_workspace(work, scope.actor, scope.workspace_id))
    except ServiceError as error:
        if error.status >= 500:
            raise
        return _settings(request, scope, status=error.status, failure=error)
    return go_to("/")


@router.post("/delete")
async def send_delete(
    request: Request,
    services: ServicesDep,
    form: SentDep,
    scope: Annotated[WorkspaceScope, member_may(Action.WORKSPACE_DELETE)],
) -> Response:
    """Takes the workspace away from everybody."""
    typed = form["confirm"].strip()
    try:
        await services.database.writing(
            lambda work: delete_workspace(work, scope.actor, scope.workspace_id, confirmed_name=typed)
        )
    except ServiceError as error:
        if error.status >= 500:
            raise
        error.field = "confirm"
        return _settings(request, scope, status=error.status, failure=error)
    return go_to("/")


@router.get("/audit")
async def show_audit(
    request: Request,
    services: ServicesDep,
    scope: Annotated[WorkspaceScope, member_may(Action.AUDIT_READ)],
    before: Annotated[int | None, Query(ge=1, le=1 << 53)] = None,
    after: Annotated[int | None, Query(ge=0, le=1 << 53)] = None,
) -> Response:
    """Who did what, newest first; `before` and `after` are the numbers of entries."""

    def read(work: UnitOfWork) -> tuple[list[AuditEntry], dict[str, str], int]:
        audit = AuditRepository(work)
        newest, _ = audit.head(scope.workspace_id)
        # Numbers have no gaps, so what comes after an entry is what comes before another.
        limit = before if after is None else min(after + _AUDIT_PAGE, newest) + 1
        entries = audit.page(scope.workspace_id, before=limit, limit=_AUDIT_PAGE)
        found = [UserRepository(work).find(one) for one in {one.actor_id for one in entries if one.actor_id}]
        return entries, {one.id: one.name or one.email for one in found if one}, newest

    entries, people, newest = await services.database.reading(read)
    here = f"/{scope.workspace_name}/audit"
    shown = Shown(
        first=newest - entries[0].seq + 1 if entries else 1,
        last=newest - entries[-1].seq + 1 if entries else 0,
        total=newest,
        previous=here if not entries else f"{here}?after={entries[0].seq}" if entries[0].seq < newest else None,
        next=f"{here}?before={entries[-1].seq}" if entries and entries[-1].seq > 1 else None,
    )
    return workspace_page(request, "audit", scope, "/audit", entries=entries, people=people, shown=shown)


def _settings(request: Request, scope: WorkspaceScope, **facts: Any) -> Response:
    return workspace_page(
        request,
        "settings",
        scope,
        "/settings",
        may_update=may(scope, Action.WORKSPACE_UPDATE),
        may_delete=may(scope, Action.WORKSPACE_DELETE),
        zones=_zones(),
        kept_days=request.app.state.services.settings.deleted_workspace_days,
        **facts,
    )


@cache
def _zones() -> list[str]:
    """Every zone of the IANA database, once: it is a walk over files."""
    return sorted(available_timezones())


async def _members(request: Request, services: Services, scope: WorkspaceScope, **facts: Any) -> Response:
    may_invite = may(scope, Action.INVITATIONS_MANAGE)
    here = f"/{scope.workspace_name}/members"
    pager, open_pager = Pager(request, here), Pager(request, here, "invitations")

    def read(work: UnitOfWork) -> dict[str, Any]:
        members, total = MembershipRepository(work).page(scope.workspace_id, limit=pager.size, offset=pager.offset)
        invitations = InvitationRepository(work).open(scope.workspace_id) if may_invite else []
        cut, open_shown = open_pager.cut(invitations)
        return {"members": members, "shown": pager.over(total), "invitations": cut, "open_shown": open_shown}

    return workspace_page(
        request,
        "members",
        scope,
        "/members",
        may_invite=may_invite,
        may_manage=may(scope, Action.MEMBERS_MANAGE),
        may_manage_owners=may(scope, Action.ROLES_MANAGE_OWNERS),
        roles=[str(role) for role in Role],
        **await services.database.reading(read),
        **facts,
    )


async def _try(request: Request, services: Services, scope: WorkspaceScope, change: Any, done: str) -> Response:
    """A change of who is here; what is in the way is told on the members' page."""
    try:
        await services.database.writing(change)
    except ServiceError as error:
        if error.status >= 500:
            raise
        error.field = None
        return await _members(request, services, scope, status=error.status, failure=error)
    return go_to(f"/{scope.workspace_name}/members?done={done}")


def _role(text: str) -> Role:
    try:
        return Role(text)
    except ValueError as error:
        message = f"There is no role {text[:40]!r}; choose from {', '.join(Role)}."
        raise InvalidRequestError(message, field="role") from error
