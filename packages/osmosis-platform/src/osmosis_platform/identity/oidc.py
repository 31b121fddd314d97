"""Sign-in with an identity provider (OpenID Connect, authorization code with PKCE); whose account it is: `account_of`.

The browser carries the attempt's state in a signed cookie, so no row is kept for people who never come back. What the
provider says counts only with its signature, our nonce and our client id.
"""

from __future__ import annotations

import hmac
import json
import secrets
import time
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from osmosis_platform.clock import Clock, system_clock
from osmosis_platform.db.database import UnitOfWork
from osmosis_platform.db.repositories.audit import AuditRepository
from osmosis_platform.db.repositories.users import User, UserRepository
from osmosis_platform.domain.actor import Actor
from osmosis_platform.errors import (
    ForbiddenError,
    InvalidRequestError,
    MissingError,
    TakenError,
    UnauthorizedError,
    UnavailableError,
)
from osmosis_platform.identity.accounts import create_user
from osmosis_platform.identity.names import check_email
from osmosis_platform.identity.tokens import actor_of
from osmosis_platform.settings import Settings

if TYPE_CHECKING:
    import httpx

ATTEMPT_S = 600
_DISCOVERY_S = 3600
_LEEWAY_S = 60
_ALGORITHMS = ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"]
_ANSWER_LIMIT = 1 << 20


@dataclass(frozen=True, slots=True)
class Attempt:
    """One try to sign in, as the browser carries it.

    Attributes:
        next: The page to go to afterwards.
        connect: Whether a signed-in person connects the identity, instead of signing in.
        started_at: Seconds since 1970.
    """

    state: str
    nonce: str
    verifier: str = field(repr=False)
    next: str
    connect: bool
    started_at: int

    def sealed(self, key: bytes) -> str:
        """As text for a cookie, signed."""
        body = urlsafe_b64encode(json.dumps(asdict(self)).encode()).decode()
        return f"{body}.{_signature(key, body)}"

    @classmethod
    def unseal(cls, text: str, key: bytes, now_s: float) -> Attempt | None:
        """From a cookie; None if it is not ours or over."""
        body, _, signature = text.rpartition(".")
        if not hmac.compare_digest(_signature(key, body).encode(), signature.encode("utf-8", "surrogatepass")):
            return None
        attempt = cls(**json.loads(urlsafe_b64decode(body)))
        return attempt if 0 <= now_s - attempt.started_at <= ATTEMPT_S else None


@dataclass(frozen=True, slots=True)
class Identity:
    """Whom the provider vouches for.

    Attributes:
        email: Lower-case; None unless the provider has verified it.
    """

    issuer: str
    subject: str
    email: str | None
    name: str | None


