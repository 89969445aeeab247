"""The program nsqfast-completion: prints what a shell reads to complete the flags of all commands.

source <(nsqfast-completion bash)
nsqfast-completion zsh > "${fpath[1]}/_nsqfast"
"""

import sys
from collections.abc import Iterable
from shlex import quote

from nsqfast.errors import PackageMissingError
from nsqfast.program import extras
from nsqfast.program.stdout import print_text
from nsqfast.tools.completion.programs import Flag, Program, programs

# For bash 4 and newer, without the package bash-completion.
_BASH_HEAD = """\
# Completion for nsqfast's commands in bash; made by `nsqfast-completion bash`.
#   source <(nsqfast-completion bash)
"""

_BASH_TAIL = """\
_nsqfast_complete() {
    local program=${1##*/} current=$2 previous=$3 flag= values
    # Bash takes the equals sign for a word of its own.
    if [[ $current == "=" ]]; then
        flag=$previous current=
    elif [[ $previous == "=" ]]; then
        flag=${COMP_WORDS[COMP_CWORD - 2]}
    elif [[ $previous == -* ]]; then
        local bare=${previous#-}
        [[ " $(_nsqfast_flags "$program") " == *" --${bare#-}= "* ]] && flag=$previous
    fi
    if [[ -n $flag ]]; then
        flag=${flag#-}
        values=$(_nsqfast_values "$program ${flag#-}")
        case $values in
            @file) mapfile -t COMPREPLY < <(compgen -f -- "$current") ;;
            @folder) mapfile -t COMPREPLY < <(compgen -d -- "$current") ;;
            *) mapfile -t COMPREPLY < <(compgen -W "$values" -- "$current") ;;
        esac
        return
    fi
    if [[ $current == -* ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$(_nsqfast_flags "$program")" -- "$current")
        [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *= ]] && compopt -o nospace
        return
    fi
    values=$(_nsqfast_words "$program")
    if [[ $values == @file ]]; then
        mapfile -t COMPREPLY < <(compgen -f -- "$current")
    else
        mapfile -t COMPREPLY < <(compgen -W "$values" -- "$current")
    fi
}
"""


def complete_bash(programs: Iterable[Program]) -> str:
    """The script for bash."""
    found = list(programs)
    parts = [
        _BASH_HEAD,
        _function(
            "_nsqfast_flags", {one.name: " ".join(map(_spelling, one.flags)) for one in found}
        ),
        _function("_nsqfast_values", _values(found)),
        _function(
            "_nsqfast_words",
            {one.name: "@file" if one.reads_files else " ".join(one.words) for one in found},
        ),
        _BASH_TAIL,
        f"complete -F _nsqfast_complete {' '.join(one.name for one in found)}\n",
    ]
    return "\n".join(parts)


def _function(name: str, answers: dict[str, str]) -> str:
    lines = [
        f"        {quote(question)}) echo {quote(answer)} ;;"
        for question, answer in answers.items()
        if answer
    ]
    return "\n".join([f"{name}() {{", "    case $1 in", *lines, "    esac", "}\n"])


def _values(programs: Iterable[Program]) -> dict[str, str]:
    answers = {}
    for program in programs:
        for flag in program.flags:
            if flag.values:
                answers[f"{program.name} {flag.name}"] = " ".join(flag.values)
            elif flag.takes_file or flag.takes_folder:
                answers[f"{program.name} {flag.name}"] = "@file" if flag.takes_file else "@folder"
    return answers


def _spelling(flag: Flag) -> str:
    return f"--{flag.name}" if flag.is_bool else f"--{flag.name}="


# A file `_nsqfast` in a folder of $fpath.
_ZSH_HEAD = """\
#compdef {names}
# Completion for nsqfast's commands in zsh; made by `nsqfast-completion zsh`.
#   nsqfast-completion zsh > "${{fpath[1]}}/_nsqfast"

local -a specs
case ${{words[1]:t}} in
"""
_ZSH_TAIL = """\
esac
_arguments $specs
"""
_ESCAPES = str.maketrans({sign: f"\\{sign}" for sign in "[]:\\"})


def complete_zsh(programs: Iterable[Program]) -> str:
    """The script for zsh."""
    found = list(programs)
    lines = [_ZSH_HEAD.format(names=" ".join(one.name for one in found)).rstrip("\n")]
    for program in found:
        lines.append(f"    {program.name})")
        lines.append("        specs=(")
        lines += [f"            {quote(_spec(flag))}" for flag in program.flags]
        if program.reads_files:
            lines.append(f"            {quote('*:file:_files')}")
        elif program.words:
            lines.append(f"            {quote(f'1:mode:({_words(program.words)})')}")
        lines += ["        )", "        ;;"]
    return "\n".join(lines) + "\n" + _ZSH_TAIL


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


SHELLS = {"bash": complete_bash, "zsh": complete_zsh}
HELP = """Prints the completion of all commands for a shell:

  source <(nsqfast-completion bash)
  nsqfast-completion zsh > "${fpath[1]}/_nsqfast\""""


def main(argv: list[str] | None = None) -> int:
    """Return the exit status."""
    words = sys.argv[1:] if argv is None else argv
    if words in (["--help"], ["-help"], ["-h"]):
        print_text(f"Usage: nsqfast-completion {'|'.join(SHELLS)}\n\n{HELP}")
        return 0
    if len(words) != 1 or words[0] not in SHELLS:
        sys.stderr.write(
            f"one word is needed: {' or '.join(SHELLS)}\nsee nsqfast-completion --help\n"
        )
        return 2
    try:
        extras.check("nsqfast-completion", "server")
    except PackageMissingError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    print_text(SHELLS[words[0]](programs()).removesuffix("\n"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
