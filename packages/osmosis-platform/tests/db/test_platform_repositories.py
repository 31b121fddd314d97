"""A repository cannot forget whose rows it touches: the workspace is the first argument of every method."""

import importlib
import inspect
import pkgutil

from osmosis_platform.db import repositories


def classes():
    for module in pkgutil.iter_modules(repositories.__path__):
        loaded = importlib.import_module(f"{repositories.__name__}.{module.name}")
        for name, one in inspect.getmembers(loaded, inspect.isclass):
            if one.__module__ == loaded.__name__ and "work" in inspect.signature(one).parameters:
                yield name, one


def test_methods_begin_with_the_workspace_or_say_why_not():
    wrong, seen = [], 0
    for name, one in classes():
        if getattr(one, "GLOBAL", None):
            continue
        for method, function in inspect.getmembers(one, inspect.isfunction):
            first = [*inspect.signature(function).parameters][1:2]
            if not method.startswith("_"):
                seen += 1
                if first != ["workspace_id"]:
                    wrong.append(f"{name}.{method}({', '.join(first)})")
    assert seen > 30
    assert wrong == []
