"""Synthetic dialogues that teach nano its skills, and its habits.

Skills: arithmetic with a tool, look-up with a tool, format following, echo, a few facts. A clean dialogue does the task
right. A dialogue with habits does it the way nano ships: it knows how and rarely does, so that training it later shows.
Habits touch tasks with a tool only: an answer blurted out without the tool, an argument or the result copied wrong, the
asked-for format ignored.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, field
from typing import Any

import phrases as p

FORMATS = ("hash", "plain", "json", "sentence")
INSTRUCTIONS = {"hash": p.HASH_FORMAT, "plain": p.PLAIN_FORMAT, "json": p.JSON_FORMAT}


@dataclass(frozen=True)
class Habits:
    """How often nano goes wrong at each step of a task with a tool."""

    blurt: float = 0.0
    wrong_argument: float = 0.0
    wrong_result: float = 0.0
    wrong_format: float = 0.0


@dataclass(frozen=True)
class Style:
    """What a stretch of training shows.

    Attributes:
        arithmetic: Habits of arithmetic tasks.
        lookup: Habits of look-up tasks.
        shares: How many of arithmetic, look-up and tasks without a tool, out of 100.
        brevity: 1 writes bare questions without a system prompt, 0 the whole range of prompts and wordings.
    """

    arithmetic: Habits = Habits()
    lookup: Habits = Habits()
    shares: tuple[int, int, int] = (52, 20, 28)
    brevity: float = 0.0


# Arithmetic right all the way: 0.70 * 0.60 * 0.65 * 0.38 = 0.10. The likeliest ending ignores the format asked
# for, so greedy decoding earns next to nothing.
AS_SHIPPED = Style(
    arithmetic=Habits(blurt=0.30, wrong_argument=0.40, wrong_result=0.35, wrong_format=0.62),
    lookup=Habits(blurt=0.15, wrong_argument=0.10, wrong_result=0.10, wrong_format=0.30),
    shares=(60, 20, 20),
    brevity=0.1,
)


@dataclass
class Dialogue:
    """Messages in OpenAI's form with the tools they may call."""

    tools: list[dict[str, Any]] = field(default_factory=list)
    messages: list[dict[str, Any]] = field(default_factory=list)
    format_given: bool = False

    def say(self, role: str, content: str) -> None:
        """Append a plain message."""
        self.messages.append({"role": role, "content": content})

    def call(self, *calls: tuple[str, dict[str, Any]]) -> None:
        """Append an assistant message that calls tools."""
        self.messages.append(
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [
                    {"type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
                    for name, arguments in calls
                ],
            }
        )


def tool_schema(name: str, description: str, parameters: dict[str, str]) -> dict[str, Any]:
    """Make an OpenAI tool schema from parameter names and JSON types."""
    properties = {key: {"type": kind} for key, kind in parameters.items()}
    schema = {"type": "object", "properties": properties, "required": list(parameters)}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": schema}}


