"""POST /pub and /mpub as the usual clients write them; everything else is left to the full parser.

    POST /pub?topic=NAME[&defer=DIGITS] HTTP/1.1 CRLF
    POST /mpub?topic=NAME[&binary=true|false|1|0] HTTP/1.1 CRLF
    {Header-Name: value CRLF}        one Host, one Content-Length above 0, no other framing, no other end, no browser's
    CRLF
    body

Being careful here is safe: a request that this parser refuses is only answered more slowly. It creates no Python
objects.
"""

from libc.string cimport memcmp

from nsqfast._ext.core.limits cimport HTTP_HEAD_SIZE_MAX


cdef extern from "strings.h" nogil:
    int strncasecmp(const char *one, const char *other, size_t size)


cdef enum:
    DIGITS_MAX = 18           # so many fit into 64 bits
    # Where a byte may occur.
    IN_NUMBER = 1
    IN_TOPIC = 2
    IN_HEADER_NAME = 4
    IN_HEADER_VALUE = 8
    IN_ADDRESS = 16           # of IPv4, and a port: no name of a host has these alone


cdef unsigned char[256] USES


cdef void fill_uses() noexcept nogil:
    cdef int byte
    for byte in range(256):
        USES[byte] = IN_HEADER_VALUE if 0x20 <= byte < 0x7f else 0
        if c"0" <= byte <= c"9":
            USES[byte] |= IN_NUMBER | IN_TOPIC | IN_HEADER_NAME | IN_ADDRESS
        elif c"a" <= byte <= c"z" or c"A" <= byte <= c"Z" or byte == c"-" or byte == c"_":
            USES[byte] |= IN_TOPIC | IN_HEADER_NAME
        elif byte == c"." or byte == c"#":
            USES[byte] |= IN_TOPIC
        if byte == c"." or byte == c":":
            USES[byte] |= IN_ADDRESS


fill_uses()


cdef Outcome parse_request(const char *data, Py_ssize_t size, PlainRequest *request) noexcept nogil:
    """Parse the request at the front of `data`; `request` is filled unless the outcome is REQUEST_OTHER."""
    cdef const char *end = data + (size if size < HTTP_HEAD_SIZE_MAX else HTTP_HEAD_SIZE_MAX)
    cdef const char *place = read_target(data, end, request)
    if place is NULL:
        return REQUEST_OTHER
    place = read_headers(place, end, request)
    if place is NULL:
        return REQUEST_OTHER
    request.body = place
    request.size = place - data + request.body_size
    return REQUEST_WHOLE if size >= request.size else REQUEST_PART


# Each of these returns the position behind what it parsed, or NULL if it does not know it.

cdef const char *read_target(const char *place, const char *end, PlainRequest *request) noexcept nogil:
    request.defer_ms = 0
    request.is_binary = False
    request.is_many = False
    place = skip(place, end, b"POST /", 6)
    if place is not NULL and place < end and place[0] == c"m":
        request.is_many = True
        place += 1
    place = skip(place, end, b"pub?topic=", 10)
    if place is NULL:
        return NULL
    request.topic = place
    place = span(place, end, IN_TOPIC)
    request.topic_size = place - request.topic
    if place < end and place[0] == c"&":
        place = read_binary(place, end, request) if request.is_many else read_defer(place, end, request)
    return skip(place, end, b" HTTP/1.1\r\n", 11)


cdef const char *read_defer(const char *place, const char *end, PlainRequest *request) noexcept nogil:
    return read_digits(skip(place, end, b"&defer=", 7), end, &request.defer_ms)


cdef const char *read_binary(const char *place, const char *end, PlainRequest *request) noexcept nogil:
    cdef const char *word = skip(place, end, b"&binary=", 8)
    place = skip(word, end, b"true", 4)
    place = skip(word, end, b"1", 1) if place is NULL else place
    if place is not NULL:
        request.is_binary = True
        return place
    place = skip(word, end, b"false", 5)
    return skip(word, end, b"0", 1) if place is NULL else place


cdef const char *read_headers(const char *place, const char *end, PlainRequest *request) noexcept nogil:
    request.has_host = False
    request.body_size = 0
    while place is not NULL:
        if place < end and place[0] == c"\r":
            return skip(place, end, b"\r\n", 2) if request.has_host and request.body_size else NULL
        place = read_header(place, end, request)
    return NULL


cdef const char *read_header(const char *place, const char *end, PlainRequest *request) noexcept nogil:
    """An empty value, one that is not ASCII, and one that continues in the next line are not known here."""
    cdef const char *name = place
    cdef const char *value
    cdef Py_ssize_t name_size
    place = span(place, end, IN_HEADER_NAME)
    name_size = place - name
    if name_size == 0 or place == end or place[0] != c":":
        return NULL
    value = place + 1
    while value < end and value[0] == c" ":
        value += 1
    place = span(value, end, IN_HEADER_VALUE)
    if place == value or not apply_header(name, name_size, value, place, request):
        return NULL
    return skip(place, end, b"\r\n", 2)


cdef bint apply_header(const char *name, Py_ssize_t name_size, const char *value, const char *value_end,
               PlainRequest *request) noexcept nogil:
    """Whether the header affects nothing but fields of `request`."""
    cdef int64_t body_size = 0
    if name_size == 4 and strncasecmp(name, b"host", 4) == 0:
        if request.has_host:
            return False
        request.has_host = True
        request.is_local_host = is_local_host(value, value_end)
    elif name_size == 14 and strncasecmp(name, b"content-length", 14) == 0:
        if request.body_size or read_digits(value, value_end, &body_size) != value_end:
            return False
        request.body_size = body_size
        return body_size > 0
    elif name_size == 10 and strncasecmp(name, b"connection", 10) == 0:
        return value_end - value == 10 and strncasecmp(value, b"keep-alive", 10) == 0
    elif name_size == 6:
        return strncasecmp(name, b"expect", 6) != 0 and strncasecmp(name, b"origin", 6) != 0
    elif name_size == 7:
        return strncasecmp(name, b"upgrade", 7) != 0
    elif name_size == 14:
        return strncasecmp(name, b"sec-fetch-site", 14) != 0
    elif name_size == 16:
        return strncasecmp(name, b"proxy-connection", 16) != 0
    elif name_size == 17:
        return strncasecmp(name, b"transfer-encoding", 17) != 0
    return True


cdef bint is_local_host(const char *value, const char *end) noexcept nogil:
    """Whether it is an address or localhost, perhaps with a port."""
    cdef const char *place = skip(value, end, b"localhost", 9)
    if place is not NULL:
        return place == end or place[0] == c":"
    return value[0] == c"[" or span(value, end, IN_ADDRESS) == end


cdef const char *read_digits(const char *place, const char *end, int64_t *value) noexcept nogil:
    cdef const char *digits_end
    if place is NULL:
        return NULL
    digits_end = span(place, end, IN_NUMBER)
    if not 0 < digits_end - place <= DIGITS_MAX:
        return NULL
    value[0] = 0
    while place < digits_end:
        value[0] = value[0] * 10 + (place[0] - c"0")
        place += 1
    return place


cdef const char *skip(const char *place, const char *end, const char *text, Py_ssize_t size) noexcept nogil:
    """Return the position behind `text`, or NULL if it is not there."""
    return place + size if place is not NULL and end - place >= size and memcmp(place, text, size) == 0 else NULL


cdef const char *span(const char *place, const char *end, unsigned char use) noexcept nogil:
    """Return the position behind all bytes that may occur in `use`."""
    while place < end and USES[<unsigned char> place[0]] & use:
        place += 1
    return place
