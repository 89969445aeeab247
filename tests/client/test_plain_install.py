"""A plain install has the client, and whatever else is asked of it says in one line which extra it needs."""

import re

import pytest

from support.extras import EXTRAS, FLAGS
from support.plain_install import link_installed, read_project, run_with
from support.server import start_nsqd, start_nsqlookupd

pytestmark = pytest.mark.slow

ASYNC = """
import asyncio, sys
from nsqfast.client import Config, Consumer, Producer

async def main(nsqd, ca, lookupd):
    config = Config(tls_v1=bool(ca), tls_root_ca_file=ca, lookupd_poll_interval="1s")
    async with Producer(nsqd, config=config) as producer:
        await producer.publish("async", b"hello")
    source = {"nsqlookupd": lookupd} if lookupd else {"nsqd": nsqd}
    async with Consumer("async", "c", config=config, **source) as consumer:
        async for message in consumer:
            print(message.body)
            message.finish()
            break

asyncio.run(main(*sys.argv[1:]))
"""
SYNC = """
import sys
from nsqfast.client.sync import Config, Consumer, Producer

nsqd, ca, _ = sys.argv[1:]
config = Config(tls_v1=bool(ca), tls_root_ca_file=ca)
with Producer(nsqd, config=config) as producer:
    producer.publish("sync", b"hello")
with Consumer("sync", "c", nsqd=nsqd, config=config) as consumer:
    message = consumer.get(10)
    print(message.body)
    message.finish()
assert "uvloop" not in sys.modules
"""
IMPORT_ALL = """
import importlib, pkgutil, sys
for name in sys.argv[1:]:
    package = importlib.import_module(name)
    for each in pkgutil.walk_packages(package.__path__, name + "."):
        try:
            importlib.import_module(each.name)
        except ModuleNotFoundError as error:
            assert error.name == "pyarrow", f"{each.name}: {error}"
"""


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    folder = tmp_path_factory.mktemp("plain")
    link_installed(folder)
    return folder


@pytest.fixture(scope="module")
def broker(certificates, tmp_path_factory):
    with start_nsqd(
        "nsqfast",
        tmp_path_factory.mktemp("nsqd"),
        *certificates.flags(),
        listeners=("TCP", "HTTP", "HTTPS"),
    ) as server:
        yield server


@pytest.mark.parametrize("ca", ["", "ca.crt"])
@pytest.mark.parametrize("text", [ASYNC, SYNC], ids=["async", "sync"])
def test_publishes_and_consumes(plain, broker, certificates, text, ca):
    nsqd = "{}:{}".format(*broker.tcp)
    done = run_with(plain, "-", nsqd, certificates.path(ca) if ca else "", "", text=text)
    assert (done.stdout, done.returncode) == ("b'hello'\n", 0), done.stderr


def test_finds_nsqd_through_nsqlookupd(plain, tmp_path):
    with start_nsqlookupd("nsqfast") as lookupd:
        flags = [
            "--lookupd-tcp-address={}:{}".format(*lookupd.tcp),
            "--broadcast-address=127.0.0.1",
        ]
        with start_nsqd("nsqfast", tmp_path, *flags) as nsqd:
            addresses = ["{}:{}".format(*nsqd.tcp), "", "{}:{}".format(*lookupd.http)]
            done = run_with(plain, "-", *addresses, text=ASYNC)
    assert (done.stdout, done.returncode) == ("b'hello'\n", 0), done.stderr


@pytest.mark.parametrize("name", [n for n in read_project()["scripts"] if EXTRAS.get(n) != ""])
def test_a_program_without_its_extra_says_so_in_one_line(plain, name):
    module = read_project()["scripts"][name].partition(":")[0]
    done = run_with(plain, "-m", module, *FLAGS[name])
    extra = EXTRAS.get(name, "server")
    assert re.fullmatch(
        rf".* needs .*, which (is|are) not installed: pip install 'nsqfast\[{extra}\]'\n",
        done.stderr,
    ), done.stderr
    assert (done.stdout, done.returncode) == ("", 1)


ARRAYS = """
import asyncio, sys
from nsqfast.client import Consumer

async def main():
    async with Consumer("arrays", "c", nsqd=sys.argv[1]) as consumer:
        async for _ in consumer.arrays():
            pass

asyncio.run(main())
"""
SNAPPY = """
import sys
from nsqfast.client.sync import Config, Producer

Producer(sys.argv[1], config=Config(snappy=True)).start()
"""
EMBEDDED = """
import asyncio, nsqfast

async def main():
    async with nsqfast.embedded():
        pass

asyncio.run(main())
"""
FEATURES = {
    "from nsqfast.client import ArrayBatch": ("ArrayBatch", "numpy", "arrays"),
    "from nsqfast import ArrayBatch": ("ArrayBatch", "numpy", "arrays"),
    ARRAYS: ("arrays()", "numpy", "arrays"),
    SNAPPY: ("snappy", "cramjam", "snappy"),
    EMBEDDED: ("nsqfast.embedded", "httptools", "server"),
    "import nsqfast.client.opentelemetry": (
        "nsqfast.client.opentelemetry",
        "opentelemetry",
        "opentelemetry",
    ),
    "import nsqfast.client.prometheus": (
        "nsqfast.client.prometheus",
        "prometheus_client",
        "prometheus",
    ),
    "import nsqfast.spark; nsqfast.spark.register(None)": ("nsqfast.spark", "pyspark", "spark"),
}


@pytest.mark.parametrize("text", FEATURES, ids=[extra for _, _, extra in FEATURES.values()])
def test_a_feature_without_its_extra_says_so_in_one_line(plain, broker, text):
    done = run_with(plain, "-", "{}:{}".format(*broker.tcp), text=text)
    part, package, extra = FEATURES[text]
    assert done.stderr.splitlines()[-1] == (
        f"nsqfast.errors.PackageMissingError: {part} needs {package}, which is not installed: "
        f"pip install 'nsqfast[{extra}]'"
    )


def test_a_star_needs_nothing(plain):
    modules = ("nsqfast", "nsqfast.client", "nsqfast.client.sync")
    done = run_with(plain, "-", text="\n".join(f"from {each} import *" for each in modules))
    assert done.returncode == 0, done.stderr


def test_the_overview_says_what_each_program_lacks(plain):
    done = run_with(plain, "-m", "nsqfast.__main__")
    assert (done.returncode, done.stderr) == (0, "")
    programs = [line for line in done.stdout.splitlines() if line.startswith("  nsqfast-")]
    assert len(programs) == len(read_project()["scripts"])
    installed = [line.split()[0] for line in programs if " lacks " not in line]
    assert installed == [name for name, extra in EXTRAS.items() if not extra]
    assert re.search(r"^  uvloop +not installed$", done.stdout, re.MULTILINE)
    assert re.search(r"^  aiohttp +\d", done.stdout, re.MULTILINE)


@pytest.mark.parametrize(
    ("extra", "packages"),
    [
        ("arrays", ["nsqfast.client.sync"]),
        ("server", ["nsqfast.nsqd", "nsqfast.nsqlookupd", "nsqfast.tools"]),
        ("admin", ["nsqfast.nsqadmin"]),
    ],
)
def test_an_extra_brings_all_that_its_part_imports(tmp_path, extra, packages):
    link_installed(tmp_path / "site", extra)
    done = run_with(tmp_path / "site", "-", *packages, text=IMPORT_ALL)
    assert done.returncode == 0, done.stderr
