"""Templates, and the scripts and styles that they name.

In templates everything is escaped, and a misspelled name is an error. Scripts and styles stand below a folder named
after their content, so that browsers may cache them for ever; all of them share it, because modules import one another
by relative addresses. Ours are served without comments and needless spaces, third-party ones unchanged.
"""

import hashlib
import mimetypes
from collections.abc import Callable
from pathlib import Path
from typing import Any

import rcssmin
import rjsmin
from aiohttp import web
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from nsqfast.errors import OptionsError
from nsqfast.net.slices import Slices
from nsqfast.nsqadmin.context import Context, Urls
from nsqfast.nsqadmin.web import texts
from nsqfast.version import NSQ_VERSION, __version__

TEMPLATES = Path(__file__).resolve().parent.parent / "templates"
STATIC = Path(__file__).resolve().parent.parent / "static"
TYPES = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml", ".png": "image/png"}
MINIFY: dict[str, Callable[[str], str]] = {".js": rjsmin.jsmin, ".css": rcssmin.cssmin}
FOR_EVER = "public, max-age=31536000, immutable"


class Assets:
    """Read once at the start; with --dev-static-dir at each request."""

    def __init__(self, urls: Urls, dev_folder: str) -> None:
        self._urls = urls
        self._dev_folder = Path(dev_folder).resolve() if dev_folder else None
        if self._dev_folder is not None and not self._dev_folder.is_dir():
            raise OptionsError(f"--dev-static-dir {dev_folder} is not a folder")
        self._files = (
            read_files(self._dev_folder) if self._dev_folder else minify(read_files(STATIC))
        )
        self.version = hash_files(self._files)

    def url(self, name: str) -> str:
        """The address of `js/main.js`, for example; KeyError if it does not exist."""
        if self._dev_folder is None:
            self._files[name]
        return self._urls.to(f"/static/{self.version}/{name}")

    async def serve(self, request: web.Request) -> web.Response:
        """Serve /static/VERSION/NAME.

        A page from before an upgrade asks for another version: it gets the current one, uncached.
        """
        name = request.match_info["name"]
        files = self._files if self._dev_folder is None else read_files(self._dev_folder)
        body = files.get(name)
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


def read_files(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def minify(files: dict[str, bytes]) -> dict[str, bytes]:
    """The same, reduced to what a browser needs."""
    found = {}
    for name, body in files.items():
        how = None if name.startswith("vendor/") else MINIFY.get(Path(name).suffix)
        found[name] = how(body.decode()).encode() if how else body
    return found


def hash_files(files: dict[str, bytes]) -> str:
    """Changes whenever a name or a byte differs."""
    digest = hashlib.sha256()
    for name, body in files.items():
        digest.update(f"{name}\0{len(body)}\0".encode() + body)
    return digest.hexdigest()[:12]


def make_environment(context: Context, assets: Assets) -> Environment:
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=bool(context.options.dev_static_dir),
    )
    environment.filters["verbatim"] = verbatim
    environment.globals.update(
        urls=context.urls,
        asset=assets.url,
        options=context.options,
        texts=texts,
        version=__version__,
        nsq_version=NSQ_VERSION,
    )
    return environment


def verbatim(text: str) -> Markup:
    """For <pre>, so that a script reads it back unchanged: HTML drops a first line feed, and carriage returns."""
    return Markup("\n") + escape(text).replace("\r", Markup("&#13;"))


async def render(environment: Environment, template: str, values: dict[str, Any]) -> str:
    """The text; others get their turn every few milliseconds."""
    pieces: list[str] = []
    slices = Slices()
    for piece in environment.get_template(template).generate(values):
        pieces.append(piece)
        await slices.pause()
    return "".join(pieces)
