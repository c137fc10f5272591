"""JSON objects: one pass over the bytes of many to the spans of their fields, and one that writes objects by a plan.

The texts of a batch are one behind another, each with a zero behind it and `PADDING` zeros at the end, so that no
search for the end of a string or a number leaves its text. `scan` decides a text if it is an object with fields, whose
names have no escapes and are all different. Each byte of it is checked, except that the caller checks UTF-8. Other
texts stay undecided, as do numbers that a double may not hold, escapes of lone surrogates, and deep nesting.

The sequence of an object's names is its *shape*: a node of a tree in which each node adds one name to its parent. The
tree lasts from call to call. The child that a node had the last time is tried first, so that most names are only
compared.
"""

from __future__ import annotations

from typing import Final

from turnout.loops.compiled import ByteBuffer, Bytes, Int32Buffer, Int32s, Int64Buffer, Int64s, compiled
from turnout.loops.texts import _code_of, _copy, _digits_end, _is_name, _plain_end, are_equal, hash_of_text

MAX_FIELDS: Final = 1024
"""Number of fields of an object that is decided."""

MAX_NAME: Final = 256
"""Number of bytes of a name that is decided."""

PADDING: Final = MAX_NAME + 16
"""Number of zeros behind the last text."""

UNDECIDED: Final = -1
"""Shape of a text that is left to the reference."""

WHOLE: Final = -2
"""Field of a plan that stands for the whole text."""

COMPUTED: Final = -1
"""Field of a plan whose value is only in a computed column."""

NODE_SIZE: Final = 3
"""Numbers of a node: its parent, its name, and the child that it had the last time."""

FIELDS, ALIKE, LEFT, NODES, NAMES, STAMP = 0, 1, 2, 3, 4, 5
"""Counters of `scan`: values so far, texts with the shape of the first, undecided ones; nodes, names, new shapes."""

MAX_NODES: Final = 1 << 16
"""Number of nodes, and of names, that there is room for."""

MAX_NAME_BYTES: Final = 1 << 20
"""Number of bytes of all names that there is room for."""

_SLOTS: Final = 2 * MAX_NODES
_NODE_SLOTS: Final = NODE_SIZE * MAX_NODES
_NAME_SLOTS: Final = _NODE_SLOTS + _SLOTS
_SEEN: Final = _NAME_SLOTS + _SLOTS
NAME_OFFSETS: Final = _SEEN + MAX_NODES
"""Index of the offset of the first name in the tables."""

TABLES_SIZE: Final = NAME_OFFSETS + MAX_NODES + 1
"""Size of the tables: nodes; nodes by parent and name, and names by bytes, in open addressing; for each name the last
new shape that has it; and offsets of the names, each with the one that would follow the last."""

STEP_SIZE: Final = 4
"""Numbers of a step of a plan."""

ANY, STRING, BOOLEAN, NUMBER = 0, 1, 2, 3
KINDS: Final = {
    "string": STRING, "boolean": BOOLEAN, "float32": NUMBER, "float64": NUMBER,
    "int8": 8, "int16": 16, "int32": 32, "int64": 64,
}  # fmt: skip
"""Kind of a field by the type of its schema: that of an integer is the number of its bits."""

_FIELD_SIZE: Final = 5
_HEAD: Final = 3
_MAX_DIGITS: Final = 18
_MAX_DEPTH: Final = 32
_MAX_NUMBER: Final = 200
_MAX_PROBES: Final = 64


