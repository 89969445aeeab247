"""The program nsqfast-completion: prints what a shell is to read.

source <(nsqfast-completion bash)
nsqfast-completion zsh > "${fpath[1]}/_nsqfast"
"""

import sys

from nsqfast.errors import PackageMissingError
from nsqfast.program import extras
from nsqfast.program.stdout import print_text
from nsqfast.tools.completion.programs import programs
from nsqfast.tools.completion.shells import complete_bash, complete_zsh

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
