"""Addresses in the form that others may see: without secrets."""

HIDDEN = "xxxxx"  # as in Go


def masked(address: str) -> str:
    """An address or URL without user, password, and the values of its query."""
    if address.startswith("/"):
        return address  # the path of a socket
    place, question, query = address.partition("?")
    scheme, mark, rest = place.partition("://")
    if not mark:
        scheme, rest = "", place
    _, at, rest = rest.rpartition("@")
    user = HIDDEN + at if at else ""
    fields = "&".join([_masked_field(field) for field in query.split("&")]) if query else ""
    return f"{scheme}{mark}{user}{rest.partition('#')[0]}{question}{fields}"


def place_of(address: str) -> str:
    """Scheme, host and port only: a path may be a secret as well."""
    scheme, mark, rest = masked(address).partition("?")[0].rpartition("://")
    return f"{scheme}{mark}{rest.partition('/')[0].removeprefix(HIDDEN + '@')}"


def masked_words(words: list[str]) -> list[str]:
    """A command line with its addresses masked."""
    found = []
    is_address = False
    for word in words:
        flag, equals, value = word.partition("=") if word.startswith("-") else ("", "", word)
        if equals and "address" in flag:
            found.append(f"{flag}={masked(value)}")
        elif is_address or "://" in word:
            found.append(f"{flag}{equals}{masked(value)}")
        else:
            found.append(word)
        is_address = not equals and "address" in flag
    return found


def _masked_field(field: str) -> str:
    name, equals, _ = field.partition("=")
    return f"{name}={HIDDEN}" if equals else HIDDEN
