"""The request rules of the chat route: what a caller may say, and the `ChatRequest` it becomes.

Pure: bytes in, a parsed call out, or a `PolicyError` of kind bad_request that names the field. Whether the model
understands a field is the policy's affair.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from osmosis_ai.gateway.policy import ChatRequest, PolicyError

MAX_BODY_BYTES = 64 * 1024 * 1024

OWNED_FIELDS = frozenset({"model", "messages", "tools", "stream", "stream_options", "n", "extra_body"})
"""Fields of the call itself; they never reach a policy's `params`."""

CONTROL_PREFIXES = (
    "_",
    "litellm_",
    "aws_",
    "azure_",
    "vertex_",
    "watsonx_",
    "sagemaker_",
    "oci_",
    "wx_",
    "s3_",
    # families of router, logging and pricing settings
    "anthropic_identity_",
    "anthropic_federation_",
    "anthropic_issuer_",
    "anthropic_keycloak_",
    "arize_",
    "auto_router_",
    "bedrock_",
    "cache_creation_input_",
    "cache_read_input_",
    "complexity_router_",
    "dd_",
    "gcs_",
    "github_copilot_",
    "input_cost_per_",
    "langfuse_",
    "langsmith_",
    "newrelic_",
    "openai_identity_",
    "output_cost_per_",
    "posthog_",
    "quality_router_",
    "regional_",
    "signoz_",
    "token_exchange_",
    "weave_",
)

CONTROL_FIELDS = frozenset(
    """
    acompletion adapter_id adaptive_router_config adaptive_router_default_model additional_drop_params aembedding
    aimg_generation allm_passthrough_route allow_client_keepalive_override allowed_model_region
    allowed_openai_params annotation_cost_per_page annotation_cost_per_page_batches
    anthropic_disable_workload_identity_federation anthropic_organization_id anthropic_service_account_id api_base
    api_key api_type api_version assistant_continue_message async_call atext_completion attempted_targets azure
    base_model base_url bos_token budget_duration cache cache_key caching caching_groups callbacks chatgpt_auth_file
    citation_cost_per_token client client_id client_secret client_side_timeout complete_response completion_call_id
    configurable_clientside_auth_params context_window_fallback_dict cooldown_time cost_per_query cost_per_second
    custom_llm_provider custom_prompt_dict daily_reset_time data_residency default_api_key_rpm_limit
    default_api_key_tpm_limit default_headers default_query disable_add_transform_inline_image_block drop_params
    enable_json_schema_validation enable_prompt_caching enable_tag_filtering engine ensure_alternating_roles
    eos_token explicit_cache_read_input_token_cost extra_headers extra_query failure_callback fallback_depth
    fallbacks fastest_response fedramp_uplift_multiplier final_prompt_value fireworks_forward_user_id force_timeout
    google_maps_grounding_cost_per_query guardrails headers hf_model_name hooks http_client humanloop_api_key id
    initial_prompt_value input input_callback itpm keepalive_seconds kubernetes_pod_discovery
    log_client_error_tracebacks logger_fn max_agentic_loops max_budget max_fallbacks max_file_size_mb
    max_parallel_requests max_retries merge_reasoning_content_in_choices mock_response mock_timeout mock_tool_calls
    model_alias_map model_config model_file_id_mapping model_info model_list models no-log num_retries
    ocr_cost_per_credit ocr_cost_per_page ocr_cost_per_page_batches openai_service_account_id order organization
    otpm output_vector_size preset preset_cache_key project prompt prompt_environment prompt_id prompt_label
    prompt_variables prompt_version provider_affinity_header provider_specific_header proxy_server_request
    region_name request_timeout responses_api_version retry_policy retry_strategy roles routing_strategy rpd rpm
    rust search_context_cost_per_query search_queries_cost_per_query search_tool_name secret_fields self
    service_callback shared_session silent_model ssl_verify stream_chunk_size stream_response stream_timeout
    stream_timeout_by_service_tier success_callback supports_system_message switchyard_router_config system
    tag_regex tags tenant_id text_completion thought_signature_in_tool_call_id tiered_pricing timeout
    timeout_by_service_tier token tpd tpm ttl turn_off_message_logging usage use_chat_completions_api use_client
    use_in_pass_through use_litellm_proxy use_xai_oauth user_continue_message verbose vertex_credentials
    wandb_api_key watsonx weight
    """.split()
)
"""Fields that would steer the client library, its router, its log sinks or another account. `metadata` is not one."""

