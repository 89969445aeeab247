"""DataFrames that are published to NSQ: df.write and df.writeStream with format("nsq").

Columns: `body` (string or binary), and if wanted `topic` (string) and `defer_ms` (int or long). Each row is a message.

At least once. A task is done when an nsqd has answered OK to all that it published. A message may be there twice

    when a connection broke before the answer came: its publish is sent again (counted as `resent_rows`);
    when Spark tries a task again, which publishes all of its rows once more (`rows` of a message with `attempt` > 0);
    when a batch of a stream is replayed because the driver ended between the write and Spark's commit log. Nothing
    counts those: the second run knows nothing of the first.

NSQ has no transactions, and what was published stays so when a job is aborted. Whoever must not see a message twice
puts an id into the body. Keep spark.speculation off, for it runs tasks twice on purpose.

A task sees to the limits of nsqd for one Arrow batch (10,000 rows as a rule) before it publishes any of it. Batches in
front of a bad row have been published when the task fails, and are again with each of Spark's attempts.
"""
