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
from turnout.loops.texts import _copy, are_equal

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

FIELDS, NODES, NAMES, STAMP = 0, 1, 2, 3
"""Counters of `scan`: values, nodes and names so far, and new shapes."""

_MAX_DEPTH: Final = 32
_MAX_NUMBER: Final = 200
_MAX_PROBES: Final = 64


@compiled
def scan(
    data: Bytes,
    offsets: Int64s,
    first: int,
    begins: Int64Buffer,
    ends: Int64Buffer,
    firsts: Int64Buffer,
    shapes: Int32Buffer,
    nodes: Int32Buffer,
    node_slots: Int32Buffer,
    name_offsets: Int32Buffer,
    name_bytes: ByteBuffer,
    name_slots: Int32Buffer,
    seen: Int64Buffer,
    counters: Int64Buffer,
) -> int:
    """Find the values of the fields of objects, and the shapes of these.

    Args:
        data: texts.
        offsets: index of each text, and of the one that would follow the last.
        first: number of the text to begin with.
        begins: begin of each value; the values of an object are adjacent.
        ends: end of each value.
        firsts: for each text the index of its first value.
        shapes: for each text the node of its shape, or `UNDECIDED`.
        nodes: the tree of shapes, with the root as its first node.
        node_slots: nodes by their parent and name, in open addressing.
        name_offsets: offset of each name, and of the one that would follow the last.
        name_bytes: names.
        name_slots: names by their bytes, in open addressing.
        seen: for each name the last new shape that has it.
        counters: how much of all this is used.

    Returns:
        The number of the text for which a buffer has no room; the number of texts if all are done.
    """
    count = len(offsets) - 1
    for record in range(first, count):
        used = counters[FIELDS]
        if (
            used + MAX_FIELDS > len(begins)
            or (counters[NODES] + MAX_FIELDS) * NODE_SIZE > len(nodes)
            or name_offsets[counters[NAMES]] + MAX_FIELDS * MAX_NAME > len(name_bytes)
        ):
            return record
        firsts[record] = used
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
                child = nodes[shape * NODE_SIZE + 2]
                name = nodes[child * NODE_SIZE + 1]
                begin = name_offsets[name]
                size = name_offsets[name + 1] - begin
                if child > 0 and data[at + size] == 34 and are_equal(data, at, name_bytes, begin, size):
                    at += size + 1
                else:
                    end = at
                    while data[end] >= 32 and data[end] != 34 and data[end] != 92:
                        end += 1
                    name = UNDECIDED
                    if data[end] == 34 and end - at <= MAX_NAME:
                        name = _name_of(data, at, end, name_offsets, name_bytes, name_slots, counters)
                    if name == UNDECIDED:
                        shape = UNDECIDED
                        break
                    child = _child_of(shape, name, nodes, node_slots, counters)
                    if child == counters[NODES]:
                        if not is_new:
                            is_new = True
                            counters[STAMP] += 1
                            node = shape
                            while node > 0:
                                seen[nodes[node * NODE_SIZE + 1]] = counters[STAMP]
                                node = nodes[node * NODE_SIZE]
                        if seen[name] == counters[STAMP]:
                            child = UNDECIDED
                        else:
                            seen[name] = counters[STAMP]
                            _add_child(shape, name, nodes, node_slots, counters)
                    if child == UNDECIDED:
                        shape = UNDECIDED
                        break
                    nodes[shape * NODE_SIZE + 2] = child
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
                begins[field] = at
                byte = data[at]
                if byte == 34:
                    at += 1
                    while data[at] >= 32 and data[at] != 34 and data[at] != 92:
                        at += 1
                    at = at + 1 if data[at] == 34 else _string_end(data, at)
                elif byte == 123 or byte == 91:
                    at = _nested_end(data, at)
                else:
                    at = _word_end(data, at)
                if at < 0:
                    shape = UNDECIDED
                    break
                ends[field] = at
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
        shapes[record] = shape
    return count


@compiled
def _name_of(
    data: Bytes,
    begin: int,
    end: int,
    name_offsets: Int32Buffer,
    name_bytes: ByteBuffer,
    name_slots: Int32Buffer,
    counters: Int64Buffer,
) -> int:
    """Return the number of a name, which is new if it is not among those that are known."""
    hashed = 2166136261
    for index in range(begin, end):
        hashed = ((hashed ^ data[index]) * 16777619) & 0xFFFFFFFF
    mask = len(name_slots) - 1
    slot = (hashed ^ (hashed >> 15)) & mask
    for _ in range(_MAX_PROBES):
        name = int(name_slots[slot]) - 1
        if name < 0:
            name = int(counters[NAMES])
            at = name_offsets[name]
            for index in range(begin, end):
                name_bytes[at] = data[index]
                at += 1
            name_offsets[name + 1] = at
            counters[NAMES] = name + 1
            name_slots[slot] = name + 1
            return name
        known = name_offsets[name]
        if name_offsets[name + 1] - known == end - begin and are_equal(data, begin, name_bytes, known, end - begin):
            return name
        slot = (slot + 1) & mask
    return UNDECIDED


