"""A dataset's file to the platform and back: what is checked and asked before, what is said after.

How bytes travel is the client room's `transfer`; what a dataset file must hold is the evaluation room's.
"""

from __future__ import annotations

import shlex
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from osmosis_ai.cli.datasets import WAITING_STATUSES, dataset_record
from osmosis_ai.cli.figures import size_text
from osmosis_ai.cli.listing import naming
from osmosis_ai.cli.results import OperationResult
from osmosis_ai.errors import ConflictError, NotFoundError, PlatformError, ValidationError

if TYPE_CHECKING:
    from osmosis_ai.cli.output import Output
    from osmosis_ai.cli.root import Invocation
    from osmosis_ai.client.session import PlatformClient
    from osmosis_ai.client.transfer.notes import UploadNotes
    from osmosis_ai.client.wire import Record

_COMPLETE_ATTEMPTS = 5
_COMPLETE_TIMEOUT_S = 30.0
_COMPLETE_PARTS_TIMEOUT_S = 120.0
_OVERWRITES = "--overwrite will replace the existing dataset with the same name."


@dataclass(frozen=True, slots=True)
class DatasetFile:
    """A file that passed the checks.

    Attributes:
        name: What the dataset is called on the platform: the file's name without its suffix.
        extension: csv, jsonl or parquet.
        size_bytes: Its length.
        warnings: What was not checked, or what `eval run` would stumble over.
        was_checked: False where its rows could not be looked at.
    """

    path: Path
    name: str
    extension: str
    size_bytes: int
    warnings: tuple[str, ...] = ()
    was_checked: bool = True


def upload_dataset(invocation: Invocation, file: str, *, overwrite: bool, yes: bool) -> OperationResult:
    """Check a file, ask, and upload it.

    Raises:
        ValidationError: The file is none or breaks a rule; every finding is listed.
        ConflictError: A dataset of this name exists and `overwrite` is not given.
        InteractiveRequiredError: Without `yes` where nobody can be asked.
        Cancelled: The answer was no.
        OsmosisError: No scope, no login, the platform's or the object store's error.
    """
    from osmosis_ai.client.scope import resolve_scope
    from osmosis_ai.client.session import open_client

    scope = resolve_scope(invocation.workspace)
    output = invocation.output
    with open_client(scope, warn=output.warn) as client:
        checked = check_file(Path.cwd() / file)
        for warning in checked.warnings:
            output.warn(warning, None if checked.was_checked else "PARQUET_VALIDATION_SKIPPED")
        if not yes:
            _ask(output, checked, overwrite=overwrite)
        record = _send(client, checked, output, overwrite=overwrite)
    url = record.get("platform_url")
    name = record["file_name"]
    step = f"at: {url}" if url else f"with: osmosis dataset info {shlex.quote(name)}"
    return OperationResult(
        operation="dataset.upload",
        resource={**record, **scope.extras()},
        message=f"Dataset uploaded: {name}",
        next_steps=[f"Processing will continue on the platform. Check status {step}"],
        next_steps_structured=[
            {"label": "View dataset", "url": url} if url else {"action": "dataset_info", "id": record["id"]}
        ],
        extras={"warnings": list(checked.warnings)} if checked.warnings else {},
    )


def check_file(path: Path) -> DatasetFile:
    """Check a dataset file by every rule, before anything is asked or sent.

    Raises:
        ValidationError: There is none, or it breaks a rule.
    """
    from osmosis_ai.evaluation.validate import validate_dataset

    try:
        report = validate_dataset(path)
    except NotFoundError as error:
        raise ValidationError(error.message) from None
    if not report.valid:
        raise ValidationError("\n".join(["File validation failed:", *report.lines]))
    return DatasetFile(path, path.stem, report.extension, report.file_size, report.warnings, report.checked)


