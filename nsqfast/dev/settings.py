"""What the options of a program are, for those who describe them: the same text on every host."""

import dataclasses
import importlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from nsqfast.program.options import Common, Option, declared, defaults
from nsqfast.tools.completion.programs import DAEMONS, JOBS, MODULES, WITHOUT_VERSION

# Defaults that come from the host: in words, and one that a file may show.
OF_HOST: dict[str, tuple[str, object]] = {
    "broadcast_address": ("the name of the host", "broker-1.example.com"),
    "node_id": ("a number made from the name of the host", 1),
}


@dataclass(frozen=True, slots=True)
class Settings:
    """The options of a program, or of one of its jobs."""

    about: str
    options: list[Option]
    defaults: dict[str, Any]
    job: str = ""

    @property
    def has_config(self) -> bool:
        """Whether there is --config."""
        return any(item.flag == "config" for item in self.options)


def list_settings(program: str) -> list[Settings]:
    """One for most programs, none for a program without flags, one for each job of nsqfast-spark."""
    if program in JOBS:
        return _list_settings_of_jobs(importlib.import_module(JOBS[program]).JOBS)
    if program not in MODULES:
        return []
    module = importlib.import_module(MODULES[program])
    common = declared(Common)
    if program not in DAEMONS:
        shared = [] if program in WITHOUT_VERSION else ["version"]
        common = [item for item in common if item.flag in shared]
    options = [*common, *declared(module.Options)]
    plain = {**defaults(Common), **defaults(module.Options)}
    return [Settings(getattr(module, "ABOUT", ""), _show_in_words(options), plain)]


def _list_settings_of_jobs(jobs: dict[str, str]) -> list[Settings]:
    abouts = importlib.import_module("nsqfast.spark_jobs.options").ABOUTS
    common = [item for item in declared(Common) if item.flag == "version"]
    found = []
    for job, name in jobs.items():
        cls = importlib.import_module(name).Options
        plain = {**defaults(Common), **defaults(cls)}
        found.append(Settings(abouts[job], [*common, *declared(cls)], plain, job))
    return found


def _show_in_words(options: Iterable[Option]) -> list[Option]:
    """The same options; of a default that comes from the host a description shows words instead."""

    def replace(item: Option) -> Option:
        words = OF_HOST[item.attribute][0]
        return dataclasses.replace(item, kind=dataclasses.replace(item.kind, show=lambda _: words))

    return [replace(item) if item.attribute in OF_HOST else item for item in options]
