"""Frames of the NATS protocol: those in a buffer of received bytes with the numbers in their subjects, and new ones.

What a loop does not decide stays to the strict parsers of one line, `turnout.nats.protocol.frames.MessageLine` and
`turnout.nats.protocol.positions.JSAck`, which accept it or raise the error.

`turnout.nats.protocol.headers.parse` is the same for one block of headers.
"""

from __future__ import annotations

from typing import Final

from turnout.loops.compiled import ByteBuffer, Bytes, Int32Buffer, Int32s, Int64Buffer, Int64Buffer2D, compiled
from turnout.loops.texts import _copy, are_equal

# Rows of a table of frames, with a column for each frame: offsets in the buffer.
SUBJECT: Final = 0
SUBJECT_END: Final = 1
SID: Final = 2
SID_END: Final = 3
REPLY: Final = 4
REPLY_END: Final = 5
BODY: Final = 6
"""Beginning of the headers, or of the payload of a message without headers."""
PAYLOAD: Final = 7
END: Final = 8
START: Final = 9
"""Beginning of the line, which ends two bytes before the body."""
FRAME_FIELDS: Final = 10

# Rows of a table of positions.
SEQUENCE: Final = 0
CONSUMER_SEQUENCE: Final = 1
TIME: Final = 2
PENDING: Final = 3
SIZE: Final = 4
"""Bytes of subject, reply, headers and payload: what a message uses up of a request."""
POSITION_FIELDS: Final = 5

# Why `find_frames` stops.
INCOMPLETE: Final = 0
"""The rest of the bytes is no whole frame."""
OTHER: Final = 1
"""A line that is no message, one of another form, and one whose end is not there."""
FULL: Final = 2
"""The table has no more columns."""
BROKEN: Final = 3
"""A message that does not end where its size says."""

# What `survey` finds.
ORDERED: Final = 0
GAP: Final = 1
"""The consumer's sequences have one: a message is lost."""
DESCENDING: Final = 2
"""The stream's sequences do not ascend."""

LONGEST_LINE: Final = 65_536
"""Bytes of the line of a message; a longer one is left to the strict parser."""

_MAX_FIELDS: Final = 5
_MAX_SIZE_DIGITS: Final = 10
_LARGEST_TENTH: Final = 922_337_203_685_477_580
_LARGEST_DIGIT: Final = 7


@compiled
def _number(data: Bytes, begin: int, end: int) -> int:
    """Return the number of 63 bits at most that the digits between two offsets make; -1 where they make none."""
    if begin >= end or end - begin > 19:
        return -1
    number = 0
    for at in range(begin, end):
        digit = data[at] - 48
        if digit < 0 or digit > 9:
            return -1
        # Fewer digits always have room.
        if at - begin == 18 and (number > _LARGEST_TENTH or (number == _LARGEST_TENTH and digit > _LARGEST_DIGIT)):
            return -1
        number = number * 10 + digit
    return number


@compiled
def _word_end(data: Bytes, at: int, filled: int) -> int:
    """Return the offset of the blank behind ``MSG`` or ``HMSG``; -1 where the line begins with neither."""
    if at + 5 > filled:
        return -1
    begin = at + 1 if data[at] == 72 else at
    if data[begin] == 77 and data[begin + 1] == 83 and data[begin + 2] == 71 and data[begin + 3] == 32:
        return begin + 3
    return -1


@compiled
def _split(data: Bytes, begin: int, filled: int, table: Int64Buffer2D, column: int) -> tuple[int, int]:
    """Write where each word of a line begins and ends into the first rows of a column.

    Returns:
        How many words there are, and the offset of the CR LF behind them; -1 for that of a line that is not whole, too
        long, or of more words than a message has.
    """
    words = 0
    inside = False
    for at in range(begin, min(filled, begin + LONGEST_LINE) - 1):
        byte = data[at]
        if byte > 32 and inside:
            continue
        if byte == 32 or 9 <= byte <= 13:
            if inside:
                table[2 * words - 1, column] = at
                inside = False
            if byte == 13 and data[at + 1] == 10:
                return words, at
        elif not inside:
            if words == _MAX_FIELDS:
                return words, -1
            table[2 * words, column] = at
            words += 1
            inside = True
    return words, -1


