"""The cookies of the pages: the session, an invitation on its way to be accepted, a sign-in at an identity provider."""

from __future__ import annotations

from fastapi.responses import Response

from osmosis_platform.api.scope import SESSION_COOKIE
from osmosis_platform.identity.sessions import OpenedSession
from osmosis_platform.settings import Settings

INVITATION_COOKIE = "osmosis_invitation"
OIDC_COOKIE = "osmosis_oidc"
INVITATION_S = 1800


def set_session(response: Response, settings: Settings, opened: OpenedSession) -> None:
    """Signs the browser in."""
    set_private(response, settings, SESSION_COOKIE, opened.secret, settings.session_days * 86_400)


def set_private(response: Response, settings: Settings, name: str, value: str, max_age_s: int) -> None:
    """A cookie that scripts cannot read and other sites cannot send along with a form."""
    secure = settings.base_url.startswith("https://")
    response.set_cookie(name, value, max_age=max_age_s, path="/", httponly=True, samesite="lax", secure=secure)


def drop(response: Response, settings: Settings, name: str) -> None:
    """Makes the browser forget a cookie."""
    secure = settings.base_url.startswith("https://")
    response.delete_cookie(name, path="/", httponly=True, samesite="lax", secure=secure)
