"""What a start does before it serves: schema, keys, and either an unattended owner or a set-up link for the first person."""

from __future__ import annotations

import os
import shlex
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from osmosis_platform.db import schema
from osmosis_platform.db.database import UnitOfWork
from osmosis_platform.db.repositories.audit import AuditRepository
from osmosis_platform.db.repositories.tokens import TokenRepository
from osmosis_platform.db.repositories.users import UserRepository
from osmosis_platform.db.repositories.workspaces import WorkspaceRepository
from osmosis_platform.domain.permissions import ALL_SCOPES
from osmosis_platform.errors import InvalidRequestError, UnauthorizedError, UnavailableError
from osmosis_platform.identity.accounts import create_user, create_workspace
from osmosis_platform.identity.names import check_email, check_workspace_name
from osmosis_platform.identity.setup import open_setup
from osmosis_platform.identity.tokens import authenticate_token, issue_token
from osmosis_platform.ops.restore import refuse_unfinished
from osmosis_platform.ops.rotation import finish_rotation
from osmosis_platform.services import Services, open_services
from osmosis_platform.settings import Settings

_TOKEN_NAME = "bootstrap"  # noqa: S105 - a name


@dataclass(frozen=True, slots=True)
class Bootstrap:
    """An unattended first start.

    Attributes:
        email: The owner's address, and the platform's administrator's.
        workspace: The workspace's name; its hosted repository is `workspace/workspace`.
        token_file: Where the owner's token is written.
    """

    email: str
    workspace: str
    token_file: Path

    @classmethod
    def parse(cls, text: str, token_file: Path) -> Bootstrap:
        """From the flag `EMAIL:WORKSPACE`.

        Raises:
            InvalidRequestError: It has another form, or one of its parts is no address or no name.
        """
        email, colon, workspace = text.partition(":")
        if not colon:
            raise InvalidRequestError(f"--bootstrap must be EMAIL:WORKSPACE, not {text!r}.", field="bootstrap")
        return cls(check_email(email), check_workspace_name(workspace), token_file.expanduser().absolute())


@dataclass(frozen=True, slots=True)
class Welcome:
    """What a start tells the person in front of it.

    Attributes:
        setup_token: Of the one-time link; None once there is a first account.
        bootstrap: The unattended start, if it was one.
    """

    setup_token: str | None
    bootstrap: Bootstrap | None

    def banner(self, settings: Settings) -> str:
        """The lines printed once requests are answered."""
        base = settings.base_url
        lines = ["", f"  Osmosis is up at {base}", f"  Data: {settings.data_dir}", ""]
        if self.setup_token is not None:
            # after the #, which browsers do not send: the token never reaches a log
            lines += ["  Make the first account (this link works once):", f"    {base}/setup#{self.setup_token}", ""]
        elif self.bootstrap is not None:
            lines += [f"  Workspace {self.bootstrap.workspace} of {self.bootstrap.email}",
                      f"  Token in {self.bootstrap.token_file}", ""]  # fmt: skip
        environment = f"osmosis-platform client-env --data-dir {shlex.quote(str(settings.data_dir))}"
        if self.bootstrap is not None:
            environment += f" --token-file {shlex.quote(str(self.bootstrap.token_file))}"
        lines += [
            "  In another terminal:",
            f'    eval "$({environment})"',
            "    osmosis quickstart",
            "  There, Git finds this platform under the name github.com, because the published client clones from that",
            "  host only; `osmosis-platform client-env --clone DIR` keeps this for one clone in every terminal.",
            "",
        ]
        if settings.tls_cert is None:
            lines += ["  This machine only (no TLS). To open it to others: osmosis-platform up --help", ""]
        return "\n".join(lines)


def prepare(settings: Settings, bootstrap: Bootstrap | None) -> Welcome:
    """Makes everything ready to serve. Again after an interruption, it goes on where it was.

    Raises:
        OsmosisError: The database, the keys or the token file cannot be used.
    """
    finish_rotation(settings)
    services = open_services(settings)
    try:
        refuse_unfinished(services)
        schema.migrate(services.database)
        services.vault.check(services.database)
        if bootstrap is not None:
            _bootstrap(services, bootstrap)
            return Welcome(None, bootstrap)
        with services.database.write() as work:
            return Welcome(open_setup(work), None)
    finally:
        services.close()


def _bootstrap(services: Services, bootstrap: Bootstrap) -> None:
    with services.database.write() as work:
        user = UserRepository(work).by_email(bootstrap.email)
        if user is None:
            user = create_user(work, bootstrap.email, name=None, is_administrator=True)
        workspace = WorkspaceRepository(work).by_name(bootstrap.workspace)
        if workspace is None:
            create_workspace(services, work, user, bootstrap.workspace)
        elif WorkspaceRepository(work).seen_by_named(user.id, bootstrap.workspace) is None:
            message = f"The workspace {bootstrap.workspace} exists, and {bootstrap.email} is not a member of it."
            raise InvalidRequestError(message, field="bootstrap")
    with services.database.write() as work:
        if _is_valid(work, bootstrap.token_file, user.id):
            return
        tokens = TokenRepository(work)
        for token in tokens.of_user(user.id):  # of starts that were interrupted before the file was written
            if token.name == _TOKEN_NAME:
                tokens.revoke(user.id, token.id)
        expires_at = work.clock() + timedelta(days=services.settings.token_days)
        issued = issue_token(
            work, user.id, kind="personal", name=_TOKEN_NAME, scopes=[ALL_SCOPES], expires_at=expires_at
        )
        AuditRepository(work).record(None, None, "token.create", "token", issued.id, {"name": _TOKEN_NAME})
    _write_private(bootstrap.token_file, issued.secret)


def _is_valid(work: UnitOfWork, path: Path, user_id: str) -> bool:
    try:
        return authenticate_token(work, path.read_text(encoding="ascii").strip()).actor.user_id == user_id
    except (OSError, UnicodeDecodeError, UnauthorizedError):
        return False


def _write_private(path: Path, text: str) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.unlink(missing_ok=True)
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as stream:
            stream.write(text + "\n")
            stream.flush()
            os.fsync(descriptor)
        temporary.replace(path)
    except OSError as error:
        raise UnavailableError(
            f"The token file {path} cannot be written: {error.strerror}.", code="TOKEN_FILE"
        ) from error
