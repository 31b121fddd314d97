"""Device login of the command line (platform-api.md 4.3). The page on which a person decides is api.pages."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import quote

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field

from osmosis_platform.api.cli.verify import WireUser, wire_user
from osmosis_platform.api.scope import ServicesDep, client_ip, open_to_all
from osmosis_platform.clock import wire_time
from osmosis_platform.db.database import UnitOfWork
from osmosis_platform.db.repositories.throttles import ThrottleRepository
from osmosis_platform.errors import TooManyRequestsError
from osmosis_platform.identity.device import Answer, RedeemedLogin, begin_login, poll_login

router = APIRouter(prefix="/api/cli/device", tags=["auth"])

_PER_MINUTE = 30
_MESSAGES: dict[Answer, str] = {
    "authorization_pending": "Nobody has decided this login yet; ask again after the interval.",
    "slow_down": "Ask less often: wait five seconds longer than before.",
    "expired_token": "This login is over or was used already; begin a new one.",
    "access_denied": "This login was denied.",
}


class AuthorizeRequest(BaseModel):
    """Who wants to come in."""

    model_config = ConfigDict(populate_by_name=True)
    device_name: Annotated[str, Field(alias="deviceName", max_length=1000)] = ""


class AuthorizeResponse(BaseModel):
    """The codes of the login. Times are seconds."""

    device_code: str
    user_code: str
    verification_uri: str
    verification_uri_complete: str
    expires_in: int
    interval: int


class TokenRequest(BaseModel):
    """The code the device polls with."""

    device_code: Annotated[str, Field(max_length=200)]


class TokenResponse(BaseModel):
    """The token of the device."""

    token: str
    token_id: str
    expires_at: str | None
    user: WireUser


@router.post("/authorize", dependencies=[open_to_all("a device has no credential yet")])
async def authorize(body: AuthorizeRequest, request: Request, services: ServicesDep) -> AuthorizeResponse:
    """Begins a device login."""
    ip = client_ip(request)

    def begin(work: UnitOfWork) -> AuthorizeResponse | None:
        if ThrottleRepository(work).hit(f"device-login:{ip}", 60) > _PER_MINUTE:
            return None
        login = begin_login(work, body.device_name, ip=ip)
        page = f"{services.settings.base_url}/device"
        return AuthorizeResponse(
            device_code=login.device_code,
            user_code=login.user_code,
            verification_uri=page,
            verification_uri_complete=f"{page}?code={quote(login.user_code)}",
            expires_in=login.expires_s,
            interval=login.interval_s,
        )

    answer = await services.database.writing(begin)
    if answer is None:
        message = f"More than {_PER_MINUTE} logins were begun from your address within a minute; wait a minute."
        raise TooManyRequestsError(message, headers={"Retry-After": "60"})
    return answer


@router.post("/token", dependencies=[open_to_all("a device has no credential yet")], response_model=TokenResponse)
async def token(body: TokenRequest, request: Request, services: ServicesDep) -> TokenResponse | JSONResponse:
    """Answers a device that polls: 400 with the code of RFC 8628 until it is let in; never 429, which ends the client."""
    days, ip = services.settings.token_days, client_ip(request)
    found = await services.database.writing(lambda work: poll_login(work, body.device_code, token_days=days, ip=ip))
    if not isinstance(found, RedeemedLogin):
        # RFC 8628 fixes what `error` holds, so this is no envelope of ours.
        content = {"error": found, "code": found.upper(), "message": _MESSAGES[found]}
        return JSONResponse(content, 400)
    return TokenResponse(
        token=found.token.secret,
        token_id=found.token.id,
        expires_at=wire_time(found.token.expires_at),
        user=wire_user(found.user),
    )
