"""Installed as the top-level module `pyspark_nsqfast`, where Spark looks for it; then no `register` is needed.

At the first use of any source in Python, Spark imports every top-level module whose name begins with "pyspark_" and
takes its class DefaultSource. A module that fails there silently disables the search for all of them. This one must not
fail, whatever is wrong with an installation; without DefaultSource Spark skips it.
"""

import contextlib

with contextlib.suppress(Exception):
    from nsqfast.spark.datasource import NsqDataSource as DefaultSource  # noqa: F401 - Spark's name for it
