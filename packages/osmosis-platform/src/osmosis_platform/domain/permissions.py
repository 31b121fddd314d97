"""Who may do what: the one table of roles, actions and token scopes. Nobody else decides; api.scope finds the role.

To add an action: one member of `Action`, one line of `RULES`. A token with scopes needs `<family>:read` or
`<family>:write` of the action's family; writing includes reading.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from osmosis_platform.domain.actor import Actor
from osmosis_platform.errors import ForbiddenError

ALL_SCOPES = "all"


class Role(StrEnum):
    """What a person is in a workspace, from most to least."""

    OWNER = "owner"
    ADMIN = "admin"
    MEMBER = "member"
    VIEWER = "viewer"


class Action(StrEnum):
    """Everything a route can be asked to do."""

    ACCOUNT_READ = "account.read"
    ACCOUNT_WRITE = "account.write"
    SESSIONS_READ = "account.read_sessions"
    TOKENS_READ = "tokens.read"
    TOKENS_WRITE = "tokens.write"
    TOKENS_REVOKE_OWN = "tokens.revoke_own"
    WORKSPACE_CREATE = "workspace.create"
    PLATFORM_ADMINISTER = "platform.administer"

    WORKSPACE_READ = "workspace.read"
    WORKSPACE_UPDATE = "workspace.update"
    WORKSPACE_DELETE = "workspace.delete"
    WORKSPACE_LEAVE = "workspace.leave"
    MEMBERS_READ = "members.read"
    MEMBERS_MANAGE = "members.manage"
    ROLES_MANAGE_OWNERS = "members.manage_owners"
    INVITATIONS_READ = "invitations.read"
    INVITATIONS_MANAGE = "invitations.manage"
    AUDIT_READ = "audit.read"
    USAGE_READ = "usage.read"
    QUOTAS_MANAGE = "quotas.manage"

    REPOSITORY_READ = "repository.read"
    REPOSITORY_SYNC = "repository.sync"
    REPOSITORY_MANAGE = "repository.manage"
    GIT_READ = "git.read"
    GIT_WRITE = "git.write"
    ROLLOUTS_READ = "rollouts.read"

    DATASETS_READ = "datasets.read"
    DATASETS_WRITE = "datasets.write"
    DATASETS_DELETE = "datasets.delete"
    SECRETS_READ = "secrets.read"
    SECRETS_WRITE_PERSONAL = "secrets.write_personal"
    SECRETS_WRITE_WORKSPACE = "secrets.write_workspace"
    JOBS_READ = "jobs.read"
    JOBS_CANCEL = "jobs.cancel"
    EVENTS_READ = "events.read"
    RUNS_READ = "runs.read"
    RUNS_SUBMIT = "runs.submit"
    RUNS_STOP = "runs.stop"
    MODELS_READ = "models.read"
    MODELS_DEPLOY = "models.deploy"
    BENCHMARKS_READ = "benchmarks.read"
    BENCHMARKS_WRITE = "benchmarks.write"


OWNERS = frozenset({Role.OWNER})
MANAGERS = OWNERS | {Role.ADMIN}
MEMBERS = MANAGERS | {Role.MEMBER}
EVERYBODY = MEMBERS | {Role.VIEWER}


@dataclass(frozen=True, slots=True)
class Rule:
    """Who may, and which token scope it takes.

    Attributes:
        roles: Roles of the workspace; None where no workspace is involved.
        scope: What a restricted token needs; None where any live token will do.
        own: Roles that may do it to what is theirs, beyond `roles`.
        administrator: Only administrators of the platform.
        beyond: Reaches beyond one workspace, so that a token for one may not.
    """

    roles: frozenset[Role] | None
    scope: str | None
    own: frozenset[Role] = frozenset()
    administrator: bool = False
    beyond: bool = False


RULES: dict[Action, Rule] = {
    Action.ACCOUNT_READ: Rule(None, None),
    Action.ACCOUNT_WRITE: Rule(None, "account:write", beyond=True),
    Action.SESSIONS_READ: Rule(None, "account:read", beyond=True),
    Action.TOKENS_READ: Rule(None, "tokens:read"),
    Action.TOKENS_WRITE: Rule(None, "tokens:write"),
    Action.TOKENS_REVOKE_OWN: Rule(None, None),
    Action.WORKSPACE_CREATE: Rule(None, "workspace:write", beyond=True),
    Action.PLATFORM_ADMINISTER: Rule(None, "platform:write", administrator=True, beyond=True),
    Action.WORKSPACE_READ: Rule(EVERYBODY, None),
    Action.WORKSPACE_UPDATE: Rule(MANAGERS, "workspace:write"),
    Action.WORKSPACE_DELETE: Rule(OWNERS, "workspace:write"),
    Action.WORKSPACE_LEAVE: Rule(EVERYBODY, "workspace:write"),
    Action.MEMBERS_READ: Rule(EVERYBODY, "members:read"),
    Action.MEMBERS_MANAGE: Rule(MANAGERS, "members:write"),
    Action.ROLES_MANAGE_OWNERS: Rule(OWNERS, "members:write"),
    Action.INVITATIONS_READ: Rule(MANAGERS, "members:read"),
    Action.INVITATIONS_MANAGE: Rule(MANAGERS, "members:write"),
    Action.AUDIT_READ: Rule(MANAGERS, "audit:read"),
    Action.USAGE_READ: Rule(MANAGERS, "usage:read"),
    Action.QUOTAS_MANAGE: Rule(EVERYBODY, "platform:write", administrator=True),
    Action.REPOSITORY_READ: Rule(EVERYBODY, "repository:read"),
    Action.REPOSITORY_SYNC: Rule(MEMBERS, "repository:write"),
    Action.REPOSITORY_MANAGE: Rule(MANAGERS, "repository:write"),
    Action.GIT_READ: Rule(EVERYBODY, "git:read"),
    Action.GIT_WRITE: Rule(MEMBERS, "git:write"),
    Action.ROLLOUTS_READ: Rule(EVERYBODY, "rollouts:read"),
    Action.DATASETS_READ: Rule(EVERYBODY, "datasets:read"),
    Action.DATASETS_WRITE: Rule(MEMBERS, "datasets:write"),
    Action.DATASETS_DELETE: Rule(MANAGERS, "datasets:write", own=MEMBERS),
    Action.SECRETS_READ: Rule(EVERYBODY, "secrets:read"),
    Action.SECRETS_WRITE_PERSONAL: Rule(MEMBERS, "secrets:write"),
    Action.SECRETS_WRITE_WORKSPACE: Rule(MANAGERS, "secrets:write"),
    Action.JOBS_READ: Rule(EVERYBODY, "jobs:read"),
    Action.JOBS_CANCEL: Rule(MEMBERS, "jobs:write"),
    Action.EVENTS_READ: Rule(EVERYBODY, "events:read"),
    Action.RUNS_READ: Rule(EVERYBODY, "runs:read"),
    Action.RUNS_SUBMIT: Rule(MEMBERS, "runs:write"),
    Action.RUNS_STOP: Rule(MEMBERS, "runs:write"),
    Action.MODELS_READ: Rule(EVERYBODY, "models:read"),
    Action.MODELS_DEPLOY: Rule(MEMBERS, "models:write"),
    Action.BENCHMARKS_READ: Rule(EVERYBODY, "benchmarks:read"),
    Action.BENCHMARKS_WRITE: Rule(MANAGERS, "benchmarks:write"),
}

_NAMED = {rule.scope for rule in RULES.values() if rule.scope}
SCOPES: frozenset[str] = frozenset(
    {ALL_SCOPES} | _NAMED | {scope.replace(":write", ":read") for scope in _NAMED if not scope.startswith("platform")}
)
"""Every scope a token can be given."""


def has_scope(actor: Actor, action: Action) -> bool:
    """Whether the credential at hand reaches to the action, whatever the role."""
    rule = RULES[action]
    if rule.beyond and actor.only_workspace_id is not None:
        return False
    wanted = rule.scope
    if wanted is None or ALL_SCOPES in actor.scopes or wanted in actor.scopes:
        return True
    return wanted.endswith(":read") and wanted.replace(":read", ":write") in actor.scopes


def is_allowed(role: Role | None, action: Action, *, actor: Actor, owner_id: str | None = None) -> bool:
    """Whether `authorize` would pass, for pages that hide what cannot be done."""
    rule = RULES[action]
    if not has_scope(actor, action) or (rule.administrator and not actor.is_administrator):
        return False
    if rule.roles is None or (role is not None and role in rule.roles):
        return True
    return role is not None and owner_id == actor.user_id and role in rule.own


def authorize(role: Role | None, action: Action, *, actor: Actor, owner_id: str | None = None) -> None:
    """Lets the action pass or says why not.

    Args:
        role: The person's role in the workspace; None outside of workspaces, or for strangers.
        action: What is asked.
        actor: Who asks, with the scopes of the credential at hand.
        owner_id: Whose thing it is, where that matters.

    Raises:
        ForbiddenError: `FORBIDDEN` naming role and action, `TOKEN_SCOPE_MISSING` naming the scope, or `TOKEN_REACH`.
    """
    if is_allowed(role, action, actor=actor, owner_id=owner_id):
        return
    rule = RULES[action]
    if rule.beyond and actor.only_workspace_id is not None:
        raise ForbiddenError(
            f"This token is for one workspace, and {action} reaches beyond it. Use a token for all, or sign in.",
            code="TOKEN_REACH",
            details={"action": str(action)},
        )
    if not has_scope(actor, action):
        raise ForbiddenError(
            f"This token has no scope {rule.scope}, which {action} needs. Make a token with it, or sign in again.",
            code="TOKEN_SCOPE_MISSING",
            details={"action": str(action), "required_scope": rule.scope},
        )
    if rule.administrator:
        message = f"Only an administrator of this platform may do this ({action})."
    else:
        able = [str(one) for one in Role if rule.roles and one in rule.roles]
        who = "You are no member of this workspace" if role is None else f"Your role here is {role}"
        message = f"{who}; {action} needs {' or '.join(able)}. Ask an owner or admin of the workspace."
    raise ForbiddenError(message, details={"action": str(action), "role": None if role is None else str(role)})