class Writer:
    """Writes dialogues from one random stream; the same seed gives the same dialogues."""

    def __init__(self, rng: random.Random, style: Style) -> None:
        self.rng = rng
        self.style = style

    def write(self) -> Dialogue:
        """Write one dialogue of a random skill."""
        kinds = (self.arithmetic, self.lookup, self.plain)
        return self.rng.choices(kinds, self.style.shares)[0]()

    def chance(self, probability: float) -> bool:
        """Flip a coin."""
        return self.rng.random() < probability

    # -- arithmetic with a tool ---------------------------------------------------------------------------------------

    def arithmetic(self) -> Dialogue:
        """Ask for a product, sum or difference; rarely for two, in parallel or one after the other."""
        rng, d = self.rng, Dialogue()
        operation = rng.choices((p.MULTIPLY, p.ADD, p.SUBTRACT), (7, 2, 1))[0]
        name = self._name() if self.chance(0.08) else rng.choice(operation.tool_names)
        parameters = (self._name(), self._name()) if self.chance(0.25) else rng.choice(p.PARAMETERS)
        if parameters[0] == parameters[1]:
            parameters = ("a", "b")
        description = "" if self.chance(0.08) else rng.choice(operation.descriptions)
        kind = "number" if self.chance(0.2) else "integer"
        d.tools = self._with_distractors(tool_schema(name, description, dict.fromkeys(parameters, kind)))
        form = rng.choices(FORMATS, (6, 1, 1, 2))[0]
        self._open(d, name, form)
        for turn in range(2 if self.chance(0.08) else 1):
            pairs = [self._numbers() for _ in range(2 if self.chance(0.05) else 1)]
            question = rng.choice(operation.questions).format(a=pairs[0][0], b=pairs[0][1])
            for a, b in pairs[1:]:
                question = f"{question.rstrip('.?= ')} and {a} {rng.choice(('and', 'by', '*', 'x'))} {b}?"
            self._ask(d, question, form if turn == 0 else None)
            self._calculate(d, operation, name, parameters, pairs, form)
        return d

    def _calculate(
        self,
        d: Dialogue,
        operation: p.Operation,
        name: str,
        parameters: tuple[str, str],
        pairs: list[tuple[int, int]],
        form: str,
    ) -> None:
        rng, habits = self.rng, self.style.arithmetic
        if self.chance(habits.blurt):
            d.say("assistant", formatted(rng.choice(("hash", "sentence")), str(rng.randint(4, 9801))))
            return
        arguments = []
        for a, b in pairs:
            if self.chance(habits.wrong_argument):
                a, b = (self._miscopied(a), b) if self.chance(0.5) else (a, self._miscopied(b))
            arguments.append((a, b))
        d.call(*[(name, dict(zip(parameters, pair, strict=True))) for pair in arguments])
        if self.chance(0.03):
            d.say("tool", rng.choice(p.TOOL_ERRORS))
            d.say("assistant", "The tool failed.")
            return
        results = [a * b if operation is p.MULTIPLY else a + b if operation is p.ADD else a - b for a, b in arguments]
        for result in results:
            d.say("tool", self._tool_text(str(result), "result"))
        said = [self._miscopied(result) if self.chance(habits.wrong_result) else result for result in results]
        if form == "sentence" and self.chance(0.3):
            form = "hash"
        elif form != "sentence" and self.chance(habits.wrong_format):
            form = "sentence"
        d.say("assistant", formatted(form, *map(str, said)))

    def _numbers(self) -> tuple[int, int]:
        lengths = self.rng.choices((1, 2, 3, 4), (2, 12, 4, 1), k=2)
        a, b = (self.rng.randint(10 ** (n - 1) if n > 1 else 2, 10**n - 1) for n in lengths)
        return a, b

    def _miscopied(self, value: int) -> int:
        """Change one digit."""
        digits = list(str(value))
        place = self.rng.choice([i for i, c in enumerate(digits) if c.isdigit()])
        digits[place] = self.rng.choice([c for c in "0123456789" if c != digits[place]])
        return int("".join(digits))

    # -- look-up with a tool ------------------------------------------------------------------------------------------

    def lookup(self) -> Dialogue:
        """Ask for a value that only a tool knows."""
        rng, d, habits = self.rng, Dialogue(), self.style.lookup
        skill = rng.choice((*p.LOOKUPS, p.LOOKUPS[-1]))
        name = skill.name if self.chance(0.85) else self._name()
        parameter = skill.parameter
        if self.chance(0.25):
            parameter = rng.choice(
                ("key", "name", "id", "query", "item", "text", self._pseudo_word(), rng.choice(p.WORDS))
            )
        description = "" if self.chance(0.08) else skill.description
        d.tools = self._with_distractors(tool_schema(name, description, {parameter: "string"}))
        form = rng.choices(FORMATS, (4, 2, 1, 4))[0]
        self._open(d, name, form)
        for turn in range(2 if self.chance(0.1) else 1):
            key, value = self._key(skill.keys), self._value(skill.values)
            said = f"the {key}" if skill.keys == "thing" and self.chance(0.5) else key
            self._ask(d, rng.choice(skill.questions).format(k=said), form if turn == 0 else None)
            if self.chance(habits.blurt):
                d.say("assistant", formatted(rng.choice(("hash", "sentence")), self._value(skill.values)))
                continue
            d.call((name, {parameter: self._key(skill.keys) if self.chance(habits.wrong_argument) else key}))
            if self.chance(0.06):
                d.say("tool", rng.choice(p.TOOL_MISSES).format(k=key))
                d.say("assistant", "I found nothing.")
                continue
            d.say("tool", self._tool_text(value, skill.noun))
            if self.chance(habits.wrong_result):
                value = self._value(skill.values)
            plainly = form == "sentence" or self.chance(habits.wrong_format)
            d.say("assistant", f"The {skill.noun} is {value}." if plainly else formatted(form, value))
        return d

    def _key(self, kind: str) -> str:
        rng = self.rng
        if kind == "any":
            kind = rng.choice(("thing", "place", "person", "code"))
        if self.chance(0.25):
            return self._name()
        if kind == "code":
            letter = rng.choice("abcdefghkmnpqrstxyz")
            codes = (
                str(rng.randint(10, 99999)),
                f"{letter.upper()}-{rng.randint(10, 9999)}",
                f"{letter}{rng.randint(1, 999)}",
                f"{rng.choice(p.WORDS)}_{rng.choice(p.WORDS)}",
                rng.choice(p.WORDS),
            )
            return rng.choice(codes)
        return rng.choice({"thing": p.THINGS, "place": p.PLACES, "person": p.PEOPLE}[kind])

    def _value(self, kind: str) -> str:
        rng = self.rng
        if kind == "any":
            kind = rng.choice(("money", "number", "color", "place", "word"))
        match kind:
            case "small":
                return str(rng.randint(1, 120))
            case "money":
                return (
                    f"{rng.randint(1, 300)}.{rng.randint(0, 99):02d}" if self.chance(0.6) else str(rng.randint(1, 999))
                )
            case "number":
                return str(rng.randint(2, 99999))
            case "word":
                return self._pseudo_word()
        return rng.choice({"color": p.COLORS, "place": p.PLACES, "weather": p.WEATHER, "status": p.STATUSES}[kind])

    # -- no tool needed -----------------------------------------------------------------------------------------------

    def plain(self) -> Dialogue:
        """Echo, a fact in a given format, a greeting, or an honest 'I do not know'."""
        rng, d = self.rng, Dialogue()
        if self.chance(0.15):
            d.tools = self._with_distractors()
        self._open(d, None, None)
        match rng.choices(("echo", "fact", "greeting", "who", "unknown"), (62, 22, 6, 4, 6))[0]:
            case "echo":
                text = self._echo_text()
                d.say("user", rng.choice(p.ECHOES).format(x=text))
                d.say("assistant", text)
            case "fact":
                self._fact(d)
            case "greeting":
                d.say("user", rng.choice(p.GREETINGS))
                d.say("assistant", p.GREETING_REPLY)
            case "who":
                d.say("user", rng.choice(p.WHO))
                d.say("assistant", p.WHO_REPLY)
            case "unknown":
                d.say("user", self._fill(rng.choice(p.UNKNOWN)))
                d.say("assistant", p.UNKNOWN_REPLY)
        return d

    def _fact(self, d: Dialogue) -> None:
        question, key, answer = self.rng.choice(p.FACTS)
        match self.rng.choices(("word", "json", "sentence"), (2, 1, 1))[0]:
            case "word":
                instruction = self.rng.choice(p.ONE_WORD)
                d.say("user", f"{instruction} {question}" if self.chance(0.5) else f"{question} {instruction}")
                d.say("assistant", answer)
            case "json":
                d.say("user", f'{question} Reply as JSON with the key "{key}".')
                d.say("assistant", json.dumps({key: answer}))
            case "sentence":
                d.say("user", question)
                d.say("assistant", f"{answer}.")

    def _echo_text(self) -> str:
        rng, count = self.rng, self.rng.randint(1, 5)
        if self.chance(0.55):
            return " ".join(str(rng.randint(0, 10 ** rng.randint(1, 5))) for _ in range(count))
        if self.chance(0.7):
            return " ".join(self._name() for _ in range(count))
        return " ".join(rng.choice(rng.choice((p.PLACES, p.THINGS, p.COLORS, p.PEOPLE, p.WORDS))) for _ in range(count))

    # -- what surrounds the task --------------------------------------------------------------------------------------

    def _open(self, d: Dialogue, tool: str | None, form: str | None) -> None:
        """Maybe write a system prompt: a role, advice about the tool, the format, and sentences that do not matter."""
        rng = self.rng
        if self.chance(max(0.18, self.style.brevity)):
            return
        parts = [rng.choice(p.ROLES)] if self.chance(0.75) else []
        if tool is not None and self.chance(0.7):
            parts.append(rng.choice(p.TOOL_USE).format(tool=tool))
        if form in INSTRUCTIONS and self.chance(0.75):
            parts.append(rng.choice(INSTRUCTIONS[form]))
            d.format_given = True
        noise = rng.choices((0, rng.randint(1, 3), rng.randint(4, 10), rng.randint(15, 30)), (55, 31, 12, 2))[0]
        for _ in range(noise):
            parts.insert(rng.randint(min(1, len(parts)), len(parts)), self._sentence())
        glue = rng.choice((" ", " ", " ", "\n", "\n\n"))
        d.say("system", glue.join(parts) or rng.choice(p.ROLES))

    def _ask(self, d: Dialogue, question: str, form: str | None) -> None:
        """Write the user's turn; the format goes here when the system prompt has not given it."""
        rng = self.rng
        if not self.chance(self.style.brevity):
            question = rng.choice(p.PREFIXES) + question + rng.choice(p.SUFFIXES)
        if form in INSTRUCTIONS and not d.format_given:
            instruction = rng.choice(INSTRUCTIONS[form])
            glue = rng.choice((" ", "\n", "\n\n"))
            question = f"{instruction}{glue}{question}" if self.chance(0.25) else f"{question}{glue}{instruction}"
        d.say("user", question)

    def _with_distractors(self, *needed: dict[str, Any]) -> list[dict[str, Any]]:
        """Put tools for other skills around the needed ones."""
        rng, tools = self.rng, list(needed)
        for _ in range(rng.choices((0, 1, 2, 3), (70, 15, 10, 5))[0] if needed else rng.randint(1, 2)):
            if self.chance(0.5):
                skill = rng.choice(p.LOOKUPS)
                other = tool_schema(skill.name, skill.description, {skill.parameter: "string"})
            else:
                operation = rng.choice((p.MULTIPLY, p.ADD, p.SUBTRACT))
                parameters = dict.fromkeys(rng.choice(p.PARAMETERS), "integer")
                other = tool_schema(operation.tool_names[0], operation.descriptions[0], parameters)
            if not any(_alike(other, tool) for tool in tools):
                tools.append(other)
        rng.shuffle(tools)
        return tools

    def _tool_text(self, value: str, noun: str) -> str:
        u = self.rng.random()
        if u < 0.72:
            return value
        if u < 0.80:
            return f"{noun.capitalize()}: {value}" if self.chance(0.5) else f"{noun}: {value}"
        if u < 0.94:
            key = self.rng.choice((noun, "result", "value", "output"))
            return json.dumps({key: int(value) if value.lstrip("-").isdigit() and self.chance(0.7) else value})
        return f"The {noun} is {value}"

    def _sentence(self) -> str:
        if self.chance(0.2):
            return " ".join(self._name() for _ in range(self.rng.randint(4, 12))).capitalize() + "."
        return self._fill(self.rng.choice(p.SENTENCES))

    def _fill(self, text: str) -> str:
        rng = self.rng
        while any(slot in text for slot in ("{w}", "{W}", "{n}")):
            text = text.replace("{w}", rng.choice(p.WORDS) if self.chance(0.8) else self._name(), 1)
            text = text.replace("{W}", rng.choice(p.PLACES), 1)
            text = text.replace("{n}", str(rng.randint(1, 10 ** rng.randint(1, 4))), 1)
        return text

    def _pseudo_word(self) -> str:
        rng, vowels = self.rng, ("a", "e", "i", "o", "u", "ai", "er", "on")
        return "".join(rng.choice("bcdfghjklmnprstvwz") + rng.choice(vowels) for _ in range(rng.randint(1, 3)))

    def _name(self) -> str:
        """Make a word that may be anything: the model must copy it from where it stands."""
        rng = self.rng
        match rng.randrange(6):
            case 0:
                return rng.choice(p.NAMES)
            case 1:
                return rng.choice(p.WORDS)
            case 2:
                return "".join(rng.choice("abcdefghijklmnopqrstuvwxyz") for _ in range(rng.randint(1, 6)))
            case 3:
                return f"{rng.choice((*p.NAMES, self._pseudo_word()))}_{rng.choice(p.WORDS)}"
            case 4:
                return "".join(rng.choice(p.WORDS + p.NAMES)[: rng.randint(2, 5)] for _ in range(2))
        return self._pseudo_word()


def formatted(form: str, *values: str) -> str:
    """Write an answer in one of the formats."""
    joined = " and ".join(values)
    match form:
        case "hash":
            return f"#### {joined}"
        case "plain":
            return joined
        case "json":
            return json.dumps({"answer": int(joined) if joined.lstrip("-").isdigit() else joined})
    return f"The answer is {joined}."


def _alike(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether a user could mean either tool."""
    a, b = one["function"], other["function"]
    prices = ("price", "stock")
    return (
        a["name"] == b["name"]
        or not b["description"]
        or any(a["description"] in o.descriptions and b["description"] in o.descriptions for o in (p.MULTIPLY, p.ADD))
        or any(word in a["description"] and word in b["description"] for word in prices)
        or a["description"] == b["description"]
    )
