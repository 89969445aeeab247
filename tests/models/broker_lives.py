"""What a folder must hold after a broker was stopped or killed, as plainly as it can be said.

Events are noted before a command is sent and after what it led to was seen. The OK of a publish commits it and all that
happened before it was sent; what is not committed may be there after a kill, or not.
"""

from dataclasses import dataclass, field

SENT, MUST, MAY, GONE = "sent", "must", "may", "gone"
LOG_MODES = ("always", "interval")


@dataclass(slots=True)
class Copy:
    """One message in one queue."""

    number: int
    status: str
    publish: int  # of the command that brought it
    due_ns: int = 0  # by the wall clock; 0 = at once
    kept_due_ns: int = 0  # as committed
    attempts: int = 0  # of the last delivery in this life; 0 = there was none
    kept_attempts: int = 0  # as committed
    delivery_count: int = (
        0  # those that were seen, and one for each kill, which may have hidden one
    )
    holder: int = 0  # a consumer; 0 = it is queued or deferred
    is_seen: bool = False
    twins: int = 0  # at most so many more of it are here


@dataclass(slots=True)
class Queue:
    """A channel, or what a topic keeps for its channels."""

    is_alive: bool = True
    is_certain: bool = False  # its name is committed
    is_leaving: bool = False  # deleted, and that is not committed
    is_paused: bool = False
    is_pause_certain: bool = True
    copies: dict[int, Copy] = field(default_factory=dict)


