"""From a model path to the policy that answers for it. The table is `providers`; the policies are their own modules."""

from __future__ import annotations

from collections.abc import Mapping

from osmosis_ai.gateway.policy import Policy
from osmosis_ai.gateway.providers import OPENAI_COMPATIBLE, is_official_openai, split_model_path


def provider_policy(
    model_path: str, environ: Mapping[str, str], *, api_key: str | None = None, timeout_s: float = 600.0
) -> Policy:
    """The policy for a LiteLLM-style model path.

    OpenAI-compatible providers are called over plain HTTP, `openai/*` on OpenAI's own endpoint through its Responses
    API, every other prefix through LiteLLM, which is imported at the first call. Nothing is connected or checked here:
    a missing key or base URL shows at `preflight` and at the first call.

    Args:
        model_path: `provider/model`.
        environ: Keys and base URLs.
        api_key: Used instead of the environment's key.
        timeout_s: The longest silence within an answer.

    Raises:
        ValidationError: The provider is unknown.
    """
    prefix, model = split_model_path(model_path)
    provider = OPENAI_COMPATIBLE.get(prefix)
    if provider is None:
        from osmosis_ai.gateway.litellm_policy import LiteLLMPolicy

        return LiteLLMPolicy(f"{prefix}/{model}", environ, api_key=api_key, timeout_s=timeout_s)
    from osmosis_ai.gateway.openai_http import OpenAICompatiblePolicy

    base = provider.base_url(environ)
    headers: dict[str, str] = {}
    official = prefix == "openai" and base is not None and is_official_openai(base)
    if official:
        for name, variable in (("openai-organization", "OPENAI_ORG_ID"), ("openai-project", "OPENAI_PROJECT_ID")):
            if environ.get(variable):
                headers[name] = environ[variable]
    return OpenAICompatiblePolicy(
        model_path.strip(),
        model,
        provider,
        base_url=base,
        api_key=api_key or provider.key(environ),
        environ=environ,
        wire="responses" if official else "chat",
        read_timeout_s=timeout_s,
        headers=headers,
    )
