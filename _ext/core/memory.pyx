"""Three levels below one ceiling, so that messages that can go to disk do so before any client is refused."""

from libc.stdint cimport INT64_MAX


def set_ceiling(int64_t ceiling):
    """Set the ceiling in bytes; 0 = none. What is counted already remains counted."""
    account.spill = ceiling // 4 * 3 if ceiling else INT64_MAX
    account.slow = ceiling // 8 * 7 if ceiling else INT64_MAX
    account.full = ceiling if ceiling else INT64_MAX
    charge(&account, 0)


def charge_bytes(int64_t size):
    """Count so many bytes more, or fewer if negative. For buffers that Python holds."""
    charge(&account, size)


def is_full():
    """Whether buffers must not grow."""
    return account.level >= MEMORY_FULL


def used_bytes():
    """Bytes counted now."""
    return account.used


set_ceiling(0)
