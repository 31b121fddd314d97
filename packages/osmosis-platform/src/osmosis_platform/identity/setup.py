"""The first account: whoever holds the one-time link of the first start becomes the administrator."""

from __future__ import annotations

from typing import TYPE_CHECKING

from osmosis_platform.db.database import UnitOfWork
from osmosis_platform.db.repositories.facts import FactRepository
from osmosis_platform.db.repositories.users import User, UserRepository
from osmosis_platform.db.repositories.workspaces import Workspace
from osmosis_platform.errors import ForbiddenError
from osmosis_platform.identity.accounts import create_user, create_workspace
from osmosis_platform.identity.secret_tokens import digest, new_secret

if TYPE_CHECKING:
    from osmosis_platform.services import Services

_FACT = "setup_token_sha256"


def open_setup(work: UnitOfWork) -> str | None:
    """A new set-up token, which ends the one before; None once somebody has an account."""
    if UserRepository(work).count():
        FactRepository(work).drop(_FACT)
        return None
    secret = new_secret("set")
    FactRepository(work).put(_FACT, digest(secret))
    return secret


def is_setup_open(work: UnitOfWork) -> bool:
    """Whether the first account is still to be made."""
    return FactRepository(work).find(_FACT) is not None and UserRepository(work).count() == 0


def finish_setup(
    services: Services,
    work: UnitOfWork,
    token: str,
    *,
    email: str,
    name: str | None,
    password_hash: str,
    workspace: str,
) -> tuple[User, Workspace]:
    """Makes the first account, an administrator, and its workspace.

    Raises:
        ForbiddenError: `SETUP_TOKEN_INVALID`: the token is unknown, or was used.
        InvalidRequestError: A field is no such thing; the token stays good.
    """
    if UserRepository(work).count() or not FactRepository(work).take(_FACT, digest(token.strip())):
        message = "This set-up link does not count any more. Restart the platform for a new one, or sign in."
        raise ForbiddenError(message, code="SETUP_TOKEN_INVALID")
    user = create_user(work, email, name=name, password_hash=password_hash, is_administrator=True)
    return user, create_workspace(services, work, user, workspace)
