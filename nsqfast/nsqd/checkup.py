"""nsqfast-nsqd --check: what can be known before a start. It changes nothing, on disk or elsewhere."""

import contextlib
import os
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

from nsqfast.errors import OptionsError
from nsqfast.net.checkup import (
    check_host,
    check_limits,
    check_listeners,
    check_openness,
    check_peers,
    try_out,
)
from nsqfast.net.tls import ServerTls, client_context
from nsqfast.nsqd.data_folder import DirectoryLock
from nsqfast.nsqd.lookup import read_credentials
from nsqfast.nsqd.metadata import DATA_OR_POSITION_FILE, FILE_NAME, decode
from nsqfast.nsqd.options import Options, validate
from nsqfast.program.findings import ERROR, OK, WARNING, Finding
from nsqfast.wire.gotext import os_error

FREE_PART_LEAST = 0.05
MIB, GIB = 1 << 20, 1 << 30
# File systems whose files do not survive a restart, or whose locks and fsyncs are a matter of settings.
DOUBTFUL_SYSTEMS = {
    "tmpfs": "its files are in memory",
    "ramfs": "its files are in memory",
} | dict.fromkeys(
    ("nfs", "nfs4", "cifs", "smb3", "9p"), "locks and fsyncs depend on the server's settings"
)
EXPIRY_NOTICE = timedelta(days=30)
POSITION_FILE = re.compile(r".+\.diskqueue\.meta\.dat")
# Depth; file and position of the next read; those of the next write; our own fourth line.
POSITIONS = re.compile(rb"-?\d+\n\d+,\d+\n\d+,\d+\n(?:sealed \d+,\d+\n)?(?:log\n)?")


def check(options: Options) -> Iterator[Finding]:
    """Everything, in the order in which a start would meet it."""
    yield try_out("settings", partial(validate, options), "they go together")
    yield from _check_folder(options.data_path or os.getcwd())  # noqa: PTH109 - shown as text
    yield from _check_certificates(options)
    yield from check_listeners(options.listening())
    yield from check_openness(options.unprotected())
    address = options.broadcast_address
    yield check_host("--broadcast-address", address, address)
    yield from check_peers("--lookupd-tcp-address", options.nsqlookupd_tcp_addresses or ())
    if options.registration_secret_file or options.lookupd_tls or options.lookupd_tls_cert:
        read = partial(read_credentials, options)
        yield try_out("credentials for nsqlookupd", read, "they are readable")
    if options.policy_file:
        # It imports expressions of RE2.
        from nsqfast.nsqd.policies import read_file

        yield try_out("--policy-file", partial(read_file, options.policy_file), "it can be used")
    yield from check_peers("--auth-http-address", options.auth_http_addresses)
    if options.statsd_address:
        yield from check_peers("--statsd-address", [options.statsd_address])
    yield from check_limits(options.max_connections)
    yield from _check_memory(options.max_memory)


def _check_folder(folder: str) -> Iterator[Finding]:
    try:
        DirectoryLock(folder).release()
    except OptionsError as error:
        yield Finding(ERROR, "data path", str(error))
        if not os.path.isdir(folder):  # noqa: PTH112 - text
            return
    else:
        if os.access(folder, os.R_OK | os.W_OK | os.X_OK):
            yield Finding(OK, "data path", f"{folder} is writable, and no other broker has it")
        else:
            yield Finding(ERROR, "data path", f"{folder} is not writable for this user")
    yield from _check_room(folder)
    yield _check_file_system(folder)
    yield _check_list(folder)
    yield from _check_queues(folder)


def _check_room(folder: str) -> Iterator[Finding]:
    try:
        found = os.statvfs(folder)
    except OSError as error:
        yield Finding(ERROR, "free space", f"{folder}: {os_error(error)}")
        return
    size, free = found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize
    text = f"{_size(free)} of {_size(size)}"
    if free < max(size * FREE_PART_LEAST, 1):
        yield Finding(WARNING, "free space", f"{text}; when it is used up, publishes are refused")
    else:
        yield Finding(OK, "free space", text)


def _size(count: int) -> str:
    return f"{count / GIB:.1f} GiB" if count >= GIB else f"{count / MIB:.0f} MiB"


def _check_file_system(folder: str) -> Finding:
    name, is_read_only = _find_mount(os.path.realpath(folder))
    if is_read_only:
        return Finding(ERROR, "file system", f"{name} is mounted read-only")
    if name in DOUBTFUL_SYSTEMS:
        return Finding(WARNING, "file system", f"{name}: {DOUBTFUL_SYSTEMS[name]}")
    return Finding(OK, "file system", name or "unknown")


