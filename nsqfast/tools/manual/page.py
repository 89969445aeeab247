"""The man page of one program."""

from collections.abc import Iterator
from itertools import pairwise

from nsqfast.program.options import Option, by_group
from nsqfast.program.usage import KEYS, SYNTAX, describe
from nsqfast.tools.manual import roff
from nsqfast.tools.manual.facts import FACTS, Facts
from nsqfast.tools.manual.settings import Settings, settings_of

DATE = "2026-11-24"  # of the last change to what is not made from the options
SAMPLES = "share/nsqfast/config"  # where the wheel puts them, see pyproject.toml


def page(program: str) -> str:
    """The whole text, in roff."""
    facts = FACTS[program]
    settings = settings_of(program)
    lines = [
        *roff.title(program, DATE),
        *roff.section("NAME"),
        f"{roff.escape(program)} \\- {facts.name}",
        *roff.section("SYNOPSIS"),
        f"{roff.bold(program)} {roff.escape(facts.words)}",
        *_description(facts, settings),
        *_options(settings),
        *_config(program, settings),
        *_lists(facts),
        *_examples(facts),
        *_see_also(facts),
    ]
    # A section begins with a paragraph anyway.
    shown = [
        line
        for before, line in pairwise(["", *lines])
        if not (line == ".PP" and before[:3] == ".SH")
    ]
    return "\n".join(shown) + "\n"


def _description(facts: Facts, settings: list[Settings]) -> Iterator[str]:
    yield from roff.section("DESCRIPTION")
    abouts = [each.about for each in settings if each.about and not each.job]
    for text in (*abouts, *facts.text.split("\n\n")):
        yield from roff.paragraph(text)


def _options(settings: list[Settings]) -> Iterator[str]:
    for each in settings:
        yield from roff.section(f"options of {each.job}" if each.job else "options")
        yield from roff.paragraph(each.about if each.job else SYNTAX)
        for title, items in by_group(each.options).items():
            yield from roff.subsection(title)
            for item in items:
                text = describe(item, each.defaults, each.has_config)
                yield from roff.entry(_tag(item), text)


def _tag(item: Option) -> str:
    tag = roff.bold(f"--{item.flag}")
    return f"{tag}={roff.italic(item.kind.hint)}" if item.kind.hint else tag


def _config(program: str, settings: list[Settings]) -> Iterator[str]:
    if any(each.has_config for each in settings):
        yield from roff.section("CONFIGURATION FILE")
        yield from roff.paragraph(
            f"The file of --config is TOML. {KEYS} A repeatable flag is a list there, and a duration a text. A sample "
            f"with every setting is {SAMPLES}/{program.removeprefix('nsqfast-')}.toml below the prefix of the install."
        )


def _lists(facts: Facts) -> Iterator[str]:
    statuses = {str(status): text for status, text in facts.statuses.items()}
    for title, entries in (
        ("SIGNALS", facts.signals),
        ("EXIT STATUS", statuses),
        ("FILES", facts.files),
    ):
        if entries:
            yield from roff.section(title)
        for tag, text in entries.items():
            yield from roff.entry(roff.bold(tag), text)


def _examples(facts: Facts) -> Iterator[str]:
    yield from roff.section("EXAMPLES")
    for title, command in facts.examples.items():
        yield from roff.paragraph(f"{title}:")
        yield from roff.example(command)


def _see_also(facts: Facts) -> Iterator[str]:
    yield from roff.section("SEE ALSO")
    *others, last = facts.see_also
    for name in others:
        yield f".BR {roff.escape(name)} (1),"
    yield f".BR {roff.escape(last)} (1)"
