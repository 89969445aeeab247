"""The plugin of pytest, as its users see it: their test files, each run by a pytest of its own."""

import re
import sys
from pathlib import Path

import pytest

from support.commands import run_command
from support.plain_install import link_installed

pytest_plugins = ["pytester"]
pytestmark = pytest.mark.slow

SETTINGS = """
[pytest]
filterwarnings = error
asyncio_default_fixture_loop_scope = function
"""
ENDS_CLEAN = """
import os, threading

def pytest_unconfigure(config):
    print(f"left: {threading.active_count() - 1} threads, {os.listdir(os.environ['TMPDIR'])}")
"""


@pytest.fixture
def run(pytester, tmp_path, monkeypatch):
    """Runs files of tests; warnings are errors, and a broker that stays says so."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))

    def run_files(*words, conftest="", **files):
        pytester.makeini(SETTINGS)
        pytester.makeconftest(ENDS_CLEAN + conftest)
        pytester.makepyfile(**files)
        done = pytester.runpytest_subprocess("-pno:cacheprovider", *words, timeout=100)
        done.stdout.fnmatch_lines(["left: 0 threads, [[]]"])
        return done

    return run_files


TESTS = """
import asyncio
import pytest
from nsqfast import Consumer, Producer
from nsqfast.client import sync
from nsqfast.testing import Nsqd

seen = set()

@pytest.fixture(autouse=True)
def one_broker_and_many_topics(nsqd: Nsqd, nsq_topic: str):
    seen.add((nsqd.address, nsqd.http_address))
    assert len(seen) == 1
    assert nsqd.bodies(nsq_topic) == []
    for topic in topics:
        assert nsqd.bodies(topic) == []  # deleted at the end of its test
    topics.append(nsq_topic)

topics = []

def test_without_a_loop(nsqd, nsq_topic):
    with sync.Producer(nsqd.address) as producer:
        producer.publish(nsq_topic, b"a")
        producer.publish_many(nsq_topic, [b"b", b"c"])
    assert nsqd.wait_received(nsq_topic, 2) == [b"a", b"b"]
    assert nsqd.bodies(nsq_topic) == [b"a", b"b", b"c"]

async def come_in_an_hour(nsqd, topic):
    async with Producer(nsqd.address) as producer:
        await producer.publish_later(topic, b"a", delay_s=3600)
    assert await nsqd.received(topic) == [b"a"]
    async with Consumer(topic, "c", nsqd=nsqd.address) as consumer:
        while not nsqd.advance(3600):
            await asyncio.sleep(0)
        async for message in consumer:
            assert message.finish()
            break

def test_with_asyncio_alone(nsqd, nsq_topic):
    asyncio.run(come_in_an_hour(nsqd, nsq_topic))

@pytest.mark.asyncio
async def test_with_pytest_asyncio(nsqd, nsq_topic):
    await come_in_an_hour(nsqd, nsq_topic)

@pytest.fixture
def anyio_backend():
    return "asyncio"

@pytest.mark.anyio
async def test_with_anyio(nsqd, nsq_topic):
    await come_in_an_hour(nsqd, nsq_topic)

@pytest.mark.parametrize("name", ["a b/ç" * 100])
def test_with_a_long_name(nsqd, nsq_topic, name):
    with sync.Producer(nsqd.address) as producer:
        producer.publish(nsq_topic, b"a")
    assert nsq_topic.startswith("test_with_a_long_name_")

def test_a_handler_that_fails_once(nsqd, nsq_topic):
    config = sync.Config(max_backoff_duration_s=0)
    with sync.Producer(nsqd.address) as producer:
        producer.publish(nsq_topic, b"a")
    with sync.Consumer(nsq_topic, "c", nsqd=nsqd.address, config=config) as consumer:
        consumer.get(10).requeue(delay_s=900)
        while not nsqd.advance(900):
            pass
        assert consumer.get(10).attempts == 2
