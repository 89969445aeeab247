"""What nsqlookupd's database holds, in one flat list and without any index."""


class Registrations:
    """Rows of (topic, channel or "", peer, tombstoned at or None); keys apart, because they stay without peers."""

    def __init__(self, inactive_timeout_ns, tombstone_lifetime_ns):
        self.inactive_timeout_ns = inactive_timeout_ns
        self.tombstone_lifetime_ns = tombstone_lifetime_ns
        self.seen_ns = {}
        self.keys = set()
        self.kept = set()
        self.rounds = {}  # since it lost its last peer, by key
        self.rows = []

    def _has(self, topic, channel, peer=None):
        return any(row[:2] == [topic, channel] and peer in (None, row[2]) for row in self.rows)

    def _drop(self, topic, channel, peer):
        self.rows = [row for row in self.rows if row[:3] != [topic, channel, peer]]

    def add(self, peer, now_ns):
        self.seen_ns[peer] = now_ns

    def remove(self, peer):
        del self.seen_ns[peer]
        self.rows = [row for row in self.rows if row[2] != peer]

    def register(self, peer, topic, channel):
        for key in {(topic, channel), (topic, "")}:
            self.keys.add(key)
            self.rounds.pop(key, None)
            if not self._has(*key, peer):
                self.rows.append([*key, peer, None])

    def unregister(self, peer, topic, channel):
        if channel:
            self._drop(topic, channel, peer)
        else:
            self.rows = [row for row in self.rows if not (row[0] == topic and row[2] == peer)]
        name = channel or topic
        if name.endswith("#ephemeral") and not self._has(topic, channel):
            self.keys.discard((topic, channel))
            self._forget_what_is_no_key()

    def create(self, topic, channel):
        self.keys |= {(topic, channel), (topic, "")}
        self.kept |= {(topic, channel), (topic, "")}

    def delete_topic(self, topic):
        self.keys = {key for key in self.keys if key[0] != topic}
        self.rows = [row for row in self.rows if row[0] != topic]
        self._forget_what_is_no_key()

    def delete_channel(self, topic, channel):
        was_there = (topic, channel) in self.keys
        self.keys.discard((topic, channel))
        self.rows = [row for row in self.rows if row[:2] != [topic, channel]]
        self._forget_what_is_no_key()
        return was_there

    def tombstone(self, topic, address, now_ns, address_of):
        for row in self.rows:
            if row[:2] == [topic, ""] and address_of(row[2]) == address:
                row[3] = now_ns

    def begin_round(self, rounds_max):
        for key in self.keys - self.kept:
            self.rounds[key] = 0 if self._has(*key) else self.rounds.get(key, 0) + 1
        self.keys -= {key for key, rounds in self.rounds.items() if rounds > rounds_max}
        self._forget_what_is_no_key()

    def _forget_what_is_no_key(self):
        self.kept &= self.keys
        self.rounds = {key: rounds for key, rounds in self.rounds.items() if key in self.keys}

    # ---- questions

    def topics(self):
        return sorted(topic for topic, channel in self.keys if not channel)

    def channels(self, topic):
        return sorted(channel for name, channel in self.keys if channel and name == topic)

    def _is_active(self, peer, now_ns):
        return now_ns - self.seen_ns[peer] <= self.inactive_timeout_ns

    def _is_hidden(self, row, now_ns):
        return row[3] is not None and now_ns - row[3] < self.tombstone_lifetime_ns

    def producers(self, topic, now_ns):
        return {
            row[2]
            for row in self.rows
            if row[:2] == [topic, ""]
            and self._is_active(row[2], now_ns)
            and not self._is_hidden(row, now_ns)
        }

    def nodes(self, now_ns):
        return {
            peer: {
                row[0]: self._is_hidden(row, now_ns)
                for row in self.rows
                if row[2] == peer and not row[1]
            }
            for peer in self.seen_ns
            if self._is_active(peer, now_ns)
        }