class IdentityProvider:
    """The configured provider. Its documents are fetched when first needed and kept for an hour.

    Args:
        settings: With `oidc_issuer` and `oidc_client_id`.
        clock: The time of day.
        transport: Of the HTTP client, for tests with certificates of their own.
    """

    def __init__(
        self, settings: Settings, *, clock: Clock = system_clock, transport: httpx.AsyncBaseTransport | None = None
    ) -> None:
        if not settings.oidc_issuer or not settings.oidc_client_id:
            raise ValueError("oidc_issuer and oidc_client_id are not set")
        self.issuer = settings.oidc_issuer
        self._client_id = settings.oidc_client_id
        self._secret_file = settings.oidc_client_secret_file
        self._redirect_uri = f"{settings.base_url}/auth/oidc/callback"
        self._clock = clock
        self._transport = transport
        self._known: tuple[float, dict[str, Any], dict[str, Any]] | None = None

    @property
    def name(self) -> str:
        """What pages call it."""
        return urlsplit(self.issuer).hostname or self.issuer

    async def begin(self, *, next_page: str, connect: bool) -> tuple[str, Attempt]:
        """Where to send the browser, and what it has to bring back.

        Raises:
            UnavailableError: The provider does not answer as one.
        """
        from authlib.common.urls import add_params_to_uri
        from authlib.oauth2.rfc7636 import create_s256_code_challenge

        facts, _ = await self._documents()
        attempt = Attempt(
            state=secrets.token_urlsafe(32),
            nonce=secrets.token_urlsafe(32),
            verifier=secrets.token_urlsafe(48),
            next=next_page,
            connect=connect,
            started_at=int(self._clock().timestamp()),
        )
        query = {
            "response_type": "code",
            "client_id": self._client_id,
            "redirect_uri": self._redirect_uri,
            "scope": "openid email profile",
            "state": attempt.state,
            "nonce": attempt.nonce,
            "code_challenge": create_s256_code_challenge(attempt.verifier),
            "code_challenge_method": "S256",
        }
        return add_params_to_uri(str(facts["authorization_endpoint"]), list(query.items())), attempt

    async def finish(self, attempt: Attempt, answer: Mapping[str, str]) -> Identity:
        """Whom the provider sent back.

        Args:
            attempt: What the browser brought.
            answer: The query of the callback.

        Raises:
            UnauthorizedError: `OIDC_REFUSED`: the provider or the person said no. `OIDC_INVALID`: the answer belongs to
                another attempt, or its token does not hold.
            UnavailableError: The provider does not answer as one.
        """
        if not hmac.compare_digest(attempt.state.encode(), answer.get("state", "").encode("utf-8", "surrogatepass")):
            raise _invalid("its state is another")
        if answer.get("iss", self.issuer) != self.issuer:  # RFC 9207
            raise _invalid("its issuer is another")
        if "error" in answer or not answer.get("code"):
            said = "".join(c for c in answer.get("error", "no code") if c.isalnum() or c in "_ -")[:60]
            raise UnauthorizedError(f"{self.name} did not sign you in ({said}). Try again.", code="OIDC_REFUSED")
        facts, keys = await self._documents()
        tokens = await self._redeem(str(facts["token_endpoint"]), answer["code"], attempt.verifier)
        text = tokens.get("id_token")
        if not isinstance(text, str):
            raise _invalid("it holds no id_token")
        claims = self._verified(text, keys, attempt.nonce, tokens.get("access_token"))
        if claims is None:  # the provider may have changed its keys since we looked
            self._known = None
            _, keys = await self._documents()
            claims = self._verified(text, keys, attempt.nonce, tokens.get("access_token"))
        if claims is None:
            raise _invalid("its signature does not hold")
        return _identity(self.issuer, claims)

    def _verified(self, text: str, keys: Any, nonce: str, access_token: object) -> dict[str, Any] | None:
        """The claims; None if no known key signed them."""
        from authlib.oidc.core import CodeIDToken
        from joserfc import jwt
        from joserfc.errors import JoseError
        from joserfc.jwk import KeySet

        try:
            token = jwt.decode(text, KeySet.import_key_set(keys), algorithms=_ALGORITHMS)
        except (JoseError, ValueError, KeyError, TypeError):
            return None
        options: Any = {
            "iss": {"essential": True, "value": self.issuer},
            "aud": {"essential": True, "value": self._client_id},
            "nonce": {"essential": True, "value": nonce},
        }
        params = {"nonce": nonce, "client_id": self._client_id, "access_token": access_token}
        claims = CodeIDToken(token.claims, token.header, options, params)
        try:
            claims.validate(now=int(self._clock().timestamp()), leeway=_LEEWAY_S)
        except JoseError as error:
            raise _invalid(f"its token does not hold: {error.error}") from error
        return dict(claims)

    async def _redeem(self, endpoint: str, code: str, verifier: str) -> dict[str, Any]:
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": self._redirect_uri,
            "code_verifier": verifier,
            "client_id": self._client_id,
        }
        secret = None
        if self._secret_file is not None:
            try:
                secret = self._secret_file.read_text(encoding="utf-8").strip()
            except (OSError, UnicodeDecodeError) as error:
                message = f"The client secret of {self.name} cannot be read from oidc_client_secret_file."
                raise UnavailableError(message, code="OIDC_MISCONFIGURED") from error
        response = await self._request("POST", endpoint, form=form, secret=secret)
        if response.status_code >= 500:
            raise self._away(f"its token endpoint answered {response.status_code}")
        if response.status_code != 200:
            raise _invalid("the provider did not take its code")
        return self._json(response)

    async def _documents(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """The provider's own description, and its keys."""
        if self._known is not None and time.monotonic() - self._known[0] < _DISCOVERY_S:
            return self._known[1], self._known[2]
        address = f"{self.issuer.rstrip('/')}/.well-known/openid-configuration"
        facts = self._json(await self._request("GET", address))
        if facts.get("issuer") != self.issuer:
            raise self._away("it calls itself by another issuer than oidc_issuer")
        for name in ("authorization_endpoint", "token_endpoint", "jwks_uri"):
            if not self._is_safe(facts.get(name)):
                raise self._away(f"its {name} is no https address")
        keys = self._json(await self._request("GET", facts["jwks_uri"]))
        if not isinstance(keys.get("keys"), list):
            raise self._away("its jwks_uri holds no keys")
        self._known = (time.monotonic(), facts, keys)
        return facts, keys

    async def _request(
        self, method: str, address: str, *, form: dict[str, str] | None = None, secret: str | None = None
    ) -> httpx.Response:
        import httpx

        auth = None if secret is None else httpx.BasicAuth(self._client_id, secret)
        try:
            # No proxies of the environment for loopback, no redirects: the configuration names the address itself.
            async with httpx.AsyncClient(transport=self._transport, timeout=10, follow_redirects=False) as client:
                return await client.request(
                    method, address, data=form, auth=auth, headers={"Accept": "application/json"}
                )
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise self._away(f"{urlsplit(address).hostname} does not answer") from error

    def _json(self, response: httpx.Response) -> dict[str, Any]:
        if response.status_code != 200 or len(response.content) > _ANSWER_LIMIT:
            raise self._away(f"{response.request.url.path} answered {response.status_code}")
        try:
            value = response.json()
        except ValueError as error:
            raise self._away(f"{response.request.url.path} is no JSON") from error
        if not isinstance(value, dict):
            raise self._away(f"{response.request.url.path} is no JSON object")
        return value

    def _is_safe(self, address: object) -> bool:
        if not isinstance(address, str):
            return False
        parts = urlsplit(address)
        loopback = parts.hostname in {"127.0.0.1", "localhost", "::1"}
        return parts.scheme == "https" or (parts.scheme == "http" and loopback and self.issuer.startswith("http://"))

    def _away(self, why: str) -> UnavailableError:
        message = f"Signing in with {self.name} does not work now: {why}. Use a password, or tell an administrator."
        return UnavailableError(message, code="OIDC_UNAVAILABLE")


def account_of(work: UnitOfWork, identity: Identity, *, is_invited: bool, ip: str | None = None) -> User:
    """The account of an identity: known already, or without a password under its verified address, or newly invited.

    An account with a password is never taken over by its address alone: its owner signs in and connects the provider.

    Raises:
        ForbiddenError: `OIDC_NO_ACCOUNT`, `OIDC_EMAIL_UNVERIFIED`, `OIDC_NOT_CONNECTED` or `USER_DISABLED`.
    """
    users = UserRepository(work)
    user = users.by_identity(identity.issuer, identity.subject)
    if user is None:
        if identity.email is None:
            message = "The provider has not verified your e-mail address, so it leads to no account here."
            raise ForbiddenError(message, code="OIDC_EMAIL_UNVERIFIED")
        user = users.by_email(identity.email)
        if user is not None and user.password_hash is not None:
            message = (
                f"{identity.email} has a password here. Sign in with it, then connect the provider in your account."
            )
            raise ForbiddenError(message, code="OIDC_NOT_CONNECTED")
        if user is None and not is_invited:
            message = f"There is no account for {identity.email} here. Ask a member of a workspace for an invitation."
            raise ForbiddenError(message, code="OIDC_NO_ACCOUNT")
        if user is None:
            user = create_user(work, identity.email, name=identity.name)
        _connect(work, actor_of(user, ip=ip), identity)
    if user.disabled_at is not None:
        raise ForbiddenError("This account is disabled; ask an administrator.", code="USER_DISABLED")
    return user


def connect_identity(work: UnitOfWork, actor: Actor, identity: Identity) -> None:
    """Lets a signed-in person sign in with this identity from now on.

    Raises:
        TakenError: `OIDC_CONNECTED_ELSEWHERE`: it is another person's.
    """
    holder = UserRepository(work).by_identity(identity.issuer, identity.subject)
    if holder is not None and holder.id != actor.user_id:
        message = "This identity is connected to another account of this platform."
        raise TakenError(message, code="OIDC_CONNECTED_ELSEWHERE")
    if holder is None:
        _connect(work, actor, identity)


def disconnect_identity(work: UnitOfWork, actor: Actor, identity_id: str, *, usable_issuer: str | None) -> None:
    """Lets a person no longer sign in with an identity, as long as another way in is left.

    Args:
        work: The transaction.
        actor: Whose identity it is.
        identity_id: Which.
        usable_issuer: The provider that people can sign in with here; identities of others lead nowhere.

    Raises:
        MissingError: `IDENTITY_NOT_FOUND`: the person has no such identity.
        TakenError: `LAST_SIGN_IN`: the person has no password, and no other identity of the provider.
    """
    users = UserRepository(work)
    users.lock(actor.user_id)
    mine = users.identities(actor.user_id)
    found = next((one for one in mine if one.id == identity_id), None)
    if found is None:
        message = "You have no such connected identity; it may be disconnected already."
        raise MissingError(message, code="IDENTITY_NOT_FOUND")
    others = [one for one in mine if one.id != identity_id and one.issuer == usable_issuer]
    if users.get(actor.user_id).password_hash is None and not others:
        message = "This is the only way you sign in. Set a password first, then disconnect it."
        raise TakenError(message, code="LAST_SIGN_IN")
    users.unlink_identity(actor.user_id, identity_id)
    facts = {"issuer": found.issuer}
    AuditRepository(work).record(None, actor, "user.disconnect_identity", "user", actor.user_id, facts)


def _connect(work: UnitOfWork, actor: Actor, identity: Identity) -> None:
    UserRepository(work).link_identity(actor.user_id, identity.issuer, identity.subject)
    facts = {"issuer": identity.issuer}
    AuditRepository(work).record(None, actor, "user.connect_identity", "user", actor.user_id, facts)


def _identity(issuer: str, claims: Mapping[str, Any]) -> Identity:
    email, name = claims.get("email"), claims.get("name")
    checked = None
    if isinstance(email, str) and claims.get("email_verified") in (True, "true"):
        try:
            checked = check_email(email)
        except InvalidRequestError:  # an address that we do not take is no verified address
            checked = None
    shown = " ".join(name.split())[:100] if isinstance(name, str) and name.isprintable() else None
    return Identity(issuer, str(claims["sub"]), checked, shown)


def _invalid(why: str) -> UnauthorizedError:
    return UnauthorizedError(f"This sign-in does not count: {why}. Start again.", code="OIDC_INVALID")


def _signature(key: bytes, body: str) -> str:
    return hmac.new(key, b"oidc attempt\0" + body.encode("utf-8", "surrogatepass"), sha256).hexdigest()
