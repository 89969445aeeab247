"""Runs the commands and programs of a page, and says at which line it is wrong; `harness` says what a page may hold.

run.py PAGE...
run.py --all PAGE...             also what is marked as not run: on a machine of its own, since it installs
run.py --machine NAME PAGE...    in namespaces of its own (unshare): on a machine of that name that ends with it
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from documents.harness.blocks import PageError
from documents.harness.machine import enter_machine
from documents.harness.page import Page


def main() -> int:
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--machine", default="")
    parser.add_argument("pages", nargs="*", type=Path)
    arguments = parser.parse_args()
    if arguments.machine:
        enter_machine(arguments.machine)
    for path in arguments.pages:
        with Page(path, runs_all=arguments.all) as page:
            try:
                page.run()
            except PageError as error:
                print(error, file=sys.stderr)
                return 1
        lacking = f", {', '.join(page.missing)} missing" if page.missing else ""
        print(f"{path}: {page.done} blocks run, {page.compared} outputs compared{lacking}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
