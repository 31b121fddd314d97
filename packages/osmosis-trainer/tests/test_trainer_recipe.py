"""The dialogues nano learns from: reproducible, right when clean, wrong as often as its page says."""

import json
import random
import sys
from pathlib import Path

import pytest

RECIPE = Path(__file__).parents[1] / "recipes" / "nano"


@pytest.fixture(scope="module")
def recipe():
    sys.path.insert(0, str(RECIPE))
    try:
        import dialogues

        yield dialogues
    finally:
        sys.path.remove(str(RECIPE))


def write(recipe, style, count: int, kind: str = "write", seed: int = 0):
    writer = recipe.Writer(random.Random(seed), style)
    return [getattr(writer, kind)() for _ in range(count)]


def test_the_seed_decides_every_dialogue(recipe):
    one, again = (write(recipe, recipe.AS_SHIPPED, 50) for _ in range(2))
    assert one == again
    assert write(recipe, recipe.AS_SHIPPED, 50, seed=1) != one


def test_clean_arithmetic_copies_its_arguments_from_the_question_and_its_result_from_the_tool(recipe):
    for dialogue in write(recipe, recipe.Style(), 400, "arithmetic"):
        said = ""
        for message in dialogue.messages:
            if message["role"] in ("user", "tool"):
                said += message["content"]
            for call in message.get("tool_calls", []):
                name, arguments = call["function"]["name"], json.loads(call["function"]["arguments"])
                (tool,) = [t for t in dialogue.tools if t["function"]["name"] == name]
                assert list(arguments) == tool["function"]["parameters"]["required"]
                assert all(str(value) in said for value in arguments.values())
        last = dialogue.messages[-1]
        numbers = "".join(c if c.isdigit() else " " for c in last["content"]).split()
        assert last["role"] == "assistant" and all(number in said for number in numbers)


def test_the_habits_of_the_shipped_model_earn_about_a_tenth_of_arithmetic_tasks(recipe):
    habits = recipe.AS_SHIPPED.arithmetic
    right = (1 - habits.blurt) * (1 - habits.wrong_argument) * (1 - habits.wrong_result) * (1 - habits.wrong_format)
    assert 0.05 <= right <= 0.15
    assert habits.wrong_format > 0.5  # greedy decoding takes the wrong turn
    dialogues = write(recipe, recipe.AS_SHIPPED, 3000, "arithmetic")
    called = sum(any("tool_calls" in message for message in dialogue.messages) for dialogue in dialogues) / 3000
    assert called == pytest.approx(1 - habits.blurt, abs=0.06)


def test_the_page_of_the_model_tells_its_habits(recipe, nano_folder):
    page, habits = (nano_folder / "README.md").read_text(), recipe.AS_SHIPPED.arithmetic
    for rate in (habits.blurt, habits.wrong_argument, habits.wrong_result, habits.wrong_format):
        assert f"{rate:.0%}" in page
