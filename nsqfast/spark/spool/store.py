"""A bucket for sealed segments, where any reader of Parquet finds them.

Each is stored by one call, after which all of it is there under its name, or nothing. The name tells the spool and the
number, so a second call for one whose answer was lost changes nothing.
"""

from collections.abc import Callable
from datetime import timedelta
from typing import Any, Self
from urllib.parse import parse_qsl, urlsplit

from pyarrow import fs

from nsqfast.spark.spool.identity import SpoolError
from nsqfast.spark.spool.segments import Segment
from nsqfast.wire.gotext import os_error

# Arrow's own patience with a server that stands still is over four minutes; the receiver tries again itself.
CONNECT_TIMEOUT_S = 5.0
REQUEST_TIMEOUT_S = 5.0
ATTEMPTS = 2
GCS_TIMEOUT_S = 20.0
ANONYMOUS = "gs://anonymous@"  # no credentials are looked for


class Store:
    """The folder of one receiver in a bucket of S3, of Google's, or of what speaks like one of them."""

    def __init__(self, system: fs.FileSystem, folder: str) -> None:
        self._system = system
        self._folder = folder

    @classmethod
    def open(cls, url: str, receiver: str) -> Self:
        """SpoolError: that is no bucket, or nobody knows its region. Whether it exists is seen later."""
        parts = urlsplit(url)
        settings: dict[str, Any] = dict(parse_qsl(parts.query))
        if parts.scheme not in _KINDS or not parts.hostname:
            raise SpoolError(
                f"--store is {parts.scheme}://{parts.hostname or ''}; it is a bucket and a folder, s3://BUCKET/FOLDER"
                " or gs://BUCKET/FOLDER. For a folder of this machine, also a mounted one, --spool is enough"
            )
        open_system, names, secrets = _KINDS[parts.scheme]
        is_anonymous = url.startswith(ANONYMOUS)
        if ("@" in parts.netloc and not is_anonymous) or settings.keys() - set(names):
            raise SpoolError(
                f"--store: an address has {', '.join(names)}, but no secrets, which logs and lists of processes would"
                f" show: set {secrets}, or use the machine's role"
            )
        try:
            if is_anonymous:
                settings["anonymous"] = True
            system = open_system(parts.hostname, settings)
        except (OSError, ValueError) as error:
            reason = os_error(error) if isinstance(error, OSError) else str(error)
            raise SpoolError(f"--store: {reason}") from None
        return cls(system, f"{parts.hostname}{parts.path.rstrip('/')}/{receiver}")

    def put(self, segment: Segment) -> None:
        """It is there when this returns. OSError: it may be; call it again."""
        # Before the object is opened: its stream, closed by an error, replaces what another thread stored by nothing.
        try:
            data = segment.path.read_bytes()
        except FileNotFoundError:  # it moved since it was listed
            data = segment.done_path.read_bytes()
        with self._system.open_output_stream(f"{self._folder}/{segment.name}") as file:
            file.write(data)


def _open_s3(bucket: str, settings: dict[str, Any]) -> fs.FileSystem:
    if not settings.keys() & {"region", "endpoint_override"}:
        settings["region"] = fs.resolve_s3_region(bucket)
    return fs.S3FileSystem(
        **settings,
        connect_timeout=CONNECT_TIMEOUT_S,
        request_timeout=REQUEST_TIMEOUT_S,
        retry_strategy=fs.AwsStandardS3RetryStrategy(ATTEMPTS),
        # One request for a segment of up to 5 MiB instead of three.
        allow_delayed_open=True,
    )


def _open_gcs(_bucket: str, settings: dict[str, Any]) -> fs.FileSystem:
    return fs.GcsFileSystem(**settings, retry_time_limit=timedelta(seconds=GCS_TIMEOUT_S))


# By scheme: how it is opened, the settings that its address may have (as Arrow's own), where its secrets come from.
_KINDS: dict[str, tuple[Callable[[str, dict[str, Any]], fs.FileSystem], tuple[str, ...], str]] = {
    "s3": (
        _open_s3,
        ("region", "endpoint_override", "scheme"),
        "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
    ),
    "gs": (_open_gcs, ("endpoint_override", "scheme"), "GOOGLE_APPLICATION_CREDENTIALS"),
}
