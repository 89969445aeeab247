# pyright: strict
"""What type checkers say of an App: an error in each line that ends with `# wrong`, and in no other."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from nsqfast import App, Config, Message


@dataclass
class Order:
    sku: str


class Database: ...


@asynccontextmanager
async def lifespan(app: App) -> AsyncGenerator[dict[str, Database]]:
    yield {"db": Database()}


@asynccontextmanager
async def no_resources(app: App) -> AsyncGenerator[None]:
    yield


@asynccontextmanager
async def no_mapping(app: App) -> AsyncGenerator[Database]:
    yield Database()


app = App(nsqd=["127.0.0.1:4150"], lifespan=lifespan)
App(nsqd="127.0.0.1:4150", lifespan=no_resources)
App(nsqd="127.0.0.1:4150", lifespan=no_mapping)  # wrong
App("127.0.0.1:4150")  # wrong
App(nsqd=4150)  # wrong


@app.subscribe("orders", "billing", type=Order, concurrency=8, config=Config(max_attempts=3))
async def on_order(order: Order, db: Database, *, message: Message) -> None: ...


@app.subscribe("orders", "storage", type=Order)
@app.subscribe("orders", "audit", type=Order)
def in_thread(order: Order) -> None: ...


@app.subscribe("orders", "raw", auto_touch=True)
async def on_message(message: Message, db: Database) -> None: ...


def on_text(text: str) -> None: ...


app.subscribe("orders", "texts", type=str)(on_text)
app.subscribe("orders", "texts", type=Order)(on_text)  # wrong
app.subscribe("orders", "texts", type=str)(in_thread)  # wrong
app.subscribe("orders", "texts", concurency=8)(on_text)  # wrong
app.subscribe("orders", "texts", concurrency="8")(on_text)  # wrong
app.subscribe("orders")(on_text)  # wrong


async def publish() -> None:
    await app.publish("orders", Order("tea"), headers={"tenant": "x"})
    await app.publish("orders", b"tea", headers={"tenant": 1})  # wrong
    await on_order(Order("tea"), Database(), message=1)  # wrong
    in_thread("tea")  # wrong
