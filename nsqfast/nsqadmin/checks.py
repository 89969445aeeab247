"""What is known before a start: settings that are impossible are refused, in nsqadmin's order and words.

--check reports them, and whatever else would keep nsqadmin from working.
"""

import ipaddress
import posixpath
import socket
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

from nsqfast.errors import OptionsError
from nsqfast.net.addresses import parse_port
from nsqfast.net.checkup import check_limits, check_listeners, check_openness, check_peers
from nsqfast.nsqadmin.options import Options
from nsqfast.program.findings import ERROR, OK, Finding
from nsqfast.wire.gotext import os_error

LOOKUPD_FLAG = "--lookupd-http-address"
TLS = "https://"  # of an nsqlookupd that is asked over TLS
CLIENT_FILES = "http-client-tls-root-ca-file", "http-client-tls-cert", "http-client-tls-key"

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


def check_options(options: Options) -> None:
    """OptionsError for the first that is wrong; --base-path gets its final form.

    cluster.client, which comes next, reads the certificates.
    """
    if not options.nsqd_http_addresses and not options.nsqlookupd_http_addresses:
        raise OptionsError("--nsqd-http-address or --lookupd-http-address required")
    if options.nsqd_http_addresses and options.nsqlookupd_http_addresses:
        raise OptionsError("use --nsqd-http-address or --lookupd-http-address not both")
    _check_pair("http-client-tls", options.http_client_tls_cert, options.http_client_tls_key)
    _check_pair("tls", options.tls_cert, options.tls_key)
    if options.auth_secret_file and options.nsqlookupd_http_addresses and not proves_nodes(options):
        raise OptionsError(
            "--auth-secret-file with --lookupd-http-address needs --http-client-tls-root-ca-file and no "
            "--http-client-tls-insecure-skip-verify: whoever registers at nsqlookupd would be told the secret"
        )
    if options.max_connections < 0:
        raise OptionsError(f"--max-connections must be at least 0, not {options.max_connections}")
    try:
        options.base_path.encode()
    except UnicodeEncodeError:
        raise OptionsError(f"--base-path ({options.base_path!a}) has to be UTF-8") from None
    options.base_path = posixpath.normpath("/" + options.base_path.lstrip("/"))


def proves_nodes(options: Options) -> bool:
    """Whether an nsqd that is asked over TLS is one of ours: authorities of the system also know everybody else."""
    is_verified = not options.http_client_tls_insecure_skip_verify
    return bool(options.http_client_tls_root_ca_file) and is_verified


def check_addresses(options: Options) -> None:
    """Like `check_options`, for the settings after the certificates."""
    for flag, addresses in (
        (LOOKUPD_FLAG, options.nsqlookupd_http_addresses),
        ("--nsqd-http-address", options.nsqd_http_addresses),
    ):
        for address in addresses:
            try:
                resolve(address.removeprefix(TLS) if flag == LOOKUPD_FLAG else address)
            except ValueError as error:
                raise OptionsError(f"failed to resolve {flag} ({address}) - {error}") from None
    _check_graphite(options)
    if options.allow_config_from_cidr:
        parse_cidr(options.allow_config_from_cidr)
    _check_listener(options.http_address)


def _check_pair(prefix: str, cert: str, key: str) -> None:
    if bool(cert) != bool(key):
        missing, given = ("key", "cert") if cert else ("cert", "key")
        raise OptionsError(f"--{prefix}-{missing} must be specified with --{prefix}-{given}")


def _check_listener(address: str) -> None:
    """nsqadmin listens only on TCP: anything but `host:port` is an error, not the path of a Unix socket."""
    try:
        _split(address)
    except ValueError as error:
        raise OptionsError(f"listen ({address}) failed - listen tcp: {error}") from None


def _check_graphite(options: Options) -> None:
    if options.proxy_graphite and not is_http_url(options.graphite_url):
        raise OptionsError(
            f"failed to parse --graphite-url ({options.graphite_url}) - "
            "--proxy-graphite needs one that begins with http:// or https://"
        )


def is_http_url(text: str) -> bool:
    """Whether it begins with http:// or https:// and names a host, and a port that can be one."""
    try:
        parts = urlsplit(text)
        _ = parts.port
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.hostname)


def resolve(address: str) -> None:
    """ValueError, in Go's words, unless it is `host:port` and the host has an address."""
    host, port = _split(address)
    number = parse_port(port)
    try:
        socket.getaddrinfo(host or "127.0.0.1", number, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        raise ValueError(f"lookup {host}: no such host") from None


def _split(address: str) -> tuple[str, str]:
    host, colon, port = address.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        return host[1:-1], port
    if host.startswith("[") and "]" not in host:
        raise ValueError(f"address {address}: missing ']' in address")
    if not colon or address.endswith("]"):
        raise ValueError(f"address {address}: missing port in address")
    if ":" in host:
        raise ValueError(f"address {address}: too many colons in address")
    return host, port


def parse_cidr(text: str) -> Network:
    """A network such as 127.0.0.1/8; OptionsError names the flag."""
    try:
        # Go requires the number of bits: no bare address, no mask such as /255.0.0.0.
        return ipaddress.ip_network(
            text if text.partition("/")[2].isdecimal() else "", strict=False
        )
    except ValueError:
        raise OptionsError(
            f"failed to parse --allow-config-from-cidr ({text}) - invalid CIDR address: {text}"
        ) from None


def check(options: Options) -> Iterator[Finding]:
    yield from _check_settings(options)
    yield from check_listeners([("--http-address", options.http_address)])
    if not options.auth_file:
        yield from check_openness([("--http-address", options.http_address, "--auth-file")])
    yield from check_peers("--lookupd-http-address", options.nsqlookupd_http_addresses)
    yield from check_peers("--nsqd-http-address", options.nsqd_http_addresses)
    for flag in ("auth-file", "auth-secret-file", "tls-cert", "tls-key", *CLIENT_FILES):
        if path := getattr(options, flag.replace("-", "_")):
            yield _check_file(f"--{flag}", path)
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