@compiled
def find_frames(
    data: Bytes, filled: int, at: int, largest: int, table: Int64Buffer2D, count: int
) -> tuple[int, int, int]:
    """Find the complete frames of messages from an offset on, at which a line begins.

    Args:
        data: the buffer.
        filled: how many bytes of it count.
        at: the offset.
        largest: the most bytes that a message may have, headers included.
        table: rows as above, a column for each frame.
        count: columns that are used already.

    Returns:
        The number of columns that are used now, the offset behind the last frame, and why there is no other.
    """
    room = table.shape[1]
    while count < room:
        word_end = _word_end(data, at, filled)
        if word_end < 0:
            return count, at, INCOMPLETE if at >= filled else OTHER
        words, line_end = _split(data, word_end, filled, table, count)
        if line_end < 0:
            return count, at, OTHER
        headed = word_end - at == 4
        names = words - 2 if headed else words - 1
        if names < 2 or names > 3:
            return count, at, OTHER
        size_at, size_end = table[2 * words - 2, count], table[2 * words - 1, count]
        head_at, head_end = table[2 * names, count], table[2 * names + 1, count]
        if size_end - size_at > _MAX_SIZE_DIGITS or head_end - head_at > _MAX_SIZE_DIGITS:
            return count, at, OTHER
        size = _number(data, size_at, size_end)
        head = _number(data, head_at, head_end) if headed else 0
        if head < 0 or head > size or size > largest:
            return count, at, OTHER
        end = line_end + 2 + size
        if end + 2 > filled:
            return count, at, INCOMPLETE
        if data[end] != 13 or data[end + 1] != 10:
            return count, at, BROKEN
        if names == 2:
            table[REPLY, count] = table[SID_END, count]
            table[REPLY_END, count] = table[SID_END, count]
        table[BODY, count] = line_end + 2
        table[PAYLOAD, count] = line_end + 2 + head
        table[END, count] = end
        table[START, count] = at
        count += 1
        at = end + 2
    return count, at, FULL


@compiled
def _holds(data: Bytes, at: int, end: int, text: Bytes) -> bool:
    """Return True if a text is at an offset."""
    return at + len(text) <= end and are_equal(data, at, text, 0, len(text))


@compiled
def _is_status(data: Bytes, table: Int64Buffer2D, row: int) -> bool:
    """Return True for a frame without a payload whose version line has a code behind its eight bytes."""
    body, payload = table[BODY, row], table[PAYLOAD, row]
    return bool(payload == table[END, row] and payload - body > 9 and data[body + 8] == 32)


@compiled
def _read_position(
    data: Bytes, table: Int64Buffer2D, row: int, lead: Bytes, positions: Int64Buffer2D, kept: int
) -> bool:
    """Write the position in the reply subject of a frame; return False if it is left to the strict parser."""
    begin, end = table[REPLY, row], table[REPLY_END, row]
    if not _holds(data, begin, end, lead):
        return False
    dots = 0
    for at in range(begin, end):
        if data[at] == 46:
            dots += 1
    # Of 9 tokens the third is the stream's name; of 11 and more the fifth.
    skipped = 2 if dots == 8 else 4
    if dots != 8 and dots < 10:
        return False
    at = begin
    for token in range(skipped + 7):
        token_end = at
        while token_end < end and data[token_end] != 46:
            token_end += 1
        if token >= skipped + 2:
            number = _number(data, at, token_end)
            if number < 0:
                return False
            if token > skipped + 2:
                positions[token - skipped - 3, kept] = number
        elif token >= skipped and token_end == at:
            return False
        at = token_end + 1
    subject_bytes = table[SUBJECT_END, row] - table[SUBJECT, row]
    positions[SIZE, kept] = subject_bytes + end - begin + table[END, row] - table[BODY, row]
    return True


@compiled
def read_positions(
    data: Bytes, table: Int64Buffer2D, row: int, count: int, lead: Bytes, positions: Int64Buffer2D, kept: int
) -> tuple[int, int]:
    """Read the positions of messages in their stream from their reply subjects (ADR-15, JSAck).

    Args:
        data: the buffer.
        table: frames of `find_frames`; statuses are removed from it.
        row: the first frame to read.
        count: how many frames there are.
        lead: ``$JS.ACK.``, with which such a reply subject begins.
        positions: rows as above, a column for each message.
        kept: messages that are read already, without statuses.

    Returns:
        The frame that is a status or has no usual position, or their number; and the number of messages.
    """
    while row < count:
        if _is_status(data, table, row) or not _read_position(data, table, row, lead, positions, kept):
            return row, kept
        if kept < row:
            for name in range(FRAME_FIELDS):
                table[name, kept] = table[name, row]
        kept += 1
        row += 1
    return row, kept


