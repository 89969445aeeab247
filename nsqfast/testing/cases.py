"""A broker for tests of unittest."""

import unittest
from typing import ClassVar

from nsqfast.testing.brokers import Nsqd, make_topic_name, run_nsqd


class NsqTestCase(unittest.TestCase):
    """Has a broker, which all tests of the class share, and a topic for each of them, which is deleted at its end.

    It stands before other bases: `class OrdersTest(NsqTestCase, unittest.IsolatedAsyncioTestCase)`.
    """

    nsqd_flags: ClassVar[tuple[str, ...]] = ()  # of nsqfast-nsqd
    nsqd: ClassVar[Nsqd]
    nsq_topic: str

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        cls.nsqd = cls.enterClassContext(run_nsqd(*cls.nsqd_flags))

    def setUp(self) -> None:
        super().setUp()
        self.nsq_topic = make_topic_name(self.id().rpartition(".")[2])
        self.addCleanup(self.nsqd.clear, self.nsq_topic)
