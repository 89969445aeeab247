"""What each channel owes: a message is there until it was finished or wiped, and never again after that.

What dies in a channel is owed as before, by the topic of its dead letters.

Every body begins with a serial. It is SURE from the OK of its publish on, and UNSURE where nobody outside can know: its
OK has not come, or it was there when its queue was emptied or deleted. Where its FIN was sent over a connection that
broke it is DOUBTFUL, and an OK that comes after that changes nothing.
"""

import time
from collections import Counter, deque

SURE, UNSURE, DOUBTFUL = 1, 0, -1
SERIAL_SIZE = 8
STORY_MAX = 40
SENT_MAX = 100_000
GONE_MAX = 200_000
SHOWN_MAX = 5
DEAD_CHANNEL = "c"


# Added to attempts of a dead letter: it is behind all that were made where it died.
DEAD_ATTEMPTS = 1 << 16


class BrokenError(AssertionError):
    """The broker has lost a message, has one twice, or counts wrong; in a channel of these books, if there are some."""

    def __init__(self, text, books=None):
        super().__init__(text)
        self.books = books


class Clock:
    """When something was, for those who read a report."""

    def __init__(self):
        self.begin_life("")

    def begin_life(self, name):
        self.name, self.began_s = name, time.monotonic()

    def now(self):
        return f"{self.name} at {time.monotonic() - self.began_s:.3f} s"


class ChannelBooks:
    """One channel, for as long as its topic's name is used."""

    def __init__(self, topic, name, clock=None):
        self.topic, self.name = topic, name
        self.dead_letters = f"{topic}.{name}.dead", DEAD_CHANNEL
        self.clock = clock or Clock()
        self.story = deque(maxlen=STORY_MAX)  # what was done with it as a whole
        self.gone = {}  # by serial: why it is owed no more, of what was neither finished nor seen to go
        self.exists = False
        self.owed = {}  # by serial
        self.finishing = Counter()  # FINs whose success is not known yet, by serial
        self.done = {}  # (attempts, by whom, when) by serial, of what was finished in this life of the broker
        self.wipes = self.wiping = 0  # begun; not answered yet
        self.finished_before = 0  # in earlier lives
        self.finished_surely = 0
        self.dead_letters_finished = 0  # in all lives
        self.begin_life(0)

    def __str__(self):
        return f"{self.topic}:{self.name}"

    def begin_life(self, left):
        """The broker was started, and holds so many messages; nobody is connected."""
        self.left_before = left
        self.was_wiped = self.was_deleted = False
        self.finished_before += self.finished_surely
        self.finished_surely = self.finished_perhaps = 0
        self.done.clear()
        self.note(f"begins with {left:,} messages, {self.expected()}")

    def note(self, text):
        self.story.append(f"{self.clock.now()}: {text}")

    def broken(self, text):
        """The error that says so."""
        return BrokenError(f"{self}: {text}", self)

    def expected(self):
        """What is owed, in words."""
        unsure = sum(1 for state in self.owed.values() if state != SURE)
        return f"owed are {self.sure_count():,} surely, {unsure:,} perhaps; {len(self.finishing):,} FINs are open"

    # -- publishing

    def send(self, serials):
        """A publish is on its way; what to say when it is accepted."""
        self.owed.update(dict.fromkeys(serials, UNSURE))
        return self.wipes if self.exists and not self.wiping else None

    def accept(self, serials, wipes):
        """Its OK came; `wipes` is what `send` returned."""
        if wipes == self.wipes:
            for serial in serials:
                if self.owed.get(serial) == UNSURE:  # else finished already, or perhaps so
                    self.owed[serial] = SURE

    # -- the operator

    def begin_creation(self):
        """What makes it where it is not there is on its way."""
        return None if self.wiping else self.wipes

    def end_creation(self, wipes):
        """The answer came; it is there, unless it was deleted meanwhile."""
        if wipes == self.wipes and not self.exists:
            self.exists = True
            self.note("was created")

    def begin_wipe(self, is_deletion=False):
        """It is about to be emptied or deleted: what is there may stay or go."""
        self.note(f"is {'deleted' if is_deletion else 'emptied'}; {self.expected()}")
        self.wipes += 1
        self.wiping += 1
        self.was_wiped = True
        self.was_deleted |= is_deletion
        self.exists &= not is_deletion
        self.owed = dict.fromkeys(self.owed, UNSURE)

    def end_wipe(self):
        """The answer came."""
        self.wiping -= 1
        self.note("that was answered")

    # -- consuming

    def deliver(self, serial, attempts):
        """A consumer read it; what was under way when another one finished it is no fault."""
        finished_at, who, when = self.done.get(serial, (0, "", ""))
        if serial not in self.owed and finished_at < attempts:
            was = self.gone.get(serial, "not owed")
            if finished_at:
                was = f"finished at attempt {finished_at} by {who}, {when}"
            raise self.broken(f"message {serial} came, attempt {attempts}, and was {was}")

    def send_fin(self, serial):
        """Whether it is done is known when a later command is answered."""
        self.finishing[serial] += 1
        self.finished_perhaps += 1

    def confirm_fin(self, serial, attempts, who=""):
        """It was accepted."""
        self._end_fin(serial)
        self.owed.pop(serial, None)
        self.done[serial] = attempts, who, self.clock.now()
        self.finished_surely += 1
        self.dead_letters_finished += attempts > DEAD_ATTEMPTS

    def refuse_fin(self, serial):
        """The message was not in flight to the one who finished it."""
        self._end_fin(serial)
        self.finished_perhaps -= 1

    def lose_fin(self, serial):
        """The connection broke before anything told."""
        self._end_fin(serial)
        if serial in self.owed:
            self.owed[serial] = DOUBTFUL

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
        self.note(f"{came:,} came, {finished:,} finished, {left:,} left; {self.expected()}")
        if not sure <= left <= most:
            raise self.broken(f"{left:,} messages are left, not {sure:,} to {most:,}")
        if self.was_deleted:
            return  # its counters began anew
        if not self.finished_surely <= finished <= self.finished_perhaps:
            raise self.broken(
                f"{finished:,} finished, not {self.finished_surely:,} to {self.finished_perhaps:,}"
            )
        emptied = self.left_before + came - finished - left
        if emptied < 0 or (emptied and not self.was_wiped):
            raise self.broken(
                f"{self.left_before:,} were there, {came:,} came, {finished:,} were finished, "
                f"{left:,} are left: {emptied:,} are missing"
            )

    def forget_unsure(self, left):
        """Where exactly so many are left as must be, nothing else is: it would be one more."""
        if left == self.sure_count() and not self.finishing:
            self.forget("counted out", [one for one, state in self.owed.items() if state != SURE])

    def forget(self, why, serials):
        """They are owed no more."""
        if len(self.gone) > GONE_MAX:
            self.gone.clear()
        self.gone.update(dict.fromkeys(serials, f"{why} in {self.clock.now()}"))
        for serial in serials:
            del self.owed[serial]

    def check_drained(self):
        """A consumer has finished all there was."""
        if missing := self.sure_count():
            some = sorted(serial for serial, state in self.owed.items() if state == SURE)
            error = self.broken(
                f"{missing:,} messages were never delivered, such as {some[:SHOWN_MAX]}"
            )
            error.serials = some
            raise error
        self.forget("not there when all was finished", list(self.owed))
        self.note("nothing is left")


