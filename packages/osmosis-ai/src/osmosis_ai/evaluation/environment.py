"""The Python environment of a rollout, in our cache: its dependencies and the SDK that started the run.

Owns what `uv` is asked and when it need not be asked at all. The user's `uv.lock` and `.venv` stay untouched. An
environment is named by everything that went into it, so it never changes under a running server; a stamp written last
marks it complete, and a start that finds the stamp runs no `uv`.
"""

from __future__ import annotations

import base64
import contextlib
import csv
import fcntl
import hashlib
import json
import os
import shutil
import sys
import time
import tomllib
import zipfile
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from osmosis_ai.consts import PACKAGE_VERSION, package_name
from osmosis_ai.errors import ValidationError

if TYPE_CHECKING:
    from packaging.requirements import Requirement

LAYOUT = "1"
"""Changes whenever environments are built in another way."""
UNUSED_DAYS = 30
_NETWORK_WORDS = ("error sending request", "dns error", "failed to fetch", "could not connect", "network", "timed out")


class RolloutEnvironmentError(ValidationError):
    """uv is missing, or could not make the rollout's environment; the message holds its last line."""


@dataclass(frozen=True, slots=True)
class RolloutEnvironment:
    """A complete environment.

    Attributes:
        python: Its interpreter.
        sdk_version: Version of `osmosis-ai` in it, or None when there is none.
        pinned: Whether the rollout asked for that SDK itself, so ours was not installed.
        reused: Whether no `uv` call was needed.
    """

    python: Path
    sdk_version: str | None
    pinned: bool
    reused: bool


def cache_dir() -> Path:
    """Where everything we can make again lives: `$XDG_CACHE_HOME/osmosis`, else `~/.cache/osmosis`."""
    root = os.environ.get("XDG_CACHE_HOME")
    return (Path(root) if root else Path.home() / ".cache") / "osmosis"