@compiled
def scan(
    data: Bytes,
    offsets: Int64s,
    first: int,
    heads: Int64Buffer,
    spans: Int64Buffer,
    tables: Int32Buffer,
    name_bytes: ByteBuffer,
    counters: Int64Buffer,
) -> int:
    """Find the values of the fields of objects, and the shapes of these.

    Args:
        data: texts.
        offsets: index of each text, and of the one that would follow the last.
        first: number of the text to begin with.
        heads: for each text the index of its first value; then for each the node of its shape, or `UNDECIDED`.
        spans: begin of each value, those of an object adjacent; in the other half the end of each.
        tables: nodes and names that are known, see `TABLES_SIZE`.
        name_bytes: names, and `PADDING` bytes more than their room.
        counters: how much of all this is used.

    Returns:
        The number of the text for which a buffer has no room; the number of texts if all are done.
    """
    count = len(offsets) - 1
    ends = len(spans) // 2
    for record in range(first, count):
        used = counters[FIELDS]
        if (
            used + MAX_FIELDS > ends
            or counters[NODES] + MAX_FIELDS > MAX_NODES
            or tables[NAME_OFFSETS + counters[NAMES]] + MAX_FIELDS * MAX_NAME + PADDING > len(name_bytes)
        ):
            return record
        heads[record] = used
        at = offsets[record]
        if data[at] <= 32:
            at = _space_end(data, at)
        shape = UNDECIDED
        if data[at] == 123:
            at += 1
            if data[at] <= 32:
                at = _space_end(data, at)
            field = used
            is_new = False
            more = data[at] != 125
            if more:
                shape = 0
            while more:
                # The name.
                if data[at] != 34 or field - used == MAX_FIELDS:
                    shape = UNDECIDED
                    break
                at += 1
                child = tables[shape * NODE_SIZE + 2]
                name = tables[child * NODE_SIZE + 1]
                begin = tables[NAME_OFFSETS + name]
                size = tables[NAME_OFFSETS + name + 1] - begin
                if child > 0 and data[at + size] == 34 and _is_name(data, at, name_bytes, begin, size):
                    at += size + 1
                else:
                    end = _plain_end(data, at)
                    name = UNDECIDED
                    if data[end] == 34 and end - at <= MAX_NAME:
                        name = _name_of(data, at, end, tables, name_bytes, counters)
                    if name == UNDECIDED:
                        shape = UNDECIDED
                        break
                    child = _child_of(shape, name, tables, counters)
                    if child == counters[NODES]:
                        if not is_new:
                            is_new = True
                            counters[STAMP] += 1
                            node = shape
                            while node > 0:
                                tables[_SEEN + tables[node * NODE_SIZE + 1]] = counters[STAMP]
                                node = tables[node * NODE_SIZE]
                        if tables[_SEEN + name] == counters[STAMP]:
                            child = UNDECIDED
                        else:
                            tables[_SEEN + name] = counters[STAMP]
                            _add_child(shape, name, tables, counters)
                    if child == UNDECIDED:
                        shape = UNDECIDED
                        break
                    tables[shape * NODE_SIZE + 2] = child
                    at = end + 1
                shape = child
                # The value.
                if data[at] <= 32:
                    at = _space_end(data, at)
                if data[at] != 58:
                    shape = UNDECIDED
                    break
                at += 1
                if data[at] <= 32:
                    at = _space_end(data, at)
                spans[field] = at
                byte = data[at]
                if byte == 34:
                    at = _plain_end(data, at + 1)
                    at = at + 1 if data[at] == 34 else _string_end(data, at)
                elif byte == 123 or byte == 91:
                    at = _nested_end(data, at)
                else:
                    at = _word_end(data, at)
                if at < 0:
                    shape = UNDECIDED
                    break
                spans[ends + field] = at
                field += 1
                # What follows.
                if data[at] <= 32:
                    at = _space_end(data, at)
                more = data[at] == 44
                if more:
                    at += 1
                    if data[at] <= 32:
                        at = _space_end(data, at)
                elif data[at] == 125:
                    at += 1
                else:
                    shape = UNDECIDED
            if shape != UNDECIDED:
                if data[at] <= 32:
                    at = _space_end(data, at)
                if at == offsets[record + 1] - 1:
                    counters[FIELDS] = field
                else:
                    shape = UNDECIDED
        heads[count + record] = shape
        if shape == UNDECIDED:
            counters[LEFT] += 1
        if shape == heads[count]:
            counters[ALIKE] += 1
    return count


