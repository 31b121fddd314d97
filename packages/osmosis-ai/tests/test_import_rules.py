"""Who may know whom: the import rules of the house, read from the source of every package."""

import ast
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PACKAGES = {path.name: path for path in sorted(ROOT.glob("packages/*/src/*")) if (path / "__init__.py").exists()}

# room: what it must never import, at module level or inside a function.
NEVER = {
    "osmosis_ai.rollout": ["cli", "client", "evaluation", "gateway", "workspace", "eval"],
    "osmosis_ai.gateway": ["cli", "client", "evaluation"],
    "osmosis_ai.evaluation": ["cli", "client"],
    "osmosis_ai.client": ["cli", "evaluation", "gateway", "rollout"],
    "osmosis_ai.workspace": ["cli", "client", "evaluation", "gateway", "rollout"],
    "osmosis_ai.redaction": ["cli", "client", "evaluation", "gateway", "rollout", "workspace"],
}
# room: the only rooms of osmosis_ai that a package outside may import
TRAINER_MAY = ["rollout", "gateway", "evaluation", "workspace"]
COMMON = ["errors", "consts", "extras", "redaction"]
# what the rooms of the platform must never import: rooms of its own, and of others
PLATFORM_NEVER = {
    "domain": [
        "api",
        "blobs",
        "cli",
        "db",
        "events",
        "git",
        "identity",
        "jobs",
        "ops",
        "secrets",
        "services",
        "settings",
    ],
    "db": ["api", "blobs", "cli", "events", "git", "identity", "jobs", "ops", "secrets", "services"],
    "blobs": ["api", "cli", "db", "events", "git", "identity", "jobs", "ops"],
    "secrets": ["api", "cli", "git", "jobs", "ops"],
    "events": ["api", "cli", "git", "identity", "ops"],
    "identity": ["api", "cli", "ops"],
    "git": ["api", "cli", "ops"],
    "jobs": ["api", "cli", "ops"],
    "api": ["cli"],
}
PURE = sys.stdlib_module_names | {"pydantic"}
# rooms of osmosis_ai.rollout that must load with the base dependencies alone
BASE = {"pydantic", "pydantic_core", "httpx", "anyio", "packaging", "dotenv", "certifi"}
MAY_NEED_AN_EXTRA = {
    "osmosis_ai.rollout.server",
    "osmosis_ai.rollout.integrations",
    "osmosis_ai.rollout.backend.harbor",
}


def modules():
    for name, directory in PACKAGES.items():
        for path in sorted(directory.rglob("*.py")):
            parts = [name, *path.relative_to(directory).with_suffix("").parts]
            is_package = parts[-1] == "__init__"
            yield ".".join(parts[:-1] if is_package else parts), is_package, ast.parse(path.read_text("utf-8"))


def is_type_checking(node):
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)


