"""Starter rollouts of the workspace template: which there are, and copying one into a work tree.

A recipe is a folder under `rollouts/`, its two configs and the data of its task. Where the template's files lie is
`template_source`'s business.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from osmosis_ai.errors import ConflictError, NotFoundError, ValidationError
from osmosis_ai.workspace.placement import present, refuse_links, refuse_odd_targets, write_file
from osmosis_ai.workspace.scaffold import TEMPLATE_ROOT
from osmosis_ai.workspace.template_source import TemplateSource

CATALOGUE = ("multiply-harbor-strands", "multiply-local-openai", "multiply-local-strands")
"""The starters that `template list` names (cli.md 10), sorted."""
_NEVER_COPIED = frozenset({"__pycache__", ".venv", ".git"})


@dataclass(frozen=True, slots=True)
class AppliedRecipe:
    """What `apply_recipe` wrote.

    Attributes:
        destinations: The folders that hold it.
        files: Every file of the recipe, as POSIX paths relative to the work tree.
    """

    destinations: tuple[Path, ...]
    files: tuple[str, ...]


def recipe_names(root: Path = TEMPLATE_ROOT) -> list[str]:
    """Names of the recipes under a template's root, sorted; those of this installation by default."""
    try:
        return sorted(path.name for path in (root / "rollouts").iterdir() if (path / "main.py").is_file())
    except OSError:
        return []


def recipe_summary(name: str) -> str:
    """What a recipe of this installation is, in a sentence: the first paragraph of its README; empty without one."""
    try:
        text = (TEMPLATE_ROOT / "rollouts" / name / "README.md").read_text(encoding="utf-8")
    except OSError:
        return ""
    paragraphs = [part for part in text.split("\n\n") if part.strip() and not part.startswith(("#", "```"))]
    return " ".join(paragraphs[0].split()) if paragraphs else ""


def apply_recipe(work_tree: Path, source: TemplateSource, name: str, *, force: bool = False) -> AppliedRecipe:
    """Copy a recipe into a work tree.

    Args:
        work_tree: The repository's root.
        source: Where the template's files are.
        name: The recipe.
        force: Replace what is there: the rollout's folder as a whole, the configs and the data file.

    Raises:
        NotFoundError: There is no such recipe, or the source lacks one of its files.
        ConflictError: Something is in the way (all of it is listed), or a path leads through a symbolic link. Nothing
            has been written then. A data file with the same content is in nobody's way.
        ValidationError: A file cannot be written.
    """
    contents = _read_recipe(source, name)
    rollout = f"rollouts/{name}"
    shared = [path for path in contents if not path.startswith(f"{rollout}/")]
    for path in (rollout, *shared):
        refuse_links(work_tree, path)
    folders = {Path(path).parent.as_posix() for path in shared}
    refuse_odd_targets(work_tree, (*sorted({Path(folder).parts[0] for folder in folders} | folders), rollout), shared)
    unchanged = {path for path in shared if _is_same(work_tree / path, contents[path])}
    in_the_way = [path for path in shared if path not in unchanged and present(work_tree / path)]
    in_the_way += [f"{rollout}/"] if present(work_tree / rollout) else []
    if in_the_way and not force:
        listed = "".join(f"\n  - {path}" for path in sorted(in_the_way))
        raise ConflictError(
            f"These paths exist already and are not overwritten:{listed}\n"
            f"Replace them with: osmosis template apply {name} --force"
        )
    try:
        if present(work_tree / rollout):
            shutil.rmtree(work_tree / rollout)
        for path, content in contents.items():
            target = work_tree / path
            target.parent.mkdir(parents=True, exist_ok=True)
            if path not in unchanged:
                write_file(target, content)
    except OSError as error:
        raise ValidationError(
            f"Cannot write {error.filename or work_tree}: {error.strerror or error}; make it writable and use --force."
        ) from error
    places = (rollout, *dict.fromkeys(Path(path).parent.as_posix() for path in shared))
    return AppliedRecipe(tuple(work_tree / place for place in places), tuple(sorted(contents)))


def _read_recipe(source: TemplateSource, name: str) -> Mapping[str, bytes]:
    known = recipe_names(source.root)
    catalogue = recipe_names()
    if name not in known and name not in catalogue:
        raise NotFoundError(f"There is no template '{name}'. Available: {', '.join(known or catalogue)}.")
    task = name.partition("-")[0]
    wanted = (f"configs/eval/{name}.toml", f"configs/training/{name}.toml", f"data/{task}.jsonl")
    contents = dict(_folder(source.root, f"rollouts/{name}"))
    for path in (*([] if contents else [f"rollouts/{name}/main.py"]), *wanted):
        try:
            contents[path] = (source.root / path).read_bytes()
        except OSError:
            raise NotFoundError(f"The template '{name}' from {source.label} lacks {path}.") from None
    return contents


def _folder(root: Path, folder: str) -> Iterator[tuple[str, bytes]]:
    for path in sorted((root / folder).rglob("*")):
        relative = path.relative_to(root)
        if path.is_file() and not path.is_symlink() and not _NEVER_COPIED.intersection(relative.parts):
            yield relative.as_posix(), path.read_bytes()


def _is_same(target: Path, content: bytes) -> bool:
    try:
        return target.is_file() and target.read_bytes() == content
    except OSError:
        return False
