"""A secret that stands in a file: a flag or a config file would show it to whoever lists processes."""

from pathlib import Path

from nsqfast.errors import OptionsError
from nsqfast.wire.gotext import os_error

SECRET_SIZE_MAX = 4096


def read_secret(flag: str, path: str) -> str:
    """Read the text without white space around it; '' for no path; OptionsError if the file has none."""
    if not path:
        return ""
    try:
        with Path(path).open("rb") as file:
            secret = file.read(SECRET_SIZE_MAX + 1).strip().decode()
    except OSError as error:
        raise OptionsError(f"{flag}: open {path}: {os_error(error)}") from None
    except UnicodeDecodeError:
        raise OptionsError(f"{flag}: {path} is no text") from None
    if not 0 < len(secret.encode()) <= SECRET_SIZE_MAX:
        raise OptionsError(f"{flag}: {path} has to hold a secret of 1 to {SECRET_SIZE_MAX} bytes")
    return secret
