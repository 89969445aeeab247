"""Consumes with pynsq and gives back each message at once, for ever: ADDRESS TOPIC CHANNEL."""

import sys

import nsq


def handle(message):
    message.requeue(delay=0, backoff=False)


if __name__ == "__main__":
    address, topic, channel = sys.argv[1:]
    nsq.Reader(
        message_handler=handle,
        nsqd_tcp_addresses=[address],
        topic=topic,
        channel=channel,
        max_in_flight=10,
        max_tries=0,
        heartbeat_interval=5,
    )
    nsq.run()
