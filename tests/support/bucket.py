"""A bucket of S3's own protocol on this machine, kept in memory by moto's server."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, Self

import pyarrow.parquet as pq
from pyarrow import fs

from support.tools import Tool

if TYPE_CHECKING:
    import pyarrow as pa

KEYS = {"AWS_ACCESS_KEY_ID": "somebody", "AWS_SECRET_ACCESS_KEY": "secret"}


class Bucket:
    """Runs within a `with`; `make` makes the bucket, which there is not at first."""

    def __enter__(self) -> Self:
        command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", "0"]
        self.server = Tool(command)
        self.server.wait_for(lambda tool: b"Running on" in tool.err + tool.out)
        found = re.search(r"Running on http://(\S+)", self.server.text)
        assert found is not None
        self.address = found[1]
        self._system = fs.S3FileSystem(
            access_key=KEYS["AWS_ACCESS_KEY_ID"],
            secret_key=KEYS["AWS_SECRET_ACCESS_KEY"],
            scheme="http",
            endpoint_override=self.address,
            region="us-east-1",
            allow_bucket_creation=True,
        )
        return self

    def __exit__(self, *_: object) -> None:
        self.server.kill()

    @property
    def url(self) -> str:
        """For --store."""
        return f"s3://lake/orders?scheme=http&endpoint_override={self.address}&region=us-east-1"

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