"""


def test_every_way(run):
    run(test_users=TESTS).assert_outcomes(passed=6)


def test_processes_share_no_broker(run, pytester):
    """As with pytest-xdist: each of its processes has one."""
    inner = pytester.path / "inner.py"
    inner.write_text("def test_it(nsqd):\n    print('address:', nsqd.address)\n", encoding="utf-8")
    run(
        test_outer="""
        import subprocess, sys

        def test_both(nsqd):
            words = [sys.executable, "-m", "pytest", "-q", "-s", "-pno:cacheprovider", "inner.py"]
            inner = subprocess.run(words, capture_output=True, text=True)
            assert inner.returncode == 0, inner.stdout
            assert "address: 127.0.0.1:" in inner.stdout
            assert nsqd.address not in inner.stdout
        """
    ).assert_outcomes(passed=1)


def test_a_cluster(run):
    run(
        test_cluster="""
        import pytest
        from nsqfast.client.sync import Config, Consumer, Producer

        addresses = set()

        @pytest.mark.parametrize("number", [0, 1])
        def test_both_are_found(nsq_cluster, nsq_topic, number):
            addresses.update(nsqd.address for nsqd in nsq_cluster.nsqds)
            assert len(addresses) == 2 * number + 2  # each test has its own
            for nsqd in nsq_cluster.nsqds:
                with Producer(nsqd.address) as producer:
                    producer.publish(nsq_topic, nsqd.address.encode())
                assert nsqd.wait_received(nsq_topic) == [nsqd.address.encode()]
            config = Config(lookupd_poll_interval_s=0.05)
            lookupd = nsq_cluster.lookupd_http_address
            with Consumer(nsq_topic, "c", nsqlookupd=lookupd, config=config) as consumer:
                messages = []
                for _ in nsq_cluster.nsqds:
                    messages.append(consumer.get(30))
                    messages[-1].finish()
            assert {message.body.decode() for message in messages} == {
                nsqd.address for nsqd in nsq_cluster.nsqds
            }
            assert messages[0].id != messages[1].id
        """
    ).assert_outcomes(passed=2)


def test_a_failure_is_one_line(run):
    done = run(
        test_users="""
        import asyncio

        def test_it(nsqd, nsq_topic):
            nsqd.wait_received(nsq_topic, 2, timeout_s=0.01)

        def test_the_same_in_a_loop(nsqd, nsq_topic):
            asyncio.run(nsqd.received(nsq_topic, 2, timeout_s=0.01))
        """
    )
    done.assert_outcomes(failed=2)
    text = done.stdout.str()
    assert text.count("E       AssertionError: topic test_") == 2
    assert "got 0 of 2 messages within 0.01 s: []; other topics: none" in text
    assert re.findall(r"^\S+/nsqfast/\S+:\d+: .*", text, re.MULTILINE) == []


def test_flags_are_a_fixture(run):
    done = run(
        test_users="""
        import pytest
        from nsqfast.client.sync import Producer
        from nsqfast.client import PublishRefusedError

        def test_it(nsqd, nsq_cluster):
            for each in (nsqd, *nsq_cluster.nsqds):
                with Producer(each.address) as producer, pytest.raises(PublishRefusedError):
                    producer.publish("t", b"123456")
        """,
        conftest="""
import pytest

@pytest.fixture(scope="session")
def nsqd_flags():
    return ["--max-msg-size=5"]
""",
    )
    done.assert_outcomes(passed=1)


NEEDS_BOTH = """
    def test_nsqd(nsqd): pass
    def test_topic(nsq_topic): pass
    def test_cluster(nsq_cluster): pass
    def test_without(): pass
