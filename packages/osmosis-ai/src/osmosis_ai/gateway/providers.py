"""The model providers we know by name: LiteLLM's prefixes, base-URL and key variables. Data and look-ups only.

`OPENAI_COMPATIBLE` providers are called over plain HTTP; `LITELLM_ONLY` prefixes go through LiteLLM.
How to add one: a row in the table; nothing else knows providers by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from osmosis_ai.errors import ValidationError


@dataclass(frozen=True, slots=True)
class Provider:
    """An OpenAI-compatible provider.

    Attributes:
        prefix: What a model path begins with, before the slash.
        base: Its default base URL, or None when only the user knows it.
        base_variables: Environment variables that replace the base, the first set one counts.
        key_variables: Environment variables that may hold the key, the first set one counts.
        key_needed: Whether the default base refuses calls without a key.
        base_suffix: Path that the variable's value may leave out.
        stream_usage: Whether `stream_options.include_usage` is understood.
        metadata: Whether the caller's `metadata` may be sent.
        extra_body: Fields sent with every call.
        reports_cost: Whether `usage.cost` is the call's price in USD.
    """

    prefix: str
    base: str | None
    base_variables: tuple[str, ...]
    key_variables: tuple[str, ...]
    key_needed: bool = True
    base_suffix: str = ""
    stream_usage: bool = True
    metadata: bool = False
    extra_body: tuple[tuple[str, object], ...] = ()
    reports_cost: bool = False

    def base_url(self, environ: Mapping[str, str]) -> str | None:
        """The base URL in this environment, without a trailing slash; None when nobody says one."""
        given = first_of(environ, self.base_variables)
        if given is None:
            return self.base
        given = given.rstrip("/")
        return given if not self.base_suffix or given.endswith(self.base_suffix) else given + self.base_suffix

    def key(self, environ: Mapping[str, str]) -> str | None:
        """The key in this environment."""
        return first_of(environ, self.key_variables)


def _row(prefix: str, base: str | None, *keys: str, variable: str | None = None) -> Provider:
    name = prefix.upper().replace("-", "_")
    return Provider(prefix, base, (variable or f"{name}_API_BASE",), keys or (f"{name}_API_KEY",))


_TABLE = (
    Provider(
        "openai",
        "https://api.openai.com/v1",
        ("OPENAI_BASE_URL", "OPENAI_API_BASE"),
        ("OPENAI_API_KEY",),
        metadata=True,
    ),
    Provider(
        "openrouter",
        "https://openrouter.ai/api/v1",
        ("OPENROUTER_API_BASE",),
        ("OPENROUTER_API_KEY", "OR_API_KEY"),
        extra_body=(("usage", {"include": True}),),
        reports_cost=True,
    ),
    Provider("mistral", "https://api.mistral.ai/v1", ("MISTRAL_API_BASE",), ("MISTRAL_API_KEY",), stream_usage=False),
    Provider("hosted_vllm", None, ("HOSTED_VLLM_API_BASE",), ("HOSTED_VLLM_API_KEY",), key_needed=False),
    Provider("litellm_proxy", None, ("LITELLM_PROXY_API_BASE",), ("LITELLM_PROXY_API_KEY",), key_needed=False),
    Provider(
        "lm_studio", "http://localhost:1234/v1", ("LM_STUDIO_API_BASE",), ("LM_STUDIO_API_KEY",), key_needed=False
    ),
    Provider(
        "llamafile", "http://127.0.0.1:8080/v1", ("LLAMAFILE_API_BASE",), ("LLAMAFILE_API_KEY",), key_needed=False
    ),
    Provider(
        "ollama",
        "http://localhost:11434/v1",
        ("OLLAMA_API_BASE",),
        ("OLLAMA_API_KEY",),
        key_needed=False,
        base_suffix="/v1",
    ),
    Provider(
        "ollama_chat",
        "http://localhost:11434/v1",
        ("OLLAMA_API_BASE",),
        ("OLLAMA_API_KEY",),
        key_needed=False,
        base_suffix="/v1",
    ),
    Provider(
        "docker_model_runner",
        "http://localhost:12434/engines/v1",
        ("DOCKER_MODEL_RUNNER_API_BASE",),
        ("DOCKER_MODEL_RUNNER_API_KEY",),
        key_needed=False,
    ),
    _row("together_ai", "https://api.together.xyz/v1", "TOGETHER_API_KEY", "TOGETHERAI_API_KEY", "TOGETHER_AI_API_KEY"),
    _row(
        "fireworks_ai",
        "https://api.fireworks.ai/inference/v1",
        "FIREWORKS_API_KEY",
        "FIREWORKS_AI_API_KEY",
        "FIREWORKSAI_API_KEY",
        variable="FIREWORKS_API_BASE",
    ),
    _row("groq", "https://api.groq.com/openai/v1"),
    _row("deepseek", "https://api.deepseek.com/v1"),
    _row("xai", "https://api.x.ai/v1"),
    _row("cerebras", "https://api.cerebras.ai/v1"),
    _row("perplexity", "https://api.perplexity.ai", "PERPLEXITYAI_API_KEY", "PERPLEXITY_API_KEY"),
    _row("nvidia_nim", "https://integrate.api.nvidia.com/v1"),
    _row("deepinfra", "https://api.deepinfra.com/v1/openai"),
    _row("sambanova", "https://api.sambanova.ai/v1"),
    _row("moonshot", "https://api.moonshot.ai/v1"),
    _row("dashscope", "https://dashscope-intl.aliyuncs.com/compatible-mode/v1"),
    _row("featherless_ai", "https://api.featherless.ai/v1", "FEATHERLESS_AI_API_KEY", "FEATHERLESS_API_KEY"),
    _row("hyperbolic", "https://api.hyperbolic.xyz/v1"),
    _row("nebius", "https://api.studio.nebius.ai/v1"),
    _row("novita", "https://api.novita.ai/v3/openai"),
    _row("friendliai", "https://api.friendli.ai/serverless/v1", "FRIENDLIAI_API_KEY", "FRIENDLI_TOKEN"),
    _row("lambda_ai", "https://api.lambda.ai/v1", "LAMBDA_API_KEY", variable="LAMBDA_API_BASE"),
    _row("nscale", "https://inference.api.nscale.com/v1"),
    _row("inception", "https://api.inceptionlabs.ai/v1"),
    _row("vercel_ai_gateway", "https://ai-gateway.vercel.sh/v1", "VERCEL_AI_GATEWAY_API_KEY", "VERCEL_OIDC_TOKEN"),
    _row("meta_llama", "https://api.llama.com/compat/v1", "LLAMA_API_KEY", variable="LLAMA_API_BASE"),
    _row("modelscope", "https://api-inference.modelscope.cn/v1"),
    _row("zai", "https://api.z.ai/api/paas/v4"),
    _row("minimax", "https://api.minimax.io/v1"),
    _row("volcengine", "https://ark.cn-beijing.volces.com/api/v3"),
    _row("codestral", "https://codestral.mistral.ai/v1"),
    _row("baseten", "https://inference.baseten.co/v1"),
    _row("ai21_chat", "https://api.ai21.com/studio/v1", "AI21_API_KEY", variable="AI21_API_BASE"),
    _row("chutes", "https://llm.chutes.ai/v1"),
    _row("poe", "https://api.poe.com/v1"),
    _row("scaleway", "https://api.scaleway.ai/v1", "SCW_SECRET_KEY"),
    _row("wandb", "https://api.inference.wandb.ai/v1"),
)

OPENAI_COMPATIBLE: Mapping[str, Provider] = {provider.prefix: provider for provider in _TABLE}

LITELLM_ONLY = frozenset(
    """
    a2a a2a_agent abliteration ai21 aiand aihubmix aiml aiohttp_openai amazon_nova anthropic anthropic_text apertis
    assemblyai auto_router aws_polly aws_textract azure azure_ai azure_speech azure_text bedrock bedrock_mantle
    bespoke bigmodel black_forest_labs bytez charity_engine chatgpt clarifai clf_ai_gateway cloudflare cognition
    cohere cohere_chat cometapi compactifai coralbricks cortecs crusoe cursor custom custom_openai darkbloom
    databricks databricks_agent datarobot deepgram dotprompt edenai elevenlabs empiriolabs empower eu_jev fal_ai
    galadriel gdc gemini gigachat github github_copilot gmi gradient_ai helicone heroku hostinger_router huggingface
    humanloop inferenceapis infinity jina_ai kyma langflow langfuse langgraph laya lemonade libertai litellm_agent
    llamagate manus maritalk meta microsoft_365_copilot milvus mongodb morph nace nadir nano-gpt neosantara
    nlp_cloud nvidia_riva oci oobabooga openai_like opencode_go openinfer opensearch ovhcloud palm parallel_ai
    parasail petals pg_vector pinstripes predibase prism publicai qwen_ai_platform qwencloud ragflow recraft reducto
    refuseless reka replicate runwayml s3_vectors sagemaker sagemaker_chat sagemaker_nova sail sap sarvam scaledown
    scx-ai snowflake soniox stability strands_decider streamlake synthetic tencent tensormesh
    text-completion-codestral text-completion-inception text-completion-openai topaz transcribe triton typesafe v0
    valkey veniceai vertex_ai vertex_ai_beta vllm voyage wally watsonx watsonx_text xiaomi_mimo xinference zerogpu
    """.split()
)
"""Prefixes that LiteLLM 1.110 knows and we do not speak ourselves."""

LITELLM_KEYS: Mapping[str, tuple[str, ...]] = {
    "anthropic": ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"),
    "cohere": ("COHERE_API_KEY", "CO_API_KEY"),
    "cohere_chat": ("COHERE_API_KEY", "CO_API_KEY"),
    "gemini": ("GEMINI_API_KEY", "GOOGLE_API_KEY"),
    "replicate": ("REPLICATE_API_KEY", "REPLICATE_API_TOKEN"),
}
"""Key variables of LiteLLM providers that need nothing else; the others authenticate in ways LiteLLM knows."""

_BARE_NAMES = (
    (("gpt-", "o1", "o3", "o4", "chatgpt-"), "openai"),
    (("claude",), "anthropic"),
    (("gemini",), "gemini"),
    (("grok",), "xai"),
)

EXAMPLES = (
    "openai/gpt-4.1-mini, anthropic/claude-sonnet-4-5, openrouter/meta-llama/llama-3.3-70b-instruct, "
    "hosted_vllm/my-model, osmosis/nano"
)


def split_model_path(model_path: str) -> tuple[str, str]:
    """A model path as (provider prefix, the provider's own model name).

    A name without a slash is accepted where its first letters say whose it is (gpt-, o1, o3, o4, claude, gemini, grok).

    Raises:
        ValidationError: No provider that we or LiteLLM know.
    """
    path = model_path.strip()
    prefix, slash, model = path.partition("/")
    if slash and model and (prefix in OPENAI_COMPATIBLE or prefix in LITELLM_ONLY):
        return prefix, model
    if slash and prefix == "osmosis":
        raise ValidationError(
            f"model_path {path!r} is a model that ships with us, not a provider's: it needs the extra local "
            '(pip install "osmosis-ai[local]")'
        )
    if not slash:
        for starts, provider in _BARE_NAMES:
            if path.startswith(starts):
                return provider, path
    said = f"{prefix!r} is no model provider" if slash and model else "it names no model provider"
    raise ValidationError(f"model_path {model_path!r}: {said}. Write provider/model, for example {EXAMPLES}.")


def is_official_openai(base_url: str) -> bool:
    """Whether the base is OpenAI's own API (any of its regions)."""
    host = urlsplit(base_url).hostname or ""
    return host == "api.openai.com" or host.endswith(".api.openai.com")


def first_of(environ: Mapping[str, str], names: tuple[str, ...]) -> str | None:
    """The first of these variables that is set and not blank."""
    return next((value for name in names if (value := environ.get(name, "").strip())), None)
