"""Ends with 0 where there is a Java that Spark can use, else with 1 and a line that says what to install."""

import sys

from nsqfast.spark.runtime import JavaMissingError, find_java

try:
    find_java()
except JavaMissingError as error:
    sys.exit(f"nsqfast: {error}")