def download_dataset(invocation: Invocation, name: str, place: str | None, *, overwrite: bool) -> OperationResult:
    """Fetch a dataset's file.

    Args:
        invocation: The root options.
        name: Name or id.
        place: Value of `-o`: a file, or an existing folder; the current directory by default.
        overwrite: Replace what is there.

    Raises:
        ValidationError: The dataset is not ready, the folder does not exist, or the file exists already.
        OsmosisError: No scope, no login, the platform's or the object store's error.
    """
    from osmosis_ai.cli.transfer_progress import moving
    from osmosis_ai.client.scope import resolve_scope
    from osmosis_ai.client.session import open_client, segment
    from osmosis_ai.client.transfer.objects import open_object
    from osmosis_ai.client.wire import Record

    scope = resolve_scope(invocation.workspace)
    output = invocation.output
    with open_client(scope, warn=output.warn) as client:
        with output.working("Fetching dataset..."), naming("osmosis dataset list"):
            record = dataset_record(Record(client.get(f"/datasets/{segment(name)}"), "dataset"))
        _require_ready(record)
        with output.working("Preparing download..."):
            reply = Record(client.get(f"/datasets/{segment(name)}/download"), "download")
    url = _first_text(reply, "presigned_url", "presignedUrl") or reply.text("presigned_url")
    with _refusals("Download"), open_object(url) as remote:
        called = remote.file_name or _announced_name(reply, record["file_name"], url)
        target = choose_target(place, called, overwrite=overwrite)
        with moving(output, "Downloading", remote.size or record["file_size"] or 0) as on_bytes:
            written = remote.save(target, size=remote.size, on_bytes=on_bytes)
    told = record["file_size"]
    odd = f" It has {written:,} bytes, the platform's record says {told:,}." if told and told != written else ""
    return OperationResult(
        operation="dataset.download",
        resource={**record, "output_path": str(target), **scope.extras()},
        message=f"Dataset downloaded: {target}{'.' if odd else ''}{odd}",
    )


def choose_target(place: str | None, name: str, *, overwrite: bool) -> Path:
    """The file that a download goes into.

    Args:
        place: Value of `-o`.
        name: The file's own name, for a folder.
        overwrite: Whether it may exist.

    Raises:
        ValidationError: Its folder does not exist, or the file does.
    """
    if place is None:
        target = Path.cwd() / name
    else:
        given = Path(place)
        as_folder = place.endswith("/") or given.is_dir()
        folder = given if as_folder else given.parent
        if not folder.is_dir():
            raise ValidationError(f"The folder {folder} does not exist; create it first, or choose another -o.")
        target = given / name if as_folder else given
    if target.is_dir():
        raise ValidationError(f"{target} is a folder; choose another -o.")
    if target.exists() and not overwrite:
        raise ValidationError(f"File already exists: {target}. Use --overwrite to replace it.")
    return target


def _ask(output: Output, file: DatasetFile, *, overwrite: bool) -> None:
    question = "Proceed with upload?"
    if overwrite:
        question = f"This will overwrite the existing dataset with the same name. {question}"
    output.confirm(
        question,
        default=not overwrite,
        summary={"File": file.path.name, "Size": size_text(file.size_bytes)},
        warnings=[*([_OVERWRITES] if overwrite else []), *file.warnings],
    )


def _send(client: PlatformClient, file: DatasetFile, output: Output, *, overwrite: bool) -> dict[str, Any]:
    """Create the record or find the one of an upload that was killed, send what is missing, tell the platform."""
    from osmosis_ai.cli.transfer_progress import moving
    from osmosis_ai.client.session import segment
    from osmosis_ai.client.transfer.notes import upload_notes
    from osmosis_ai.client.transfer.upload import aborting, read_instructions, upload_file
    from osmosis_ai.client.wire import Record
    from osmosis_ai.evaluation.environment import cache_dir

    # What was begun to replace a dataset is only gone on with where that is wanted again.
    purpose = (client.platform_url, str(client.scope), *(["overwrite"] if overwrite else []))
    with upload_notes(file.path, cache_dir() / "uploads", *purpose) as notes:
        with output.working("Uploading dataset..."):
            begun = _begun(client, notes)
            created = begun or Record(_create(client, file, overwrite=overwrite), "dataset")
        dataset_id = notes.dataset_id if begun and notes.dataset_id else created.text("id")
        place = f"/datasets/{segment(dataset_id)}"

        def abort() -> None:
            client.post(f"{place}/abort")
            notes.forget()

        with aborting(abort, output.warn):
            instructions = read_instructions(created.record("upload"), file.size_bytes)
            if begun:
                count = f"{len(notes.parts)} of {len(instructions.pieces)} parts are there"
                output.note(f"Going on with the upload that was broken off: {count}.")
            elif instructions.multipart:
                notes.begin(dataset_id)
            with _refusals("Upload"), moving(output, "Uploading", file.size_bytes) as on_bytes:
                parts = upload_file(
                    file.path, instructions, on_bytes=on_bytes, stored_before=notes.parts, on_stored=notes.keep
                )
        body: dict[str, Any] = {"file_extension": file.extension}
        if instructions.multipart:
            body["parts"] = [{"PartNumber": part.number, "ETag": part.etag} for part in parts]
        try:
            with output.working("Finalizing upload..."):
                reply = client.post(
                    f"{place}/complete",
                    body,
                    timeout=_COMPLETE_PARTS_TIMEOUT_S if instructions.multipart else _COMPLETE_TIMEOUT_S,
                    attempts=_COMPLETE_ATTEMPTS,
                )
        except (ConflictError, NotFoundError, ValidationError):
            notes.forget()  # it would be refused again
            raise
        notes.forget()
    return dataset_record(Record(reply, "dataset"))


