"""The compatibility promise: every public import path of the published package, and the names behind it.

Other rooms extend the table; a path is taken out only with the promise.
"""

import importlib
import importlib.metadata
import importlib.resources
import inspect
import re
import subprocess
import sys

import pytest

PUBLIC = {
    "osmosis_ai": ["MissingAPIKeyError", "ModelNotFoundError", "ProviderRequestError", "RubricResult", "__version__"],
    "osmosis_ai.consts": ["PACKAGE_VERSION", "package_name"],
    "osmosis_ai.rollout": [
        "AgentWorkflow",
        "AgentWorkflowConfig",
        "AgentWorkflowContext",
        "AgentWorkflowOutput",
        "BaseConfig",
        "ConcurrencyConfig",
        "ExecutionBackend",
        "ExecutionOutcome",
        "ExecutionRequest",
        "ExecutionResult",
        "Grader",
        "GraderConfig",
        "GraderContext",
        "LocalBackend",
        "MessageDict",
        "RolloutContext",
        "RolloutErrorCategory",
        "RolloutInitRequest",
        "RolloutInitResponse",
        "RolloutResultResponse",
        "RolloutSample",
        "RolloutStatus",
        "SampleSource",
        "get_rollout_context",
    ],
    "osmosis_ai.rollout.types": [
        "POLLING_LEASE_HEADER",
        "AgentWorkflowConfig",
        "AgentWorkflowOutput",
        "BaseConfig",
        "CancelRolloutsRequest",
        "CancelRolloutsResponse",
        "ConcurrencyConfig",
        "ExecutionOutcome",
        "ExecutionRequest",
        "ExecutionResult",
        "GraderConfig",
        "MessageDict",
        "Messages",
        "RolloutErrorCategory",
        "RolloutInitRequest",
        "RolloutInitResponse",
        "RolloutLifecycle",
        "RolloutResultResponse",
        "RolloutSample",
        "RolloutStatus",
    ],
    "osmosis_ai.rollout.types.harbor": ["HarborGatewayConfig", "HarborHealthcheckConfig", "PrewarmMode"],
    "osmosis_ai.rollout.types.output": ["AgentWorkflowOutput", "Messages", "coerce_output"],
    "osmosis_ai.rollout.agent_workflow": ["AgentWorkflow"],
    "osmosis_ai.rollout.grader": ["Grader"],
    "osmosis_ai.rollout.context": [
        "API_KEY_ENV",
        "CHAT_COMPLETIONS_URL_ENV",
        "ROLLOUT_ID_ENV",
        "AgentWorkflowContext",
        "GraderContext",
        "RolloutContext",
        "RolloutProgress",
        "SampleSource",
        "get_rollout_context",
    ],
    "osmosis_ai.rollout.backend": ["ExecutionBackend", "LocalBackend"],
    "osmosis_ai.rollout.backend.base": ["ExecutionBackend"],
    "osmosis_ai.rollout.backend.local": ["LocalBackend"],
    "osmosis_ai.rollout.server": ["create_rollout_server"],
    "osmosis_ai.rollout.server.app": [
        "DEFAULT_POLLING_LEASE_TIMEOUT_SEC",
        "DEFAULT_RESULT_RETENTION_SEC",
        "DEFAULT_RESULT_WAIT_TIMEOUT_SEC",
        "POLLING_LEASE_HEADER",
        "create_rollout_server",
    ],
    "osmosis_ai.rollout.client": [
        "RolloutAdmissionTimeoutError",
        "RolloutClient",
        "RolloutHandle",
        "RolloutProtocolError",
    ],
    "osmosis_ai.rollout.integrations.agents.strands": ["OsmosisRolloutModel", "OsmosisStrandsAgent"],
    "osmosis_ai.rollout.integrations.agents.openai_agents": [
        "OsmosisAgent",
        "OsmosisLitellmModel",
        "OsmosisMemorySession",
        "OsmosisRolloutModel",
        "SessionSampleSource",
    ],
    "osmosis_ai.rollout.trajectory": [
        "TrajectoryReport",
        "convert_sample_to_trajectory",
        "report_from_response",
        "save_trajectory",
    ],
    "osmosis_ai.eval.rubric": [
        "MissingAPIKeyError",
        "ModelNotFoundError",
        "ProviderRequestError",
        "RubricResult",
        "evaluate_rubric",
    ],
    "osmosis_ai.eval.local": ["LiteLLMBridge", "LlmBridgeListener"],
}
EXACT = [
    "osmosis_ai",
    "osmosis_ai.rollout",
    "osmosis_ai.rollout.server",
    "osmosis_ai.rollout.client",
    "osmosis_ai.rollout.backend",
    "osmosis_ai.rollout.trajectory",
]
COMING = {"osmosis_ai.rollout.backend.harbor": ("harbor", ["HarborBackend", "TaskMode"])}
"""Paths whose part of the house comes later: they answer as if their extra were not installed."""


