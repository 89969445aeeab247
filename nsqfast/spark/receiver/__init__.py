"""The receiver: takes messages from nsqd into the spool, and finishes them once they are on disk.

    nsqd ── TopicIntake ── Sealer ── SegmentWriter ── spool
            (intake.py)    (sealer.py, in a thread)

It runs as a process of its own: nsqfast-nsq-spool, or a child of Spark's source (child.py).
"""
