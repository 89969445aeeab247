"""Scripts and styles, below a folder named after their content, so that browsers may cache them for ever.

All of them share the folder, because modules import one another by relative addresses. Ours are served without comments
and needless spaces, third-party ones unchanged.
"""

import hashlib
import mimetypes
from collections.abc import Callable
from pathlib import Path

import rcssmin
import rjsmin
from aiohttp import web

from nsqfast.errors import OptionsError
from nsqfast.nsqadmin.urls import Urls

FOLDER = Path(__file__).resolve().parent.parent / "static"
TYPES = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml", ".png": "image/png"}
SHORTEN: dict[str, Callable[[str], str]] = {".js": rjsmin.jsmin, ".css": rcssmin.cssmin}
FOR_EVER = "public, max-age=31536000, immutable"


class Assets:
    """Read once at the start; with --dev-static-dir at each request."""

    def __init__(self, urls: Urls, dev_folder: str) -> None:
        self._urls = urls
        self._dev_folder = Path(dev_folder).resolve() if dev_folder else None
        if self._dev_folder is not None and not self._dev_folder.is_dir():
            raise OptionsError(f"--dev-static-dir {dev_folder} is not a folder")
        self._files = (
            read_files(self._dev_folder) if self._dev_folder else shorten(read_files(FOLDER))
        )
        self.version = hash_files(self._files)

    def url(self, name: str) -> str:
        """The address of `js/main.js`, for example; KeyError if it does not exist."""
        if self._dev_folder is None:
            self._files[name]
        return self._urls.to(f"/static/{self.version}/{name}")

    def add_routes(self, app: web.Application) -> None:
        """/static/VERSION/NAME"""
        app.router.add_get("/static/{version}/{name:.+}", self.serve)

    async def serve(self, request: web.Request) -> web.Response:
        """A page from before an upgrade asks for another version: it gets the current one, uncached."""
        name = request.match_info["name"]
        body = self._read(name)
        if body is None:
            raise web.HTTPNotFound
        is_same = request.match_info["version"] == self.version and self._dev_folder is None
        kind = TYPES.get(Path(name).suffix) or mimetypes.guess_type(name)[0]
        return web.Response(
            body=body,
            content_type=kind or "application/octet-stream",
            charset="utf-8" if kind and kind.startswith("text/") else None,
            headers={"Cache-Control": FOR_EVER if is_same else "no-cache"},
        )

    def _read(self, name: str) -> bytes | None:
        if self._dev_folder is None:
            return self._files.get(name)
        return read_files(self._dev_folder).get(name)


def read_files(folder: Path) -> dict[str, bytes]:
    """All files below `folder`, by their names in it."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def shorten(files: dict[str, bytes]) -> dict[str, bytes]:
    """The same, reduced to what a browser needs."""
    found = {}
    for name, body in files.items():
        how = None if name.startswith("vendor/") else SHORTEN.get(Path(name).suffix)
        found[name] = how(body.decode()).encode() if how else body
    return found


def hash_files(files: dict[str, bytes]) -> str:
    """Changes whenever a name or a byte differs."""
    digest = hashlib.sha256()
    for name, body in files.items():
        digest.update(f"{name}\0{len(body)}\0".encode() + body)
    return digest.hexdigest()[:12]