@pytest.mark.parametrize("path", PUBLIC)
def test_every_public_name_resolves(path):
    module = importlib.import_module(path)
    missing = [name for name in PUBLIC[path] if not hasattr(module, name)]
    assert missing == []


@pytest.mark.parametrize("path", EXACT)
def test_the_faces_export_nothing_else(path):
    module = importlib.import_module(path)
    assert sorted(module.__all__) == sorted(PUBLIC[path])
    assert set(PUBLIC[path]) <= set(dir(module))


@pytest.mark.parametrize("path", COMING)
def test_what_comes_later_says_how_it_will_be_installed(path):
    extra, names = COMING[path]
    module = importlib.import_module(path)
    for name in names:
        with pytest.raises(ModuleNotFoundError, match=re.escape(f'pip install "osmosis-ai[{extra}]"')):
            getattr(module, name)
    with pytest.raises(AttributeError):
        module.something_else  # noqa: B018 # ty: ignore[missing-attribute]


def test_the_rubric_function_is_resolvable_but_no_star_import_loads_it():
    import osmosis_ai

    assert "evaluate_rubric" not in osmosis_ai.__all__ and "evaluate_rubric" in dir(osmosis_ai)
    assert callable(osmosis_ai.evaluate_rubric)


def test_rubric_errors_and_results_need_no_litellm():
    code = (
        "import sys; sys.modules['litellm'] = None\n"
        "from osmosis_ai import MissingAPIKeyError, ModelNotFoundError, ProviderRequestError, RubricResult\n"
        "assert issubclass(ModelNotFoundError, ProviderRequestError) and issubclass(MissingAPIKeyError, RuntimeError)\n"
        "try:\n    from osmosis_ai.eval.rubric import evaluate_rubric\nexcept ModuleNotFoundError as exc:\n"
        "    assert 'osmosis-ai[rubric]' in str(exc), exc"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_integrations_export_nothing():
    for path in ("osmosis_ai.rollout.integrations", "osmosis_ai.rollout.integrations.agents"):
        assert importlib.import_module(path).__all__ == []


def test_the_authoring_classes_take_what_the_published_ones_take():
    from osmosis_ai.rollout import AgentWorkflow, Grader, LocalBackend
    from osmosis_ai.rollout.client import RolloutClient
    from osmosis_ai.rollout.server import create_rollout_server

    def parameters(function):
        return list(inspect.signature(function).parameters)

    assert parameters(AgentWorkflow) == parameters(Grader) == ["config"]
    assert parameters(LocalBackend) == ["workflow", "workflow_config", "grader", "grader_config"]
    assert parameters(RolloutClient) == ["url", "http_client", "admission_timeout_sec", "api_key"]
    assert parameters(create_rollout_server) == [
        "backend",
        "lifespan",
        "configure_logging",
        "result_wait_timeout_sec",
        "polling_lease_timeout_sec",
        "result_retention_sec",
        "api_key",
    ]


def test_the_package_is_typed_and_versioned():
    import osmosis_ai

    assert (importlib.resources.files("osmosis_ai") / "py.typed").is_file()
    assert importlib.metadata.version("osmosis-ai") == osmosis_ai.__version__
