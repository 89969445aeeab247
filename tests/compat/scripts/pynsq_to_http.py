"""Posts what pynsq consumes, as nsq_to_http does, and gives back what is refused: ADDRESS TOPIC CHANNEL URL."""

import sys

import nsq
from tornado.httpclient import AsyncHTTPClient, HTTPError

MAX_IN_FLIGHT = 10  # as many requests at a time as tornado's client makes


class Handler:
    def __init__(self, url):
        self.url = url
        self.client = AsyncHTTPClient()

    async def __call__(self, message):
        try:
            await self.client.fetch(self.url, method="POST", body=message.body)
        except (HTTPError, OSError):
            message.requeue(delay=0, backoff=False)
        else:
            message.finish()


if __name__ == "__main__":
    address, topic, channel, url = sys.argv[1:]
    nsq.Reader(
        message_handler=Handler(url),
        nsqd_tcp_addresses=[address],
        topic=topic,
        channel=channel,
        max_in_flight=MAX_IN_FLIGHT,
        max_tries=0,
        heartbeat_interval=5,
    )
    nsq.run()
