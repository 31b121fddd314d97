"""What a managed run will fetch from Git, and how that differs from what lies here: the notes before a submit.

Owns: the words about uncommitted, unpushed and unpinned source, and the check of a pinned commit or branch. Every `git`
call is `repository`'s, what lies on GitHub is the caller's to find out; its silence never stops a submit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from osmosis_ai.errors import ValidationError
from osmosis_ai.workspace.repository import (
    GitState,
    has_commit,
    is_on_a_remote_branch,
    read_git_state,
    remote_branches,
)

type AskUpstream = Callable[[str, str], bool | None]
"""Whether the repository of an identity has a commit where the platform reads it; None when nobody can say."""


@dataclass(frozen=True, slots=True)
class Notice:
    """Something that does not stop a submit and must not get lost.

    Attributes:
        code: Stable word for machines.
        message: For people.
    """

    code: str
    message: str


@dataclass(frozen=True, slots=True)
class SourcePlan:
    """What a managed run will fetch.

    Attributes:
        notes: What happens.
        notices: What may not be what the user wants.
    """

    notes: tuple[str, ...]
    notices: tuple[Notice, ...]


def plan_source(
    work_tree: Path, identity: str, *, branch: str | None, commit_sha: str | None, upstream: AskUpstream
) -> SourcePlan:
    """Look at the work tree and at the pin.

    Args:
        work_tree: Root of the Git work tree.
        identity: `owner/repo` of its origin.
        branch: `experiment.branch`.
        commit_sha: `experiment.commit_sha`; never together with `branch`.
        upstream: Asked about a pinned commit that no fetched branch holds.

    Raises:
        ValidationError: The pinned commit is certainly not in the repository that the platform reads.
    """
    state = read_git_state(work_tree)
    if commit_sha:
        fetched, push = f"commit {commit_sha[:7]}", "That commit must be pushed to origin."
    else:
        fetched = f"branch {branch}" if branch else "the default branch"
        push = "Code must be committed and pushed to be in the run."
    notes = [f"The platform fetches {fetched} of {identity}."]
    if state.head:
        notes.append(f"Checked out here: {state.branch or 'no branch'} @ {state.head[:8]}.")
    notes += [push, "The config file is read here and sent as it is, uncommitted edits included."]
    notices: list[Notice] = []
    if commit_sha and (notice := _commit_notice(work_tree, identity, commit_sha, upstream)):
        notices.append(notice)
    if branch and (known := remote_branches(work_tree)) and branch not in known:
        notices.append(
            Notice("BRANCH_NOT_FOUND", f"Branch {branch} is not among the branches fetched from origin; is it pushed?")
        )
    notices += _state_notices(state)
    if not branch and not commit_sha:
        notices.append(
            Notice(
                "SOURCE_NOT_PINNED",
                "Neither branch nor commit_sha is set in [experiment], so the source may differ from what lies here.",
            )
        )
    return SourcePlan(tuple(notes), tuple(notices))


def _state_notices(state: GitState) -> list[Notice]:
    notices: list[Notice] = []
    if state.head is None:
        return notices
    if state.dirty:
        notices.append(Notice("UNCOMMITTED_CHANGES", "There are uncommitted changes; code in them is not in the run."))
    if state.branch and state.upstream is None:
        notices.append(
            Notice("NO_UPSTREAM", f"Branch {state.branch} follows no remote branch: git push -u origin {state.branch}")
        )
    if state.ahead:
        commits = "1 commit is" if state.ahead == 1 else f"{state.ahead} commits are"
        notices.append(Notice("UNPUSHED_COMMITS", f"{commits} not pushed to {state.upstream}: git push"))
    return notices


def _commit_notice(work_tree: Path, identity: str, commit: str, ask: AskUpstream) -> Notice | None:
    here = has_commit(work_tree, commit)
    if here and is_on_a_remote_branch(work_tree, commit):
        return None
    upstream = ask(identity, commit)
    if upstream is False:
        if here:
            raise ValidationError(
                f"Commit {commit}, pinned in experiment.commit_sha, is here but not in {identity}; push it first."
            )
        raise ValidationError(f"There is no commit {commit} in {identity}; correct experiment.commit_sha.")
    if upstream or here:
        return None
    return Notice(
        "COMMIT_NOT_FOUND",
        f"Commit {commit}, pinned in experiment.commit_sha, is not in the repository here, and GitHub could not be"
        " asked; check that it is right and pushed.",
    )
