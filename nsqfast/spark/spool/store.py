"""A bucket for sealed segments, where any reader of Parquet finds them.

Each is stored by one call, after which all of it is there under its name, or nothing. The name tells the spool and the
number, so a second call for one whose answer was lost changes nothing.
"""

from typing import Self
from urllib.parse import parse_qsl, urlsplit

from pyarrow import fs

from nsqfast.gotext import os_error
from nsqfast.spark.spool.identity import SpoolError
from nsqfast.spark.spool.segments import Segment

SETTINGS = ("region", "endpoint_override", "scheme")  # as Arrow's own addresses have them
# Arrow's own patience with a server that stands still is over four minutes; the receiver tries again itself.
CONNECT_TIMEOUT_S = 5.0
REQUEST_TIMEOUT_S = 5.0
ATTEMPTS = 2


class Store:
    """The folder of one receiver in a bucket of S3 or of what speaks like it."""

    def __init__(self, system: fs.FileSystem, folder: str) -> None:
        self._system = system
        self._folder = folder

    @classmethod
    def open(cls, url: str, receiver: str) -> Self:
        """SpoolError: that is no bucket, or nobody knows its region. Whether it exists is seen later."""
        parts = urlsplit(url)
        settings = dict(parse_qsl(parts.query))
        if parts.scheme != "s3" or not parts.hostname:
            raise SpoolError(
                f"--store is {parts.scheme}://{parts.hostname or ''}; it is a bucket and a folder, s3://BUCKET/FOLDER."
                " For a folder of this machine, also a mounted one, --spool is enough"
            )
        if "@" in parts.netloc or settings.keys() - set(SETTINGS):
            raise SpoolError(
                f"--store: an address has {', '.join(SETTINGS)}, but no secrets, which logs and lists of processes"
                " would show: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or use the machine's role"
            )
        try:
            if not settings.keys() & {"region", "endpoint_override"}:
                settings["region"] = fs.resolve_s3_region(parts.hostname)
            system = fs.S3FileSystem(
                **settings,
                connect_timeout=CONNECT_TIMEOUT_S,
                request_timeout=REQUEST_TIMEOUT_S,
                retry_strategy=fs.AwsStandardS3RetryStrategy(ATTEMPTS),
                # One request for a segment of up to 5 MiB instead of three.
                allow_delayed_open=True,
            )
        except (OSError, ValueError) as error:
            reason = os_error(error) if isinstance(error, OSError) else str(error)
            raise SpoolError(f"--store: {reason}") from None
        return cls(system, f"{parts.hostname}{parts.path.rstrip('/')}/{receiver}")

    def put(self, segment: Segment) -> None:
        """It is there when this returns. OSError: it may be; call it again."""
        path = segment.find() or segment.path
        with self._system.open_output_stream(f"{self._folder}/{segment.name}") as file:
            file.write(path.read_bytes())
