"""The spool: messages on disk between a receiver, which takes them from nsqd, and Spark, which reads them.

    SPOOL/
        SPOOL.json                              its subscription, and its epoch     (identity.py)
        QUERY.lock                              locked by the only query reading it (identity.py)
        <receiver>/                             one receiver's folder
            LOCK                                locked by the receiver
            RELEASED                            the number of the last released segment (release.py)
            0000000000000042-r10000-b2600000.arrow   a segment, or .parquet             (segments.py)
            .tmp-42.arrow                       one that is being written               (writer.py)
            done/, _done/                       released ones, .arrow and .parquet, kept for a while

A segment is whole and on disk from the moment it has its name, and its messages are finished only after that. The
numbers of a receiver's segments rise by one, and none is ever used twice: they are Spark's offsets.
"""
