"""Where the files of the workspace template come from: this installation, a folder, or a repository on GitHub.

Owns the three environment variables that name another source, and fetching an archive. What is taken from the source is
the business of recipes and checkup.
"""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from pathlib import Path

from osmosis_ai.errors import NetworkError, NotFoundError, ValidationError
from osmosis_ai.workspace.scaffold import TEMPLATE_ROOT

PATH_VARIABLE = "OSMOSIS_WORKSPACE_TEMPLATE_PATH"
REPOSITORY_VARIABLE = "OSMOSIS_WORKSPACE_TEMPLATE_REPO"
REFERENCE_VARIABLE = "OSMOSIS_WORKSPACE_TEMPLATE_REF"
_DEFAULT_REPOSITORY = "Osmosis-AI/workspace-template"
_DEFAULT_REFERENCE = "main"
_REPOSITORY = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]*/[A-Za-z0-9._-]+")
_REFERENCE = re.compile(r"[A-Za-z0-9._/-]+")
_TIMEOUT_S = 30
_MAX_ARCHIVE_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class TemplateSource:
    """A template that can be read.

    Attributes:
        root: The folder that holds `rollouts/`, `configs/`, `data/` and the agent files.
        label: How to name it to people.
    """

    root: Path
    label: str


@contextlib.contextmanager
def open_template(environ: Mapping[str, str]) -> Generator[TemplateSource]:
    """The template's files, for as long as the block runs.

    Without a variable it is the template of this installation, so no network is needed. A repository's archive is
    fetched each time and never kept.

    Raises:
        NotFoundError: The named folder, repository or reference does not exist.
        NetworkError: The archive cannot be fetched.
        ValidationError: The repository or reference is malformed, or what came is no archive of a template.
    """
    if path := environ.get(PATH_VARIABLE):
        root = Path(path).expanduser()
        if not root.is_dir():
            raise NotFoundError(f"The template folder {path} does not exist; check {PATH_VARIABLE}.")
        yield TemplateSource(root, path)
        return
    repository, reference = environ.get(REPOSITORY_VARIABLE), environ.get(REFERENCE_VARIABLE)
    if not repository and not reference:
        yield TemplateSource(TEMPLATE_ROOT, "this installation")
        return
    from tempfile import TemporaryDirectory

    url = _archive_url(repository or _DEFAULT_REPOSITORY, reference or _DEFAULT_REFERENCE)
    with TemporaryDirectory(prefix="osmosis-template-") as place:
        yield TemplateSource(_unpack(_fetch(url), Path(place), url), url)


def _archive_url(repository: str, reference: str) -> str:
    if not _REPOSITORY.fullmatch(repository):
        raise ValidationError(f"{REPOSITORY_VARIABLE} must be owner/repository on GitHub, not {repository!r}.")
    if not _REFERENCE.fullmatch(reference) or ".." in reference:
        raise ValidationError(f"{REFERENCE_VARIABLE} must be a branch, tag or commit, not {reference!r}.")
    return f"https://github.com/{repository}/archive/{reference}.tar.gz"


def _fetch(url: str) -> bytes:
    import ssl

    import httpx

    content = bytearray()
    try:
        trusted = ssl.create_default_context()  # what the system trusts
        with httpx.stream("GET", url, verify=trusted, timeout=_TIMEOUT_S, follow_redirects=True) as answer:
            if answer.status_code == httpx.codes.NOT_FOUND:
                raise NotFoundError(
                    f"There is no template at {url}; check {REPOSITORY_VARIABLE} and {REFERENCE_VARIABLE}."
                )
            answer.raise_for_status()
            for chunk in answer.iter_bytes():
                content += chunk
                if len(content) > _MAX_ARCHIVE_BYTES:
                    raise ValidationError(f"The archive at {url} is larger than {_MAX_ARCHIVE_BYTES >> 20} MiB.")
    except httpx.HTTPError as error:
        raise NetworkError(
            f"Cannot fetch the template from {url}: {error}. Unset {REPOSITORY_VARIABLE} and {REFERENCE_VARIABLE} to"
            " use the template of this installation."
        ) from None
    return bytes(content)


def _unpack(archive: bytes, place: Path, url: str) -> Path:
    import tarfile

    try:
        with tarfile.open(fileobj=io.BytesIO(archive), mode="r:gz") as members:
            members.extractall(place, filter="data")
    except (tarfile.TarError, EOFError, OSError) as error:
        raise ValidationError(f"What came from {url} is no template archive: {error}") from None
    roots = [path for path in place.iterdir() if path.is_dir()]
    if len(roots) != 1:
        raise ValidationError(f"The archive from {url} must hold one folder; it holds {len(roots)}.")
    return roots[0]
