"""Why items failed: alike failures together, told apart by fault and code."""

from collections import Counter

from osmosis_ai.evaluation.report import Cause, group_causes
from osmosis_ai.evaluation.verdict import Fault


def test_messages_that_differ_in_ids_numbers_and_quoted_words_are_one_cause():
    url = "http://127.0.0.1:4711/v1/rollouts/{}: refused tool '{}'"
    found = group_causes(
        Counter(
            {
                (Fault.AGENT, "agent_error", url.format("a" * 32, "add")): 3,
                (Fault.AGENT, "agent_error", url.format("0f" * 16, "sub")): 2,
                (Fault.AGENT, "timeout", url.format("1" * 32, "add")): 1,
                (Fault.GRADER, "agent_error", url.format("2" * 32, "add")): 4,
            }
        )
    )
    assert [(cause.fault, cause.code, cause.count) for cause in found] == [
        (Fault.AGENT, "agent_error", 5),
        (Fault.GRADER, "agent_error", 4),
        (Fault.AGENT, "timeout", 1),
    ]
    assert found[0].message == url.format("a" * 32, "add"), "under its most frequent message"


def test_other_words_are_another_cause():
    counts = Counter({(Fault.AGENT, "agent_error", "no idea"): 1, (Fault.AGENT, "agent_error", "no time"): 1})
    assert group_causes(counts) == (
        Cause(Fault.AGENT, "agent_error", "no idea", 1),
        Cause(Fault.AGENT, "agent_error", "no time", 1),
    )