_SURROGATE_ESCAPE = re.compile(rb"\\u[dD][89abAB][0-9a-fA-F]{2}|\\u[dD][c-fC-F][0-9a-fA-F]{2}")


@dataclass(frozen=True, slots=True)
class ChatCall:
    """A parsed call: what the policy gets, and how the caller wants the answer.

    Attributes:
        caller_model: Echoed in the reply; decides nothing. Empty when the caller named none.
        include_usage: The caller asked for the separate usage chunk at the end of a stream.
    """

    request: ChatRequest
    caller_model: str = ""
    stream: bool = False
    include_usage: bool = False


def refuse(message: str, *, status: int = 400, code: str = "invalid_request") -> NoReturn:
    """Refuse the caller's request.

    Raises:
        PolicyError: Always, of kind bad_request.
    """
    raise PolicyError(
        message, kind="bad_request", status=status, type="invalid_request_error", provider_code=code
    ) from None


def parse_json_object(raw: bytes) -> dict[str, Any]:
    """The request body as a JSON object that can be written out again as UTF-8 JSON.

    Raises:
        PolicyError: Kind bad_request: not JSON, not an object, NaN or infinite numbers, a lone surrogate.
    """
    try:
        body = json.loads(raw, parse_constant=_no_constant, parse_float=_finite)
    except UnicodeDecodeError as error:
        refuse(f"the request body is not UTF-8 (byte {error.start})", code="invalid_json")
    except json.JSONDecodeError as error:
        refuse(f"the request body is not JSON: {error}", code="invalid_json")
    except (ValueError, RecursionError) as error:
        refuse(f"the request body cannot be read: {error}", code="invalid_json")
    if not isinstance(body, dict):
        refuse(f"the request body must be a JSON object, not {_json_type(body)}", code="invalid_json")
    if _SURROGATE_ESCAPE.search(raw) and (place := _lone_surrogate(body)) is not None:
        refuse(f"{place} holds a lone surrogate (half of a UTF-16 pair), which no UTF-8 text can carry")
    return body


def parse_chat(body: Mapping[str, Any], rollout_id: str = "") -> ChatCall:
    """Apply the request rules to a chat completions body.

    Raises:
        PolicyError: Kind bad_request, naming the field and what is allowed.
    """
    body = merge_extra_body(body)
    check_single_choice(body)
    stream = flag(body, "stream")
    options = body.get("stream_options")
    if options is not None and not isinstance(options, dict):
        refuse(f"stream_options must be an object, not {_json_type(options)}")
    messages = body.get("messages")
    check_messages(messages)
    params = {name: value for name, value in body.items() if name not in OWNED_FIELDS}
    refuse_control_fields(params)
    tools = check_tools(body.get("tools"))
    if tools is None:
        params.pop("tool_choice", None)
        params.pop("parallel_tool_calls", None)
    return ChatCall(
        request=ChatRequest(messages or (), tools, params, rollout_id, stream),
        caller_model=caller_model(body),
        stream=stream,
        include_usage=bool((options or {}).get("include_usage")),
    )


def merge_extra_body(body: Mapping[str, Any]) -> Mapping[str, Any]:
    """The body with `extra_body` deep-merged over its top level.

    Raises:
        PolicyError: Kind bad_request: not an object, nested, or it sets a field the gateway owns.
    """
    extra = body.get("extra_body")
    if extra is None:
        return body
    if not isinstance(extra, dict):
        refuse(f"extra_body must be an object, not {_json_type(extra)}")
    if "extra_body" in extra:
        refuse("extra_body must not hold another extra_body: put its fields one level up")
    owned = sorted((OWNED_FIELDS - {"model"}) & extra.keys())
    if owned:
        refuse(f"extra_body must not set {', '.join(owned)}: send it as a field of the request itself")
    return _merged({k: v for k, v in body.items() if k != "extra_body"}, extra)


