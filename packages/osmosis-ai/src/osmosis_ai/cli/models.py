"""Models of a workspace as results: base models, and LoRA models that trainings made and that can be deployed.

Owns the records' keys. The keys of a deployment are absent where the account has no inference.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit

from osmosis_ai.cli.dates import ABSENT, date_cell, moment_text
from osmosis_ai.cli.listing import Listing, naming
from osmosis_ai.cli.paging import check_paging
from osmosis_ai.cli.results import (
    Block,
    Cell,
    Column,
    DetailResult,
    Fields,
    ListResult,
    ListsResult,
    OperationResult,
    Text,
)
from osmosis_ai.cli.statuses import status_token
from osmosis_ai.errors import NotFoundError, ValidationError

if TYPE_CHECKING:
    from osmosis_ai.cli.root import Invocation
    from osmosis_ai.client.scope import Scope
    from osmosis_ai.client.session import Page, PlatformClient
    from osmosis_ai.client.wire import Record

_INFERENCE_URL = "https://inference.osmosis.ai"
_PRICES = {
    "Input": "inference_input_usd_per_million_tokens",
    "Cached Input": "inference_cached_input_usd_per_million_tokens",
    "Output": "inference_output_usd_per_million_tokens",
}
_TYPES = ("all", "base", "lora")
_QUOTA = ("active_deployments", "max_active_deployments")


def base_record(model: Record) -> dict[str, Any]:
    """A base model with the keys of the JSON contract."""
    return {
        "id": model.text("id"),
        "model_name": model.maybe_text("model_name") or "",
        "base_model": model.maybe_text("base_model"),
        "creator_name": model.maybe_text("creator_name"),
        "created_at": model.maybe_text("created_at") or "",
        "updated_at": model.maybe_text("updated_at") or "",
    }


def lora_record(model: Record) -> dict[str, Any]:
    """A LoRA model with the keys of the JSON contract."""
    record: dict[str, Any] = {
        "id": model.text("id"),
        "model_name": model.maybe_text("model_name") or "",
        "base_model": model.maybe_text("base_model"),
        "training_run_name": model.maybe_text("training_run_name"),
        "checkpoint_step": model.maybe_int("checkpoint_step"),
        "reward": model.maybe_number("reward"),
    }
    if "deployment_status" in model.fields:
        record |= {key: model.maybe_text(key) for key in ("deployment_status", "deployed_at", "deployed_by")}
    return record | {"created_at": model.maybe_text("created_at") or ""}


def _base_row(item: Mapping[str, Any]) -> list[Cell]:
    return [item["model_name"], date_cell(item["created_at"]), item["creator_name"] or ABSENT]


def _lora_row(item: Mapping[str, Any]) -> list[Cell]:
    return [
        item["model_name"],
        item["base_model"] or ABSENT,
        item["training_run_name"] or ABSENT,
        _step_text(item["checkpoint_step"]),
        _reward_text(item["reward"]),
        date_cell(item["created_at"]),
    ]


def _deployable_row(item: Mapping[str, Any]) -> list[Cell]:
    deployed = item.get("deployment_status") == "active"
    return [*_lora_row(item), status_token("deployed") if deployed else Text(ABSENT, "dim")]


_BASE = Listing(
    path="/models/base",
    key="models",
    record=base_record,
    columns=(Column("Name", keep=True), Column("Created"), Column("Created By")),
    row=_base_row,
    empty="There are no base models in this workspace.",
    title="Base Models",
)
_LORA = Listing(
    path="/models/lora",
    key="models",
    record=lora_record,
    columns=(
        Column("Name", keep=True),
        Column("Base Model"),
        Column("Training Run"),
        Column("Checkpoint Step", right=True),
        Column("Training Reward", right=True),
        Column("Created"),
    ),
    row=_lora_row,
    empty="There are no LoRA models yet; trainings make them: osmosis train submit configs/training/NAME.toml",
    title="LoRA Models",
)


def list_models(invocation: Invocation, kind: str, limit: int, everything: bool) -> ListResult | ListsResult:
    """Base models, LoRA models or both.

    Raises:
        ValidationError: An unknown kind, or options that exclude each other.
        OsmosisError: No scope, no login, or the platform's error.
    """
    if kind not in _TYPES:
        raise ValidationError(f"--type must be 'all', 'base' or 'lora', not {kind!r}.")
    check_paging(limit, everything)
    from osmosis_ai.client.scope import resolve_scope
    from osmosis_ai.client.session import open_client

    scope = resolve_scope(invocation.workspace)
    lists: dict[str, ListResult] = {}
    extras = scope.extras()
    with open_client(scope, warn=invocation.output.warn) as client, invocation.output.working("Fetching models..."):
        if kind != "lora":
            lists["base_models"] = _BASE.result(_BASE.fetch(client, limit, everything), extras=extras)
        if kind != "base":
            lists["lora_models"] = _lora_list(client, limit, everything, extras)
    if kind == "all":
        return ListsResult(lists, extras=lists["lora_models"].extras)
    return next(iter(lists.values()))


def _lora_list(client: PlatformClient, limit: int, everything: bool, extras: Mapping[str, Any]) -> ListResult:
    from dataclasses import replace

    page = _LORA.fetch(client, limit, everything)
    quota = _quota(page)
    offered = bool(quota) or any("deployment_status" in item.fields for item in page.items)
    listing = _LORA
    if offered:
        columns = (*_LORA.columns, Column("Deployment Status", keep=True))
        listing = replace(_LORA, columns=columns, row=_deployable_row)
    most = quota.get("max_active_deployments", 0)
    hints = [f"{quota.get('active_deployments', 0)} of {most} inference deployments used"] if most else []
    return listing.result(page, extras={**extras, **quota}, hints=hints)


def _quota(page: Page) -> dict[str, int]:
    return {key: value for key in _QUOTA if (value := page.reply.maybe_int(key)) is not None}


def show_model(invocation: Invocation, name: str) -> DetailResult:
    """A LoRA model by its name, or a base model by its name or path.

    Raises:
        NotFoundError: Neither is called so.
        OsmosisError: No scope, no login, or the platform's error.
    """
    from osmosis_ai.client.refusals import looked_for
    from osmosis_ai.client.scope import resolve_scope
    from osmosis_ai.client.session import open_client, segment
    from osmosis_ai.client.wire import Record

    scope = resolve_scope(invocation.workspace)
    working = invocation.output.working
    with open_client(scope, warn=invocation.output.warn) as client:
        if "/" not in name:
            try:
                with working(f'Fetching LoRA model "{name}"...'):
                    found = Record(client.get(f"/models/{segment(name)}"), "LoRA model")
                return _show_lora(found, scope)
            except NotFoundError as error:
                if not looked_for(error):
                    raise
        try:
            with working(f'Fetching base model "{name}"...'):
                found = Record(client.get(f"/models/base/{segment(name)}"), "base model")
        except NotFoundError as error:
            if not looked_for(error):
                raise
            raise NotFoundError(f"Model not found: {name}\nSee the names: osmosis model list") from None
    return _show_base(found, scope)


def _show_lora(model: Record, scope: Scope) -> DetailResult:
    record: dict[str, Any] = {
        **lora_record(model),
        "hf_upload_status": model.maybe_text("hf_upload_status") or "",
        "hf_url": model.maybe_text("hf_url"),
        "uploaded_by": model.maybe_text("uploaded_by"),
        "inference_model": model.maybe_text("inference_model"),
    }
    url = model.maybe_text("platform_url")
    summary: list[tuple[str, Cell]] = [
        ("Name", record["model_name"]),
        *([("ID", record["id"])] if model.flag("is_internal_user") else []),
        ("Base Model", record["base_model"] or ABSENT),
        ("Training Run", record["training_run_name"] or ABSENT),
        ("Checkpoint Step", _step_text(record["checkpoint_step"])),
        ("Training Reward", _reward_text(record["reward"])),
        ("Created", moment_text(record["created_at"])),
    ]
    export: list[tuple[str, Cell]] = [("Upload Status", _title_text(record["hf_upload_status"]))]
    export += [("URL", record["hf_url"])] if record["hf_url"] else []
    export += [("Uploaded By", record["uploaded_by"])] if record["uploaded_by"] else []
    blocks: list[Block] = [Fields(summary), Fields(export, title="Hugging Face")]
    hints: list[str] = []
    if "deployment_status" in record:
        active = record["deployment_status"] == "active"
        rows: list[tuple[str, Cell]] = [("Status", Text("Deployed", "good") if active else Text("Not deployed", "dim"))]
        if active:
            rows += [("Deployed", moment_text(record["deployed_at"]))] if record["deployed_at"] else []
            rows += [("Deployed By", record["deployed_by"])] if record["deployed_by"] else []
        blocks.append(Fields(rows, title="Deployment"))
        verb = "undeploy" if active else "deploy"
        hints.append(f"{verb.capitalize()} with: osmosis model {verb} {shlex.quote(record['model_name'])}")
        hints += _inference_lines(record["inference_model"], url) if active else []
    hints = [*([f"View: {url}"] if url else []), *hints]
    data = {"lora_model": record, "platform_url": url, **scope.extras()}
    return DetailResult(data, blocks, title="LoRA Model", hints=hints)


def _show_base(model: Record, scope: Scope) -> DetailResult:
    record: dict[str, Any] = {
        **base_record(model),
        "namespace": model.maybe_text("namespace"),
        "parameters": model.maybe_int("parameters"),
        "context_window": model.maybe_int("context_window"),
        "hf_url": model.maybe_text("hf_url"),
        **{key: model.maybe_number(key) for key in _PRICES.values()},
    }
    url = model.maybe_text("platform_url")
    summary: list[tuple[str, Cell]] = [
        ("Name", record["model_name"]),
        *([("ID", record["id"])] if model.flag("is_internal_user") else []),
        ("Path", record["base_model"] or ABSENT),
        ("Namespace", record["namespace"] or ABSENT),
        ("Parameters", _large_text(record["parameters"], 1000, "KMBT")),
        ("Context Window", _large_text(record["context_window"], 1024, "KM", " tokens")),
        ("Created", moment_text(record["created_at"])),
        ("Created By", record["creator_name"] or ABSENT),
    ]
    blocks: list[Block] = [Fields(summary)]
    if any(record[key] is not None for key in _PRICES.values()):
        prices: list[tuple[str, Cell]] = [(label, _price_text(record[key])) for label, key in _PRICES.items()]
        blocks.append(Fields(prices, title="Inference Pricing"))
    if record["hf_url"]:
        blocks.append(Fields([("URL", record["hf_url"])], title="Hugging Face"))
    data = {"base_model": record, "platform_url": url, **scope.extras()}
    return DetailResult(data, blocks, title="Base Model", hints=[f"View: {url}"] if url else [])


def change_deployment(invocation: Invocation, name: str, action: Literal["deploy", "undeploy"]) -> OperationResult:
    """Deploy a LoRA model for inference, or take it down; doing it twice changes nothing.

    Raises:
        OsmosisError: No scope, no login, or the platform's error, such as a used-up quota.
    """
    from osmosis_ai.client.scope import resolve_scope
    from osmosis_ai.client.session import open_client, segment
    from osmosis_ai.client.wire import Record

    scope = resolve_scope(invocation.workspace)
    doing = f'{action.capitalize()}ing LoRA model "{name}"...'
    output = invocation.output
    names = naming("osmosis model list --type lora")
    with open_client(scope, warn=output.warn) as client, output.working(doing), names:
        model = Record(client.post(f"/models/{segment(name)}/{action}"), "LoRA model")
    called = model.maybe_text("model_name") or name
    return OperationResult(
        operation=f"model.{action}",
        resource={
            "id": model.text("id"),
            "model_name": called,
            "status": model.maybe_text("status") or ("active" if action == "deploy" else "inactive"),
            **scope.extras(),
        },
        message=f"LoRA model {action}ed: {called}",
        next_steps=[f"Check status with: osmosis model info {shlex.quote(called)}"],
        next_steps_structured=[{"action": "model_info", "name": called}],
    )


def _inference_lines(model: str | None, platform_url: str | None) -> list[str]:
    """How to call a deployed model, as a command to copy."""
    if not model:
        return []
    import json

    base = (os.environ.get("OSMOSIS_INFERENCE_URL") or _INFERENCE_URL).rstrip("/")
    in_quotes = json.dumps(model, ensure_ascii=False).replace("'", "'\\''")  # within the single quotes of a shell
    lines = [
        "",
        "Your model is deployed and serving. Send requests to the OpenAI-compatible chat completions endpoint:",
        f"curl -X POST {base}/v1/chat/completions \\",
        '  -H "Authorization: Bearer $OSMOSIS_API_KEY" \\',
        '  -H "Content-Type: application/json" \\',
        "  -d '{",
        f'    "model": {in_quotes},',
        '    "messages": [{"role": "user", "content": "Hello!"}]',
        "  }'",
    ]
    keys = _keys_url(platform_url)
    return [*lines, "", f"Set $OSMOSIS_API_KEY to an Osmosis API key{f'; create one at {keys}' if keys else ''}."]


def _keys_url(platform_url: str | None) -> str | None:
    """The page of API keys: beside the model's own page, in the same workspace."""
    try:
        parts = urlsplit(platform_url or "")
    except ValueError:
        return None
    workspace = parts.path.strip("/").split("/")[0]
    return f"{parts.scheme}://{parts.netloc}/{workspace}/api-keys" if parts.netloc and workspace else None


def _step_text(step: int | None) -> str:
    return ABSENT if step is None else str(step)


def _reward_text(reward: float | None) -> str:
    return ABSENT if reward is None else f"{reward:.2f}"


def _title_text(word: str) -> str:
    return word.replace("_", " ").capitalize() or ABSENT


def _price_text(price: float | None) -> str:
    if price is None:
        return ABSENT
    return f"${price:.2f} / 1M tokens" if round(price, 2) == price else f"${price:g} / 1M tokens"


def _large_text(count: int | None, step: int, units: str, noun: str = "") -> str:
    """A count in a unit, and exactly: `4B (4,022,468,096)`."""
    if count is None:
        return ABSENT
    size, unit = float(count), ""
    for name in units:
        if size < step:
            break
        size, unit = size / step, name
    return f"{size:.3g}{unit}{noun} ({count:,})" if unit else f"{count}{noun}"
