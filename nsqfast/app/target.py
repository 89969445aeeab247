"""MODULE:APP: which App a command line means."""

import importlib
import sys
from pathlib import Path

from nsqfast.app.application import App
from nsqfast.errors import OptionsError


def load_app(target: str) -> App:
    """Import the module, also from the current folder. OptionsError: there is no such module, or no such app in it.

    What the module itself raises is its author's exception.
    """
    name, _, variable = target.partition(":")
    if name.endswith(".py") or "/" in name:
        name = name.removesuffix(".py").strip("./").replace("/", ".")
        raise OptionsError(f"{target} is no MODULE:APP: write {name}:{variable or 'app'}")
    if not name or not variable:
        raise OptionsError(f"{target} is no MODULE:APP, such as {name or 'worker'}:app")
    folder = str(Path.cwd())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise  # another one, which the module needs
        raise OptionsError(
            f"{target}: there is no module {error.name}, neither in {folder} nor installed"
        ) from None
    found = getattr(module, variable, None)
    if isinstance(found, App):
        return found
    apps = [name for name, each in vars(module).items() if isinstance(each, App)]
    known = f"it has {', '.join(apps)}" if apps else "there is none in it"
    what = "no such name" if found is None else f"a {type(found).__name__}"
    raise OptionsError(f"{target} is {what}, and an nsqfast.App is needed: {known}")
