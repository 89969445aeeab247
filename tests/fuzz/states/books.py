"""What each channel owes: a message is there until it was finished or wiped, and never again after that.

Every body begins with a serial. It is SURE from the OK of its publish on, and UNSURE where nobody outside can know: its
OK has not come, it was there when its queue was emptied or deleted, or its FIN was sent over a connection that broke.
"""

from collections import Counter

SURE, UNSURE = 1, 0
SERIAL_SIZE = 8


class BrokenError(AssertionError):
    """The broker has lost a message, has one twice, or counts wrong."""


class ChannelBooks:
    """One channel, for as long as its topic's name is used."""

    def __init__(self, topic, name):
        self.topic, self.name = topic, name
        self.exists = False
        self.owed = {}  # by serial
        self.finishing = Counter()  # FINs whose success is not known yet, by serial
        self.done = {}  # attempts by serial, of what was finished in this life of the broker
        self.wipes = self.wiping = 0  # begun; not answered yet
        self.begin_life(0)

    def __str__(self):
        return f"{self.topic}:{self.name}"

    def begin_life(self, left):
        """The broker was started, and holds so many messages; nobody is connected."""
        self.left_before = left
        self.was_wiped = self.was_deleted = False
        self.finished_surely = self.finished_perhaps = 0
        self.done.clear()

    # -- publishing

    def send(self, serials):
        """A publish is on its way; what to say when it is accepted."""
        self.owed.update(dict.fromkeys(serials, UNSURE))
        return self.wipes if self.exists and not self.wiping else None

    def accept(self, serials, wipes):
        """Its OK came; `wipes` is what `send` returned."""
        if wipes == self.wipes:
            for serial in serials:
                if serial in self.owed:  # else finished already
                    self.owed[serial] = SURE

    # -- the operator

    def begin_creation(self):
        """What makes it where it is not there is on its way."""
        return None if self.wiping else self.wipes

    def end_creation(self, wipes):
        """The answer came; it is there, unless it was deleted meanwhile."""
        self.exists |= wipes == self.wipes

    def begin_wipe(self, is_deletion=False):
        """It is about to be emptied or deleted: what is there may stay or go."""
        self.wipes += 1
        self.wiping += 1
        self.was_wiped = True
        self.was_deleted |= is_deletion
        self.exists &= not is_deletion
        self.owed = dict.fromkeys(self.owed, UNSURE)

    def end_wipe(self):
        """The answer came."""
        self.wiping -= 1

    # -- consuming

    def deliver(self, serial, attempts):
        """A consumer read it; what was under way when another one finished it is no fault."""
        if serial not in self.owed and self.done.get(serial, 0) < attempts:
            was = f"finished at attempt {self.done[serial]}" if serial in self.done else "not owed"
            raise BrokenError(f"{self}: message {serial} came, attempt {attempts}, and was {was}")

    def send_fin(self, serial):
        """Whether it is done is known when a later command is answered."""
        self.finishing[serial] += 1
        self.finished_perhaps += 1

    def confirm_fin(self, serial, attempts):
        """It was accepted."""
        self._end_fin(serial)
        self.owed.pop(serial, None)
        self.done[serial] = attempts
        self.finished_surely += 1

    def refuse_fin(self, serial):
        """The message was not in flight to the one who finished it."""
        self._end_fin(serial)
        self.finished_perhaps -= 1

    def lose_fin(self, serial):
        """The connection broke before anything told."""
        self._end_fin(serial)
        if serial in self.owed:
            self.owed[serial] = UNSURE

    def _end_fin(self, serial):
        self.finishing[serial] -= 1
        if not self.finishing[serial]:
            del self.finishing[serial]

    # -- looking

    def sure_count(self):
        """So many messages have to be there."""
        return sum(
            1
            for serial, state in self.owed.items()
            if state == SURE and serial not in self.finishing
        )

    def check(self, came, finished, left):
        """The counters of a broker in which nothing moves: since its start, and what is there now."""
        sure, most = self.sure_count(), len(self.owed)
        if not sure <= left <= most:
            raise BrokenError(f"{self}: {left:,} messages are left, not {sure:,} to {most:,}")
        if self.was_deleted:
            return  # its counters began anew
        if not self.finished_surely <= finished <= self.finished_perhaps:
            raise BrokenError(
                f"{self}: {finished:,} finished, not {self.finished_surely:,} to {self.finished_perhaps:,}"
            )
        emptied = self.left_before + came - finished - left
        if emptied < 0 or (emptied and not self.was_wiped):
            raise BrokenError(
                f"{self}: {self.left_before:,} were there, {came:,} came, {finished:,} were finished, "
                f"{left:,} are left: {emptied:,} are missing"
            )

    def forget_unsure(self, left):
        """Where exactly so many are left as must be, nothing else is: it would be one more."""
        if left == self.sure_count() and not self.finishing:
            self.owed = {serial: SURE for serial, state in self.owed.items() if state == SURE}

    def check_drained(self):
        """A consumer has finished all there was."""
        if missing := self.sure_count():
            some = sorted(serial for serial, state in self.owed.items() if state == SURE)[:5]
            raise BrokenError(f"{self}: {missing:,} messages were never delivered, such as {some}")
        self.owed.clear()


class Books:
    """All channels that are looked at, and the serials."""

    def __init__(self, topics, channels):
        self.by_key = {(t, c): ChannelBooks(t, c) for t in topics for c in channels}
        self._next_serial = 1

    def add(self, topic, channel):
        self.by_key[topic, channel] = ChannelBooks(topic, channel)

    def of_topic(self, topic):
        """None for a topic whose messages nobody counts."""
        return [books for (name, _), books in self.by_key.items() if name == topic]

    def send(self, topic, count):
        """New serials, and what to call when they are accepted."""
        serials = range(self._next_serial, self._next_serial + count)
        self._next_serial += count
        sent = [(books, books.send(serials)) for books in self.of_topic(topic)]

        def accept():
            for books, wipes in sent:
                books.accept(serials, wipes)

        return serials, accept
