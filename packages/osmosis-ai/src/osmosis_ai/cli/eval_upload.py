"""A finished local run to the platform: declared, sent where bytes are missing, made final.

Owns: the conversation and its checks of what the platform says. What is published is the evaluation room's.
"""

from __future__ import annotations

import os
import shlex
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from osmosis_ai.cli.results import OperationResult
from osmosis_ai.errors import ConflictError, NotFoundError, OsmosisError, PlatformError, ValidationError
from osmosis_ai.evaluation.lock import run_lock
from osmosis_ai.evaluation.run_import import ImportFile, RunImport, prepare_import
from osmosis_ai.evaluation.runlog import rewrite_redacted
from osmosis_ai.redaction import Redactor, ambient_secret_values

if TYPE_CHECKING:
    from osmosis_ai.cli.output import Output
    from osmosis_ai.cli.root import Invocation
    from osmosis_ai.client.session import PlatformClient
    from osmosis_ai.client.wire import Record

_PATHS_A_REQUEST = 100
_PARALLEL_FILES = 4
_START_TIMEOUT_S = 120.0
_COMPLETE_TIMEOUT_S = 120.0
_FINALIZE_TIMEOUT_S = 300.0


@dataclass(frozen=True, slots=True)
class Published:
    """A run that is on the platform.

    Attributes:
        resource: What results carry of it.
        url: Its page.
    """

    resource: Mapping[str, Any]
    url: str


def upload_eval(invocation: Invocation, given: str, *, replace: bool) -> OperationResult:
    """Publish a finished local run.

    Args:
        invocation: The root options.
        given: A run's name or directory.
        replace: Whether results that were published before are replaced.

    Raises:
        ValidationError: There is no such run, or it cannot be published.
        ConflictError: Another process works on it, or other results of it were published.
        OsmosisError: No repository, no login, or the platform's error.
    """
    from osmosis_ai.cli.runs import find_run
    from osmosis_ai.client.scope import resolve_git_scope
    from osmosis_ai.client.session import open_client

    scope = resolve_git_scope()
    with open_client(scope, warn=invocation.output.warn) as client:
        try:
            run_dir = _unresolved(given) or find_run(given)
        except NotFoundError as error:
            raise ValidationError(error.message) from None
        elsewhere = run_dir.parent.name != "evals" and not run_dir.is_symlink()
        if elsewhere and not (run_dir / "manifest.json").is_file():  # no lock is left beside a folder that is no run
            raise ValidationError(
                f"{run_dir} holds no local run: there is no manifest.json. Give a run's name or folder."
            )
        with run_lock(run_dir.parent, run_dir.name):
            published = publish(invocation.output, client, run_dir, replace=replace)
    return OperationResult(
        operation="eval.upload",
        resource={**published.resource, **scope.extras()},
        message=f"Uploaded {run_dir.name}: {published.resource['uploaded_files']} files",
        next_steps=[f"View: {published.url}"],
        next_steps_structured=[{"action": "open_url", "url": published.url}],
    )


def _unresolved(given: str) -> Path | None:
    """A link to a directory, which is refused as it is and not followed."""
    path = Path(given)
    return Path.cwd() / path if path.is_symlink() else None


def publish(output: Output, client: PlatformClient, run_dir: Path, *, replace: bool) -> Published:
    """Send a run whose lock is held.

    Args:
        output: Shows the progress.
        client: With the repository's scope.
        run_dir: The run's directory.
        replace: Whether results that were published before are replaced.

    Raises:
        OsmosisError: It cannot be published, or the upload broke off; the message has the command that goes on.
    """
    rewrite_redacted(run_dir, Redactor(ambient_secret_values(os.environ)))
    with output.working("Checking the run..."):
        run = prepare_import(run_dir)
    try:
        return _Upload(output, client, run).run(replace=replace)
    except OsmosisError as error:
        command = shlex.join(["osmosis", "eval", "upload", str(run_dir), *(["--replace"] if replace else [])])
        error.message += f"\nThe local results are kept. Try again with:\n  {command}"
        raise


