"""Publishes to a broker and consumes from it with pynsq: ADDRESS TOPIC COUNT [OPTIONS as JSON]."""

import json
import sys

import nsq
import tornado.ioloop


class Roundtrip:
    def __init__(self, address, topic, count, options):
        self.topic = topic
        self.bodies = [b"%d" % number for number in range(count)]
        self.wanted = set(self.bodies)
        self.loop = tornado.ioloop.IOLoop.current()
        self.writer = nsq.Writer([address], **options)
        self.reader = nsq.Reader(
            message_handler=self.handle,
            nsqd_tcp_addresses=[address],
            topic=topic,
            channel="pynsq",
            max_in_flight=50,
            heartbeat_interval=5,
            **options,
        )
        self.requeued = set()
        self.loop.call_later(0, self.publish)
        self.loop.call_later(20, self.give_up)

    def publish(self):
        if not self.writer.conns:
            self.loop.call_later(0.02, self.publish)
            return
        half = len(self.bodies) // 2
        self.writer.mpub(self.topic, self.bodies[:half])
        for body in self.bodies[half:-1]:
            self.writer.pub(self.topic, body)
        self.writer.dpub(self.topic, 50, self.bodies[-1])

    def handle(self, message):
        if len(self.requeued) < 5 and message.body not in self.requeued:
            # Not by raising: pynsq would back off for seconds.
            self.requeued.add(message.body)
            message.requeue(delay=0, backoff=False)
            return None
        self.wanted.discard(message.body)
        if not self.wanted:
            self.loop.call_later(0.1, self.finish)
        return True

    def finish(self):
        print("all arrived")
        self.loop.stop()

    def give_up(self):
        print(f"missing: {sorted(self.wanted)[:20]}")
        self.loop.stop()


if __name__ == "__main__":
    options = json.loads(sys.argv[4]) if len(sys.argv) > 4 else {}
    Roundtrip(sys.argv[1], sys.argv[2], int(sys.argv[3]), options)
    tornado.ioloop.IOLoop.current().start()