def _find_mount(path: str) -> tuple[str, bool]:
    """Type of the file system that holds the path, and whether it is read-only."""
    best, found = -1, ("", False)
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/mountinfo").read_text("utf-8", "surrogateescape").splitlines():
            # 36 35 98:0 / /mnt rw,noatime shared:1 - ext3 /dev/root rw (https://docs.kernel.org/filesystems/proc.html)
            head, _, tail = line.partition(" - ")
            _, _, _, _, point, flags, *_ = head.split(" ")
            point = point.replace("\\040", " ")
            inside = path == point or path.startswith(point.rstrip("/") + "/")
            if inside and len(point) >= best:
                best, found = len(point), (tail.split(" ")[0], "ro" in flags.split(","))
    return found


def _check_list(folder: str) -> Finding:
    path = Path(folder, FILE_NAME)
    try:
        topics = decode(path.read_bytes())
    except FileNotFoundError:
        has_queues = any(map(DATA_OR_POSITION_FILE.fullmatch, _names_in(folder)))
        text = (
            "is not there, and queues are: topics are found by them"
            if has_queues
            else "is not there yet"
        )
        return Finding(WARNING if has_queues else OK, FILE_NAME, text)
    except OSError as error:
        return Finding(ERROR, FILE_NAME, os_error(error))
    except ValueError as error:
        text = f"cannot be used - {error}: a start finds topics by their files, and forgets pauses"
        return Finding(WARNING, FILE_NAME, text)
    count = sum(len(entry.channels) for entry in topics.values())
    return Finding(OK, FILE_NAME, f"{len(topics)} topics, {count} channels")


def _check_queues(folder: str) -> Iterator[Finding]:
    names = _names_in(folder)
    positions = [name for name in names if POSITION_FILE.fullmatch(name)]
    broken = [name for name in positions if not _has_positions(Path(folder, name))]
    set_aside = [name for name in names if name.endswith(".bad")]
    if broken:
        text = f"{_list(broken)} cannot be read: a start reads those queues from their beginning"
        yield Finding(WARNING, "queues on disk", text)
    else:
        yield Finding(OK, "queues on disk", f"{len(positions)}")
    if set_aside:
        text = f"{_list(set_aside)} hold what was no message; nothing reads them, remove them"
        yield Finding(WARNING, ".bad files", text)


def _has_positions(path: Path) -> bool:
    try:
        data = path.read_bytes()
    except OSError:
        return False
    return POSITIONS.fullmatch(data) is not None


def _names_in(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))  # noqa: PTH208 - texts
    except OSError:
        return []


def _list(names: list[str]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more


def _check_certificates(options: Options) -> Iterator[Finding]:
    if options.has_tls:
        yield from _check_pair(options)
        if options.tls_cert:
            yield from _check_expiry("--tls-cert", options.tls_cert)
    if options.tls_root_ca_file:
        try:
            client_context(options.tls_root_ca_file, options.tls_min_version)
        except OptionsError as error:
            yield Finding(ERROR, "--tls-root-ca-file", str(error))
        else:
            yield from _check_expiry("--tls-root-ca-file", options.tls_root_ca_file)


def _check_pair(options: Options) -> Iterator[Finding]:
    files = ServerTls(
        options.tls_cert,
        options.tls_key,
        options.tls_client_auth_policy,
        options.tls_root_ca_file,
        options.tls_min_version,
    )
    try:
        files.context()
    except OptionsError as error:
        yield Finding(ERROR, "certificate", str(error))
    else:
        yield Finding(OK, "certificate", f"{options.tls_key} is the key of {options.tls_cert}")


def _check_expiry(flag: str, path: str) -> Iterator[Finding]:
    from OpenSSL import crypto

    try:
        certificate = crypto.load_certificate(crypto.FILETYPE_PEM, Path(path).read_bytes())
        text = (certificate.get_notAfter() or b"").decode("ascii")
        end = datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC)
    except (OSError, ValueError, crypto.Error) as error:
        yield Finding(ERROR, flag, f"{path}: {error}")
        return
    left = end - datetime.now(UTC)
    if left <= timedelta(0):
        yield Finding(ERROR, flag, f"{path} has expired on {end:%Y-%m-%d}")
    elif left < EXPIRY_NOTICE:
        yield Finding(WARNING, flag, f"{path} expires in {left.days} days, on {end:%Y-%m-%d}")
    else:
        yield Finding(OK, flag, f"{path} is valid until {end:%Y-%m-%d}")


def _check_memory(wanted: int) -> Iterator[Finding]:
    if not wanted:
        return
    there = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    text = f"{_size(wanted)}, the machine has {_size(there)}"
    yield Finding(WARNING if wanted > there else OK, "--max-memory", text)
