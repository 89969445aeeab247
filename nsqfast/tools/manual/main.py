"""Writes man pages or sample config files into a folder, for `make man` and `make samples`.

python -m nsqfast.tools.manual.main man deploy/man
python -m nsqfast.tools.manual.main samples deploy/config
"""

import sys
from pathlib import Path

from nsqfast.tools.completion.programs import DAEMONS
from nsqfast.tools.manual.facts import FACTS
from nsqfast.tools.manual.page import page
from nsqfast.tools.manual.sample import sample


def files(kind: str) -> dict[str, str]:
    """The text of every file, by name."""
    if kind == "man":
        return {f"{name}.1": page(name) for name in FACTS}
    return {f"{name.removeprefix('nsqfast-')}.toml": sample(name) for name in DAEMONS}


def main(argv: list[str] | None = None) -> int:
    """Return the exit status."""
    words = sys.argv[1:] if argv is None else argv
    if len(words) != 2 or words[0] not in {"man", "samples"}:
        sys.stderr.write(f"two words are needed: man or samples, and a folder\n{__doc__ or ''}")
        return 2
    kind, folder = words[0], Path(words[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files(kind).items():
        (folder / name).write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
