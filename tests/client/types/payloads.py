# pyright: strict
"""What type checkers say of payloads: an error in each line that ends with `# wrong`, and in no other."""

from dataclasses import dataclass
from typing import Any, TypedDict

import nsqfast.client.sync as threaded
from nsqfast.client import Consumer, Message, Producer
from nsqfast.client.payload import decoder_of, encode_json


@dataclass
class Order:
    sku: str


class Row(TypedDict):
    sku: str


def encode_order(order: Order) -> bytes:
    return order.sku.encode()


async def on_order(order: Order) -> None: ...
async def on_order_and_message(order: Order, message: Message) -> None: ...
async def on_message(message: Message) -> None: ...
def on_message_at_once(message: Message) -> None: ...
def on_row(row: Row) -> None: ...
def on_numbers(numbers: list[int]) -> None: ...
def on_object(found: dict[str, Any]) -> None: ...
def in_thread(order: Order) -> None: ...
def in_thread_with_message(order: Order, message: threaded.Message) -> None: ...
def on_message_in_thread(message: threaded.Message) -> None: ...


async def publish(any_producer: Producer, orders: Producer[Order]) -> None:
    plain = Producer("127.0.0.1:4150")
    await plain.publish("orders", b"tea")
    await plain.publish("orders", {"sku": "tea"})  # wrong
    await plain.publish("orders", "tea")  # wrong
    await plain.publish_many("orders", ["tea"])  # wrong
    await plain.publish_later("orders", "tea", 1)  # wrong
    plain.send("orders", None)  # wrong
    json = Producer("127.0.0.1:4150", encoder=encode_json)
    await json.publish("orders", {"sku": "tea"})
    await json.publish_many("orders", [Order("tea"), "tea"])
    orders = Producer("127.0.0.1:4150", encoder=encode_order)
    await orders.publish("orders", Order("tea"))
    await orders.publish("orders", {"sku": "tea"})  # wrong
    await any_producer.publish("orders", b"tea")
    any_producer = json
    any_producer = orders  # wrong
    Producer("127.0.0.1:4150", encoder="json")  # wrong


async def consume(any_consumer: Consumer) -> None:
    consumer = Consumer("orders", "billing", nsqd="127.0.0.1:4150")
    await consumer.run(on_message)
    await consumer.run(on_message_at_once, concurrency=8)
    await consumer.run(on_order)  # wrong
    await consumer.run(on_order, type=Order)
    await consumer.run(on_order_and_message, 8, type=Order)
    await consumer.run(on_row, type=Row)
    await consumer.run(on_numbers, type=list[int])
    await consumer.run(on_object, type=dict[str, Any])
    await consumer.run(on_order, type=Row)  # wrong
    await consumer.run(on_numbers, type=list[str])  # wrong
    await consumer.run(on_message, type=Order)  # wrong
    of_orders = Consumer("orders", "billing", nsqd="127.0.0.1:4150", decoder=decoder_of(Order))
    await of_orders.run(on_order)
    await of_orders.run(on_order_and_message)
    await of_orders.run(on_message)  # wrong
    await any_consumer.run(on_message)


def consume_in_threads(any_consumer: threaded.Consumer) -> None:
    consumer = threaded.Consumer("orders", "billing", nsqd="127.0.0.1:4150")
    consumer.run(on_message_in_thread)
    consumer.run(in_thread, type=Order)
    consumer.run(in_thread_with_message, 8, type=Order)
    consumer.run(in_thread)  # wrong
    consumer.run(on_row, type=Order)  # wrong
    consumer.run(on_order, type=Order)  # wrong
    consumer.run(on_order_and_message, type=Order)  # wrong
    of_orders = threaded.Consumer(
        "orders", "billing", nsqd="127.0.0.1:4150", decoder=decoder_of(Order)
    )
    of_orders.run(in_thread)
    of_orders.run(on_row)  # wrong
    threaded.Producer("127.0.0.1:4150").publish("orders", "tea")  # wrong
    threaded.Producer("127.0.0.1:4150", encoder=encode_json).publish("orders", "tea")
    any_consumer.run(on_message_in_thread)