@compiled
def survey(
    positions: Int64Buffer2D, count: int, following: int, consumer_sequence: int, end: int
) -> tuple[int, int, int]:
    """Check that messages follow each other in their stream and in their consumer.

    Args:
        positions: positions of `read_positions`.
        count: how many messages there are.
        following: the least sequence that the first may have.
        consumer_sequence: the consumer's sequence of the message before them.
        end: the sequence behind the range.

    Returns:
        How many messages are before the end; the lowest sequence that these step over, 0 for none; and `ORDERED`,
        `GAP` or `DESCENDING`.
    """
    before_end = hole = 0
    for row in range(count):
        if positions[CONSUMER_SEQUENCE, row] != consumer_sequence + row + 1:
            return before_end, hole, GAP
    for row in range(count):
        sequence = positions[SEQUENCE, row]
        if sequence < following:
            return before_end, hole, DESCENDING
        if sequence < end:
            before_end = row + 1
            if sequence > following and hole == 0:
                hole = following
        following = sequence + 1
    return before_end, hole, ORDERED


@compiled
def fill_request(positions: Int64Buffer2D, begin: int, end: int, messages: int, size: int) -> tuple[int, int]:
    """Return how many messages, from *begin* to *end*, answer a request, and how many of its bytes they use.

    Args:
        positions: positions of `read_positions`.
        begin: the first message.
        end: the one behind the last.
        messages: how many the request may still have.
        size: how many bytes; a request whose bytes are used up to the last one has no message more.
    """
    used = 0
    last = min(end, begin + messages)
    for row in range(begin, last):
        used += positions[SIZE, row]
        if used == size:
            return row + 1 - begin, used
    return last - begin, used


@compiled
def read_answers(
    data: Bytes,
    table: Int64Buffer2D,
    count: int,
    names: Bytes,
    numbers: Int64Buffer,
    known: Int64Buffer,
) -> bool:
    """Read answers that say that messages are stored: ``{"stream": …, "seq": …, "duplicate": true}``.

    Args:
        data: the buffer.
        table: frames of `find_frames`.
        count: how many there are.
        names: ``"seq":"error""duplicate":``, the names that are searched for.
        numbers: receives the last token of each subject.
        known: receives 1 for an answer with ``duplicate``, else 0.

    Returns:
        False if any of them is of another form; it is read by itself then.
    """
    sequence, error, duplicate = names[:6], names[6:13], names[13:25]
    for row in range(count):
        if table[PAYLOAD, row] != table[BODY, row]:
            return False
        begin = table[SUBJECT_END, row]
        while begin > table[SUBJECT, row] and data[begin - 1] != 46:
            begin -= 1
        number = _number(data, begin, table[SUBJECT_END, row])
        if number < 0:
            return False
        numbers[row] = number
        known[row] = 0
        sequences = 0
        end = table[END, row]
        for at in range(table[PAYLOAD, row], end):
            if data[at] != 34:
                continue
            if _holds(data, at, end, sequence):
                sequences += 1
            elif _holds(data, at, end, duplicate):
                known[row] = 1
            elif _holds(data, at, end, error):
                return False
        if sequences != 1:
            return False
    return True


@compiled
def _write_number(frames: ByteBuffer, at: int, number: int) -> int:
    """Write a number in digits, and return the offset behind it."""
    digits, rest = 1, number // 10
    while rest:
        digits += 1
        rest //= 10
    for position in range(at + digits - 1, at - 1, -1):
        frames[position] = 48 + number % 10
        number //= 10
    return at + digits


@compiled
def _write_byte(frames: ByteBuffer, at: int, byte: int) -> int:
    frames[at] = byte
    return at + 1


@compiled
def write_frames(
    subjects: Bytes,
    subject_offsets: Int32s,
    payloads: Bytes,
    payload_offsets: Int32s,
    lines: Bytes,
    line_offsets: Int32s,
    texts: Bytes,
    lead: Bytes,
    first: int,
    count: int,
    frames: ByteBuffer,
    edges: Int64Buffer,
) -> None:
    """Write the frames that publish messages, one behind the other.

    Args:
        subjects: bytes of the subjects, as Arrow has them.
        subject_offsets: where each begins, and the end of the last.
        payloads: bytes of the payloads.
        payload_offsets: likewise.
        lines: bytes of the header lines of each message, each with its end.
        line_offsets: likewise; empty if no message has headers.
        texts: ``HPUB ``, the version line and a line end.
        lead: the reply subject of all messages, or its beginning.
        first: number at the end of the first message's reply subject, which the others continue; -1 for none.
        count: how many messages there are.
        frames: receives the frames.
        edges: receives where each begins, and the end of the last.
    """
    headed = len(line_offsets) > 0
    version_end = len(texts) - 2
    at = 0
    for row in range(count):
        edges[row] = at
        at = _copy(texts, 0 if headed else 1, 5, frames, at)
        at = _copy(subjects, subject_offsets[row], subject_offsets[row + 1], frames, at)
        at = _write_byte(frames, at, 32)
        at = _copy(lead, 0, len(lead), frames, at)
        if first >= 0:
            at = _write_number(frames, at, first + row)
        at = _write_byte(frames, at, 32)
        size = payload_offsets[row + 1] - payload_offsets[row]
        if headed:
            head = line_offsets[row + 1] - line_offsets[row] + version_end - 5 + 2
            at = _write_number(frames, at, head)
            at = _write_byte(frames, at, 32)
            at = _write_number(frames, at, head + size)
            at = _copy(texts, version_end, len(texts), frames, at)
            at = _copy(texts, 5, version_end, frames, at)
            at = _copy(lines, line_offsets[row], line_offsets[row + 1], frames, at)
        else:
            at = _write_number(frames, at, size)
        at = _copy(texts, version_end, len(texts), frames, at)
        at = _copy(payloads, payload_offsets[row], payload_offsets[row + 1], frames, at)
        at = _copy(texts, version_end, len(texts), frames, at)
    edges[count] = at


