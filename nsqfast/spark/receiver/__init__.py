"""The receiver: takes messages from nsqd into the spool, and finishes them once they are on disk.

    nsqd ── TopicReceiver ── Sealer ── SegmentWriter ── spool
            (topic.py)       (sealer.py, in a thread)

It runs as a process of its own: nsqfast-nsq-spool, or a child of Spark's source (child.py).
"""
