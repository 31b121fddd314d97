"""Every page, in the order in which paths are tried: last are those whose first segment is a workspace's name."""

from __future__ import annotations

from fastapi import APIRouter

from osmosis_platform.api.pages import device, entry, home, provider, things, workspace

router = APIRouter()
for part in (entry, provider, device, home, things, workspace):
    router.include_router(part.router)