@compiled
def _name_of(
    data: Bytes,
    begin: int,
    end: int,
    tables: Int32Buffer,
    name_bytes: ByteBuffer,
    counters: Int64Buffer,
) -> int:
    """Return the number of a name, which is new if it is not among those that are known."""
    slot = hash_of_text(data, begin, end, 0) & (_SLOTS - 1)
    for _ in range(_MAX_PROBES):
        name = int(tables[_NAME_SLOTS + slot]) - 1
        if name < 0:
            name = int(counters[NAMES])
            at = int(tables[NAME_OFFSETS + name])
            for index in range(begin, end):
                name_bytes[at] = data[index]
                at += 1
            tables[NAME_OFFSETS + name + 1] = at
            counters[NAMES] = name + 1
            tables[_NAME_SLOTS + slot] = name + 1
            return name
        known = tables[NAME_OFFSETS + name]
        size = tables[NAME_OFFSETS + name + 1] - known
        if size == end - begin and are_equal(data, begin, name_bytes, known, size):
            return name
        slot = (slot + 1) & (_SLOTS - 1)
    return UNDECIDED


@compiled
def _hash_of_node(parent: int, name: int) -> int:
    """Return the hash of a node by its parent and name."""
    hashed = (parent * 73856093 + name * 19349663) & 0xFFFFFFFF
    return hashed ^ (hashed >> 15)


@compiled
def _child_of(parent: int, name: int, tables: Int32Buffer, counters: Int64Buffer) -> int:
    """Return the node with this parent and name; the number of nodes if there is none."""
    slot = _hash_of_node(parent, name) & (_SLOTS - 1)
    for _ in range(_MAX_PROBES):
        node = int(tables[_NODE_SLOTS + slot])
        if node == 0:
            return int(counters[NODES])
        if tables[node * NODE_SIZE] == parent and tables[node * NODE_SIZE + 1] == name:
            return node
        slot = (slot + 1) & (_SLOTS - 1)
    return UNDECIDED


@compiled
def _add_child(parent: int, name: int, tables: Int32Buffer, counters: Int64Buffer) -> None:
    """Add a node that `_child_of` has not found."""
    slot = _hash_of_node(parent, name) & (_SLOTS - 1)
    while tables[_NODE_SLOTS + slot] != 0:
        slot = (slot + 1) & (_SLOTS - 1)
    node = counters[NODES]
    tables[_NODE_SLOTS + slot] = node
    tables[node * NODE_SIZE] = parent
    tables[node * NODE_SIZE + 1] = name
    tables[node * NODE_SIZE + 2] = 0
    counters[NODES] = node + 1


@compiled
def _string_end(data: Bytes, at: int) -> int:
    """Return the index behind the quote that closes a string, from an index inside of it; -1 if it is not valid."""
    while data[at] != 34:
        byte = data[at]
        if byte < 32:
            return -1
        if byte != 92:
            at += 1
            continue
        byte = data[at + 1]
        if byte == 117:
            if _code_of(data, at + 2) < 0:
                return -1
            at += 6
        elif (
            byte == 34
            or byte == 92
            or byte == 47
            or byte == 98
            or byte == 102
            or byte == 110
            or byte == 114
            or byte == 116
        ):
            at += 2
        else:
            return -1
    return at + 1


