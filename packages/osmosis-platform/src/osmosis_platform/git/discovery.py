"""Which rollouts a commit holds: the folders under `rollouts/`, each with its description. Syncs write them down."""

from __future__ import annotations

import re
import tomllib
from collections.abc import MutableMapping, Sequence
from dataclasses import dataclass, field

from osmosis_platform.db.repositories.rollouts import FoundRollout
from osmosis_platform.git.plumbing import Objects, RepositoryLimitError, TreeEntry
from osmosis_platform.ids import looks_like_id

MAX_ROLLOUTS = 500
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_FOLDER, _EMPTY_TREE = "040000", "4b825dc642cb6eb9a060e54bf8d69288fbee4904"
_FILES = ("100644", "100755")
_DESCRIPTION_LENGTH = 500
_MAX_FILE_BYTES = 64 << 10


@dataclass
class Discovery:
    """Finds rollouts in commits of one repository, reading each tree once however many branches share it.

    Attributes:
        objects: Of the repository.
        descriptions: Known descriptions by the rollout's tree; grows.
        skipped: Folders that cannot be rollouts, each with the reason.
    """

    objects: Objects
    descriptions: MutableMapping[str, str | None]
    skipped: dict[str, str] = field(default_factory=dict)
    _by_tree: dict[str, Sequence[FoundRollout]] = field(default_factory=dict)

    def rollouts_of(self, commit_sha: str) -> Sequence[FoundRollout]:
        """The rollouts of a commit, by name; none if it has no folder `rollouts`.

        Raises:
            RepositoryLimitError: Too many, or too large a tree.
        """
        found = self.objects.info(f"{commit_sha}:rollouts")
        if found is None or found[1] != "tree":
            return ()
        if found[0] not in self._by_tree:
            self._by_tree[found[0]] = self._read(found[0])
        return self._by_tree[found[0]]

    def _read(self, tree_sha: str) -> Sequence[FoundRollout]:
        listed = self.objects.tree(tree_sha)
        rollouts: list[FoundRollout] = []
        for entry in listed[1] if listed else ():
            if entry.mode in _FILES or entry.name.startswith((".", "_")):
                continue
            if reason := _objection(entry):
                self.skipped[entry.name.encode("utf-8", "replace").decode()[:200]] = reason
                continue
            if entry.sha not in self.descriptions:
                self.descriptions[entry.sha] = self._describe(entry.sha)
            rollouts.append(FoundRollout(entry.name, entry.sha, self.descriptions[entry.sha]))
        if len(rollouts) > MAX_ROLLOUTS:
            message = f"rollouts/ has {len(rollouts)} folders; a branch can have {MAX_ROLLOUTS}. Move some elsewhere."
            raise RepositoryLimitError(message, code="TOO_MANY_ROLLOUTS")
        return rollouts

    def _describe(self, tree_sha: str) -> str | None:
        """The project's description, or the first paragraph of the README."""
        try:
            listed = self.objects.tree(tree_sha)
        except RepositoryLimitError:
            return None
        files = {entry.name.lower(): entry.sha for entry in listed[1] if entry.mode in _FILES} if listed else {}
        for name, read in (("pyproject.toml", _from_project), ("readme.md", _from_readme)):
            content = self.objects.blob(files[name], max_bytes=_MAX_FILE_BYTES) if name in files else None
            if content and (text := read(content.decode("utf-8", "replace"))):
                return text.replace("\0", "")[:_DESCRIPTION_LENGTH]
        return None


def _objection(entry: TreeEntry) -> str | None:
    if entry.mode == "120000":
        return "it is a symbolic link"
    if entry.mode == "160000":
        return "it is a submodule, and submodules are not fetched"
    if entry.mode != _FOLDER or entry.sha == _EMPTY_TREE:
        return "it is not a folder with files"
    if not _NAME.fullmatch(entry.name) or looks_like_id(entry.name):
        return (
            "its name needs letters, digits, '.', '_' and '-' only, a letter or digit first, at most 128, unlike an id"
        )
    return None


def _from_project(text: str) -> str | None:
    try:
        project = tomllib.loads(text).get("project")
    except (ValueError, RecursionError):  # of the former: bad TOML, and integers of thousands of digits
        return None
    description = project.get("description") if isinstance(project, dict) else None
    return " ".join(description.split()) if isinstance(description, str) else None


def _from_readme(text: str) -> str | None:
    for paragraph in re.split(r"\n\s*\n", text.replace("\r\n", "\n")):
        lines = [line for line in paragraph.strip().splitlines() if not line.lstrip().startswith("#")]
        if lines and not lines[0].lstrip().startswith(("```", "<", "![", "[![", "|", "---")):
            return " ".join(" ".join(lines).split())
    return None
