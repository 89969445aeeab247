"""What a queue does to its ack file, and what that says."""


def put_written(acks, index, file, position):
    """The queue ends there now: its new records are not finished."""
    acks.reserve(index)
    acks.clear(acks.state()[1][0], index)
    acks.set_written(index, file, position)


def list_finished(acks):
    """The indexes of the records behind the cursor that are finished."""
    (cursor, _, _), (written, _, _) = acks.state()
    return [index for index in range(cursor, written) if acks.count(index, index + 1)]