@compiled
def _word_end(data: Bytes, at: int) -> int:
    """Return the end of a number, true, false or null; -1 if it is none of them, or undecided."""
    byte = data[at]
    if byte == 45 or 48 <= byte <= 57:
        begin = at
        if byte == 45:
            at += 1
        if data[at] == 48:
            at += 1
        elif 49 <= data[at] <= 57:
            at = _digits_end(data, at)
        else:
            return -1
        if data[at] == 46:
            at += 1
            if not 48 <= data[at] <= 57:
                return -1
            at = _digits_end(data, at)
        if data[at] == 101 or data[at] == 69:
            at += 1
            if data[at] == 43 or data[at] == 45:
                at += 1
            digits = at
            while 48 <= data[at] <= 57:
                at += 1
            if not 1 <= at - digits <= 2:
                return -1
        return at if at - begin <= _MAX_NUMBER else -1
    if byte == 116 and data[at + 1] == 114 and data[at + 2] == 117 and data[at + 3] == 101:
        return at + 4
    if byte == 102 and data[at + 1] == 97 and data[at + 2] == 108 and data[at + 3] == 115 and data[at + 4] == 101:
        return at + 5
    if byte == 110 and data[at + 1] == 117 and data[at + 2] == 108 and data[at + 3] == 108:
        return at + 4
    return -1


@compiled
def _space_end(data: Bytes, at: int) -> int:
    """Return the index behind white space."""
    byte = data[at]
    while byte == 32 or byte == 10 or byte == 13 or byte == 9:
        at += 1
        byte = data[at]
    return at


@compiled
def _nested_end(data: Bytes, at: int) -> int:
    """Return the end of an object or array; -1 if it is not valid or too deep."""
    depth = 0
    objects = 0
    while True:
        # In front of a value, or of the first name of an object.
        byte = data[at]
        opens = byte == 123 or byte == 91
        if opens:
            if depth == _MAX_DEPTH:
                return -1
            depth += 1
            objects = objects * 2 + (1 if byte == 123 else 0)
            at = _space_end(data, at + 1)
        elif byte == 34:
            at = _string_end(data, at + 1)
        else:
            at = _word_end(data, at)
        if at < 0:
            return -1
        # Behind a value, or what opens one.
        while True:
            closes = data[at] == (125 if objects & 1 else 93)
            if opens and not closes:
                break
            opens = False
            if not closes:
                at = _space_end(data, at)
                closes = data[at] == (125 if objects & 1 else 93)
            if closes:
                at += 1
                depth -= 1
                objects //= 2
                if depth == 0:
                    return at
                continue
            if data[at] != 44:
                return -1
            at = _space_end(data, at + 1)
            break
        if objects & 1:
            if data[at] != 34:
                return -1
            at = _string_end(data, at + 1)
            if at < 0:
                return -1
            at = _space_end(data, at)
            if data[at] != 58:
                return -1
            at = _space_end(data, at + 1)