class LivesModel:
    """The queues of one folder, over all lives. `promises` is what the mode of the present life keeps over a kill."""

    def __init__(self):
        self.queues = {}  # (topic, channel; "" = the topic itself) -> Queue
        self.listed, self.maybe_listed = set(), set()  # by nsqd.dat
        self.pending = []  # (event, what commits it, what a kill makes of it)
        self.unsure = {}  # publish -> {queue's key: numbers}: all of them are there, or none
        self.moving = {}  # topic -> numbers that it may hand over once more after a kill
        self.event = 0
        self.sent_at = {}  # publish -> event
        self.publish_count = self.number_count = self.life_count = self.kill_count = 0
        self.ahead_ns = 0  # of the wall clock
        self.mode = "off"
        self.has_open_log = False  # it was begun, and not closed

    def apply(self, event):
        """Take in one event, a list of its name and its values."""
        self.event += 1
        getattr(self, "on_" + event[0])(*event[1:])

    # -- what is asked -------------------------------------------------------------------------------------------------

    def channels(self, topic):
        """The keys of its channels."""
        return [k for k, q in self.queues.items() if k[0] == topic and k[1] and q.is_alive]

    def topics(self):
        return [k[0] for k, q in self.queues.items() if not k[1] and q.is_alive]

    def counts(self, key):
        """(at least, at most) how many messages the queue has."""
        statuses = [copy.status for copy in self.queues[key].copies.values()]
        twins = sum(copy.twins for copy in self.queues[key].copies.values())
        return statuses.count(MUST), len(statuses) - statuses.count(GONE) + twins

    def missing(self):
        """What has to come and has not."""
        return [
            (key, copy)
            for key, queue in self.queues.items()
            for copy in queue.copies.values()
            if copy.status == MUST and queue.is_alive
        ]

    # -- pending changes -----------------------------------------------------------------------------------------------

    def later(self, commit, on_kill=lambda: None):
        self.pending.append((self.event, commit, on_kill))

    def commit(self, before):
        waiting = self.pending
        self.pending = [item for item in waiting if item[0] >= before]
        for event, commit, _ in waiting:
            if event < before:
                commit()

    def remove(self, key, copy):
        """It was finished, emptied or deleted."""
        status, copy.status, copy.holder, copy.twins = copy.status, GONE, 0, 0

        def on_kill():
            copy.status = MAY

        def commit():
            if (
                self.queues[key].copies.get(copy.number) is copy
            ):  # and not one that its topic had still
                del self.queues[key].copies[copy.number]

        assert status != GONE
        self.later(commit, on_kill)

    def finish_twin(self, key, copy):
        """The other one may still come."""
        copy.twins -= 1
        copy.status = MAY
        copy.holder = copy.attempts = copy.kept_attempts = copy.due_ns = copy.kept_due_ns = 0

        def on_kill():
            copy.twins += copy.status != GONE
            self.queues[key].copies.setdefault(copy.number, copy)

        self.later(lambda: None, on_kill)

    def clear(self, key):
        for copy in self.queues[key].copies.values():
            if copy.status != GONE:
                self.remove(key, copy)
        for places in self.unsure.values():
            places.pop(key, None)

    # -- a life --------------------------------------------------------------------------------------------------------

    def on_opening(self, mode):
        self.mode = mode
        self.has_open_log |= mode in LOG_MODES
        self.life_count += 1

    def on_opened(self, found):
        """found: [topic, channel or "", is_paused] of all queues."""
        found = {(topic, channel): is_paused for topic, channel, is_paused in found}
        for key in sorted(self.queues, reverse=True):  # a topic behind its channels
            if key not in found:
                self.was_lost(key, found)
        for key, is_paused in found.items():
            self.was_found(key, is_paused)
        for topic in self.topics():
            self.hand_over(topic)
        self.listed &= found.keys()

    def was_lost(self, key, found):
        queue = self.queues[key]
        is_known = key in self.listed or queue.is_certain
        assert not (queue.is_alive and is_known), f"{key} is not there any more"
        if key[1] and not queue.is_certain and (key[0], "") in found:
            # It may have come from the topic, which then still has it.
            for copy in queue.copies.values():
                self.queues[key[0], ""].copies[copy.number] = copy
        elif queue.is_alive:
            lost = [copy for copy in queue.copies.values() if copy.status == MUST]
            assert not lost, f"{key} is not there any more, and it had {lost}"
        queue.is_alive = queue.is_leaving = False
        queue.copies = {}
        for places in self.unsure.values():
            places.pop(key, None)

    def was_found(self, key, is_paused):
        queue = self.queues.setdefault(key, Queue(is_alive=False))
        may = queue.is_alive or queue.is_leaving or key in self.listed | self.maybe_listed
        assert may, f"{key} is there again"
        if queue.is_alive and queue.is_pause_certain:
            assert is_paused == queue.is_paused, f"pause of {key}: {is_paused}"
        if not queue.is_alive and key[1]:
            self.admit_all(key)
        if is_paused and not key[1]:
            self.take_back(key, self.moving.get(key[0], ()))
        queue.is_alive, queue.is_certain, queue.is_leaving = True, True, False
        queue.is_paused, queue.is_pause_certain = is_paused, True

    def take_back(self, key, numbers):
        """They went to the channels, or are with the topic, which nsqd.dat calls paused."""
        for number in numbers:
            for other in self.channels(key[0]):
                copy = self.queues[other].copies.get(number)
                if copy is not None:
                    copy.status = MAY
                    self.queues[key].copies[number] = Copy(number, MAY, copy.publish)

    def admit_all(self, key):
        """A deleted channel that nsqd.dat still names may get what the topic has not handed over to the others yet."""
        for other in self.channels(key[0]):
            for number, copy in self.queues[other].copies.items():
                self.queues[key].copies.setdefault(number, Copy(number, MAY, copy.publish))

    def on_closed(self):
        """All of it was kept."""
        for queue in self.queues.values():
            for copy in queue.copies.values():
                if copy.status == SENT:
                    copy.status = MUST
                copy.kept_due_ns = copy.due_ns
                copy.kept_attempts = max(copy.attempts, copy.kept_attempts)
                copy.attempts = copy.holder = 0
            queue.is_certain = True
        self.commit(self.event)
        self.moving = {}
        self.has_open_log = False

    def on_killed(self):
        self.kill_count += 1
        for key, queue in self.queues.items():
            for copy in queue.copies.values():
                if copy.status == SENT:
                    copy.status, copy.is_seen = MAY, False
                    numbers = self.unsure.setdefault(copy.publish, {}).setdefault(key, set())
                    numbers.add(copy.number)
        for _, _, on_kill in self.pending:
            on_kill()
        self.pending = []
        for topic, numbers in self.moving.items():
            for key in self.channels(topic):
                self.add_twins(key, numbers)
        for queue in self.queues.values():
            for copy in queue.copies.values():
                copy.due_ns, copy.attempts, copy.holder = copy.kept_due_ns, 0, 0
                copy.delivery_count += 1

    def add_twins(self, key, numbers):
        """These may come once more, finished ones, too."""
        copies = self.queues[key].copies
        for number in numbers:
            if number in copies:
                copies[number].twins += 1
            else:
                copies[number] = Copy(number, MAY, 0)

    def on_passed(self, ahead_ns, is_timeout):
        self.ahead_ns = ahead_ns
        if is_timeout:
            for queue in self.queues.values():
                for copy in queue.copies.values():
                    if copy.holder:
                        self.give_back(copy, 0)

    # -- topics and channels -------------------------------------------------------------------------------------------

    def make(self, key):
        queue = self.queues.setdefault(key, Queue(is_alive=False))
        assert not queue.is_alive
        queue.is_alive, queue.is_certain = True, False
        queue.is_paused = queue.is_pause_certain = False

        def commit():
            queue.is_certain = self.mode in LOG_MODES

        self.later(commit)

    def on_made(self, topic, channel):
        if (topic, "") not in self.queues or not self.queues[topic, ""].is_alive:
            self.make((topic, ""))
        if channel and (topic, channel) not in self.channels(topic):
            self.make((topic, channel))
            self.hand_over(topic)

    def hand_over(self, topic):
        """What the topic kept goes to all channels that there are."""
        mine, keys = self.queues[topic, ""], self.channels(topic)
        if mine.is_paused or not keys:
            return
        self.moving.setdefault(topic, set()).update(mine.copies)
        for copy in mine.copies.values():
            for key in keys:
                if copy.status != GONE:
                    self.hand_to(key, copy)
        for places in self.unsure.values():
            numbers = places.pop((topic, ""), None)
            if numbers:
                places |= {key: set(numbers) for key in keys}
        mine.copies = {number: c for number, c in mine.copies.items() if c.status == GONE}

    def hand_to(self, key, copy):
        taken = Copy(copy.number, copy.status, copy.publish, copy.due_ns, copy.kept_due_ns)
        taken.kept_attempts, taken.delivery_count = copy.kept_attempts, copy.delivery_count
        there = self.queues[key].copies.get(copy.number)
        if there is not None:
            # A kill left it open how far it had come: what nobody knew of its parts is handed over again.
            taken.status, taken.delivery_count = MAY, taken.delivery_count + there.delivery_count
            taken.twins = there.twins + (there.status != GONE)
            taken.kept_due_ns = taken.due_ns = taken.kept_attempts = 0
        self.queues[key].copies[copy.number] = taken

    def on_handed_over(self, topic):
        """All of it has left the topic."""
        numbers = self.moving.pop(topic)

        def on_kill():
            self.moving.setdefault(topic, set()).update(numbers)

        self.later(lambda: None, on_kill)

    def on_deleted(self, topic, channel):
        keys = [(topic, channel)] if channel else [(topic, ""), *self.channels(topic)]
        if not channel:
            self.moving.pop(topic, None)
        for key in keys:
            self.clear(key)
            queue = self.queues[key]
            queue.is_alive, queue.is_leaving = False, True
            queue.is_paused = queue.is_pause_certain = False
            self.later(lambda queue=queue: setattr(queue, "is_leaving", False))

    def on_paused(self, topic, channel, is_paused):
        queue = self.queues[topic, channel]
        queue.is_paused, queue.is_pause_certain = is_paused, False
        if not channel and not is_paused:
            self.hand_over(topic)

    def on_emptied(self, topic, channel):
        self.clear((topic, channel))

    def on_writing(self):
        """Write nsqd.dat."""
        self.maybe_listed = {key for key, queue in self.queues.items() if queue.is_alive}

    def on_wrote(self):
        self.listed, self.maybe_listed = self.maybe_listed, set()
        for key in self.listed:
            self.queues[key].is_pause_certain = True

    # -- messages ------------------------------------------------------------------------------------------------------

    def on_sent(self, topic, numbers, due_ns):
        """A publish."""
        self.on_made(topic, "")
        self.publish_count += 1
        self.number_count += len(numbers)
        self.sent_at[self.publish_count] = self.event
        keys = [] if self.queues[topic, ""].is_paused else self.channels(topic)
        for key in keys or [(topic, "")]:
            for number in numbers:
                copy = Copy(number, SENT, self.publish_count, due_ns, due_ns)
                self.queues[key].copies[number] = copy

    def on_ok(self, publish):
        for copy in self.copies_of(publish):
            if copy.status == SENT:
                copy.status = MUST
        self.commit(self.sent_at[publish] + 1)

    def on_refused(self, publish, text):
        for queue in self.queues.values():
            refused = {n for n, copy in queue.copies.items() if copy.publish == publish}
            for number in refused:
                assert not queue.copies.pop(number).attempts, (
                    "it was refused after it was delivered"
                )

    def copies_of(self, publish):
        return [c for q in self.queues.values() for c in q.copies.values() if c.publish == publish]

    def on_got(self, consumer, topic, channel, number, attempts, wall_ns):
        queue = self.queues[topic, channel]
        copy = queue.copies.get(number)
        assert copy is not None, "nobody published it here, or it is finished for good"
        assert copy.status != GONE, "it was finished"
        assert not queue.is_paused, "the channel is paused"
        if not copy.twins:
            assert not copy.holder, f"it is in flight to {copy.holder}"
            assert wall_ns >= copy.due_ns, f"{(copy.due_ns - wall_ns) / 1e9} s before its time"
            lowest = copy.attempts or copy.kept_attempts
            assert attempts > lowest, f"attempts after {lowest}"
        assert attempts <= copy.delivery_count + 1, f"there were {copy.delivery_count} deliveries"
        copy.status = MUST if copy.status == MAY else copy.status
        copy.attempts, copy.holder, copy.is_seen = attempts, consumer, True
        copy.delivery_count += 1

    def on_finished(self, topic, channel, number):
        copy = self.queues[topic, channel].copies[number]
        if copy.twins:
            self.finish_twin((topic, channel), copy)
        else:
            self.remove((topic, channel), copy)

    def on_requeued(self, topic, channel, number, due_ns):
        self.give_back(self.queues[topic, channel].copies[number], due_ns)

    def give_back(self, copy, due_ns):
        """Requeued, or timed out."""
        attempts = copy.attempts
        copy.holder, copy.due_ns = 0, due_ns

        def commit():
            copy.kept_due_ns = due_ns
            copy.kept_attempts = max(copy.kept_attempts, attempts)

        def on_kill():
            copy.kept_due_ns = 0  # it may have been noted, or not

        self.later(commit, on_kill)

    def on_left(self, consumer):
        """What it had is queued again."""
        for queue in self.queues.values():
            for copy in queue.copies.values():
                if copy.holder == consumer:
                    copy.holder, copy.due_ns = 0, 0

    def on_drained(self):
        """All that was there has come."""
        lost = [(key, copy.number) for key, copy in self.missing()]
        assert not lost, f"{len(lost)} are lost: {lost[:20]}"
        for publish, places in self.unsure.items():
            found = {key: self.seen(key, numbers) for key, numbers in places.items()}
            parts = {len(seen) / len(places[key]) for key, seen in found.items()}
            assert parts in ({0.0}, {1.0}, set()), (
                f"a part of publish {publish}: {found} of {places}"
            )
        self.unsure = {}
        for queue in self.queues.values():
            for number in [n for n, copy in queue.copies.items() if copy.status == MAY]:
                del queue.copies[number]

    def seen(self, key, numbers):
        copies = self.queues[key].copies
        return {n for n in numbers if n not in copies or copies[n].is_seen}
