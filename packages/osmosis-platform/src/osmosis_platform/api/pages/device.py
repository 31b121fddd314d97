"""The page on which a person lets a device in, or not."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from osmosis_platform.api.pages.rendering import page
from osmosis_platform.api.pages.visitors import SentDep, person_may
from osmosis_platform.api.scope import ServicesDep, client_ip
from osmosis_platform.db.repositories.device_logins import DeviceLogin
from osmosis_platform.domain.actor import Actor
from osmosis_platform.domain.permissions import Action
from osmosis_platform.errors import InvalidRequestError, ServiceError
from osmosis_platform.identity.device import decide_login, find_login, show_user_code

router = APIRouter(prefix="/device", include_in_schema=False)


@router.get("")
async def show(
    request: Request, services: ServicesDep, actor: Annotated[Actor, person_may(Action.TOKENS_WRITE)], code: str = ""
) -> Response:
    """Asks for the code, or whether to let the device of the code in."""
    if not code:
        return page(request, "device", login=None)
    try:
        login = await find_login(services, code, ip=client_ip(request))
    except ServiceError as error:
        return _again(request, error, code)
    return _asked(request, actor, login)


@router.post("")
async def decide(
    request: Request, services: ServicesDep, form: SentDep, actor: Annotated[Actor, person_may(Action.TOKENS_WRITE)]
) -> Response:
    """Approves or denies."""
    approve = form["decision"] == "approve"
    try:
        login = await find_login(services, form["code"], ip=client_ip(request))
        if approve and not form["compared"]:
            message = "Compare the code with the one on the device, tick the box, then approve; or deny."
            failure = InvalidRequestError(message, field="compared")
            return _asked(request, actor, login, status=400, failure=failure)
        await services.database.writing(lambda work: decide_login(work, actor, login.id, approve=approve))
    except ServiceError as error:
        return _again(request, error, "")
    if approve:
        facts = ("The device is signed in", f"{login.device_name} goes on by itself. You can close this page.")
    else:
        facts = ("The device was refused", f"{login.device_name} got no access.")
    return page(request, "message", heading=facts[0], text=facts[1], action=("/", "To your workspaces"))


def _asked(request: Request, actor: Actor, login: DeviceLogin, **facts: Any) -> Response:
    return page(request, "device", login=login, user_code=show_user_code(login.user_code), my_ip=actor.ip, **facts)


def _again(request: Request, error: ServiceError, code: str) -> Response:
    if error.status >= 500:
        raise error
    error.field = "code"
    shown = page(request, "device", status=error.status, login=None, failure=error, given={"code": code[:12]})
    shown.headers.update(error.headers)
    return shown
