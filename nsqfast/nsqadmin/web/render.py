"""Templates: everything is escaped, and a misspelled name in a template is an error."""

from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from nsqfast.net.slices import Slices
from nsqfast.nsqadmin.context import Context
from nsqfast.nsqadmin.web import texts
from nsqfast.nsqadmin.web.assets import Assets
from nsqfast.version import NSQ_VERSION, __version__

FOLDER = Path(__file__).resolve().parent.parent / "templates"


def make_environment(context: Context, assets: Assets) -> Environment:
    """One for all pages."""
    environment = Environment(
        loader=FileSystemLoader(FOLDER),
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
