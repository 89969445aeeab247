"""Permissions as others meet them, for tests that root may run."""

import os


class as_nobody:  # noqa: N801 - reads as a with statement
    """Root may read everything."""

    def __enter__(self):
        self.parents = []
        if os.geteuid() == 0:
            # pytest's folders are closed to others.
            path = os.getcwd()
            while path != "/":
                self.parents.append((path, os.stat(path).st_mode))
                os.chmod(path, os.stat(path).st_mode | 0o055)
                path = os.path.dirname(path)
            os.seteuid(65534)

    def __exit__(self, *_):
        if self.parents:
            os.seteuid(0)
        for path, mode in self.parents:
            os.chmod(path, mode & 0o7777)
