"""Who comes into a workspace, as what, and who goes. A workspace always keeps an owner who can sign in."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta

from osmosis_platform.db.database import UnitOfWork
from osmosis_platform.db.repositories.audit import AuditRepository
from osmosis_platform.db.repositories.invitations import Invitation, InvitationLinkRepository, InvitationRepository
from osmosis_platform.db.repositories.memberships import Member, MembershipRepository
from osmosis_platform.db.repositories.secrets import SecretRepository
from osmosis_platform.db.repositories.tokens import TokenRepository
from osmosis_platform.db.repositories.workspaces import WorkspaceRepository
from osmosis_platform.domain.actor import Actor
from osmosis_platform.domain.permissions import Action, Role, authorize
from osmosis_platform.errors import ForbiddenError, MissingError, TakenError
from osmosis_platform.identity.names import check_email
from osmosis_platform.identity.secret_tokens import digest, new_secret, parse_secret

INVITATION_DAYS = 7


@dataclass(frozen=True, slots=True)
class IssuedInvitation:
    """A new invitation; `secret` is the end of its link, shown once."""

    id: str
    secret: str = field(repr=False)
    role: Role
    email: str | None
    expires_at: datetime


def acting_role(work: UnitOfWork, workspace_id: str, actor: Actor, action: Action) -> Role:
    """The caller's role as this transaction sees it, if it allows the action.

    Members are changed under the workspace's lock, so that two owners who leave together do not both find the other.

    Raises:
        MissingError: The caller is no member.
        ForbiddenError: The role or the token does not allow it.
    """
    WorkspaceRepository(work).lock(workspace_id)
    member = MembershipRepository(work).find(workspace_id, actor.user_id)
    if member is None:
        raise MissingError("There is no such workspace that you are a member of.", code="WORKSPACE_NOT_FOUND")
    authorize(member.role, action, actor=actor)
    return member.role


def invite(
    work: UnitOfWork,
    actor: Actor,
    workspace_id: str,
    *,
    role: Role,
    email: str | None = None,
    days: int = INVITATION_DAYS,
) -> IssuedInvitation:
    """Makes a link that lets one person in.

    Args:
        work: The transaction.
        actor: An owner or admin; only owners invite owners.
        workspace_id: Where to.
        role: As what.
        email: The only person it is for; None for whoever has the link.
        days: How long it counts.

    Raises:
        ForbiddenError: The caller's role does not allow it.
        InvalidRequestError: The address is none.
        TakenError: That person is a member already.
    """
    mine = acting_role(work, workspace_id, actor, Action.INVITATIONS_MANAGE)
    if role is Role.OWNER:
        authorize(mine, Action.ROLES_MANAGE_OWNERS, actor=actor)
    if email is not None:
        email = check_email(email)
        if any(member.email == email for member in MembershipRepository(work).all(workspace_id)):
            raise TakenError(f"{email} is a member of this workspace already.", field="email", code="ALREADY_MEMBER")
    secret = new_secret("inv")
    expires_at = work.clock() + timedelta(days=days)
    invitation = InvitationRepository(work).add(
        workspace_id, digest(secret), role=role, email=email, created_by=actor.user_id, expires_at=expires_at
    )
    facts = {"role": str(role), "email": email}
    AuditRepository(work).record(workspace_id, actor, "invitation.create", "invitation", invitation.id, facts)
    return IssuedInvitation(invitation.id, secret, role, email, expires_at)


def revoke_invitation(work: UnitOfWork, actor: Actor, workspace_id: str, invitation_id: str) -> None:
    """Ends an open invitation.

    Raises:
        ForbiddenError: The caller's role does not allow it.
        MissingError: There is no such open invitation here.
    """
    acting_role(work, workspace_id, actor, Action.INVITATIONS_MANAGE)
    if not InvitationRepository(work).revoke(workspace_id, invitation_id):
        raise MissingError("There is no such open invitation in this workspace.", code="INVITATION_NOT_FOUND")
    AuditRepository(work).record(workspace_id, actor, "invitation.revoke", "invitation", invitation_id, {})


def find_invitation(work: UnitOfWork, secret: str) -> tuple[Invitation, str]:
    """The open invitation of a link and the name of its workspace.

    Raises:
        MissingError: `INVITATION_INVALID` for an unknown link, `INVITATION_OVER` for one used, revoked or expired.
    """
    name = parse_secret(secret)
    found = None
    if name is not None and name.kind == "inv":
        found = InvitationLinkRepository(work).find(digest(secret))
    if found is None:
        message = "This invitation link is not one of this platform; check that it was copied whole."
        raise MissingError(message, code="INVITATION_INVALID")
    invitation = found[0]
    if invitation.accepted_at or invitation.revoked_at or invitation.expires_at <= work.clock():
        message = "This invitation was used, taken back or is over; ask for a new one."
        raise MissingError(message, code="INVITATION_OVER")
    return found


def accept_invitation(work: UnitOfWork, actor: Actor, secret: str) -> Invitation:
    """Lets a person in; who is a member already keeps their role, and the invitation stays open.

    Raises:
        MissingError: As `find_invitation`.
        ForbiddenError: `INVITATION_FOR_ANOTHER`: it names another person.
    """
    invitation, _ = find_invitation(work, secret)
    WorkspaceRepository(work).lock(invitation.workspace_id)
    if invitation.email is not None and invitation.email != actor.email:
        message = "This invitation is for another e-mail address; sign in with that one, or ask for a new invitation."
        raise ForbiddenError(message, code="INVITATION_FOR_ANOTHER")
    members = MembershipRepository(work)
    if members.find(invitation.workspace_id, actor.user_id) is not None:
        return invitation
    if not InvitationRepository(work).accept(invitation.workspace_id, invitation.id, actor.user_id):
        message = "This invitation was used or taken back a moment ago; ask for a new one."
        raise MissingError(message, code="INVITATION_OVER")
    members.add(invitation.workspace_id, actor.user_id, invitation.role)
    facts = {"role": str(invitation.role), "invitation": invitation.id}
    AuditRepository(work).record(invitation.workspace_id, actor, "member.join", "user", actor.user_id, facts)
    return invitation


def change_role(work: UnitOfWork, actor: Actor, workspace_id: str, user_id: str, role: Role) -> Member:
    """Gives a member another role; only owners make and unmake owners.

    Raises:
        ForbiddenError: The caller's role does not allow it.
        MissingError: There is no such member.
        TakenError: `LAST_OWNER`.
    """
    mine = acting_role(work, workspace_id, actor, Action.MEMBERS_MANAGE)
    member = _member(work, workspace_id, user_id)
    if Role.OWNER in {member.role, role}:
        authorize(mine, Action.ROLES_MANAGE_OWNERS, actor=actor)
    return _give_role(work, actor, workspace_id, member, role)


def place_member(work: UnitOfWork, workspace_id: str, user_id: str, role: Role) -> Member:
    """Puts a person into a workspace or gives them another role, as an administrator at the machine may.

    Raises:
        TakenError: `LAST_OWNER`.
    """
    WorkspaceRepository(work).lock(workspace_id)
    members = MembershipRepository(work)
    if members.add(workspace_id, user_id, role):
        AuditRepository(work).record(workspace_id, None, "member.join", "user", user_id, {"role": str(role)})
        return _member(work, workspace_id, user_id)
    return _give_role(work, None, workspace_id, _member(work, workspace_id, user_id), role)


def remove_member(work: UnitOfWork, actor: Actor, workspace_id: str, user_id: str) -> None:
    """Lets a member go, whose tokens for this workspace alone and own secrets in it end; only owners remove owners.

    Raises:
        ForbiddenError: The caller's role does not allow it.
        MissingError: There is no such member.
        TakenError: `LAST_OWNER`.
    """
    if user_id == actor.user_id:
        leave_workspace(work, actor, workspace_id)
        return
    mine = acting_role(work, workspace_id, actor, Action.MEMBERS_MANAGE)
    member = _member(work, workspace_id, user_id)
    if member.role is Role.OWNER:
        authorize(mine, Action.ROLES_MANAGE_OWNERS, actor=actor)
    _let_go(work, actor, workspace_id, member, "member.remove")


def leave_workspace(work: UnitOfWork, actor: Actor, workspace_id: str) -> None:
    """Lets the caller go.

    Raises:
        MissingError: The caller is no member.
        TakenError: `LAST_OWNER`.
    """
    acting_role(work, workspace_id, actor, Action.WORKSPACE_LEAVE)
    _let_go(work, actor, workspace_id, _member(work, workspace_id, actor.user_id), "member.leave")


def _give_role(work: UnitOfWork, actor: Actor | None, workspace_id: str, member: Member, role: Role) -> Member:
    if member.role is Role.OWNER and role is not Role.OWNER:
        _keep_an_owner(work, workspace_id, member)
    if role is not member.role:
        MembershipRepository(work).set_role(workspace_id, member.user_id, role)
        facts = {"from": str(member.role), "to": str(role)}
        AuditRepository(work).record(workspace_id, actor, "member.change_role", "user", member.user_id, facts)
    return _member(work, workspace_id, member.user_id)


def _let_go(work: UnitOfWork, actor: Actor, workspace_id: str, member: Member, action: str) -> None:
    _keep_an_owner(work, workspace_id, member)
    MembershipRepository(work).remove(workspace_id, member.user_id)
    tokens = TokenRepository(work).revoke_restricted(workspace_id, member.user_id)
    secrets = SecretRepository(work).forget_person(workspace_id, member.user_id)
    facts = {"role": str(member.role), "tokens": tokens, "secrets": secrets}
    AuditRepository(work).record(workspace_id, actor, action, "user", member.user_id, facts)


def _member(work: UnitOfWork, workspace_id: str, user_id: str) -> Member:
    member = MembershipRepository(work).find(workspace_id, user_id)
    if member is None:
        raise MissingError("There is no such member of this workspace.", code="MEMBER_NOT_FOUND")
    return member


def _keep_an_owner(work: UnitOfWork, workspace_id: str, leaving: Member) -> None:
    if leaving.role is Role.OWNER and MembershipRepository(work).owners(workspace_id) <= 1:
        message = "A workspace needs an owner: make somebody else an owner first, or delete the workspace."
        raise TakenError(message, code="LAST_OWNER")