@compiled
def _hash_of_node(parent: int, name: int) -> int:
    """Return the hash of a node by its parent and name."""
    hashed = (parent * 73856093 + name * 19349663) & 0xFFFFFFFF
    return hashed ^ (hashed >> 15)


@compiled
def _child_of(parent: int, name: int, nodes: Int32Buffer, node_slots: Int32Buffer, counters: Int64Buffer) -> int:
    """Return the node with this parent and name; the number of nodes if there is none."""
    mask = len(node_slots) - 1
    slot = _hash_of_node(parent, name) & mask
    for _ in range(_MAX_PROBES):
        node = int(node_slots[slot])
        if node == 0:
            return int(counters[NODES])
        if nodes[node * NODE_SIZE] == parent and nodes[node * NODE_SIZE + 1] == name:
            return node
        slot = (slot + 1) & mask
    return UNDECIDED


@compiled
def _add_child(parent: int, name: int, nodes: Int32Buffer, node_slots: Int32Buffer, counters: Int64Buffer) -> None:
    """Add a node that `_child_of` has not found."""
    mask = len(node_slots) - 1
    slot = _hash_of_node(parent, name) & mask
    while node_slots[slot] != 0:
        slot = (slot + 1) & mask
    node = counters[NODES]
    node_slots[slot] = node
    nodes[node * NODE_SIZE] = parent
    nodes[node * NODE_SIZE + 1] = name
    nodes[node * NODE_SIZE + 2] = 0
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
            code = 0
            for index in range(at + 2, at + 6):
                digit = data[index]
                if 48 <= digit <= 57:
                    code = code * 16 + digit - 48
                elif 65 <= digit <= 70 or 97 <= digit <= 102:
                    code = code * 16 + (digit & 7) + 9
                else:
                    return -1
            if 0xD800 <= code <= 0xDFFF:
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
            while 48 <= data[at] <= 57:
                at += 1
        else:
            return -1
        if data[at] == 46:
            at += 1
            if not 48 <= data[at] <= 57:
                return -1
            while 48 <= data[at] <= 57:
                at += 1
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
def write(
    data: Bytes,
    offsets: Int64s,
    begins: Int64s,
    ends: Int64s,
    records: Int64s,
    firsts: Int64s,
    layouts: Int32s,
    plans: Int64s,
    fields: Int32s,
    columns: Int32s,
    follows: Int32s,
    prefix_offsets: Int64s,
    prefixes: Bytes,
    computed: Bytes,
    computed_begins: Int64s,
    computed_ends: Int64s,
    out: ByteBuffer,
    out_offsets: Int64Buffer,
) -> int:
    """Write an object for each record, by the plan of its layout.

    A plan has steps. A step writes its prefix, which is a comma and the name, and the bytes of a field, or the value of
    a computed column. Fields that are adjacent in the text in the form to be written are copied together.

    Args:
        data: texts, as those of `scan`.
        offsets: index of each text.
        begins: begin of each value.
        ends: end of each value.
        records: for each record the number of its text.
        firsts: for each record the index of its first value.
        layouts: for each record the number of its plan.
        plans: number of the first step of each plan, and of the one that would follow the last.
        fields: for each step its field, `COMPUTED` or `WHOLE`.
        columns: for each step the number of a computed column, or -1. Its values come before those of the field.
        follows: for each step 1 if the field has its own name, and follows that of the step before.
        prefix_offsets: offset of each step's prefix, and of the one that would follow the last.
        prefixes: prefixes.
        computed: values of computed columns.
        computed_begins: begin of each value of the first column, of the second, and so on; -1 where it has none.
        computed_ends: end of each of these values.
        out: the objects.
        out_offsets: offset of each object, and of the one that would follow the last.

    Returns:
        The number of bytes; -1 if there is no room for them.
    """
    count = len(records)
    room = len(out) - 2
    at = 0
    for record in range(count):
        out_offsets[record] = at
        first = firsts[record]
        layout = layouts[record]
        begun = at
        run_begin, run_end = 0, 0
        if at > room:
            return -1
        out[at] = 123
        at += 1
        for step in range(plans[layout], plans[layout + 1]):
            field = fields[step]
            if field == WHOLE:
                run_begin, run_end = offsets[records[record]], offsets[records[record] + 1] - 1
                at = begun
                break
            column = columns[step]
            begin = computed_begins[column * count + record] if column >= 0 else -1
            is_computed = begin >= 0
            if is_computed:
                end = computed_ends[column * count + record]
            elif field >= 0:
                begin, end = begins[first + field], ends[first + field]
            else:
                continue
            prefix, prefix_end = prefix_offsets[step], prefix_offsets[step + 1]
            if follows[step] and not is_computed and run_end > 0 and begin - run_end == prefix_end - prefix:
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