@compiled
def scan_fields(
    data: Bytes, offsets: Int64s, fields: Int32s, names: Bytes, spans: Int64Buffer, undecided: ByteBuffer
) -> int:
    """Find the values of declared fields of objects; an object is decided if these are of their kinds.

    Args:
        data: texts, with the word null behind the zeros at their end.
        offsets: index of each text, and of the one that would follow the last.
        fields: number of the fields, size of the table of names less 1, and number of the fields that may not miss.
            Then for each field the offset and size of its name, its kind, and whether it may miss, and be null. Then
            the table: for each name the number of its field and 1, in open addressing.
        names: names of the fields, with `PADDING` bytes behind them.
        spans: begin of the value of each field of the first text, of the second, and so on; that word where the field
            is missing. In the other half the end of each.
        undecided: for each text 0 if it was decided.

    Returns:
        The number of undecided texts.
    """
    count, width, mask = len(offsets) - 1, fields[0], fields[1]
    ends = len(spans) // 2
    table = _HEAD + width * _FIELD_SIZE
    absent = offsets[count] + PADDING
    left = 0
    for record in range(count):
        first = record * width
        for slot in range(first, first + width):
            spans[slot] = absent
            spans[ends + slot] = absent + 4
        found = expected = 0
        at = offsets[record]
        if data[at] <= 32:
            at = _space_end(data, at)
        more = data[at] == 123
        if more:
            at = _space_end(data, at + 1)
            if data[at] == 125:
                more = False
                at += 1
        else:
            at = -1
        while more:
            if data[at] != 34:
                at = -1
                break
            at += 1
            field = -1
            if expected < width:
                own = _HEAD + expected * _FIELD_SIZE
                size = fields[own + 1]
                if data[at + size] == 34 and _is_name(data, at, names, fields[own], size):
                    field = expected
                    at += size + 1
            if field < 0:
                end = _plain_end(data, at)
                if data[end] != 34:
                    at = -1
                    break
                slot = hash_of_text(data, at, end, 0) & mask
                while fields[table + slot] > 0:
                    own = _HEAD + (fields[table + slot] - 1) * _FIELD_SIZE
                    size = fields[own + 1]
                    if end - at == size and are_equal(data, at, names, fields[own], size):
                        field = int(fields[table + slot]) - 1
                        break
                    slot = (slot + 1) & mask
                at = end + 1
            if data[at] <= 32:
                at = _space_end(data, at)
            if data[at] != 58:
                at = -1
                break
            at += 1
            if data[at] <= 32:
                at = _space_end(data, at)
            begin = at
            byte = data[at]
            own = _HEAD + field * _FIELD_SIZE
            kind = fields[own + 2] if field >= 0 else ANY
            if byte == 110:
                at = _word_end(data, at) if field < 0 or fields[own + 4] != 0 else -1
            elif byte == 34:
                at = _plain_end(data, at + 1)
                at = -1 if kind > STRING else at + 1 if data[at] == 34 else _string_end(data, at)
            elif kind >= 8:
                at = _integer_end(data, at, kind)
            elif kind == STRING:
                at = -1
            elif byte == 116 or byte == 102:
                at = -1 if kind == NUMBER else _word_end(data, at)
            elif kind == BOOLEAN:
                at = -1
            elif byte == 123 or byte == 91:
                at = -1 if kind == NUMBER else _nested_end(data, at)
            else:
                at = _word_end(data, at)
            if at < 0:
                break
            if field >= 0:
                if spans[first + field] != absent:
                    at = -1
                    break
                spans[first + field] = begin
                spans[ends + first + field] = at
                expected = field + 1
                if fields[own + 3] == 0:
                    found += 1
            if data[at] <= 32:
                at = _space_end(data, at)
            more = data[at] == 44
            if more:
                at += 1
                if data[at] <= 32:
                    at = _space_end(data, at)
            elif data[at] == 125:
                at += 1
            else:
                at = -1
        if at >= 0 and data[at] <= 32:
            at = _space_end(data, at)
        undecided[record] = 1 if at != offsets[record + 1] - 1 or found < fields[2] else 0
        left += undecided[record]
    return left


@compiled
def _integer_end(data: Bytes, at: int, bits: int) -> int:
    """Return the end of an integer of so many bits; -1 if it is none, or undecided."""
    is_negative = data[at] == 45
    if is_negative:
        at += 1
    begin = at
    at = _digits_end(data, at)
    size = at - begin
    if size == 0 or size > _MAX_DIGITS or (data[begin] == 48 and (is_negative or size > 1)):
        return -1
    if size > bits * 3 // 10:
        value = 0
        for index in range(begin, at):
            value = value * 10 + data[index] - 48
        if bits < 64 and value - (1 if is_negative else 0) >= 1 << (bits - 1):
            return -1
    return at


