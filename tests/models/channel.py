"""What a channel is supposed to do, as plainly as it can be said."""


class ChannelModel:
    """One queue; consumers with windows; FIN, REQ and timeouts. Bodies are unique, so they name messages."""

    def __init__(self):
        self.queue = []
        self.in_flight = {}  # body -> consumer
        self.deferred = set()
        self.attempts = {}
        self.rdy = {}
        self.requeued = 0

    def windows_open(self):
        return [c for c, rdy in self.rdy.items() if self.held_by(c) < rdy]

    def held_by(self, consumer):
        return sum(owner == consumer for owner in self.in_flight.values())

    def publish(self, body):
        self.queue.append(body)
        self.attempts[body] = 0

    def delivered(self, consumer, body, attempts):
        """A message arrived: it must be the oldest, and its consumer must have asked for one more."""
        assert self.queue[0] == body
        assert self.held_by(consumer) < self.rdy[consumer]
        self.queue.pop(0)
        self.attempts[body] += 1
        assert self.attempts[body] == attempts
        self.in_flight[body] = consumer

    def settled(self):
        """Nobody who wants a message is without one while there is one."""
        assert not self.queue or not self.windows_open()

    def finish(self, body):
        del self.in_flight[body]

    def requeue(self, body):
        del self.in_flight[body]
        self.queue.append(body)
        self.requeued += 1

    def defer(self, body):
        del self.in_flight[body]
        self.deferred.add(body)
        self.requeued += 1