"""


@pytest.mark.parametrize(
    ("conftest", "line"),
    [
        (
            "import sys; sys.modules['httptools'] = None",
            "nsqfast.embedded needs httptools, which is not installed: pip install 'nsqfast[[]server]'",
        ),
        (
            "import pytest\nnsqd_flags = pytest.fixture(scope='session')(lambda: ['--data-path=/nowhere'])",
            "failed to instantiate nsqd - failed to lock data-path: open /nowhere: no such file or directory*",
        ),
    ],
    ids=["missing extra", "wrong flag"],
)
def test_what_a_user_has_to_change_is_one_line(run, conftest, line):
    done = run("--tb=short", test_users=NEEDS_BOTH, conftest=conftest)
    done.assert_outcomes(passed=1, errors=3)
    done.stdout.fnmatch_lines([line] * 2)
    assert "During handling" not in done.stdout.str()
    assert ".py:" not in done.stdout.str().partition("short test summary")[0]


def test_it_can_be_switched_off_and_replaced(run):
    done = run(
        "-pno:nsqfast",
        test_users="""
        import pytest, sys

        @pytest.fixture
        def nsq_topic():
            return "mine"

        def test_mine(nsq_topic):
            assert nsq_topic == "mine"
            assert "nsqfast" not in sys.modules

        def test_theirs(nsqd):
            pass
        """,
    )
    done.assert_outcomes(passed=1, errors=1)
    done.stdout.fnmatch_lines(["*fixture 'nsqd' not found"])
    mine = """
        import pytest

        @pytest.fixture
        def nsqd():
            return "mine"

        def test_mine(nsqd):
            assert nsqd == "mine"
    """
    run(test_users=mine).assert_outcomes(passed=1)


def test_a_run_that_uses_none_of_it_loads_none_of_it(run):
    done = run(
        "-s",
        test_users="""
        import sys

        def test_it(pytestconfig):
            assert pytestconfig.pluginmanager.has_plugin("nsqfast")
            print("loaded:", *sorted(name for name in sys.modules if name.startswith("nsqfast")))
        """,
    )
    done.stdout.fnmatch_lines(
        ["*loaded: nsqfast nsqfast.testing nsqfast.testing.plugin nsqfast.version"]
    )


def test_unittest(tmp_path, monkeypatch):
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    Path(tmp_path, "test_users.py").write_text(
        """
import threading, unittest
from nsqfast import Producer
from nsqfast.client import sync
from nsqfast.testing import NsqTestCase

class Plain(NsqTestCase):
    def publish(self):
        self.assertEqual(self.nsqd.bodies(self.nsq_topic), [])
        with sync.Producer(self.nsqd.address) as producer:
            producer.publish(self.nsq_topic, b"a")
        self.assertEqual(self.nsqd.wait_received(self.nsq_topic), [b"a"])
        topics.append(self.nsq_topic)
        self.assertEqual([self.nsqd.bodies(topic) for topic in topics], [[]] * (len(topics) - 1) + [[b"a"]])

    def test_one(self):
        self.publish()

    def test_two(self):
        self.publish()

class Async(NsqTestCase, unittest.IsolatedAsyncioTestCase):
    nsqd_flags = ("--max-msg-size=5",)

    async def test_it(self):
        async with Producer(self.nsqd.address) as producer:
            await producer.publish(self.nsq_topic, b"12345")
            with self.assertRaises(Exception):
                await producer.publish(self.nsq_topic, b"123456")
        self.assertEqual(await self.nsqd.received(self.nsq_topic), [b"12345"])

topics = []

def tearDownModule():
    assert threading.active_count() == 1
""",
        encoding="utf-8",
    )
    done = run_command(
        sys.executable, "-Werror", "-m", "unittest", "test_users", cwd=tmp_path, timeout=100
    )
    assert done.returncode == 0, done.stderr
    assert "Ran 3 tests" in done.stderr
    assert list(folder.iterdir()) == []


def test_nsqfast_may_be_imported_before_pytest(tmp_path, monkeypatch):
    """As it is installed from a wheel, whose files pytest reads in RECORD; Django's settings do that, say."""
    link_installed(tmp_path / "site")
    about = tmp_path / "site" / "nsqfast-0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: nsqfast\nVersion: 0\n")
    (about / "entry_points.txt").write_text("[pytest11]\nnsqfast = nsqfast.testing.plugin\n")
    (about / "RECORD").write_text("nsqfast/__init__.py,,\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "site"))
    (tmp_path / "test_users.py").write_text("def test_it(nsqd_flags): pass\n")
    text = (
        "import nsqfast.client, pytest; pytest.main(['-Werror', '-pno:asyncio', 'test_users.py'])"
    )
    done = run_command(sys.executable, "-c", text, cwd=tmp_path, timeout=100)
    assert "1 passed" in done.stdout, done.stdout + done.stderr
    assert "Warning" not in done.stdout + done.stderr
