"""What becomes of messages that had all their attempts."""

import asyncio

import pytest

from nsqfast.client import Config, Consumer, Producer
from nsqfast.tools.shared.client import GiveUp
from support.web import topic_stats

SECONDS_MAX = 50
CONFIG = Config(max_attempts=1, default_requeue_delay_s=0)


async def give_up_one(broker, topic, action):
    """Publish a message and fail it once; return what the tool was told, and how many were given up."""
    address = "{}:{}".format(*broker.tcp)
    told = asyncio.get_running_loop().create_future()
    give_up = GiveUp(action, CONFIG, lambda error: told.done() or told.set_result(error))
    async with Producer(address) as producer:
        await producer.publish(topic, b"body")
    decide = give_up.of(topic, lambda: consumer)
    decided = asyncio.Event()

    async def note(message):
        await decide(message)
        decided.set()

    consumer = Consumer(topic, "c", nsqd=address, config=CONFIG, giving_up=note)
    async with consumer, asyncio.timeout(SECONDS_MAX):
        async for message in consumer:
            message.requeue(0, backoff=False)
            break
        await decided.wait()
    await give_up.close()
    return told.result() if told.done() else None, give_up.count


def count_left(broker, topic):
    found = topic_stats(broker.http, topic)["channels"]["c"]
    return sum(found[name] for name in ("depth", "in_flight_count", "deferred_count"))


@pytest.mark.parametrize("action", ["finish", "requeue", "exit", "topic:dead"])
def test_each_action(broker, topic, action, caplog):
    dead = f"{topic}-dead"
    action = action.replace("dead", dead)
    error, count = asyncio.run(give_up_one(broker, topic, action))
    assert count >= 1
    assert (error is not None) == (action == "exit")
    assert f"giving up {topic}: " in caplog.text
    assert count_left(broker, topic) == (action in {"requeue", "exit"})
    if action.startswith("topic:"):
        assert topic_stats(broker.http, dead)["message_count"] == 1
