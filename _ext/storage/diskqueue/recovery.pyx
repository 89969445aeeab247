"""Decides where a queue starts from the files it finds, and reads and writes the metadata file.

| found | the queue starts at | and believes |
|---|---|---|
| ack file that knows the metadata file | its cursor | its bits; only what lies behind `written` is looked through |
| the same after a reboot, or files cut short | its cursor | the files; its bits only if all is whole |
| only metadata, or another's | its read position, moved back to the start of a record | the files |
| no or broken metadata, or a position behind all files | the lowest file | the files |

The boot is noted in the ack file last, so a start that fails half-way leaves it unchanged for the next one.

The files are always read to their real end, so unsynced records are not lost; a torn last record is cut off.
"""

from libc.stdint cimport INT64_MAX, int64_t

import logging
import os
from contextlib import suppress

from nsqfast._ext.storage.diskqueue.ackfile cimport Place
from nsqfast._ext.storage.diskqueue.eventlog cimport get_number
from nsqfast._ext.storage.diskqueue.segment cimport Span
from nsqfast._ext.storage.diskqueue.segment import is_untouched, save_damaged, segment_numbers, segment_path
from nsqfast._ext.storage.diskqueue.syncer cimport drop_file
from nsqfast._ext.storage.diskqueue.unreadable cimport wait_at_start

# The metadata's last line where a broker with a commit log wrote it.
LOG_LINE = "log\n"

log = logging.getLogger("nsqd")


cdef class Recovered:
    pass


cdef Recovered recover(str name, str prefix, bint has_log, bint was_open):
    """was_open: the last to use the folder was a broker with a log, and it did not close it."""
    cdef bint is_new = is_untouched(prefix)
    meta = None if is_new else load_meta(name, prefix)
    cdef AckFile acks = None if is_new else AckFile.load(prefix + "acks.dat")
    cdef Recovered found
    cdef list existing = [] if is_new else segment_numbers(prefix)
    sealed = sealed_place(meta, acks, was_open)
    if acks is not None and meta is not None and meta[1] is not None and acks.owns_meta(meta[1]):
        found = resume(name, prefix, existing, acks, meta[0], sealed)
        acks.confirm(meta[1])   # a kill may have come between its rename and that
    else:
        if acks is not None:
            acks.remove()
        elif (meta is None or not meta[0].strip("\0")) and (existing == [0] or has_log):
            # Without a log both are on disk before a first write is acknowledged, Go's metadata before a second file is
            # begun: so it belongs to a broker that stopped in a crash before that. With a log neither waits for it.
            # Metadata of zeros is one whose size alone was written.
            sealed = (0, 0)
        found = start_over(name, prefix, existing, None if meta is None else meta[1], sealed)
    found.is_new = is_new
    found.sealed_file, found.sealed_position = sealed or (-1, 0)
    found.first_file = min(existing, default=found.cursor_file)
    return found


cdef object sealed_place(object meta, AckFile acks, bint was_open):
    """Return where the records begin of which those that are hollow are sealed; None: it is not known."""
    if meta is None or meta[1] is None:
        # A power failure removed or damaged it: Go syncs its metadata before renaming it.
        return None if acks is None else acks.sealed()
    if meta[2] is None and was_open and meta[0].endswith(LOG_LINE):
        # The broker that left the log open had this on disk before its first record, which says so in newer metadata:
        # that was lost, and what is behind its end is from the same broker.
        return meta[1][3], meta[1][4]
    return meta[2]