@compiled
def mark_answers(
    numbers: Int64Buffer, known: Int64Buffer, count: int, first: int, answered: ByteBuffer
) -> tuple[int, int]:
    """Mark messages as answered, each once.

    Args:
        numbers: numbers of the answers.
        known: 1 for an answer of a stream that knew the message, else 0.
        count: how many answers there are.
        first: number of the first message.
        answered: by message: 1 if it is answered.

    Returns:
        How many messages are newly answered, and how many of these the stream knew.
    """
    fresh = duplicates = 0
    for row in range(count):
        message = numbers[row] - first
        if 0 <= message < len(answered) and answered[message] == 0:
            answered[message] = 1
            fresh += 1
            duplicates += known[row]
    return fresh, duplicates


@compiled
def copy_slices(
    data: Bytes, begins: Int64Buffer, ends: Int64Buffer, count: int, copies: ByteBuffer, offsets: Int32Buffer
) -> None:
    """Copy slices of a buffer one behind the other, as Arrow has binary values.

    Args:
        data: the buffer.
        begins: where each slice begins.
        ends: where it ends.
        count: how many slices there are.
        copies: receives their bytes.
        offsets: receives where each of the copies begins, then the end of the last.
    """
    at = 0
    for row in range(count):
        offsets[row] = at
        at = _copy(data, begins[row], ends[row], copies, at)
    offsets[count] = at


# Rows of a table of headers, with a column for each header: offsets in the buffer.
NAME: Final = 0
NAME_END: Final = 1
VALUE: Final = 2
VALUE_END: Final = 3
HEADER_FIELDS: Final = 4

# Rows of edges, with a column for each message.
FIRST: Final = 0
KEY: Final = 1
EDGES: Final = 2


@compiled
def _has_name(data: Bytes, begin: int, end: int, name: Bytes) -> bool:
    return end - begin == len(name) and are_equal(data, begin, name, 0, len(name))


@compiled
def _read_block(data: Bytes, begin: int, end: int, table: Int64Buffer2D, count: int) -> int:
    """Write the headers of a block behind the first *count*; return how many there are, also beyond the table."""
    room = table.shape[1]
    at = begin
    while at < end and data[at] != 10:
        at += 1
    # The version line is over.
    at += 1
    while at < end:
        name, colon = at, -1
        while at < end and data[at] != 10:
            if colon < 0 and data[at] == 58:
                colon = at
            at += 1
        if colon > name:
            if count < room:
                value_end = at - 1 if data[at - 1] == 13 else at
                value = colon + 1
                while value < value_end and (data[value] == 32 or data[value] == 9):
                    value += 1
                table[NAME, count] = name
                table[NAME_END, count] = colon
                table[VALUE, count] = value
                table[VALUE_END, count] = value_end
            count += 1
        at += 1
    return count


@compiled
def read_headers(
    data: Bytes, frames: Int64Buffer2D, count: int, key: Bytes, table: Int64Buffer2D, edges: Int64Buffer2D
) -> int:
    """Read the header blocks of messages.

    Args:
        data: the buffer.
        frames: frames of `turnout.loops.frames.find_frames`.
        count: how many messages there are.
        key: name of the header that keys are in.
        table: rows as above, a column for each header.
        edges: receives in one row the number of headers before each message, then of all; in the other the first
            header of that name of each message, -1 where it has none.

    Returns:
        How many headers there are. If they are more than columns, the results are no use.
    """
    room = table.shape[1]
    total = 0
    edges[FIRST, 0] = 0
    for row in range(count):
        edges[KEY, row] = -1
        if frames[BODY, row] < frames[PAYLOAD, row]:
            first = total
            total = _read_block(data, frames[BODY, row], frames[PAYLOAD, row], table, total)
            for header in range(first, min(total, room)):
                if _has_name(data, table[NAME, header], table[NAME_END, header], key):
                    edges[KEY, row] = header
                    break
        edges[FIRST, row + 1] = total
    return total
