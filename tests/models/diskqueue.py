"""What a disk queue must do, said as simply as possible: a list of records and three sets."""


class DiskQueueModel:
    def __init__(self):
        self.bodies = {}  # ordinal -> body, in the order of writing
        self.unread = []
        self.unfinished = set()

    def put(self, ordinal, body, *, taken=False):
        self.bodies[ordinal] = body
        self.unfinished.add(ordinal)
        if not taken:
            self.unread.append(ordinal)

    def get(self):
        if not self.unread:
            return None
        ordinal = self.unread.pop(0)
        return ordinal, self.bodies[ordinal]

    def finish(self, ordinal):
        self.unfinished.discard(ordinal)

    def empty(self):
        self.unread.clear()
        self.unfinished.clear()

    @property
    def depth(self):
        return len(self.unread)

    @property
    def read(self):
        """Handed out or taken, and not finished."""
        return sorted(self.unfinished.difference(self.unread))

    def bodies_left(self):
        """What must be there after a stop or a crash, in the order of writing."""
        return [self.bodies[ordinal] for ordinal in sorted(self.unfinished)]