class Books:
    """All channels that are looked at, and the serials."""

    def __init__(self, topics, channels):
        self.clock = Clock()
        self.by_key = {}
        for topic in topics:
            for channel in channels:
                self.add(topic, channel)
        self._next_serial = 1
        self._sent = deque(maxlen=SENT_MAX)  # (serials, by whom, when)

    def add(self, topic, channel):
        self.by_key[topic, channel] = ChannelBooks(topic, channel, self.clock)

    def of_topic(self, topic):
        """None for a topic whose messages nobody counts."""
        return [books for (name, _), books in self.by_key.items() if name == topic]

    def send(self, topic, count, who=""):
        """New serials, and what to call when they are accepted."""
        serials = range(self._next_serial, self._next_serial + count)
        self._next_serial += count
        self._sent.append((serials, who, self.clock.now()))
        sent = [(books, books.send(serials)) for books in self.of_topic(topic)]

        def accept():
            for books, wipes in sent:
                books.accept(serials, wipes)

        return serials, accept

    def totals(self):
        """What was looked at in all lives."""
        finished = sum(one.finished_before + one.finished_surely for one in self.by_key.values())
        dead = sum(one.dead_letters_finished for one in self.by_key.values())
        return f"{self._next_serial - 1:,} messages published, {finished:,} finished, {dead:,} of them dead letters"

    def origin(self, serial):
        """Whose it is, in words."""
        for serials, who, when in self._sent:
            if serial in serials:
                return f"{serial}: number {serial - serials[0]} of {len(serials)} by {who}, {when}"
        return f"{serial}: of long ago"
