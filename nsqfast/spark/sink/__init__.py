"""Publishes DataFrames to NSQ: df.write and df.writeStream with format("nsq").

Columns: `body` (string or binary), and optionally `topic` (string) and `defer_ms` (int or long). Each row is a message.

Delivery is at least once. A task is done when an nsqd has answered OK to everything it published. A message may be
duplicated

    when a connection broke before the answer came: its publish is sent again (counted as `resent_rows`);
    when Spark retries a task, which publishes all of its rows again (`rows` of a message with `attempt` > 0);
    when a batch of a stream is replayed because the driver ended between the write and Spark's commit log. These
    cannot be counted: the second run knows nothing about the first.

NSQ has no transactions, so what was published remains when a job is aborted. If duplicates matter, put an id into the
body. Keep spark.speculation off, because it runs tasks twice on purpose.

A task checks nsqd's limits for one Arrow batch (usually 10,000 rows) before it publishes any of it. Batches before a
bad row have been published when the task fails, and are published again by each of Spark's attempts.
"""
