"""Completion for zsh: a file `_nsqfast` in a folder of $fpath."""

from collections.abc import Iterable
from shlex import quote

from nsqfast.tools.completion.programs import Flag, Program

_HEAD = """\
#compdef {names}
# Completion for nsqfast's commands in zsh; made by `nsqfast-completion zsh`.
#   nsqfast-completion zsh > "${{fpath[1]}}/_nsqfast"

local -a specs
case ${{words[1]:t}} in
"""
_TAIL = """\
esac
_arguments $specs
"""
_ESCAPES = str.maketrans({sign: f"\\{sign}" for sign in "[]:\\"})


def script(programs: Iterable[Program]) -> str:
    """The script for zsh."""
    found = list(programs)
    lines = [_HEAD.format(names=" ".join(one.name for one in found)).rstrip("\n")]
    for program in found:
        lines.append(f"    {program.name})")
        lines.append("        specs=(")
        lines += [f"            {quote(_spec(flag))}" for flag in program.flags]
        if program.reads_files:
            lines.append(f"            {quote('*:file:_files')}")
        elif program.words:
            lines.append(f"            {quote(f'1:mode:({_words(program.words)})')}")
        lines += ["        )", "        ;;"]
    return "\n".join(lines) + "\n" + _TAIL


def _spec(flag: Flag) -> str:
    again = "*" if flag.is_list else ""
    text = f"[{flag.help.translate(_ESCAPES)}]"
    if flag.is_bool:
        return f"{again}--{flag.name}{text}"
    action = ""
    if flag.values:
        action = f"({_words(flag.values)})"
    elif flag.takes_file:
        action = "_files"
    elif flag.takes_folder:
        action = "_files -/"
    return f"{again}--{flag.name}={text}:{flag.name}:{action}"


def _words(words: tuple[str, ...]) -> str:
    return " ".join(word.translate(_ESCAPES) for word in words)
