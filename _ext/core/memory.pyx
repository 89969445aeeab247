"""Three levels below one ceiling, so that what can go to disk does so before anybody has to be refused."""

from libc.stdint cimport INT64_MAX


def set_ceiling(int64_t ceiling):
    """Bytes; 0 = none. What is counted already stays so."""
    account.spill = ceiling // 4 * 3 if ceiling else INT64_MAX
    account.slow = ceiling // 8 * 7 if ceiling else INT64_MAX
    account.full = ceiling if ceiling else INT64_MAX
    charge(&account, 0)


def hold(int64_t size):
    """So many bytes more; fewer, where it is negative. For buffers that Python holds."""
    charge(&account, size)


def is_full():
    """Whether no buffer may grow."""
    return account.level >= MEMORY_FULL


def used_bytes():
    """What is counted now."""
    return account.used


set_ceiling(0)
