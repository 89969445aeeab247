"""--hash-password: makes a line for --auth-file."""

import getpass
import signal
import sys
from typing import Final

import argon2

from nsqfast.errors import OptionsError
from nsqfast.nsqadmin.access.users import PASSWORD_BYTES_MAX, check_name, check_role
from nsqfast.program.stdout import print_text

FIELD_LENGTH_MAX: Final = 4096


def print_account() -> None:
    """Ask for name, role and password at a terminal, or read them from three lines of stdin; print name:role:hash.

    OptionsError for invalid input.
    """
    # The loop's own handler would wait for this call to end.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        name, role, password = _ask() if sys.stdin.isatty() else _read()
    except (KeyboardInterrupt, EOFError):
        raise OptionsError("no name, role and password were given") from None
    except UnicodeError:
        raise OptionsError("name, role and password have to be UTF-8 text") from None
    finally:
        signal.signal(signal.SIGINT, before)
    try:
        check_name(name)
        check_role(role)
        check_password(password)
    except ValueError as error:
        raise OptionsError(str(error)) from None
    print_text(f"{name}:{role}:{argon2.PasswordHasher().hash(password)}")


def check_password(password: str) -> None:
    """ValueError says what is wrong."""
    if not password:
        raise ValueError("the password is empty")
    if len(password.encode("utf-8", "surrogatepass")) > PASSWORD_BYTES_MAX:
        raise ValueError(f"the password has more than {PASSWORD_BYTES_MAX} bytes")


def _ask() -> tuple[str, str, str]:
    # Prompts go to stderr: stdout may be appended to the file.
    sys.stderr.write("name: ")
    sys.stderr.flush()
    name = _line()
    sys.stderr.write("role (viewer or admin): ")
    sys.stderr.flush()
    role = _line()
    password = getpass.getpass("password: ")
    if getpass.getpass("password again: ") != password:
        raise OptionsError("the two passwords differ")
    return name, role, password


def _read() -> tuple[str, str, str]:
    return _line(), _line(), _line(strips=False)


def _line(*, strips: bool = True) -> str:
    line = sys.stdin.readline(FIELD_LENGTH_MAX)
    if not line:
        raise EOFError
    line.encode()  # Python may have let other bytes through
    return line.strip() if strips else line.rstrip("\r\n")
