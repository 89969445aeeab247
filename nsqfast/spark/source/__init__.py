"""The source: Spark reads what receivers took from nsqd into a spool, in streams and in batches.

    options.py      what the user says of it, and the columns
    offsets.py      how far a query has come, what a batch takes, and what becomes of messages that are not there
    listing.py      which segments there are, without reading a folder that did not change
    partition.py    a task: segments become batches
    query.py        what the one query of a spool holds: its lock, and a receiver of its own
    stream.py       spark.readStream.format("nsq")
    batch.py        spark.read.format("nsq")

Spark makes a reader in several processes. Only one of them, the runner of a stream or the planner of a batch, takes
the lock of the spool and starts a receiver; tasks only read.
"""
