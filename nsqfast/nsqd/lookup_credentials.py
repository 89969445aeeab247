"""How this broker shows every nsqlookupd that it may register there."""

from dataclasses import dataclass

from nsqfast.net.secret_file import read_secret
from nsqfast.nsqd.options import Options


@dataclass(frozen=True, slots=True)
class Credentials:
    """What counts for new connections."""

    secret: str  # '' = none


def read_credentials(options: Options) -> Credentials:
    """Read the files as they are now; OptionsError if they are unusable."""
    secret = read_secret("--registration-secret-file", options.registration_secret_file)
    return Credentials(secret)
