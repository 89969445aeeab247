"""Which release this is, and of which NSQ.

Tools that parse NSQ's `--version` read its first line, so that one has NSQ's form; our own version is the second. The
modules that say what this runs on are imported late, because `import nsqfast` comes through here.
"""

__version__ = "0.2.0"

# The NSQ release whose protocol, files and answers this package reproduces.
NSQ_VERSION = "1.3.0"


def nsq_line(program: str) -> str:
    """The line that NSQ's daemons print: nsqd v1.3.0 (built w/python3.11.7)."""
    import platform

    return f"{program} v{NSQ_VERSION} (built w/python{platform.python_version()})"


def own_line() -> str:
    """Our own version and what it runs on: nsqfast 0.2.0 (CPython 3.11.7, Linux x86_64)."""
    import platform

    runs_on = f"{platform.python_implementation()} {platform.python_version()}"
    return f"nsqfast {__version__} ({runs_on}, {platform.system()} {platform.machine()})"