def _begun(client: PlatformClient, notes: UploadNotes) -> Record | None:
    """Fresh instructions for an upload that an earlier process began; None where there is none, or no more."""
    from osmosis_ai.client.session import segment
    from osmosis_ai.client.wire import Record

    if notes.dataset_id is None:
        return None
    try:
        state = Record(client.get(f"/datasets/{segment(notes.dataset_id)}/upload"), "upload")
        there = {number for number in state.items("uploaded_parts") if isinstance(number, int)}
        if state.record("upload").maybe_text("method") != "multipart":
            return None
    except (ConflictError, NotFoundError, PlatformError, ValidationError):
        return None  # it was completed, cancelled or swept, or the platform cannot go on with uploads
    notes.parts = {number: etag for number, etag in notes.parts.items() if number in there}
    return state


@contextmanager
def _refusals(what: str) -> Generator[None]:
    """Failures of the object store under the code that the published client gives them.

    Raises:
        ValidationError: The store refused, was lost or cannot be reached.
    """
    from osmosis_ai.client.transfer.objects import TransferError

    try:
        yield
    except TransferError as error:
        raise ValidationError(f"{what} failed: {error.message}") from None


def _create(client: PlatformClient, file: DatasetFile, *, overwrite: bool) -> dict[str, Any]:
    """Ask for a new dataset; where the name is taken, say so or ask again to replace it."""
    wanted = {"file_name": file.name, "file_size": file.size_bytes, "extension": file.extension}
    try:
        return client.post("/datasets", wanted)
    except ConflictError as error:
        existing = error.details.get("existing_dataset_id")
        if not isinstance(existing, str) or not existing:
            raise
        if not overwrite:
            error.message = f"A dataset named '{file.name}' already exists. Use --overwrite to replace it."
            raise
    return client.post("/datasets", {**wanted, "overwrite_dataset_id": existing})


def _require_ready(record: dict[str, Any]) -> None:
    status, name = record["status"], record["file_name"]
    if status == "uploaded":
        return
    if status in WAITING_STATUSES:
        raise ValidationError(
            f"Dataset {name} is still being processed (status: {status}). Look again: osmosis dataset info"
            f" {shlex.quote(name)}"
        )
    raise ValidationError(
        f"Dataset {name} has no file to download (status: {status or 'unknown'}). See why: osmosis dataset logs"
        f" {shlex.quote(name)}"
    )


def _announced_name(reply: Record, dataset: str, url: str) -> str:
    """The file's name as the platform says it, or the dataset's with the suffix in the URL; never a path."""
    from pathlib import PurePosixPath
    from urllib.parse import unquote, urlsplit

    announced = _first_text(reply, "file_name", "fileName", "download_file_name", "downloadFileName")
    suffix = PurePosixPath(unquote(urlsplit(url).path)).suffix
    for candidate in (announced, f"{dataset}{suffix}"):
        name = PurePosixPath((candidate or "").replace("\\", "/")).name
        if name not in ("", ".", "..") and name.isprintable():
            return name
    return f"dataset{suffix}"


def _first_text(reply: Record, *keys: str) -> str | None:
    return next((found for key in keys if (found := reply.maybe_text(key))), None)
