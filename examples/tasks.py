"""Functions that workers call, as with Celery: `python examples/tasks.py worker math`, until SIGTERM or Ctrl-C.

A program says `from tasks import add` and `add.delay(2, 3)`; a shell, `python examples/tasks.py add 2 3`. The
environment has NSQD=HOST:PORT if it is not 127.0.0.1:4150.
"""

import json
import logging
import os
import signal
import sys
from collections.abc import Callable
from typing import Generic, ParamSpec

from nsqfast.client.sync import Consumer, Message, Producer

P = ParamSpec("P")
NSQD = os.environ.get("NSQD", "127.0.0.1:4150")
producer = Producer(NSQD)  # connects at its first use, and anew in a process that was forked
functions: dict[str, Callable[..., object]] = {}


class Task(Generic[P]):
    def __init__(self, topic: str, function: Callable[P, object]) -> None:
        self.topic, self.name = topic, function.__name__
        functions[self.name] = function

    def delay(self, *args: P.args, **kwargs: P.kwargs) -> None:
        """Have a worker call the function. The arguments are what JSON knows; it returns when nsqd has them."""
        call = {"task": self.name, "args": args, "kwargs": kwargs}
        producer.publish(self.topic, json.dumps(call).encode())


def task(topic: str) -> Callable[[Callable[P, object]], Task[P]]:
    return lambda function: Task(topic, function)


@task("math")
def add(a: float, b: float) -> None:
    print(f"{a} + {b} = {a + b}", flush=True)


def perform(message: Message) -> None:
    """Its return finishes the message; an exception requeues it, to be tried five times in all."""
    call = json.loads(message.body)
    functions[call["task"]](*call["args"], **call["kwargs"])


if __name__ == "__main__":
    logging.basicConfig()
    name, *given = sys.argv[1:]
    if name == "worker":
        with Consumer(given[0], "workers", nsqd=NSQD) as consumer:
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, lambda *_: consumer.request_stop())
            consumer.run(perform)  # the call that runs ends, what waits is handed back
    elif name == "add":
        add.delay(*map(float, given))
