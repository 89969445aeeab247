"""Publishes with pynsq to brokers of which one refuses, until each message is taken: ADDRESS,ADDRESS TOPIC COUNT."""

import sys

import nsq
import tornado.ioloop

RETRY_S = 0.02


class Publishing:
    def __init__(self, addresses, topic, count):
        self.topic = topic
        self.left = count
        self.refused = 0
        self.loop = tornado.ioloop.IOLoop.current()
        self.writer = nsq.Writer(addresses, reconnect_interval=0.1)
        for number in range(count):
            self.loop.call_later(0, self.publish, b"%d" % number)
        self.loop.call_later(20, self.loop.stop)

    def publish(self, body):
        if not self.writer.conns:
            self.loop.call_later(RETRY_S, self.publish, body)
            return
        self.writer.pub(self.topic, body, lambda conn, data: self.answered(body, data))

    def answered(self, body, data):
        if isinstance(data, nsq.Error):
            self.refused += 1
            self.loop.call_later(RETRY_S, self.publish, body)
            return
        self.left -= 1
        if not self.left:
            self.loop.stop()


if __name__ == "__main__":
    publishing = Publishing(sys.argv[1].split(","), sys.argv[2], int(sys.argv[3]))
    publishing.loop.start()
    print(f"left {publishing.left}, refused {'some' if publishing.refused else 'none'}")
