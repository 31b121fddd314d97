"""The command tree as data: which commands exist, in which module, with which one line of help.

Owns: names, order, panels, the short help. A command's module is imported only when the command itself is used, so
help of a group costs nothing. To add a command: write its module with a `command`, then one line here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

WORKFLOW = "Workflow Commands"
PLATFORM = "Platform Commands"


@dataclass(frozen=True, slots=True)
class Entry:
    """A command (it has a module) or a group (it has entries).

    Attributes:
        help: One line for lists of commands.
        module: Last part of the module under `osmosis_ai.cli.commands`.
        entries: The commands of a group.
        panel: Heading under which the parent's help lists it.
    """

    help: str
    module: str = ""
    entries: Mapping[str, Entry] = field(default_factory=dict)
    panel: str = "Commands"


TREE: Mapping[str, Entry] = {
    "quickstart": Entry("Set everything up: login, workspace, clone, first goal.", "quickstart", panel=WORKFLOW),
    "doctor": Entry("Check the workspace's folders and agent files, and repair them.", "doctor", panel=WORKFLOW),
    "dataset": Entry(
        "Work with datasets.",
        entries={
            "upload": Entry("Check a file and upload it as a dataset.", "dataset_upload"),
            "download": Entry("Fetch the file of a dataset.", "dataset_download"),
            "list": Entry("List the datasets of the workspace.", "dataset_list"),
            "info": Entry("Show a dataset: its state, format, rows and size.", "dataset_info"),
            "preview": Entry("Show the first rows of a dataset.", "dataset_preview"),
            "logs": Entry("Show what happened to a dataset, oldest first.", "dataset_logs"),
            "validate": Entry("Check a dataset file before it is used or uploaded.", "dataset_validate"),
        },
        panel=WORKFLOW,
    ),
    "train": Entry(
        "Train a model on the rewards of a rollout.",
        entries={
            "run": Entry("Train an adapter on a dataset, on this machine.", "train_run"),
            "view": Entry("Draw the curves of a training, finished or not.", "train_view"),
            "submit": Entry("Train a model on the platform.", "train_submit"),
            "list": Entry("List the training runs of the workspace.", "train_list"),
            "info": Entry("Show a training run with its checkpoints and metrics.", "train_info"),
            "logs": Entry("Read what the platform logged of a training run.", "train_logs"),
            "stop": Entry("Stop a training run.", "train_stop"),
        },
        panel=WORKFLOW,
    ),
    "model": Entry(
        "Work with base models and trained LoRA models.",
        entries={
            "list": Entry("List base and LoRA models.", "model_list"),
            "info": Entry("Show a LoRA model or a base model.", "model_info"),
            "deploy": Entry("Deploy a LoRA model for inference.", "model_deploy"),
            "undeploy": Entry("Take a LoRA model's deployment down.", "model_undeploy"),
        },
        panel=WORKFLOW,
    ),
    "eval": Entry(
        "Run, compare and read evaluations.",
        entries={
            "run": Entry("Evaluate an agent on a dataset, on this machine.", "eval_run"),
            "view": Entry("Read one trajectory of a run in the terminal.", "eval_view"),
            "compare": Entry("Say what differs between two runs, and whether it is chance.", "eval_compare"),
            "upload": Entry("Publish a finished local evaluation.", "eval_upload"),
            "submit": Entry("Evaluate an agent on the platform.", "eval_submit"),
            "list": Entry("List the evaluation runs of the workspace.", "eval_list"),
            "info": Entry("Show an evaluation run with its figures.", "eval_info"),
            "download": Entry("Fetch the outputs of an evaluation run.", "eval_download"),
            "retry": Entry("Run failed and skipped samples of an evaluation run again.", "eval_retry"),
            "stop": Entry("Stop an evaluation run.", "eval_stop"),
            "logs": Entry("Read what the platform logged of an evaluation run.", "eval_logs"),
            "rubric": Entry("Score answers with a model as the judge.", "eval_rubric"),
        },
        panel=WORKFLOW,
    ),
    "benchmark": Entry(
        "Run agents on benchmarks and compare them.",
        entries={
            "list": Entry("List the benchmarks of the workspace.", "benchmark_list"),
            "info": Entry("Show a benchmark with its leaderboard and runs.", "benchmark_info"),
            "submit": Entry("Run agents on a benchmark.", "benchmark_submit"),
            "runs": Entry(
                "Work with benchmark runs.",
                entries={
                    "list": Entry("List the benchmark runs of the workspace.", "benchmark_runs_list"),
                    "info": Entry("Show a benchmark run with its agents and totals.", "benchmark_runs_info"),
                    "logs": Entry("Read what the platform logged of a benchmark run.", "benchmark_runs_logs"),
                    "stop": Entry("Stop a benchmark run.", "benchmark_runs_stop"),
                    "download": Entry("Fetch the outputs of a benchmark run.", "benchmark_runs_download"),
                },
            ),
        },
        panel=WORKFLOW,
    ),
    "config": Entry(
        "Work with config files.",
        entries={"validate": Entry("Check a config file without a network.", "config_validate")},
        panel=WORKFLOW,
    ),
    "rollout": Entry(
        "Work with rollouts: an agent and its grader.",
        entries={
            "init": Entry("Write a new rollout with its configs.", "rollout_init"),
            "list": Entry("List the rollouts that the platform has found.", "rollout_list"),
        },
        panel=WORKFLOW,
    ),
    "open": Entry("Open the page of a run on the platform.", "open", panel=WORKFLOW),
    "template": Entry(
        "Start from a rollout that works.",
        entries={
            "list": Entry("List the starter rollouts.", "template_list"),
            "apply": Entry("Copy a starter rollout with its configs and data.", "template_apply"),
        },
        panel=WORKFLOW,
    ),
    "upgrade": Entry("Upgrade osmosis-ai to the latest release.", "upgrade", panel=PLATFORM),
    "auth": Entry(
        "Log in and out.",
        entries={
            "login": Entry("Log in in a browser, or with a personal token.", "auth_login"),
            "logout": Entry("Take the login back and forget it.", "auth_logout"),
            "whoami": Entry("Show the account and where its login comes from.", "auth_whoami"),
            "git-credential": Entry("Tell Git the login of the platform (Git runs this).", "auth_git_credential"),
        },
        panel=PLATFORM,
    ),
    "workspace": Entry(
        "Work with the account's workspaces.",
        entries={"list": Entry("List the account's workspaces.", "workspace_list")},
        panel=PLATFORM,
    ),
    "secret": Entry(
        "Work with the secrets that runs use.",
        entries={
            "list": Entry("List secrets: names and dates, never values.", "secret_list"),
            "set": Entry("Store a secret, or give it a new value.", "secret_set"),
            "delete": Entry("Delete a secret.", "secret_delete"),
        },
        panel=PLATFORM,
    ),
    "completion": Entry(
        "Set up shell completion.",
        entries={"install": Entry("Make the shell complete osmosis commands.", "completion_install")},
        panel=PLATFORM,
    ),
}
"""Everything below the root, in the order help shows it."""

HINTS: Mapping[str, str] = {
    "help": "Use --help.",
    "init": "To start a rollout: rollout init NAME.",
    "deploy": "To deploy a model: model deploy LORA_MODEL.",
    "undeploy": "To undeploy a model: model undeploy LORA_MODEL.",
    "deployment": "To deploy and undeploy models: model deploy, model undeploy.",
}
"""What to say to words that are no command but often typed at the root."""
