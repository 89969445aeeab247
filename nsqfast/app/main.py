"""The program nsqfast-run.

0   told to stop, and everything is finished or handed back
1   the operator has to change something, a worker could not start, or workers ended again and again
2   the command line cannot be read
"""

import importlib
import logging
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from nsqfast.app.options import Options, parse
from nsqfast.errors import NsqfastError, OptionsError
from nsqfast.program.options import FlagError

if TYPE_CHECKING:
    from nsqfast.app.application import App


def load_app(target: str) -> "App":
    """Import the module, also from the current folder. OptionsError: there is no such module, or no such app in it.

    What the module itself raises is its author's exception.
    """
    from nsqfast.app.application import App

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


LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s[%(process)d]: %(message)s"


def main(argv: list[str] | None = None) -> int:
    """Return the exit status."""
    try:
        options = parse(sys.argv[1:] if argv is None else argv)
        # An app that sets up logging itself has the last word.
        logging.basicConfig(level=10 * options.log_level, format=LOG_FORMAT)
        return _supervise(options) if options.is_supervised else _work(options)
    except FlagError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    except NsqfastError as error:
        sys.stderr.write(f"nsqfast-run: {error}\n")
        return 1
    except KeyboardInterrupt:  # while the module was imported
        return 128 + signal.SIGINT


def _work(options: Options) -> int:
    # Late, so that --help and wrong flags are answered at once.
    import asyncio

    from nsqfast.app.worker import READY_VARIABLE, follow_parent
    from nsqfast.client.sync.loop_thread import new_event_loop

    follow_parent()
    app = load_app(options.target)
    ready = os.environ.pop(READY_VARIABLE, "")
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(app.serve(options.http_address, on_ready=Path(ready).touch if ready else None))
    return 0


def _supervise(options: Options) -> int:
    import asyncio

    from nsqfast.app.supervisor import Supervisor

    return asyncio.run(Supervisor(options).run())


if __name__ == "__main__":
    sys.exit(main())
