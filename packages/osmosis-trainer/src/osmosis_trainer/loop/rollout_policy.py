"""The policy of a training's rollouts: each answer drawn as the run says, whatever the agent asked for.

Weights, temperature and lengths are the run's; the noise depends on (seed, what the rollout is, turn, position), so
neither the order in which calls arrive nor a retry of a rollout changes what is drawn.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from osmosis_ai.gateway.policy import ChatRequest, PolicyError

from osmosis_trainer.chat.session import Prompt
from osmosis_trainer.engine.protocol import PolicyEngine
from osmosis_trainer.engine.sampling import SamplingParams, noise_key
from osmosis_trainer.policy import ChatPolicy, Draw, OpenRollout, too_long
from osmosis_trainer.request import CallParams


@dataclass(frozen=True, slots=True)
class RolloutPlan:
    """How the answers of one rollout are drawn.

    Attributes:
        version: Of the weights, for the whole rollout: the one current when it was dispatched.
        sampling: How tokens are drawn.
        noise: Names the rollout: equal names draw equal noise.
    """

    version: str
    sampling: SamplingParams
    noise: str


@dataclass(frozen=True, slots=True)
class RolloutNotes:
    """What the policy saw of a rollout that ended.

    Attributes:
        unparsed_calls: Tool calls of the model's that could not be read.
        unfinished_thoughts: Answers that ended while the model thought.
        long_prompt: Tokens of its prompt, when that was longer than the run allows.
    """

    unparsed_calls: int = 0
    unfinished_thoughts: int = 0
    long_prompt: int | None = None


class RolloutPolicy(ChatPolicy):
    """Answers the rollouts of a training from an engine's published versions.

    Args:
        model: The base model's name.
        folder: The base model's files: tokenizer and chat template.
        engine: Draws; whoever made it closes it.
        seed: Of the run.
        max_prompt_length: Longest prompt that begins a conversation.
        max_response_length: Longest answer; a whole conversation has at most both lengths together.
    """

    def __init__(
        self,
        model: str,
        folder: Path,
        engine: PolicyEngine,
        *,
        seed: int,
        max_prompt_length: int,
        max_response_length: int,
    ) -> None:
        super().__init__(model, folder, engine, engine.capabilities.context)
        self._seed = seed
        self._max_prompt = max_prompt_length
        self._max_response = max_response_length
        self._plans: dict[str, RolloutPlan] = {}
        self._long: dict[str, int] = {}
        self._ended: dict[str, RolloutNotes] = {}

    def plan(self, rollout_id: str, plan: RolloutPlan) -> None:
        """Say how a rollout's answers are to be drawn; before its first call."""
        self._plans[rollout_id] = plan

    def notes(self, rollout_id: str) -> RolloutNotes:
        """What was seen of a rollout whose session is closed; told once."""
        return self._ended.pop(rollout_id, RolloutNotes())

    async def close_session(self, rollout_id: str) -> None:
        """Forget a rollout but for its notes."""
        rollout = self._rollouts.get(rollout_id)
        unparsed, thoughts = (rollout.unparsed_calls, rollout.unfinished_thoughts) if rollout is not None else (0, 0)
        self._ended[rollout_id] = RolloutNotes(unparsed, thoughts, self._long.pop(rollout_id, None))
        self._plans.pop(rollout_id, None)
        await super().close_session(rollout_id)

    async def aclose(self) -> None:
        """Nothing to release: the engine is its maker's."""

    def _draw(self, request: ChatRequest, params: CallParams, prompt: Prompt, rollout: OpenRollout) -> Draw:
        plan = self._plans.get(request.rollout_id)
        if plan is None:
            raise PolicyError(f"Rollout {request.rollout_id!r} is none of this run's.", kind="bad_request", status=400)
        length = len(prompt.ids)
        if prompt.reused == 0 and length > self._max_prompt:
            self._long.setdefault(request.rollout_id, length)
            raise too_long(f"The prompt has {length} tokens; max_prompt_length is {self._max_prompt}.")
        room = min(self._max_response, self._max_prompt + self._max_response - length)
        if room < 1:
            raise too_long(
                f"The conversation has {length} tokens; max_prompt_length and max_response_length together allow "
                f"{self._max_prompt + self._max_response}."
            )
        asked = prompt.fingerprints[-1]
        rollout.asked[asked] += 1
        key = noise_key(self._seed, plan.noise, asked.hex(), rollout.asked[asked])
        return Draw(plan.version, plan.sampling, room, key)