def imports_of(module, is_package, tree, *, lazily):
    """The absolute names a module imports; with `lazily` also those inside of functions. Types only count never."""
    names = set()
    waiting = list(tree.body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                package = module.split(".") if is_package else module.split(".")[:-1]
                base = ".".join([*package[: len(package) - node.level + 1], *([base] if base else [])])
            names |= {base} | {f"{base}.{alias.name}" for alias in node.names}
        elif is_type_checking(node):
            waiting += node.orelse
        elif lazily or not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            waiting += list(ast.iter_child_nodes(node))
    return names


TREES = list(modules())
ALL = {module: imports_of(module, is_package, tree, lazily=True) for module, is_package, tree in TREES}
EAGER = {module: imports_of(module, is_package, tree, lazily=False) for module, is_package, tree in TREES}


def within(name, room):
    return name == room or name.startswith(room + ".")


def test_the_packages_are_found():
    assert {"osmosis_ai", "osmosis_trainer"} <= set(PACKAGES)
    assert len(TREES) > 40
    assert "osmosis_ai.errors" in ALL["osmosis_ai.rollout.client.errors"]


@pytest.mark.parametrize("room", NEVER)
def test_a_room_does_not_know(room):
    forbidden = [f"osmosis_ai.{name}" for name in NEVER[room]]
    broken = {
        f"{module} imports {name}"
        for module, names in ALL.items()
        if within(module, room)
        for name in names
        if any(within(name, other) for other in forbidden)
    }
    assert broken == set()


def test_only_the_cli_knows_the_trainer_and_nobody_the_platform():
    broken = set()
    for module, names in ALL.items():
        for name in names:
            if within(name, "osmosis_platform") and not within(module, "osmosis_platform"):
                broken.add(f"{module} imports {name}")
            if within(module, "osmosis_ai") and within(name, "osmosis_trainer"):
                if not within(module, "osmosis_ai.cli"):
                    broken.add(f"{module} imports {name}")
                elif name in EAGER[module]:
                    broken.add(f"{module} imports {name} eagerly")
    assert broken == set()


def test_the_trainer_knows_only_the_rooms_it_may():
    allowed = [f"osmosis_ai.{name}" for name in [*TRAINER_MAY, *COMMON]]
    broken = {
        f"{module} imports {name}"
        for module, names in ALL.items()
        if within(module, "osmosis_trainer")
        for name in names
        if within(name, "osmosis_ai") and name != "osmosis_ai" and not any(within(name, room) for room in allowed)
    }
    assert broken == set()


@pytest.mark.parametrize("room", PLATFORM_NEVER)
def test_a_room_of_the_platform_does_not_know(room):
    forbidden = [f"osmosis_platform.{name}" for name in PLATFORM_NEVER[room]]
    broken = {
        f"{module} imports {name}"
        for module, names in ALL.items()
        if within(module, f"osmosis_platform.{room}")
        for name in names
        if any(within(name, other) for other in forbidden)
    }
    assert broken == set()


def test_the_platform_knows_neither_the_command_line_nor_the_trainer():
    broken = {
        f"{module} imports {name}"
        for module, names in ALL.items()
        if within(module, "osmosis_platform")
        for name in names
        if within(name, "osmosis_ai.cli") or within(name, "osmosis_trainer")
    }
    assert broken == set()


def test_the_domain_of_the_platform_is_pure():
    broken = {
        f"{module} imports {name}"
        for module, names in ALL.items()
        if within(module, "osmosis_platform.domain")
        for name in names
        if name.partition(".")[0] not in PURE and not within(name, "osmosis_platform")
    }
    assert broken == set()


def test_the_rollout_room_loads_with_the_base_dependencies():
    broken = {
        f"{module} imports {name}"
        for module, names in EAGER.items()
        if within(module, "osmosis_ai.rollout") and not any(within(module, room) for room in MAY_NEED_AN_EXTRA)
        for name in names
        if name.partition(".")[0] not in sys.stdlib_module_names | BASE | {"osmosis_ai"}
    }
    assert broken == set()


def room_of(name):
    """osmosis_ai.gateway.server is in the room osmosis_ai.gateway; osmosis_ai.errors is a room of its own."""
    parts = name.split(".")
    return ".".join(parts[:2]) if parts[0] == "osmosis_ai" and len(parts) > 1 else None


def test_rooms_do_not_import_each_other_in_circles():
    edges: dict[str, set[str]] = {}
    for module, names in EAGER.items():
        room = room_of(module)
        if room is not None:
            edges.setdefault(room, set()).update(
                other for name in names if (other := room_of(name)) is not None and other != room
            )

    def circle(room, path):
        if room in path:
            return [*path[path.index(room) :], room]
        for other in sorted(edges.get(room, ())):
            if found := circle(other, [*path, room]):
                return found
        return None

    assert [found for room in sorted(edges) if (found := circle(room, []))] == []


def test_modules_do_not_import_each_other_in_circles():
    known = set(EAGER)
    edges = {
        module: {name for name in names if name in known and name != module and not within(module, name)}
        for module, names in EAGER.items()
    }
    done: set[str] = set()

    def circle(module, path):
        if module in path:
            return [*path[path.index(module) :], module]
        if module in done:
            return None
        for other in sorted(edges[module]):
            if found := circle(other, [*path, module]):
                return found
        done.add(module)
        return None

    assert [found for module in sorted(edges) if (found := circle(module, []))] == []


def test_every_module_says_what_it_owns():
    silent = [module for module, _, tree in TREES if tree.body and not ast.get_docstring(tree)]
    assert silent == []
