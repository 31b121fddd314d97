"""The server's OpenAPI document, made when somebody first asks: describing the models costs more than routing."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from osmosis_ai.rollout.types.protocol import (
    POLLING_LEASE_HEADER,
    CancelRolloutsRequest,
    CancelRolloutsResponse,
    RolloutInitRequest,
    RolloutInitResponse,
    RolloutResultResponse,
)

_BODIES: dict[tuple[str, str], type[BaseModel]] = {
    ("/rollout", "post"): RolloutInitRequest,
    ("/rollout/cancel", "post"): CancelRolloutsRequest,
}
_ANSWERS: dict[tuple[str, str], tuple[str, type[BaseModel], dict[str, str]]] = {
    ("/rollout", "post"): (
        "202",
        RolloutInitResponse,
        {
            "409": "rollout_id is already registered",
            "422": "the body is wrong",
            "429": "the queue is full; Retry-After says when to ask again",
            "503": "the server is shutting down",
        },
    ),
    ("/rollout/{rollout_id}/result", "get"): (
        "200",
        RolloutResultResponse,
        {"403": "invalid polling lease", "404": "unknown rollout_id", "422": "no lease header"},
    ),
    ("/rollout/cancel", "post"): ("200", CancelRolloutsResponse, {"422": "not exactly one of ids, prefix, all"}),
}
_REFERENCE = "#/components/schemas/{model}"


def describe(app: FastAPI) -> dict[str, Any]:
    """The OpenAPI document of the app, kept in `app.openapi_schema`."""
    if app.openapi_schema is None:
        document = get_openapi(title=app.title, version=app.version, routes=app.routes)
        models = [*_BODIES.values(), *(answer[1] for answer in _ANSWERS.values())]
        mode = [(model, "validation" if model in _BODIES.values() else "serialization") for model in models]
        references, definitions = models_json_schema(mode, ref_template=_REFERENCE)  # ty: ignore[invalid-argument-type]
        by_model = {model: reference for (model, _), reference in references.items()}
        document.setdefault("components", {}).setdefault("schemas", {}).update(definitions["$defs"])
        for (path, method), model in _BODIES.items():
            document["paths"][path][method]["requestBody"] = {"required": True, **_json(by_model[model])}
        for (path, method), (status, model, errors) in _ANSWERS.items():
            answers = {status: {"description": "success", **_json(by_model[model])}}
            answers |= {code: {"description": text} for code, text in errors.items()}
            document["paths"][path][method]["responses"] = answers
        document["paths"]["/rollout/{rollout_id}/result"]["get"]["parameters"] = [
            {"name": "rollout_id", "in": "path", "required": True, "schema": {"type": "string"}},
            {"name": POLLING_LEASE_HEADER, "in": "header", "required": True, "schema": {"type": "string"}},
        ]
        app.openapi_schema = document
    return app.openapi_schema


def _json(schema: dict[str, Any]) -> dict[str, Any]:
    return {"content": {"application/json": {"schema": schema}}}
