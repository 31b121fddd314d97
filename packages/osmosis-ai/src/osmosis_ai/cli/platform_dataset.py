"""A dataset of the platform as a local file: the copy kept from an earlier run, or a download.

Owns: the cache, one folder for each dataset, and when a kept copy still counts: same version, same bytes.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from osmosis_ai.errors import OsmosisError, PlatformError, ValidationError
from osmosis_ai.evaluation.atomic import json_bytes, write_atomic
from osmosis_ai.evaluation.dataset import Dataset, formats, open_dataset
from osmosis_ai.evaluation.environment import cache_dir

if TYPE_CHECKING:
    from osmosis_ai.cli.output import Output
    from osmosis_ai.client.session import PlatformClient
    from osmosis_ai.client.wire import Record

_METADATA = "metadata.json"
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class FetchedDataset:
    """A dataset and where it came from: `cache` or `download`."""

    dataset: Dataset
    source: str


def fetch_dataset(output: Output, client: PlatformClient, name: str) -> FetchedDataset:
    """The platform's dataset of a name; the platform is always asked which version it has.

    Raises:
        ValidationError: It is not ready to be used.
        NotFoundError: There is none of this name.
        OsmosisError: The platform's error, or the copy cannot be kept.
    """
    from osmosis_ai.client.session import segment
    from osmosis_ai.client.wire import Record

    path = f"/datasets/{segment(name)}"
    with output.working("Looking up the dataset..."):
        record = Record(client.get(path), "dataset")
    status = record.maybe_text("status")
    if status != "uploaded":
        raise ValidationError(
            f"Dataset {name} is {status or 'in no known state'}, and only uploaded ones can be used;"
            f" see `osmosis dataset info {name}`."
        )
    folder = cache_dir() / "datasets" / _safe(record.text("id"))
    if (kept := _kept(folder, record)) is not None:
        return FetchedDataset(kept, "cache")
    return FetchedDataset(_download(output, client, path, record, folder), "download")


def _safe(dataset_id: str) -> str:
    word = re.sub(r"[^A-Za-z0-9._-]", "_", dataset_id)[:200]
    return word if word.strip(".") else f"_{word}"


def _kept(folder: Path, record: Record) -> Dataset | None:
    """The kept copy, when it is the platform's version and undamaged."""
    try:
        metadata = json.loads((folder / _METADATA).read_bytes())
        path = folder / f"{metadata['sha256']}.{metadata['extension']}"
        if metadata["version"] != record.text("updated_at") or path.stat().st_size != metadata["file_size"]:
            return None
        if not _SHA256.fullmatch(metadata["sha256"]) or metadata["extension"] not in formats:
            return None
        dataset = open_dataset(path, name=record.maybe_text("file_name") or record.text("id"))
    except (OSError, ValueError, KeyError, TypeError, OsmosisError):
        return None
    return dataset if dataset.sha256 == metadata["sha256"] else None


def _download(output: Output, client: PlatformClient, path: str, record: Record, folder: Path) -> Dataset:
    from tempfile import TemporaryDirectory

    from osmosis_ai.cli.transfer_progress import moving
    from osmosis_ai.client.transfer.objects import open_object
    from osmosis_ai.client.transfer.partial import BusyError
    from osmosis_ai.client.wire import Record

    answer = Record(client.get(f"{path}/download"), "download")
    url = answer.maybe_text("presigned_url") or answer.maybe_text("presignedUrl") or answer.text("presigned_url")
    size = record.maybe_int("file_size") or None
    name = record.maybe_text("file_name") or record.text("id")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with moving(output, "Downloading", size or 0) as on_bytes, open_object(url) as remote:
            extension = _extension(record, answer, remote.file_name)
            arriving = folder / f"arriving-{os.getpid()}.{extension}"
            kept = folder / f"arriving.{extension}.partial"
            try:
                written = remote.save(arriving, size=size, on_bytes=on_bytes, partial=kept)
            except BusyError:  # another run fetches it too, and neither waits for the other
                with TemporaryDirectory(dir=folder) as own:  # nobody would go on from its beginning
                    written = remote.save(arriving, size=size, on_bytes=on_bytes, partial=Path(own) / "partial")
        sha256 = open_dataset(arriving).sha256
        final = folder / f"{sha256}.{extension}"
        arriving.replace(final)
    except OSError as error:
        raise OsmosisError(
            f"Dataset {name} cannot be kept in {folder}: {error.strerror or error}. Free some space, or set"
            " XDG_CACHE_HOME to another folder.",
            code="STORAGE",
        ) from None
    write_atomic(folder / _METADATA, json_bytes(_metadata(record, name, sha256, extension, written)))
    return open_dataset(final, name=name)


def _metadata(record: Record, name: str, sha256: str, extension: str, size: int) -> Mapping[str, Any]:
    return {
        "dataset_id": record.text("id"),
        "dataset_name": name,
        "version": record.text("updated_at"),
        "sha256": sha256,
        "extension": extension,
        "file_size": size,
        "cached_at": datetime.now(UTC).isoformat(),
    }


def _extension(record: Record, answer: Record, header_name: str | None) -> str:
    """The format of the bytes: the record's, else what the file is called."""
    keys = ("file_name", "fileName", "download_file_name", "downloadFileName")
    names = [header_name, *(answer.maybe_text(key) for key in keys)]
    found = [record.maybe_text("file_format"), *(Path(name).suffix.removeprefix(".") for name in names if name)]
    for extension in found:
        if extension and extension.lower() in formats:
            return extension.lower()
    raise PlatformError(
        f"The platform does not say which format dataset {record.where} has; it must be one of {formats}."
    )
