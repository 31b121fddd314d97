"""People and workspaces coming into being, changing their names and going. Who is in a workspace is identity.members."""

from __future__ import annotations

from typing import TYPE_CHECKING

from osmosis_platform.db.database import UnitOfWork
from osmosis_platform.db.repositories.audit import AuditRepository
from osmosis_platform.db.repositories.memberships import MembershipRepository
from osmosis_platform.db.repositories.sessions import SessionRepository
from osmosis_platform.db.repositories.tokens import TokenRepository
from osmosis_platform.db.repositories.users import User, UserRepository
from osmosis_platform.db.repositories.workspaces import Workspace, WorkspaceRepository
from osmosis_platform.domain.actor import Actor
from osmosis_platform.domain.permissions import Action, Role
from osmosis_platform.errors import ForbiddenError, InvalidRequestError
from osmosis_platform.identity.members import acting_role
from osmosis_platform.identity.names import check_email, check_person_name, check_timezone, check_workspace_name
from osmosis_platform.identity.removal import take_away
from osmosis_platform.identity.tokens import actor_of

if TYPE_CHECKING:
    from osmosis_platform.services import Services


def create_user(
    work: UnitOfWork,
    email: str,
    *,
    name: str | None = None,
    password_hash: str | None = None,
    is_administrator: bool = False,
    actor: Actor | None = None,
) -> User:
    """Adds a person.

    Args:
        work: The transaction.
        email: In any case.
        name: As others see it.
        password_hash: Of identity.passwords; None for people who only use tokens or an identity provider.
        is_administrator: Of the whole platform.
        actor: Who adds them; None for the person alone.

    Raises:
        InvalidRequestError: A field is no such thing.
        TakenError: The address is somebody's.
    """
    email, name = check_email(email), check_person_name(name)
    user = UserRepository(work).add(email, name=name, password_hash=password_hash, is_administrator=is_administrator)
    facts = {"email": email, "is_administrator": is_administrator}
    AuditRepository(work).record(None, actor or actor_of(user), "user.create", "user", user.id, facts)
    return user


def change_password(work: UnitOfWork, actor: Actor, password_hash: str) -> None:
    """Replaces a person's password and signs their other browsers out."""
    UserRepository(work).set_password(actor.user_id, password_hash)
    SessionRepository(work).close_all(actor.user_id, except_id=actor.session_id)
    AuditRepository(work).record(None, actor, "user.change_password", "user", actor.user_id, {})


def disable_user(work: UnitOfWork, actor: Actor | None, user_id: str) -> None:
    """Refuses every credential of a person from now on; what they made stays.

    Raises:
        MissingError: There is no such person.
    """
    user = UserRepository(work).get(user_id)
    UserRepository(work).set_disabled(user_id, True)
    sessions, tokens = SessionRepository(work).close_all(user_id), TokenRepository(work).revoke_all(user_id)
    facts = {"email": user.email, "sessions": sessions, "tokens": tokens}
    AuditRepository(work).record(None, actor, "user.disable", "user", user_id, facts)


def create_workspace(
    services: Services, work: UnitOfWork, owner: User | Actor, name: str, *, timezone: str = "UTC"
) -> Workspace:
    """Makes a workspace with its hosted repository; whoever makes it is its owner.

    Raises:
        ForbiddenError: `TOKEN_REACH`: the token at hand is for one workspace.
        InvalidRequestError: The name or zone does not fit.
        TakenError: The name is taken.
    """
    from osmosis_platform.git.hosting import create_hosted

    actor = owner if isinstance(owner, Actor) else actor_of(owner)
    if actor.only_workspace_id is not None:
        message = "This token is for one workspace only and makes no others; use another token."
        raise ForbiddenError(message, code="TOKEN_REACH")
    name, timezone = check_workspace_name(name), check_timezone(timezone)
    workspace = WorkspaceRepository(work).add(name, created_by=actor.user_id, timezone=timezone)
    MembershipRepository(work).add(workspace.id, actor.user_id, Role.OWNER)
    create_hosted(services, work, workspace.id, workspace.name, actor.user_id)
    AuditRepository(work).record(workspace.id, actor, "workspace.create", "workspace", workspace.id, {"name": name})
    return workspace


def change_workspace(
    work: UnitOfWork, actor: Actor, workspace_id: str, *, name: str | None = None, timezone: str | None = None
) -> Workspace:
    """Renames a workspace or moves its zone; the former name goes on leading to it.

    Raises:
        ForbiddenError: The caller's role does not allow it.
        InvalidRequestError: The name or zone does not fit.
        TakenError: The name is taken.
    """
    acting_role(work, workspace_id, actor, Action.WORKSPACE_UPDATE)
    workspaces = WorkspaceRepository(work)
    before = workspaces.get(workspace_id)
    if name is not None and (name := check_workspace_name(name)) != before.name:
        workspaces.rename(workspace_id, name)
        facts = {"from": before.name, "to": name}
        AuditRepository(work).record(workspace_id, actor, "workspace.rename", "workspace", workspace_id, facts)
    if timezone is not None and (timezone := check_timezone(timezone)) != before.timezone:
        workspaces.set_timezone(workspace_id, timezone)
        facts = {"timezone": timezone}
        AuditRepository(work).record(workspace_id, actor, "workspace.update", "workspace", workspace_id, facts)
    return workspaces.get(workspace_id)


def delete_workspace(work: UnitOfWork, actor: Actor, workspace_id: str, *, confirmed_name: str) -> None:
    """Takes a workspace away from all its members; tokens restricted to it end. What it held goes later: `identity.removal`.

    Args:
        work: The transaction.
        actor: An owner.
        workspace_id: Which.
        confirmed_name: Its name, typed by whoever means it.

    Raises:
        ForbiddenError: The caller is no owner.
        InvalidRequestError: The typed name is another.
    """
    acting_role(work, workspace_id, actor, Action.WORKSPACE_DELETE)
    workspace = WorkspaceRepository(work).get(workspace_id)
    if confirmed_name != workspace.name:
        message = f"To delete this workspace, type its name exactly: {workspace.name}."
        raise InvalidRequestError(message, field="name", code="CONFIRMATION_WRONG")
    take_away(work, actor, workspace)
