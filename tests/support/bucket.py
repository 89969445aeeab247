"""Buckets on this machine, kept in memory by a server that speaks the protocol of S3 (moto) or of Google's storage."""

from __future__ import annotations

import re
import sys
from datetime import timedelta
from typing import TYPE_CHECKING, Self

import pyarrow.parquet as pq
from pyarrow import fs

from support.tools import Tool

if TYPE_CHECKING:
    import pyarrow as pa

KEYS = {"AWS_ACCESS_KEY_ID": "somebody", "AWS_SECRET_ACCESS_KEY": "secret"}


class Bucket:
    """Of S3. Runs within a `with`; `make` makes the bucket, which there is not at first."""

    command = ("-m", "moto.server", "-H", "127.0.0.1", "-p", "0")
    running = r"Running on http://(\S+)"
    before, after = "s3://", "&region=us-east-1"  # of the address

    def __enter__(self) -> Self:
        self.server = Tool([sys.executable, *self.command])
        self.server.wait_for(lambda tool: re.search(self.running, tool.text))
        found = re.search(self.running, self.server.text)
        assert found is not None
        self.address = found[1]
        self._system = self.connect()
        return self

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

    command = ("-c", SERVE)
    before, after = "gs://anonymous@", ""

    def connect(self) -> fs.FileSystem:
        return fs.GcsFileSystem(
            anonymous=True,
            scheme="http",
            endpoint_override=self.address,
            project_id="tests",
            retry_time_limit=timedelta(seconds=10),
        )
