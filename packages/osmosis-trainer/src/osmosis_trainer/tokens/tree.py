"""A rollout's calls as an append-only tree of token nodes, and its branches as what is trained. Pure.

Works on recorded ids alone: a call whose prompt begins with the very tokens of an earlier call and its answer continues
that node, any other begins a branch; sampled text is never tokenised again. What a branch is worth is
`loop.advantages`'.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from osmosis_ai.gateway.record import SessionRecord


@dataclass(frozen=True, slots=True)
class Node:
    """One answered call.

    Attributes:
        parent: Index of the node it continues, or None.
        context: Ids between the parent's last token (or the start) and the answer: template, user and tool text.
        ids: Sampled ids.
        logprobs: Of the sampled ids, under the distribution they were drawn from.
        version: Of the weights that drew them.
        cut: Whether the answer ended because it was as long as it may be; nothing continues such a node.
        call: Index of the call.
    """

    parent: int | None
    context: tuple[int, ...]
    ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    version: str
    cut: bool
    call: int


@dataclass(frozen=True, slots=True)
class Branch:
    """A path from the root to a leaf, each of its nodes trained here or in an earlier branch.

    Attributes:
        tokens: All ids.
        trained: Which of them the policy drew and this branch is to train.
        logprobs: Recorded log-probabilities; 0 where not trained.
        versions: That drew the trained tokens, oldest first, each once.
        cut: Whether its last answer was cut by length.
    """

    tokens: tuple[int, ...]
    trained: tuple[bool, ...]
    logprobs: tuple[float, ...]
    versions: tuple[str, ...]
    cut: bool


@dataclass(frozen=True)
class TokenTree:
    """The tokens of a rollout.

    Attributes:
        nodes: Answered calls, in the order they began.
        lost_calls: Calls of which no tokens are known: refused, failed or hung up.
    """

    nodes: tuple[Node, ...]
    lost_calls: int = 0

    @property
    def sampled_tokens(self) -> int:
        """Tokens the policy drew."""
        return sum(len(node.ids) for node in self.nodes)

    @property
    def cut(self) -> bool:
        """Whether any answer was cut by length."""
        return any(node.cut for node in self.nodes)

    @property
    def length(self) -> int:
        """Tokens of the longest branch, context included."""
        return max((len(branch.tokens) for branch in self.branches), default=0)

    @cached_property
    def branches(self) -> tuple[Branch, ...]:
        """Root to leaf, in the order the leaves began; a node that several share is trained in the first."""
        parents = {node.parent for node in self.nodes}
        seen: set[int] = set()
        found = []
        for leaf in range(len(self.nodes)):
            if leaf not in parents:
                found.append(self._branch(leaf, seen))
        return tuple(found)

    def _branch(self, leaf: int, seen: set[int]) -> Branch:
        path: list[int] = []
        at: int | None = leaf
        while at is not None:
            path.append(at)
            at = self.nodes[at].parent
        tokens: list[int] = []
        trained: list[bool] = []
        logprobs: list[float] = []
        versions: dict[str, None] = {}
        for index in reversed(path):
            node = self.nodes[index]
            new = index not in seen
            seen.add(index)
            tokens += node.context
            tokens += node.ids
            trained += [False] * len(node.context) + [new] * len(node.ids)
            logprobs += [0.0] * len(node.context)
            logprobs += node.logprobs if new else [0.0] * len(node.ids)
            if new:
                versions[node.version] = None
        return Branch(tuple(tokens), tuple(trained), tuple(logprobs), tuple(versions), self.nodes[leaf].cut)


def token_tree(calls: SessionRecord) -> TokenTree:
    """Make the tree of a rollout's calls.

    A node may be continued by several calls, and equal prompts asked twice give two nodes.
    """
    nodes: list[Node] = []
    whole: list[tuple[int, ...]] = []
    for call in calls.calls:
        span = call.tokens
        if span is None or not span.ids:
            continue
        parent = _parent(span.prompt_ids, nodes, whole)
        context = span.prompt_ids if parent is None else span.prompt_ids[len(whole[parent]) :]
        cut = call.response is not None and call.response.get("finish_reason") == "length"
        nodes.append(Node(parent, context, span.ids, span.logprobs, span.version, cut, call.index))
        whole.append((*span.prompt_ids, *span.ids))
    return TokenTree(tuple(nodes), lost_calls=len(calls.calls) - len(nodes))


def _parent(prompt: tuple[int, ...], nodes: Sequence[Node], whole: Sequence[tuple[int, ...]]) -> int | None:
    """The node with the longest sequence that the prompt begins with; the latest of equals."""
    best: int | None = None
    for index in range(len(nodes) - 1, -1, -1):
        length = len(whole[index])
        if nodes[index].cut or length > len(prompt) or (best is not None and length <= len(whole[best])):
            continue
        if prompt[:length] == whole[index]:
            best = index
    return best