cdef Recovered resume(str name, str prefix, list existing, AckFile acks, str meta_text, sealed):
    """Continue where we stopped."""
    cdef Place cursor = acks.cursor(), written = acks.written()
    if cursor.index == written.index and cursor.file > written.file:
        written = cursor    # killed while the queue was emptied
    remove_leftovers(prefix, existing, cursor.file)
    cdef int64_t start = record_start(prefix, cursor.file, cursor.position)
    cdef int64_t end = file_size(prefix, written.file)
    cdef bint whole = acks.trusted and start == cursor.position and is_whole(prefix, cursor, written, end)
    cdef list torn = []
    cursor.position = start
    if whole and end == written.position and existing and max(existing) == written.file:
        # Nothing was written since, as after a clean stop.
        place = (written.file, written.position)
        first = written.index
    elif whole:
        cursor_place, count, place, _, torn = scan_and_repair(
            name, prefix, existing, written.file, written.position, sealed)
        acks.reserve(written.index + count)
        acks.clear(written.index, written.index + count)
        first = written.index
        written.index += count
    else:
        cursor_place, count, place, sound, torn = scan_and_repair(
            name, prefix, existing, cursor.file, cursor.position, sealed)
        first = cursor.index
        acks.end_move()     # the copy may be lost, and another record get its number
        if not (sound and acks.trusted and written.index <= cursor.index + count):
            acks.clear_all()
        acks.reserve(cursor.index + count)
        acks.clear(min(written.index, cursor.index + count), cursor.index + count)
        written.index = cursor.index + count
        cursor.file, cursor.position = cursor_place
    written.file, written.position = place
    acks.set_cursor(cursor.index, cursor.file, cursor.position)
    acks.set_written(written.index, written.file, written.position)
    for number in torn:
        acks.mark(first + number)
    if whole:
        acks.resume_move()
    cdef Recovered found = make_recovered(acks, cursor, written, meta_text)
    found.is_whole = whole
    found.is_killed = not acks.is_clean() and found.unacked < <int64_t> (written.index - cursor.index)
    acks.note_boot()
    return found


cdef Recovered resume_logged(str name, str prefix, ReplayedQueue logged):
    """Continue where the last checkpoint saw the queue: the log has all that came to its files later, which is cut off,
    and what was finished since. None: another broker has been here, whose messages must not be cut off."""
    cdef Place cursor = logged.cursor, written = logged.written
    cdef AckFile acks = AckFile.load(prefix + "acks.dat")
    cdef list existing = segment_numbers(prefix)
    cdef Recovered found
    meta = load_meta(name, prefix)
    if meta is not None and meta[1] is not None and not meta[0].endswith(LOG_LINE) and meta[1][1:] != [
            cursor.file, cursor.position, written.file, written.position]:
        return None
    sealed = sealed_place(meta, acks, True)
    if acks is not None:
        acks.remove()
    for number in existing:
        if number > written.file or not logged.is_placed:
            os.unlink(segment_path(prefix, number))
    if not logged.is_placed:
        for path in (prefix + "meta.dat", prefix + "deferred.dat"):
            with suppress(FileNotFoundError):
                os.unlink(path)
        found = make_recovered(None, cursor, written, "")
        found.sealed_file = -1
        return found
    if logged.is_carried:
        # The checkpoint knows what is deferred. The removal of that file may not have been on disk.
        with suppress(FileNotFoundError):
            os.unlink(prefix + "deferred.dat")
    remove_leftovers(prefix, existing, cursor.file)
    end = file_size(prefix, written.file)
    if end > written.position:
        os.truncate(segment_path(prefix, written.file), written.position)
    if cursor.index == written.index and end < written.position:
        # All of it was finished, and the file is gone.
        cursor.file = written.file = written.file + 1
        cursor.position = written.position = 0
        logged.cursor, logged.written = cursor, written
        found = make_recovered(None, cursor, written, "")
        found.is_shorter = True
    elif not is_whole(prefix, cursor, written, min(end, written.position)):
        log.error("DISKQUEUE(%s) its files are shorter than the last checkpoint saw them, reading all of them", name)
        existing = [number for number in existing if os.path.exists(segment_path(prefix, number))]
        found = start_over(name, prefix, existing, None, sealed)
        found.is_shorter = True
    else:
        found = make_recovered(mark_logged(prefix, logged), cursor, written, "" if meta is None else meta[0])
        found.is_whole = True
        found.first_file = cursor.file
    found.sealed_file, found.sealed_position = sealed or (-1, 0)
    return found


