"""Runs one target: under libFuzzer, or once for each of the files named (any build, no atheris needed).

harness.py TARGET -max_total_time=60 ... FOLDER
harness.py TARGET FILE...
"""

import importlib
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))


def main(name, words):
    """Only comes back when files were named."""
    files = [Path(word) for word in words if not word.startswith("-")]
    if files and all(file.is_file() for file in files) and len(files) == len(words):
        target = importlib.import_module(f"fuzz.targets.{name}")
        for file in files:
            target.check(file.read_bytes())
            print(f"{file}: nothing found")
        return
    import atheris

    # The compiled modules are instrumented already, these are the ones in Python.
    with atheris.instrument_imports(include=["nsqfast"]):
        target = importlib.import_module(f"fuzz.targets.{name}")
    atheris.Setup([name, *words], target.check)
    atheris.Fuzz()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
