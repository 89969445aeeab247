"""nsqfast-nsqadmin --check."""

from collections.abc import Iterator
from pathlib import Path

from nsqfast.errors import OptionsError
from nsqfast.net.checkup import check_limits, check_listeners, check_openness, check_peers
from nsqfast.nsqadmin.checks import check_addresses, check_options
from nsqfast.nsqadmin.options import Options
from nsqfast.program.findings import ERROR, OK, Finding
from nsqfast.wire.gotext import os_error


def check(options: Options) -> Iterator[Finding]:
    """All that can be known before a start."""
    yield from _check_settings(options)
    yield from check_listeners([("--http-address", options.http_address)])
    if not options.auth_file:
        yield from check_openness([("--http-address", options.http_address, "--auth-file")])
    yield from check_peers("--lookupd-http-address", options.nsqlookupd_http_addresses)
    yield from check_peers("--nsqd-http-address", options.nsqd_http_addresses)
    for flag, path in (
        ("--auth-file", options.auth_file),
        ("--auth-secret-file", options.auth_secret_file),
        ("--tls-cert", options.tls_cert),
        ("--tls-key", options.tls_key),
        ("--http-client-tls-root-ca-file", options.http_client_tls_root_ca_file),
        ("--http-client-tls-cert", options.http_client_tls_cert),
        ("--http-client-tls-key", options.http_client_tls_key),
    ):
        if path:
            yield _check_file(flag, path)
    yield from check_limits(0)


def _check_settings(options: Options) -> Iterator[Finding]:
    try:
        check_options(options)
        check_addresses(options)
    except OptionsError as error:
        yield Finding(ERROR, "settings", str(error))
    else:
        yield Finding(OK, "settings", "they go together")


def _check_file(flag: str, path: str) -> Finding:
    try:
        with Path(path).open("rb") as file:
            file.read(1)
    except OSError as error:
        return Finding(ERROR, flag, f"{path}: {os_error(error)}")
    return Finding(OK, flag, f"{path} is readable")
