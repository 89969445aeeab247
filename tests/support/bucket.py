"""Buckets on this machine: of moto and an emulator of Google's storage, in memory, and of MinIO, on the disk."""

from __future__ import annotations

import os
import re
import sys
from datetime import timedelta
from typing import TYPE_CHECKING, ClassVar, Self

import pyarrow.parquet as pq
from pyarrow import fs

from support.ports import hold_port
from support.server import ROOT
from support.tools import Tool

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa

NO_MINIO = "no MinIO: run `make go-minio`, or set NSQFAST_MINIO to the program"
KEYS = {"AWS_ACCESS_KEY_ID": "somebody", "AWS_SECRET_ACCESS_KEY": "secret-key"}


class Bucket:
    """Of S3. Runs within a `with`; `make` makes the bucket, which there is not at first."""

    command: tuple[str, ...] = (sys.executable, *"-m moto.server -H 127.0.0.1 -p 0".split())
    running = r"Running on http://(\S+)"
    environment: ClassVar[dict[str, str]] = {}
    before, after = "s3://", "&region=us-east-1"  # of the address

    def __enter__(self) -> Self:
        self.start()
        self._system = self.connect()
        return self

    def start(self) -> None:
        """Start its server, which is there when this returns."""
        self.server = Tool([*self.command], **self.environment)
        self.server.wait_for(lambda tool: re.search(self.running, tool.text))
        found = re.search(self.running, self.server.text)
        assert found is not None
        self.address = found[1]

    def __exit__(self, *_: object) -> None:
        self.server.kill()

    def connect(self) -> fs.FileSystem:
        return fs.S3FileSystem(
            access_key=KEYS["AWS_ACCESS_KEY_ID"],
            secret_key=KEYS["AWS_SECRET_ACCESS_KEY"],
            scheme="http",
            endpoint_override=self.address,
            region="us-east-1",
            allow_bucket_creation=True,
        )

    @property
    def url(self) -> str:
        """For --store."""
        return f"{self.before}lake/orders?scheme=http&endpoint_override={self.address}{self.after}"

    def make(self) -> None:
        """Make it."""
        self._system.create_dir("lake")

    def files(self) -> dict[str, int]:
        """Sizes by name."""
        selector = fs.FileSelector("lake/orders", recursive=True, allow_not_found=True)
        found = self._system.get_file_info(selector)
        return {one.path: one.size for one in found if one.is_file}

    def read(self) -> pa.Table:
        """All rows, as any reader of Parquet sees them."""
        return pq.read_table("lake/orders", filesystem=self._system)


def find_minio() -> str | None:
    """The program, or None."""
    path = ROOT / ".go-nsq" / "minio"
    return os.environ.get("NSQFAST_MINIO") or (str(path) if path.exists() else None)


class MinioBucket(Bucket):
    """Of S3, on the disk: a server that was killed has it again when it is started again."""

    running = r"API: http://(\S+)"
    environment: ClassVar[dict[str, str]] = {
        "MINIO_ROOT_USER": KEYS["AWS_ACCESS_KEY_ID"],
        "MINIO_ROOT_PASSWORD": KEYS["AWS_SECRET_ACCESS_KEY"],
    }

    def __init__(self, folder: Path) -> None:
        program = find_minio()
        if program is None:
            raise FileNotFoundError(NO_MINIO)
        address = f"--address=127.0.0.1:{hold_port()}"
        self.command = (program, "server", address, "--console-address=127.0.0.1:0", str(folder))


SERVE = """
from functools import partial
from http.server import HTTPServer
from gcp_storage_emulator.server import RequestHandler
from gcp_storage_emulator.storage import Storage
server = HTTPServer(("127.0.0.1", 0), partial(RequestHandler, Storage(use_memory_fs=True)))
print(f"Running on http://127.0.0.1:{server.server_port}", flush=True)
server.serve_forever()
"""


class GoogleBucket(Bucket):
    """Of Google's storage."""

    command = (sys.executable, "-c", SERVE)
    before, after = "gs://anonymous@", ""

    def connect(self) -> fs.FileSystem:
        return fs.GcsFileSystem(
            anonymous=True,
            scheme="http",
            endpoint_override=self.address,
            project_id="tests",
            retry_time_limit=timedelta(seconds=10),
        )
