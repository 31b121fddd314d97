"""The ASGI application: every router of the platform over one set of services."""

from __future__ import annotations

import importlib
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from fastapi import APIRouter, FastAPI
from starlette.routing import Route

from osmosis_platform.api import envelope
from osmosis_platform.api.github_names import GithubNames
from osmosis_platform.api.idempotency import take_keys
from osmosis_platform.api.metrics import Metrics
from osmosis_platform.api.pages import errors as pages
from osmosis_platform.api.requests import RequestFrame
from osmosis_platform.api.route_index import RouteIndex
from osmosis_platform.api.scope import show_actions
from osmosis_platform.api.segments import KeepEncodedSlashes
from osmosis_platform.api.versions import VersionNegotiation
from osmosis_platform.services import Services

# Modules with a `router: APIRouter`. One line each, so that rooms add theirs without touching anything else.
ROUTERS: tuple[str, ...] = (
    "osmosis_platform.api.health",
    "osmosis_platform.api.metrics",
    "osmosis_platform.api.git",
    "osmosis_platform.api.cli.device",
    "osmosis_platform.api.cli.quickstart",
    "osmosis_platform.api.cli.tokens",
    "osmosis_platform.api.cli.verify",
    "osmosis_platform.api.cli.workspaces",
    "osmosis_platform.api.cli.rollouts",
    "osmosis_platform.api.cli.secrets",
    "osmosis_platform.api.v1.account",
    "osmosis_platform.api.v1.audit",
    "osmosis_platform.api.v1.invitations",
    "osmosis_platform.api.v1.jobs",
    "osmosis_platform.api.v1.members",
    "osmosis_platform.api.v1.repository",
    "osmosis_platform.api.v1.rollouts",
    "osmosis_platform.api.v1.secrets",
    "osmosis_platform.api.v1.tokens",
    "osmosis_platform.api.v1.workspaces",
    "osmosis_platform.api.v1.usage",
    "osmosis_platform.api.v1.events",
    "osmosis_platform.api.v1.webhooks",
    "osmosis_platform.api.blobs",
    "osmosis_platform.api.cli.datasets",
    "osmosis_platform.api.v1.datasets",
)


def create_app(services: Services) -> FastAPI:
    """The application. Routes reach the services through `request.app.state.services`."""

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncGenerator[None]:
        yield
        services.close()

    app = FastAPI(
        title="Osmosis platform",
        version="1",
        openapi_url="/api/openapi.json",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,  # the client re-sends redirected POSTs without a body
        lifespan=lifespan,
    )
    app.state.services = services
    app.state.metrics = Metrics()
    envelope.install(app)
    pages.install(app)
    index = RouteIndex()
    app.router.routes.append(index)
    for name in ROUTERS:
        router: APIRouter = importlib.import_module(name).router
        show_actions(router)
        take_keys(router)
        before = len(app.router.routes)
        app.include_router(router)
        paths = [route.path for route in router.routes if isinstance(route, Route)]
        index.add(paths, app.router.routes[before:])
    # Last: a workspace's name is the first segment of its pages.
    app.include_router(importlib.import_module("osmosis_platform.api.pages.router").router)
    app.add_middleware(KeepEncodedSlashes)
    app.add_middleware(VersionNegotiation, settings=services.settings)
    app.add_middleware(RequestFrame, settings=services.settings, note=app.state.metrics.note)
    app.add_middleware(GithubNames)
    return app