def read_project(rollout_dir: Path) -> dict[str, Any]:
    """Read a rollout's pyproject.toml.

    Raises:
        ValidationError: The folder or the file is missing, or the file is not a project.
    """
    path = rollout_dir / "pyproject.toml"
    if not rollout_dir.is_dir():
        raise ValidationError(
            f"The rollout folder {rollout_dir} does not exist.\n"
            f"Make it with: osmosis rollout init {rollout_dir.name}, or correct `rollout` in the eval config."
        )
    if not path.is_file():
        raise ValidationError(
            f"{path} does not exist: a rollout declares its dependencies there.\n"
            f'The smallest one: [project] name = "{rollout_dir.name}", version = "0", requires-python = ">=3.12", '
            f'dependencies = ["{package_name}[server]"]'
        )
    try:
        project = tomllib.loads(path.read_text("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
        raise ValidationError(f"{path} cannot be read as TOML: {error}") from error
    if not isinstance(project.get("project"), dict):
        raise ValidationError(f"{path} has no [project] table; uv needs its name, version and dependencies.")
    return project


def find_uv() -> str:
    """Find uv next to our interpreter, on PATH, or inside the `uv` package.

    Raises:
        RolloutEnvironmentError: There is none.
    """
    beside = Path(sys.executable).with_name("uv")
    if os.access(beside, os.X_OK):
        return str(beside)
    if found := shutil.which("uv"):
        return found
    with contextlib.suppress(ImportError, FileNotFoundError):
        from uv import find_uv_bin

        return find_uv_bin()
    raise RolloutEnvironmentError(
        "uv is not installed, and it makes the environments that rollouts run in.\n"
        f'Install it with: {sys.executable} -m pip install "{package_name}[eval]"'
    )


def uv_environ(environ: Mapping[str, str]) -> dict[str, str]:
    """Give uv's environment: the caller's, without the caller's virtual environment, with bytecode and our Python."""
    env = {k: v for k, v in environ.items() if k not in ("VIRTUAL_ENV", "PYTHONDONTWRITEBYTECODE", "PYTHONPATH")}
    return env | {"UV_PYTHON_DOWNLOADS": "never", "UV_COMPILE_BYTECODE": "1", "UV_NO_PROGRESS": "1"}


def prepare_environment(
    rollout_dir: Path,
    *,
    run_uv: Callable[[list[str], dict[str, str]], tuple[int, list[str]]],
    log: Callable[[str], None],
    environ: Mapping[str, str] | None = None,
    log_path: Path | None = None,
    root: Path | None = None,
) -> RolloutEnvironment:
    """Make the rollout's environment, or find it complete. Blocks while `uv` works; concurrent starts take turns.

    Args:
        rollout_dir: Folder with the rollout's pyproject.toml.
        run_uv: Runs a command with an environment in `rollout_dir`, logs its output, returns exit code and last lines.
        log: Takes a line about what is done.
        environ: The caller's environment, without the run's [env] and [secrets]; default this process's.
        log_path: Named in errors.
        root: Where environments are kept; default `cache_dir() / "environments"`.

    Raises:
        ValidationError: There is no readable pyproject.toml.
        RolloutEnvironmentError: uv is missing or failed.
    """
    project = read_project(rollout_dir)
    root = root or cache_dir() / "environments"
    sdk = _installed_sdk()
    lock = rollout_dir / "uv.lock"
    key = _key(rollout_dir, project, lock, sdk)
    place = root / key
    python = place / "bin" / "python"
    stamp = root / f"{key}.json"
    if (done := _read_stamp(stamp, python)) is not None:
        return done
    uv = find_uv()
    root.mkdir(parents=True, exist_ok=True)
    with _locked(root / f"{key}.lock"):
        if (done := _read_stamp(stamp, python)) is not None:
            return done
        stamp.unlink(missing_ok=True)
        ours, pinned = _sdk_requirement(project, rollout_dir, log)
        env = uv_environ(os.environ if environ is None else environ)
        builder = _Builder(uv, env, rollout_dir, place, run_uv, log_path)
        if lock.is_file():
            skip = [] if pinned else ["--no-install-package", package_name]
            builder.uv(["sync", "--frozen", "--inexact", *skip], UV_PROJECT_ENVIRONMENT=str(place))
        else:
            builder.uv(["venv", "--quiet", "--allow-existing", str(place)])
        what = ["--editable", "."] if _is_package(project) else ["--requirements", "pyproject.toml"]
        if pinned:
            builder.uv(["pip", "install", *what])
        else:
            wheel = _wheel(sdk, root.parent / "wheels")
            override = root / f"{key}.override.txt"
            requirement = f"{package_name}[{','.join(sorted(ours))}] @ {wheel.as_uri()}"
            override.write_text(requirement + "\n")
            builder.uv(["pip", "install", *what, requirement, "--overrides", str(override)])
            override.unlink(missing_ok=True)
            _compile_editable(sdk)
        version = _version_in(place)
        # The stamp is last: an environment without one is made again from where it stands.
        temporary = stamp.with_suffix(".tmp")
        temporary.write_text(json.dumps({"sdk_version": version, "pinned": pinned, "rollout": str(rollout_dir)}))
        temporary.replace(stamp)
        _forget_unused(root, keep=key)
    return RolloutEnvironment(python, version, pinned, reused=False)


@dataclass(frozen=True, slots=True)
class _Builder:
    """One environment under construction."""

    binary: str
    env: dict[str, str]
    rollout_dir: Path
    place: Path
    run: Callable[[list[str], dict[str, str]], tuple[int, list[str]]]
    log_path: Path | None

    def uv(self, arguments: list[str], **extra_env: str) -> None:
        """Run one uv command on our interpreter; again from its cache alone when the network failed."""
        env = self.env | extra_env
        python = str(self.place / "bin" / "python") if arguments[0] == "pip" else sys.executable
        command = [self.binary, *arguments, "--python", python]
        status, lines = self.run(command, env)
        if status and any(word in line.lower() for line in lines for word in _NETWORK_WORDS):
            again, _ = self.run([*command, "--offline"], env)
            status = again
        if status:
            where = f"\nThe whole output is in {self.log_path} (lines [deps])." if self.log_path else ""
            raise RolloutEnvironmentError(
                f"uv could not install the dependencies of {self.rollout_dir / 'pyproject.toml'} "
                f"(`uv {' '.join(arguments[:2])}` exited with code {status}): {_complaint(lines)}{where}"
            )


def _complaint(lines: list[str]) -> str:
    """What uv says is wrong, in one line: from its last error mark on, else its last line."""
    said = [line.strip(" ╰─▶") for line in lines if line.strip()]
    start = next((i for i in range(len(said) - 1, -1, -1) if said[i].startswith(("error", "×"))), len(said) - 1)
    text = " ".join(line.removeprefix("×").removeprefix("error:").strip() for line in said[start:])
    return (text if len(text) <= 500 else text[:499] + "…") or "it printed nothing"


def _key(rollout_dir: Path, project: dict[str, Any], lock: Path, sdk: metadata.Distribution) -> str:
    digest = hashlib.sha256()
    tied = "build-system" in project or "tool" in project  # relative paths, an editable project, workspace settings
    parts = [
        LAYOUT,
        sys.version,
        sys.base_prefix,
        str(rollout_dir.resolve()) if tied else "",
        sdk.version,
        *(",".join(line) for line in _recorded(sdk)),
    ]
    for part in parts:
        digest.update(part.encode() + b"\0")
    for file in (rollout_dir / "pyproject.toml", lock):
        digest.update(hashlib.sha256(file.read_bytes()).digest() if file.is_file() else b"absent")
    return digest.hexdigest()[:24]


def _read_stamp(stamp: Path, python: Path) -> RolloutEnvironment | None:
    try:
        data = json.loads(stamp.read_text())
        found = RolloutEnvironment(python, data["sdk_version"], bool(data["pinned"]), reused=True)
    except (OSError, ValueError, KeyError, TypeError):
        return None
    if not os.access(python, os.X_OK):
        return None
    with contextlib.suppress(OSError):
        os.utime(stamp)  # in use: not to be forgotten
    return found


@contextlib.contextmanager
def _locked(path: Path) -> Generator[None]:
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _forget_unused(root: Path, keep: str) -> None:
    """Remove environments that no start has used for a month."""
    oldest = time.time() - UNUSED_DAYS * 86400
    for stamp in root.glob("*.json"):
        with contextlib.suppress(OSError):
            if stamp.stem != keep and stamp.stat().st_mtime < oldest:
                stamp.unlink()
                shutil.rmtree(root / stamp.stem, ignore_errors=True)


def _is_package(project: dict[str, Any]) -> bool:
    declared = project.get("tool", {}).get("uv", {}).get("package")
    return declared if isinstance(declared, bool) else "build-system" in project


def _sdk_requirement(project: dict[str, Any], rollout_dir: Path, log: Callable[[str], None]) -> tuple[set[str], bool]:
    """Extras the rollout wants of the SDK, and whether it pins another SDK than ours."""
    from packaging.requirements import InvalidRequirement, Requirement
    from packaging.utils import canonicalize_name

    extras: set[str] = set()
    pinned = False
    for text in project["project"].get("dependencies", []):
        try:
            requirement = Requirement(text)
        except (InvalidRequirement, TypeError) as error:
            raise ValidationError(f"{rollout_dir / 'pyproject.toml'}: {text!r} is no requirement: {error}") from error
        if canonicalize_name(requirement.name) != package_name:
            continue
        extras |= requirement.extras
        if reason := _pin(requirement):
            pinned = True
            log(f"{package_name} is pinned by {text!r} ({reason}); the SDK of this command is not installed")
    sources = project.get("tool", {}).get("uv", {}).get("sources", {})
    if any(canonicalize_name(name) == package_name for name in sources):
        pinned = True
        log(f"{package_name} is pinned by [tool.uv.sources]; the SDK of this command is not installed")
    return extras or {"server"}, pinned


def _pin(requirement: Requirement) -> str | None:
    if requirement.url:
        return "a direct reference"
    if not requirement.specifier.contains(PACKAGE_VERSION, prereleases=True):
        return f"it excludes {PACKAGE_VERSION}"
    return None


def _installed_sdk() -> metadata.Distribution:
    try:
        return metadata.distribution(package_name)
    except metadata.PackageNotFoundError as error:
        raise RolloutEnvironmentError(
            f"{package_name} runs from a folder without being installed, so no rollout environment can get it.\n"
            f"Install it with: {sys.executable} -m pip install -e packages/osmosis-ai"
        ) from error


def _wheel(sdk: metadata.Distribution, root: Path) -> Path:
    """Pack the installed SDK into a wheel again, from the files its RECORD lists.

    An editable installation's files are its metadata and a `.pth` with the path of the source: its wheel is as small,
    and the environment follows the source.
    """
    record = _recorded(sdk)
    digest = hashlib.sha256("\n".join(",".join(line) for line in record).encode()).hexdigest()[:24]
    target = root / digest / f"{package_name.replace('-', '_')}-{sdk.version}-py3-none-any.whl"
    if target.is_file():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f".{os.getpid()}.tmp")
    lines: list[str] = []
    with zipfile.ZipFile(temporary, "w", zipfile.ZIP_STORED) as archive:
        info = ""
        for name, *_ in record:
            folder = PurePosixPath(name).parts[0]
            if folder.endswith(".dist-info"):
                info = folder
            try:
                data = Path(str(sdk.locate_file(name))).read_bytes()
            except OSError as error:
                raise RolloutEnvironmentError(
                    f"The installed {package_name} is incomplete ({error}); reinstall it."
                ) from error
            entry = zipfile.ZipInfo(name, date_time=(2020, 1, 1, 0, 0, 0))
            entry.external_attr = 0o100644 << 16
            archive.writestr(entry, data)
            checksum = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            lines.append(f"{name},sha256={checksum},{len(data)}")
        entry = zipfile.ZipInfo(f"{info}/RECORD", date_time=(2020, 1, 1, 0, 0, 0))
        entry.external_attr = 0o100644 << 16
        archive.writestr(entry, "\n".join([*lines, f"{info}/RECORD,,"]) + "\n")
    temporary.replace(target)
    return target


def _recorded(sdk: metadata.Distribution) -> list[list[str]]:
    """The lines of the SDK's RECORD that belong into a wheel: not scripts, bytecode and the installer's notes."""
    record = sdk.read_text("RECORD")
    if not record:
        raise RolloutEnvironmentError(
            f"The installed {package_name} {sdk.version} has no RECORD, so it cannot be handed to the rollout.\n"
            f"Reinstall it with: {sys.executable} -m pip install --force-reinstall {package_name}"
        )
    notes = {"RECORD", "INSTALLER", "REQUESTED", "direct_url.json", "uv_build.json", "uv_cache.json"}
    lines: list[list[str]] = []
    for line in csv.reader(record.splitlines()):
        path = PurePosixPath(line[0])
        outside = path.parts[0] == ".." or path.is_absolute()
        noted = path.parts[0].endswith(".dist-info") and path.name in notes
        if not outside and not noted and path.suffix != ".pyc":
            lines.append(line)
    return lines


def _compile_editable(sdk: metadata.Distribution) -> None:
    """Compile an editable SDK's source once, so that servers do not, each time, where bytecode is not written."""
    direct = sdk.read_text("direct_url.json")
    if direct and json.loads(direct).get("dir_info", {}).get("editable"):
        import compileall

        compileall.compile_dir(str(Path(__file__).parents[1]), quiet=2, workers=1)


def _version_in(place: Path) -> str | None:
    folders = [str(path) for path in place.glob("lib/python*/site-packages")]
    return next((found.version for found in metadata.distributions(name=package_name, path=folders)), None)
