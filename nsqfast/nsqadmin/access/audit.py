"""What was done by whom: a line in a file, the last thousand in memory, and a webhook."""

from nsqfast.nsqadmin.options import Options


class Audit:
    """One of each nsqadmin."""

    def __init__(self, options: Options) -> None:
        self._options = options
