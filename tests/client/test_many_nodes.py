"""A consumer of hundreds of nsqd: one broker that is reached under as many addresses."""

from nsqfast.client import Config, Consumer, Producer
from nsqfast.client.flow import Flow
from support.server import start_nsqd
from support.waiting import until

COUNT = 400


async def test_what_each_may_have_is_not_counted_anew_for_each(
    monkeypatch, implementation, tmp_path, topic
):
    """All are connected, and have their share; that took few distributions, each of which looks at all of them."""
    spreads = []
    spread = Flow.spread
    monkeypatch.setattr(Flow, "spread", lambda flow: spreads.append(1) or spread(flow))
    with start_nsqd(implementation, tmp_path, "--tcp-address=0.0.0.0:0") as server:
        port = server.tcp[1]
        addresses = [f"127.0.{1 + n // 200}.{1 + n % 200}:{port}" for n in range(COUNT)]
        config = Config(max_in_flight=COUNT + 7)
        async with Consumer(topic, "c", nsqd=addresses, config=config) as consumer:

            def connections():
                return consumer.stats().connections.values()

            await until(lambda: all(one.is_connected for one in connections()))
            await until(lambda: {one.rdy for one in connections()} == {1, 2})
            assert sum(one.rdy for one in connections()) == COUNT + 7
            assert len(spreads) < COUNT / 4
            async with Producer(addresses[0]) as producer:
                await producer.publish(topic, b"x")
            (await anext(aiter(consumer))).finish()
            await consumer.drop_nsqd(addresses[0])
            await until(lambda: sum(one.rdy for one in connections()) == COUNT + 7)
