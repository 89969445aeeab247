"""Who may get a message when consumption is topology-aware, as plainly as it can be said."""


class NearestFirst:
    """One queue and consumers at distances 0 to 2; bodies are unique, so they name messages."""

    def __init__(self):
        self.queue = []
        self.distance = {}  # by consumer
        self.rdy = {}
        self.in_flight = {}  # body -> consumer
        self.taken = [0, 0, 0]

    def room(self, consumer):
        return self.rdy[consumer] - sum(owner == consumer for owner in self.in_flight.values())

    def deliver(self, arrived, is_ordered):
        """(consumer, body) of everything that one step gave out: oldest first, nearest first."""
        if is_ordered:
            arrived = sorted(arrived, key=lambda item: self.queue.index(item[1]))
            assert [body for _, body in arrived] == self.queue[: len(arrived)]
        else:
            arrived = sorted(arrived, key=lambda item: self.distance[item[0]])
        for consumer, body in arrived:
            nearest = min(self.distance[each] for each in self.rdy if self.room(each) > 0)
            assert self.room(consumer) > 0
            assert self.distance[consumer] == nearest
            self.queue.remove(body)
            self.in_flight[body] = consumer
            self.taken[nearest] += 1
        assert not self.queue or all(self.room(each) <= 0 for each in self.rdy)

    def leave(self, consumer):
        """What it had is queued again."""
        del self.rdy[consumer]
        del self.distance[consumer]
        back = [body for body, owner in self.in_flight.items() if owner == consumer]
        for body in back:
            self.requeue(body)

    def requeue(self, body):
        del self.in_flight[body]
        self.queue.append(body)
