"""Whether a work tree has what a workspace needs: its folders and the files that coding agents read.

Owns the list, the check and the repair, which never touches what exists. Nothing here needs a login or, with the
template of this installation, a network.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from osmosis_ai.errors import NotFoundError, ValidationError
from osmosis_ai.workspace.placement import refuse_links, refuse_odd_targets, write_file
from osmosis_ai.workspace.repository import REQUIRED_DIRECTORIES
from osmosis_ai.workspace.template_source import open_template

AGENT_FILES = ("AGENTS.md", "CLAUDE.md", "configs/AGENTS.md")
_KEEP = ".gitkeep"
_SKILLS = ".claude/skills/*/SKILL.md"


def missing_paths(work_tree: Path) -> list[str]:
    """What is missing: folders with a slash at the end, then files."""
    folders = [path for path in REQUIRED_DIRECTORIES if not (work_tree / path).is_dir()]
    return [*folders, *(path for path in AGENT_FILES if not (work_tree / path).is_file())]


def repair(work_tree: Path, missing: list[str], environ: Mapping[str, str]) -> list[str]:
    """Create what is missing: folders with a file that keeps them in Git, agent files from the template.

    The skills that the template's `AGENTS.md` speaks of come with it.

    Returns:
        The files written, as POSIX paths relative to the work tree.

    Raises:
        NotFoundError: The template lacks an agent file.
        ConflictError: A path leads through a symbolic link or over something that is no folder. Nothing has been
            written then.
        NetworkError: Another template was named and cannot be fetched.
        ValidationError: A file cannot be written.
    """
    folders = [path.rstrip("/") for path in missing if path.endswith("/")]
    files = [path for path in missing if not path.endswith("/")]
    for path in (*folders, *files):
        refuse_links(work_tree, path)
    parents = {parent.as_posix() for path in (*folders, *files) for parent in Path(path).parents} - {"."}
    refuse_odd_targets(work_tree, sorted({*parents, *folders}), files)
    contents = {f"{folder}/{_KEEP}": b"" for folder in folders} | (_agent_files(files, environ) if files else {})
    for path in contents:
        refuse_links(work_tree, path)
    written: list[str] = []
    try:
        for path, content in contents.items():
            target = work_tree / path
            target.parent.mkdir(parents=True, exist_ok=True)
            if not target.exists():
                write_file(target, content)
                written.append(path)
    except OSError as error:
        raise ValidationError(f"Cannot write {error.filename or work_tree}: {error.strerror or error}.") from error
    return written


def _agent_files(files: list[str], environ: Mapping[str, str]) -> dict[str, bytes]:
    with open_template(environ) as source:
        contents: dict[str, bytes] = {}
        for path in files:
            try:
                contents[path] = (source.root / path).read_bytes()
            except OSError:
                raise NotFoundError(f"The template from {source.label} lacks the agent file {path}.") from None
        if AGENT_FILES[0] in contents:
            skills = sorted(source.root.glob(_SKILLS))
            contents |= {path.relative_to(source.root).as_posix(): path.read_bytes() for path in skills}
        return contents
