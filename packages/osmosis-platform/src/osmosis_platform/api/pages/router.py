"""Every page, in the order in which paths are tried: last are those whose first segment is a workspace's name."""

from __future__ import annotations

from fastapi import APIRouter

from osmosis_platform.api.pages import datasets, device, entry, home, provider, repository, secrets, things, workspace

router = APIRouter()
for part in (entry, provider, device, home, datasets, secrets, repository, things, workspace):
    router.include_router(part.router)
