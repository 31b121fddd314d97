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
    "doctor": Entry("Check the workspace's folders and agent files, and repair them.", "doctor", panel=WORKFLOW),
    "dataset": Entry(
        "Work with datasets.",
        entries={"validate": Entry("Check a dataset file before it is used or uploaded.", "dataset_validate")},
        panel=WORKFLOW,
    ),
    "train": Entry(
        "Train a model on the rewards of a rollout.",
        entries={
            "run": Entry("Train an adapter on a dataset, on this machine.", "train_run"),
            "view": Entry("Draw the curves of a training, finished or not.", "train_view"),
        },
        panel=WORKFLOW,
    ),
    "eval": Entry(
        "Run, compare and read evaluations.",
        entries={
            "run": Entry("Evaluate an agent on a dataset, on this machine.", "eval_run"),
            "view": Entry("Read one trajectory of a run in the terminal.", "eval_view"),
            "compare": Entry("Say what differs between two runs, and whether it is chance.", "eval_compare"),
            "rubric": Entry("Score answers with a model as the judge.", "eval_rubric"),
        },
        panel=WORKFLOW,
    ),
    "rollout": Entry(
        "Work with rollouts: an agent and its grader.",
        entries={"init": Entry("Write a new rollout with its configs.", "rollout_init")},
        panel=WORKFLOW,
    ),
    "template": Entry(
        "Start from a rollout that works.",
        entries={
            "list": Entry("List the starter rollouts.", "template_list"),
            "apply": Entry("Copy a starter rollout with its configs and data.", "template_apply"),
        },
        panel=WORKFLOW,
    ),
    "upgrade": Entry("Upgrade osmosis-ai to the latest release.", "upgrade", panel=PLATFORM),
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
}
"""What to say to words that are no command but often typed at the root."""