def check_single_choice(body: Mapping[str, Any]) -> None:
    """Refuse `n` other than null or 1."""
    n = body.get("n")
    if n is not None and (isinstance(n, bool) or n != 1):
        refuse("n must be 1: a rollout has one continuation of each conversation; call again for another")


def caller_model(body: Mapping[str, Any]) -> str:
    """The caller's model name, only ever echoed."""
    model = body.get("model")
    if model is not None and not isinstance(model, str):
        refuse(f"model must be a string, not {_json_type(model)}")
    return model or ""


def flag(body: Mapping[str, Any], name: str) -> bool:
    """A boolean field, absent and null meaning false."""
    value = body.get(name)
    if value is not None and not isinstance(value, bool):
        refuse(f"{name} must be true or false, not {_json_type(value)}")
    return bool(value)


def check_messages(messages: Any) -> None:
    """Refuse what is no chat history. Contents, tool-call arguments and ids stay verbatim, broken ones too."""
    if not isinstance(messages, list) or not messages:
        refuse("messages must be a list of at least one chat message")
    for number, message in enumerate(messages):
        place = f"messages[{number}]"
        if not isinstance(message, dict):
            refuse(f"{place} must be an object, not {_json_type(message)}")
        if not isinstance(message.get("role"), str):
            refuse(f"{place}.role must be a string such as user, assistant or tool")
        content = message.get("content")
        if isinstance(content, list):
            for part_number, part in enumerate(content):
                if not isinstance(part, dict):
                    refuse(f"{place}.content[{part_number}] must be an object, not {_json_type(part)}")
        elif content is not None and not isinstance(content, str):
            refuse(f"{place}.content must be a string, a list of parts or null, not {_json_type(content)}")
        calls = message.get("tool_calls")
        if calls is not None and (not isinstance(calls, list) or not all(isinstance(c, dict) for c in calls)):
            refuse(f"{place}.tool_calls must be a list of objects")


def check_tools(tools: Any) -> list[dict[str, Any]] | None:
    """The tool schemas, or None when there are none."""
    if tools is None:
        return None
    if not isinstance(tools, list) or not all(isinstance(tool, dict) for tool in tools):
        refuse("tools must be a list of objects")
    return tools or None


def refuse_control_fields(params: Iterable[str]) -> None:
    """Refuse fields that would steer the client library instead of the model."""
    refused = control_fields(params)
    if refused:
        refuse(
            f"these fields are not inference parameters and are refused: {', '.join(refused)}; "
            "the run's configuration decides the model, its endpoint and its account",
            code="unsupported_parameter",
        )


def control_fields(names: Iterable[str]) -> list[str]:
    """The names among these that are control fields, sorted."""
    return sorted(name for name in names if name in CONTROL_FIELDS or name.startswith(CONTROL_PREFIXES))


def _merged(base: dict[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for name, value in over.items():
        below = merged.get(name)
        merged[name] = _merged(below, value) if isinstance(below, dict) and isinstance(value, dict) else value
    return merged


def _no_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is not a JSON number")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"the number {text[:40]} is too large")
    return value


def _json_type(value: Any) -> str:
    names = {bool: "a boolean", int: "a number", float: "a number", str: "a string", list: "a list", dict: "an object"}
    return "null" if value is None else names.get(type(value), "another type")


def _lone_surrogate(value: Any, place: str = "") -> str | None:
    """Where in a JSON value a lone surrogate stands, as `messages[0].content`."""
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            return place or "the body"
    elif isinstance(value, dict):
        for name, item in value.items():
            if (found := _lone_surrogate(name, f"a field name in {place or 'the body'}")) is not None:
                return found
            if (found := _lone_surrogate(item, f"{place}.{name}" if place else name)) is not None:
                return found
    elif isinstance(value, list):
        for number, item in enumerate(value):
            if (found := _lone_surrogate(item, f"{place}[{number}]")) is not None:
                return found
    return None