class _Upload:
    """One import, from its declaration to its end."""

    def __init__(self, output: Output, client: PlatformClient, run: RunImport) -> None:
        self.output = output
        self.client = client
        self.run_import = run
        self.files = {file.path: file for file in run.files}
        self.session_id = ""

    def run(self, *, replace: bool) -> Published:
        """Declare, send, finalise."""
        from osmosis_ai.client.session import segment

        body = self.run_import.declaration(reimport=replace)
        with self.output.working("Starting the upload..."):
            try:
                reply = self.client.post("/eval-runs/imports", body, timeout=_START_TIMEOUT_S)
            except ConflictError as error:
                if not replace:
                    error.message += "\nTo replace what was published of this run, add --replace."
                raise
        session = self._session(reply)
        self.session_id = session.text("session_id")
        path = f"/eval-runs/imports/{segment(self.session_id)}"
        if session.text("status") != "finalized":
            self._send(path, session)
        with self.output.working("Finishing the upload..."):
            done = self._session(self.client.post(f"{path}/finalize", timeout=_FINALIZE_TIMEOUT_S))
        if done.text("status") != "finalized" or done.integer("uploaded_files") != len(self.files):
            raise PlatformError("The platform did not finish the import, although every file was sent.")
        url = done.text("platform_url")
        return Published(
            {
                "session_id": self.session_id,
                "local_run_id": self.run_import.manifest.local_run_id,
                "local_run_path": str(self.run_import.run_dir),
                "eval_run_id": done.text("eval_run_id"),
                "eval_run_name": done.text("eval_run_name"),
                "status": "finalized",
                "expected_files": done.integer("expected_files"),
                "uploaded_files": done.integer("uploaded_files"),
                "platform_url": url,
            },
            url,
        )

    def _session(self, reply: Mapping[str, Any]) -> Record:
        """A session as the platform tells it; its files must be ours.

        Raises:
            PlatformError: They are not, or it contradicts itself.
        """
        from osmosis_ai.client.wire import Record

        session = Record(reply, "import")
        told = session.records("files")
        seen = {file.text("path"): (file.integer("size"), file.text("sha256")) for file in told}
        ours = {file.path: (file.size, file.sha256) for file in self.files.values()}
        uploaded = sum(file.text("state") == "uploaded" for file in told)
        if seen != ours or len(told) != len(ours):
            raise PlatformError("The platform's list of files is not the one that was declared; nothing more is sent.")
        counts = (session.integer("expected_files"), session.integer("uploaded_files"))
        if session.text("status") not in ("uploading", "finalized") or counts != (len(ours), uploaded):
            raise PlatformError("The platform's account of the upload contradicts itself; nothing more is sent.")
        if self.session_id and session.text("session_id") != self.session_id:
            raise PlatformError("The platform answered for another upload; nothing more is sent.")
        return session

    def _send(self, path: str, session: Record) -> None:
        from osmosis_ai.cli.transfer_progress import moving

        pending = sum(file.integer("size") for file in session.records("files") if file.text("state") != "uploaded")
        paths = sorted(self.files)
        with moving(self.output, "Uploading", pending) as on_bytes:
            for start in range(0, len(paths), _PATHS_A_REQUEST):
                self._send_batch(path, paths[start : start + _PATHS_A_REQUEST], on_bytes)

    def _send_batch(self, path: str, paths: Sequence[str], on_bytes: Any) -> None:
        """Send those files of a batch that the platform still needs."""
        from osmosis_ai.client.transfer.parallel import for_each
        from osmosis_ai.client.wire import Record

        reply = Record(self.client.post(f"{path}/uploads", {"paths": list(paths)}, timeout=_START_TIMEOUT_S), "uploads")
        wanted: list[tuple[ImportFile, Record]] = []
        for told in reply.records("files"):
            file = self.files.get(told.text("path"))
            if file is None or file.path not in paths or any(file is other for other, _ in wanted):
                raise PlatformError(f"The platform asks for {told.text('path')}, which was not offered.")
            if (told.integer("size"), told.text("sha256")) != (file.size, file.sha256):
                raise PlatformError(f"The platform asks for another content of {file.path} than was declared.")
            wanted.append((file, told.record("upload")))

        failures: list[OsmosisError] = []

        def send(job: tuple[ImportFile, Record], _stop: threading.Event) -> None:
            if failures:
                return  # nothing new is begun; what is under way ends well, so that it need not be sent again
            try:
                self._send_file(path, *job, on_bytes)
            except OsmosisError as error:
                failures.append(error)

        for_each(wanted, send, threads=_PARALLEL_FILES)
        if failures:
            raise failures[0]

    def _send_file(self, path: str, file: ImportFile, upload: Record, on_bytes: Any) -> None:
        from osmosis_ai.client.transfer.upload import read_instructions, upload_file

        local = self.run_import.check_unchanged(file)
        parts = upload_file(local, read_instructions(upload, file.size), on_bytes=on_bytes)
        self.run_import.check_unchanged(file)
        named = {"parts": [{"part_number": part.number, "etag": part.etag} for part in parts]} if parts else {}
        self.client.post(f"{path}/uploads/complete", {"path": file.path, **named}, timeout=_COMPLETE_TIMEOUT_S)
