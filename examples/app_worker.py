"""A worker with an App: orders become bills, until SIGTERM or Ctrl-C.

python examples/app_worker.py

or, with flags, `cd examples; nsqfast-run app_worker:app --workers=2 --http-address=127.0.0.1:8080`. NSQD, TOPIC and
CHANNEL come from the environment. An order is JSON, {"sku": "tea", "count": 2}; one that is none fails, is tried again,
and goes to TOPIC-dead after three attempts. Needs `pip install 'nsqfast[msgspec]'`.
"""

import logging
import os
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

from nsqfast import App, Config, Message

NSQD = os.environ.get("NSQD", "127.0.0.1:4150")
TOPIC = os.environ.get("TOPIC", "orders")
CHANNEL = os.environ.get("CHANNEL", "billing")
CONFIG = Config(max_attempts=3, default_requeue_delay="1s", max_backoff_duration="0s")


@dataclass
class Order:
    sku: str
    count: int = 1


@dataclass
class Bill:
    sku: str
    total: int


@asynccontextmanager
async def lifespan(_app: App) -> AsyncGenerator[Mapping[str, object]]:
    """In place of a database; the handlers get it by its name."""
    print("open", flush=True)
    yield {"prices": {"tea": 3, "coffee": 4}}
    print("closed", flush=True)


app = App(nsqd=NSQD, config=CONFIG, lifespan=lifespan)


async def bury(message: Message) -> None:
    """If this fails, the message is requeued once more, not lost."""
    await app.publish(f"{TOPIC}-dead", message.body)


@app.subscribe(TOPIC, CHANNEL, type=Order, concurrency=8, giving_up=bury)
async def make_bill(order: Order, prices: dict[str, int]) -> None:
    """A price that there is not is an exception, so the order is tried again."""
    await app.publish(f"{TOPIC}-bills", Bill(order.sku, order.count * prices[order.sku]))


@app.subscribe(f"{TOPIC}-bills", "printer", type=Bill)
def print_bill(bill: Bill) -> None:
    """No coroutine function, so it runs in a thread and may block."""
    print(f"bill: {bill.total} for {bill.sku}", flush=True)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    app.run()
