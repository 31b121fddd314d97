"""Who gets a slot, and how much of it is still good."""

import pytest
from osmosis_trainer.engine.arrays import np
from osmosis_trainer.engine.slots import Slots


@pytest.fixture
def slots(tiny):
    return Slots(tiny, 2, 96)


def use(slots: Slots, session: str, prompt: list[int], version: str = "v") -> tuple[int, int]:
    """Take a slot, compute what is missing, let go."""
    taken = slots.take(session, version, np.array(prompt))
    assert taken is not None
    slot, kept = taken
    slots.append(slot, np.array(prompt[kept:]))
    slots.release(slot)
    return slot, kept


def test_a_session_goes_on_in_its_own_slot(slots):
    first = list(range(20))
    assert use(slots, "a", first) == (0, 0)
    assert use(slots, "b", [9, 9, 9]) == (1, 0)
    assert use(slots, "a", [*first, 7, 7]) == (0, 20)


def test_the_last_prompt_token_is_always_left_to_compute(slots):
    prompt = list(range(20))
    use(slots, "a", prompt)
    assert use(slots, "a", prompt) == (0, 19)
    assert use(slots, "a", [0])[1] == 0


def test_tokens_left_over_from_an_earlier_call_are_not_taken_for_computed(tiny):
    slots = Slots(tiny, 1, 96)
    use(slots, "a", list(range(20)))
    use(slots, "b", [9, 9, 9])
    # the slot's memory now reads 9 9 9 3 4 5 ..., but only three positions were computed after each other
    assert use(slots, "b", [9, 9, 9, *range(3, 20)]) == (0, 3)


def test_another_version_shares_nothing(slots):
    use(slots, "a", list(range(20)), "v1")
    assert use(slots, "a", list(range(20)), "v2") == (1, 0)


def test_the_slot_longest_unused_goes_first_and_a_forgotten_one_before_it(slots):
    use(slots, "a", [1, 2, 3])
    use(slots, "b", [4, 5, 6])
    assert use(slots, "c", [7, 8, 9])[0] == 0
    slots.forget("c")
    assert use(slots, "d", [10, 11, 12])[0] == 0
    assert use(slots, "e", [13, 14, 15])[0] == 1


def test_a_busy_slot_lends_its_computed_beginning_but_is_never_given_away(slots):
    prompt = np.arange(30)
    slot, _ = slots.take("a", "v", prompt)
    slots.append(slot, prompt[:12])  # the rest is still to come
    other, kept = slots.take("b", "v", prompt)
    assert other != slot and kept == 12
    assert slots.take("c", "v", prompt) is None
    assert slots.busy_count == 2