@compiled
def write(
    data: Bytes,
    offsets: Int64s,
    firsts: Int64s,
    spans: Int64s,
    records: Int64s,
    layouts: Int32s,
    plans: Int64s,
    prefixes: Bytes,
    computed: Bytes,
    computed_spans: Int64s,
    out: ByteBuffer,
    out_offsets: Int64Buffer,
) -> int:
    """Write an object for each record, by the plan of its layout.

    A plan has steps. A step writes its prefix, which is a comma and the name, and the bytes of a field, or the value of
    a computed column. Fields that are adjacent in the text in the form to be written are copied together.

    Args:
        data: texts, as those of `scan`.
        offsets: index of each text.
        firsts: for each text the index of its first value.
        spans: begin of each value; in the other half the end of each.
        records: for each record the number of its text.
        layouts: for each record the number of its plan; empty if there is one plan.
        plans: index of the first step of each plan, and of the one that would follow the last. Then the steps: the
            field, `COMPUTED` or `WHOLE`; the number of a computed column, whose values come before those of the field,
            or -1; 1 if the field has its own name, and follows that of the step before; and the offset of the prefix.
            The step that would follow the last has an offset, too.
        prefixes: prefixes.
        computed: values of computed columns.
        computed_spans: begin of each value of the first column, of the second, and so on; -1 where it has none. In the
            other half the end of each.
        out: the objects.
        out_offsets: offset of each object, and of the one that would follow the last.

    Returns:
        The number of bytes; -1 if there is no room for them.
    """
    count = len(records)
    room = len(out) - 2
    ends, computed_ends = len(spans) // 2, len(computed_spans) // 2
    at = 0
    for record in range(count):
        out_offsets[record] = at
        first = firsts[records[record]]
        layout = layouts[record] if len(layouts) > 0 else 0
        begun = at
        run_begin, run_end = 0, 0
        if at > room:
            return -1
        out[at] = 123
        at += 1
        for step in range(plans[layout], plans[layout + 1], STEP_SIZE):
            field = plans[step]
            if field == WHOLE:
                run_begin, run_end = offsets[records[record]], offsets[records[record] + 1] - 1
                at = begun
                break
            column = plans[step + 1]
            begin = computed_spans[column * count + record] if column >= 0 else -1
            is_computed = begin >= 0
            if is_computed:
                end = computed_spans[computed_ends + column * count + record]
            elif field >= 0:
                begin, end = spans[first + field], spans[ends + first + field]
            else:
                continue
            prefix, prefix_end = plans[step + 3], plans[step + 3 + STEP_SIZE]
            if plans[step + 2] and not is_computed and run_end > 0 and begin - run_end == prefix_end - prefix:
                run_end = end
                continue
            if at + run_end - run_begin + prefix_end - prefix + end - begin > room:
                return -1
            at = _copy(data, run_begin, run_end, out, at)
            run_begin, run_end = 0, 0
            if at == begun + 1:
                prefix += 1
            at = _copy(prefixes, prefix, prefix_end, out, at)
            if is_computed:
                at = _copy(computed, begin, end, out, at)
            else:
                run_begin, run_end = begin, end
        if at + run_end - run_begin > room:
            return -1
        is_whole = at == begun
        at = _copy(data, run_begin, run_end, out, at)
        if not is_whole:
            out[at] = 125
            at += 1
    out_offsets[count] = at
    return at


@compiled
def separate(data: Bytes, edges: Int32s, out: ByteBuffer, offsets: Int64Buffer) -> None:
    """Copy texts with a zero behind each, and with zeros up to the end of *out*, for which there is room.

    Args:
        data: texts one behind another.
        edges: index of each text, and the end of the last.
        out: gets the copies.
        offsets: gets the index of each copy, and of the one that would follow the last.
    """
    at = 0
    for index in range(len(edges) - 1):
        offsets[index] = at
        at = _copy(data, edges[index], edges[index + 1], out, at)
        out[at] = 0
        at += 1
    offsets[len(edges) - 1] = at
    for index in range(at, len(out)):
        out[index] = 0


@compiled
def join(data: Bytes, begins: Int64s, ends: Int64s, out: ByteBuffer) -> int:
    """Write an array of values; return its size, for which there is room."""
    out[0] = 91
    at = 1
    for index in range(len(begins)):
        at = _copy(data, begins[index], ends[index], out, at)
        out[at] = 44
        at += 1
    out[at - 1 if len(begins) else at] = 93
    return at if len(begins) else at + 1