cdef AckFile mark_logged(str prefix, ReplayedQueue logged):
    """Return a new ack file with all that was finished."""
    cdef Place cursor = logged.cursor, written = logged.written
    cdef AckFile acks = AckFile(prefix + "acks.dat")
    cdef uint64_t first, index, word
    cdef Py_ssize_t i
    cdef const char *words
    acks.set_cursor(cursor.index, cursor.file, cursor.position)
    acks.reserve(written.index)
    acks.set_written(written.index, written.file, written.position)
    for first, bits in logged.holes:
        words = bits
        for i in range(len(bits) // 8):
            word = get_number(words + 8 * i)
            for index in range(first + 64 * i, min(first + 64 * i + 64, written.index)):
                if word >> (index & 63) & 1 and index >= cursor.index:
                    acks.mark(index)
    for index in logged.finished:
        if cursor.index <= index < written.index:
            acks.mark(index)
    return acks


cdef Recovered start_over(str name, str prefix, list existing, numbers, sealed):
    """Only the files are known, and a position if there is metadata (numbers)."""
    cdef AckFile acks = None
    cdef Place cursor, written
    file, position = first_place(name, prefix, existing, numbers)
    (file, position), count, place, _, torn = scan_and_repair(name, prefix, existing, file, position, sealed)
    if numbers is not None and numbers[3] > place[0] and (count == 0 or numbers[1] <= place[0]):
        place = (numbers[3], 0)
        if count == 0:
            file, position = place
    cursor.index, cursor.file, cursor.position = 1, file, position
    written.index, written.file, written.position = 1 + count, place[0], place[1]
    if count:
        acks = AckFile(prefix + "acks.dat")
        acks.set_cursor(1, file, position)
        acks.reserve(written.index)
        acks.set_written(written.index, written.file, written.position)
        for number in torn:
            acks.mark(1 + number)
    return make_recovered(acks, cursor, written, "")


cdef Recovered make_recovered(AckFile acks, Place cursor, Place written, str meta_text):
    cdef Recovered found = Recovered()
    found.acks = acks
    found.cursor, found.cursor_file, found.cursor_position = cursor.index, cursor.file, cursor.position
    found.written, found.write_file, found.write_position = written.index, written.file, written.position
    found.unacked = written.index - cursor.index
    if acks is not None:
        found.unacked -= acks.count(cursor.index, written.index)
    found.meta_text = meta_text
    return found


cdef first_place(str name, str prefix, list existing, numbers):
    """Where to begin without an ack file."""
    if numbers is None:
        return (existing[0] if existing else 0), 0
    _, file, position, write_file, write_position = numbers
    if existing and max(existing) < file:
        log.error("DISKQUEUE(%s) readPos %d,%d behind the last file %d, metadata corruption, reading all files",
                  name, file, position, max(existing))
        return existing[0], 0
    if min(file, position, write_file, write_position) < 0 or (file, position) > (write_file, write_position):
        log.error("DISKQUEUE(%s) readPos %d,%d beyond writePos %d,%d, metadata corruption, reading all files",
                  name, file, position, write_file, write_position)
        return (existing[0] if existing else max(file, write_file, 0)), 0
    if file not in existing:
        return min([n for n in existing if n > file], default=write_file), 0
    path = segment_path(prefix, file)
    size = os.path.getsize(path)
    if position > size:
        log.error("DISKQUEUE(%s) readPos %d,%d behind the end of %s at %d, metadata corruption, reading all files",
                  name, file, position, path, size)
        return existing[0], 0
    if file == write_file and write_position < size:
        log.warning("DISKQUEUE(%s) %s metadata writePos %d < file size of %d, reading all of it",
                    name, path, write_position, size)
    return file, align(Segment(path), position)


cdef int64_t record_start(str prefix, int64_t file, int64_t position) except -1:
    """Where to continue reading: right behind a record whose size is damaged may be the middle of another one."""
    if position == 0:
        return 0
    try:
        segment = Segment(segment_path(prefix, file))
    except FileNotFoundError:
        return position
    return align(segment, position) if position < segment.size else position


def align(Segment segment, int64_t position):
    """Return the start of the record that contains position, or position if a record starts there."""
    if position >= segment.size or segment.has_record_head(position):
        return min(position, segment.size)
    cdef int64_t at = 0, previous = -1
    while True:
        span = segment.next_record(at, previous)
        if span.end <= span.start:
            return min(position, at)
        if span.end > position:
            return min(span.start, position)
        previous, at = span.start, span.end


cdef bint is_whole(str prefix, Place cursor, Place written, int64_t end):
    """Whether everything the ack file refers to exists; `end` is the size of the last file. No: before the end are
    bytes and no records, since a start or a search could not read them."""
    cdef int64_t file
    if cursor.index == written.index and (cursor.file, cursor.position) < (written.file, written.position):
        return False
    if cursor.index < written.index:
        for file in range(cursor.file, written.file):
            if not os.path.exists(segment_path(prefix, file)):
                return False
    return (reaches(end if cursor.file == written.file else file_size(prefix, cursor.file), cursor.position)
            and reaches(end, written.position))


cdef int64_t file_size(str prefix, int64_t file) except -2:
    """-1: it does not exist."""
    try:
        return os.stat(segment_path(prefix, file)).st_size
    except FileNotFoundError:
        return -1


cdef bint reaches(int64_t size, int64_t position) noexcept:
    """Whether the file is that long."""
    return size >= position or position == 0


cdef scan_and_repair(str name, str prefix, list existing, int64_t file, int64_t position, sealed):
    """Count the records from there on, set torn ones aside, and cut off what follows the last whole one.

    Return (first file, position), count, (last file, end), whether nothing was damaged, [number of a torn one, from
    0]; none is torn before the place `sealed`.
    """
    cdef int64_t number, start, end = 0, count = 0, damages = 0, total = 0
    cdef bint sound = True
    cdef Segment segment
    numbers = [n for n in existing if n >= file]
    torn = []
    if not numbers:
        return (file, 0), 0, (file, 0), True, torn
    cdef int64_t last = max(numbers)
    if numbers[0] > file:
        file, position, sound = numbers[0], 0, False
    for number in numbers:
        while True:
            segment = Segment(segment_path(prefix, number))
            start = min(position, segment.size) if number == file else 0
            end = segment.walk(start, INT64_MAX, &count, &damages)
            if not segment.lost_count or not wait_at_start(name, segment):
                break
        if sealed is not None and number >= sealed[0]:
            torn += [total + i for i in save_torn(name, segment, start, sealed[1] if number == sealed[0] else 0)]
        total += count
        sound = sound and damages == 0 and (end == segment.size or number == last)
    sound = sound and last - file == len(numbers) - 1
    if end < segment.size and not segment.try_range(end, segment.size):
        # The reader finds out whether these are records; new ones go to the next file.
        return (file, position), total, (last + 1, 0), False, torn
    if end < segment.size:
        cut_tail(name, segment, end)
    return (file, min(position, end) if file == last else position), total, (last, end), sound, torn


cdef list save_torn(str name, Segment segment, int64_t position, int64_t sealed):
    """Return the numbers of those from there on that a power failure has torn."""
    cdef int64_t previous = -1, number = 0
    cdef Span span
    torn = []
    while True:
        span = segment.next_record(position, previous)
        if span.end <= span.start:
            return torn
        if span.start >= sealed and (segment.is_cut_at(span.start) or (
                segment.is_hollow_at(span.start) and not segment.is_sealed_at(span.start))):
            log.warning("DISKQUEUE(%s) %s: leaving out a torn write of %d bytes at %d", name, segment.path,
                        span.end - span.start, span.start)
            set_aside(name, segment, span.start, span.end)
            torn.append(number)
        previous, position = span.start, span.end
        number += 1


cdef cut_tail(str name, Segment segment, int64_t end):
    """Cut off what follows the last whole record of the last file: a write torn by a crash, or damage to be kept."""
    if segment.is_torn_at(end):
        log.warning("DISKQUEUE(%s) %s: cutting off %d bytes of a torn write", name, segment.path, segment.size - end)
    else:
        log.error("DISKQUEUE(%s) reading at %d of %s - invalid message, saving %d bytes as %s.bad",
                  name, end, segment.path, segment.size - end, segment.path)
        save_damaged(segment.path, segment.bytes(end, segment.size))
    os.truncate(segment.path, end)


cdef int remove_leftovers(str prefix, list existing, int64_t file) except -1:
    """Remove files before the cursor, which a kill has left between moving it and removing them, or amid that."""
    for number in existing:
        if number < file:
            with suppress(FileNotFoundError):
                os.unlink(segment_path(prefix, number))
    return 0


cdef int set_aside(str name, Segment segment, int64_t start, int64_t end) except -1:
    """Save damaged bytes in the file's .bad, if possible."""
    try:
        if start < end:
            save_damaged(segment.path, segment.bytes(start, end))
    except OSError as error:
        log.error("DISKQUEUE(%s) failed to save bad bytes of %s - %s", name, segment.path, error)
    return 0


def load_meta(str name, str prefix):
    """Return (text, [depth, read file, position, write file, position] or None, sealed or None); or None."""
    try:
        fd = os.open(prefix + "meta.dat", os.O_RDONLY | os.O_CLOEXEC)
        try:
            data = os.read(fd, 4096)
        finally:
            os.close(fd)
    except FileNotFoundError:
        return None
    except OSError as error:
        log.error("DISKQUEUE(%s) failed to retrieveMetaData - %s", name, error.strerror)
        return "", None, None
    text = data.decode("ascii", "replace")
    try:
        return text, parse_meta(text), parse_sealed(text)
    except ValueError as error:
        log.error("DISKQUEUE(%s) failed to retrieveMetaData - %s", name, error)
    return text, None, None


def parse_sealed(str text):
    """Return (file, position) of our own line; None if another broker has written the metadata since."""
    words = text.split("\n")[3].split()
    if len(words) != 2 or words[0] != "sealed":
        return None
    try:
        file, position = map(int, words[1].split(","))
    except ValueError:
        return None
    return (file, position) if 0 <= file < 1 << 62 and 0 <= position < 1 << 62 else None


def parse_meta(str text):
    """ValueError in Go's words."""
    lines = text.split("\n")
    if len(lines) < 4:
        raise ValueError("unexpected EOF" if text else "EOF")
    try:
        numbers = [int(lines[0]), *map(int, lines[1].split(",")), *map(int, lines[2].split(","))]
    except ValueError:
        raise ValueError("expected integer") from None
    if len(numbers) != 5 or any(abs(number) >= 1 << 62 for number in numbers):
        raise ValueError("expected integer")
    return numbers


cdef str meta_of(list numbers):
    """Return the metadata file's text."""
    depth, read_file, read_position, write_file, write_position = numbers
    return f"{depth}\n{read_file},{read_position}\n{write_file},{write_position}\n"


cdef OpenFile *draft_meta(str draft, str text, Syncer syncer) except NULL:
    """Write the metadata under another name, without syncing it."""
    cdef bytes data = text.encode()
    cdef int fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    cdef OpenFile *file = syncer.open_file(fd)
    try:
        if os.write(file.fd, data) != len(data):
            raise OSError(28, os.strerror(28))
    except OSError:
        drop_file(file)
        raise
    return file


cdef int install_meta(str draft, str prefix, list numbers, AckFile acks, Syncer syncer) except -1:
    """Atomically make the draft the metadata file, and note in the ack file that we wrote it.

    With a syncer, its thread frees the disk space of the old one.
    """
    if acks is not None:
        acks.announce_meta(numbers)
    if syncer is None:
        os.rename(draft, prefix + "meta.dat")
    else:
        syncer.rename(draft, prefix + "meta.dat")
    if acks is not None:
        acks.confirm(numbers)
    return 0
