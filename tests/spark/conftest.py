"""One Spark session for all tests; without Java 17 or pyspark the whole folder is skipped. `make test` installs pyspark
where there is Java, `make spark-matrix` runs this on every PySpark that is supported.
"""

import logging
from importlib.metadata import version
from pathlib import Path

import pytest

from nsqfast.errors import OptionsError
from nsqfast.program import extras
from nsqfast.spark.runtime import find_java

FOLDER = Path(__file__).parent

# The first jobs of a JVM are slow, above all beside other suites on two cores. A test that is interrupted leaves a
# broken session to all behind it.
TIMEOUT_S = 240


def why_skipped():
    """One line, or ''."""
    try:
        extras.check("nsqfast.spark", "spark")
        find_java()
    except OptionsError as error:
        return f"tests/spark: {error}"
    return ""


WHY_SKIPPED = why_skipped()


def pytest_configure(config):
    """PySpark 4.0 and 4.1 leave sockets and files to the garbage collection."""
    if WHY_SKIPPED:
        return
    from support.spark_home import use_spark_home

    use_spark_home()
    if version("pyspark").startswith(("4.0.", "4.1.")):
        for warning in ("ResourceWarning", "pytest.PytestUnraisableExceptionWarning"):
            config.addinivalue_line("filterwarnings", f"ignore::{warning}")


def pytest_collection_modifyitems(items):
    for item in items:
        if item.path.is_relative_to(FOLDER) and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(TIMEOUT_S))


class SkippedModule(pytest.Module):
    """It is not even imported, since it may import what is missing."""

    def collect(self):
        pytest.skip(WHY_SKIPPED, allow_module_level=True)


def pytest_pycollect_makemodule(module_path, parent):
    return SkippedModule.from_parent(parent, path=module_path) if WHY_SKIPPED else None


@pytest.fixture(scope="session")
def spark(tmp_path_factory):
    """With four attempts for each task. The source "nsq" is registered."""
    from pyspark.sql import SparkSession

    import nsqfast.spark

    folder = tmp_path_factory.mktemp("spark")
    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": f"-Dderby.system.home={folder}",
        "spark.local.dir": str(folder / "local"),
        "spark.log.level": "WARN",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.streaming.stopTimeout": "60s",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
    }
    builder = SparkSession.builder.master("local[2,4]").appName("nsqfast tests")
    for key, value in settings.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    nsqfast.spark.register(session)
    yield session
    session.stop()


@pytest.fixture
def tell(capsys):
    """Say where a long test stands: a suite that says nothing for long is taken for one that hangs."""

    def say(text):
        with capsys.disabled():
            print(text, flush=True)

    return say


@pytest.fixture
def quiet_log():
    """A job writes its log to stderr; afterwards the log is what it was."""
    log = logging.getLogger("nsqfast")
    before = log.handlers[:], log.propagate
    level = log.level
    yield
    log.handlers[:], log.propagate = before
    log.setLevel(level)
