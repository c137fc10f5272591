// Completion of YAML from a JSON Schema: the container that an offset of the text is in, and what the schema has for it.

const KEY = /^((?:"[^"]*"|'[^']*')\s*|[^\s#'"[\]{},&*!|>%@-][^:#]*|-[^\s:#][^:#]*):(?=\s|$)/;
const BLOCK = /^[|>][-+\d]*\s*(#.*)?$/;

const bare = (text) => text.trim().replace(/^(["'])(.*)\1$/, "$2");

/** A mapping, or with *sequence* a list, below a key of its parent; null for an item of a list. */
const container = (indent, parent, key, sequence = false) => ({ indent, parent, key, sequence, pending: null, keys: new Map() });

/** Read the rest of a line within brackets. Returns the innermost open container, null if all are closed, and the column. */
function readFlow(line, column, inner, cursor, found) {
  let at = column;
  while (at <= line.length) {
    const blanks = at;
    while (line[at] === " " || line[at] === "\t") at += 1;
    const next = line[at];
    const token = next === '"' || next === "'" ? line.slice(at).match(/^(["'])[^"']*\1?/)[0] : line.slice(at).match(/^(?:[^\s,:[\]{}#]|:(?=[^\s,[\]{}])|\s+(?=[^\s,:[\]{}#])|\S#)*/)[0];
    const keyed = /^\s*:(?=[\s,[\]{}]|$)/.test(line.slice(at + token.length));
    if (!found.place && cursor >= (token ? at : blanks) && cursor <= at + token.length) {
      const value = inner.sequence || inner.pending !== null;
      found.place = { container: inner, key: inner.sequence ? null : inner.pending, from: Math.min(cursor, at), values: value, names: !value, keyed, flow: true };
    }
    if (token) {
      if (inner.pending !== null) inner.keys.set(inner.pending, bare(token));
      else if (!inner.sequence && keyed) { inner.pending = bare(token); inner.keys.set(inner.pending, null); }
      at += token.length;
    } else if (next === undefined || next === "#") return [inner, line.length];
    else {
      at += 1;
      if (next === "{" || next === "[") inner = container(-1, inner, inner.sequence ? null : inner.pending, next === "[");
      else if (next === "}" || next === "]") {
        inner = inner.parent;
        if (inner.indent >= 0) return [null, at];
        inner.pending = null;
      } else if (next === ",") inner.pending = null;
    }
  }
  return [inner, line.length];
}

/**
 * The place of an offset in a text: its container, the key whose value it is in, and where the word before it begins.
 * Reads what is being written, which is seldom whole YAML: it fails at nothing, and is linear in the text.
 */
export function placeOf(text, offset) {
  const root = container(0, null, null);
  const stack = [root];
  const found = { place: null };
  let [flow, block, begin] = [null, -1, 0];

  /** The mapping at a column: one that is open there, or a new one below the last key. */
  const mappingAt = (column) => {
    while (stack.at(-1).indent > column || (stack.at(-1).indent === column && stack.at(-1).sequence)) stack.pop();
    const top = stack.at(-1);
    if (top.indent === column) return top;
    stack.push(container(column, top, top.sequence ? null : top.pending));
    return stack.at(-1);
  };
  const listAt = (column) => {
    while (stack.at(-1).indent > column) stack.pop();
    const top = stack.at(-1);
    if (!top.sequence || top.indent < column) stack.push(container(column, top, top.sequence ? null : top.pending, true));
  };
  const putPlace = (rest) => { found.place ??= { keyed: false, flow: false, key: null, names: false, values: false, ...rest }; };

  for (const line of text.split("\n")) {
    const cursor = offset - begin;
    const here = cursor >= 0 && cursor <= line.length;
    begin += line.length + 1;
    let column = line.search(/\S|$/);
    if (flow) {
      [flow] = readFlow(line, column, flow, here ? cursor : -1, found);
      continue;
    }
    if (block >= 0 && (column > block || column === line.length)) {
      if (here && cursor > block) return null;
      continue;
    }
    block = -1;
    if (column === line.length || line[column] === "#" || (here && cursor < column)) {
      if (here && (line[column] !== "#" || cursor <= column)) putPlace({ container: mappingAt(cursor), from: cursor, names: true });
      if (column === line.length || line[column] === "#") continue;
    }
    for (let dash; (dash = line.slice(column).match(/^-(\s+|$)/)); ) {
      listAt(column);
      column += dash[0].length;
      if (here && !found.place && (cursor < column || column === line.length)) {
        const list = stack.at(-1);
        if (cursor > list.indent) putPlace({ container: container(cursor, list, null), from: cursor, names: true, values: true });
      }
    }
    if (column === line.length) continue;
    const key = line.slice(column).match(KEY);
    if (!key) {
      const open = /^[[{]/.test(line.slice(column));
      const inner = mappingAt(column);
      if (open) {
        const [child] = [container(-1, inner.parent ?? inner, inner.parent ? inner.key : inner.pending, line[column] === "[")];
        if (inner.parent) stack.pop();
        [flow] = readFlow(line, column + 1, child, here ? cursor : -1, found);
      } else if (here && cursor >= column) putPlace({ container: inner, from: column, names: true, values: true });
      continue;
    }
    const mapping = mappingAt(column);
    const after = column + key[0].length;
    const value = after + line.slice(after).search(/\S|$/);
    const rest = line.slice(value);
    mapping.pending = bare(key[1]);
    mapping.keys.set(mapping.pending, null);
    if (here && cursor >= column && cursor < after) putPlace({ container: mapping, from: column, names: true, keyed: true });
    if (BLOCK.test(rest)) block = column;
    else if (/^[[{]/.test(rest)) {
      const inner = container(-1, mapping, mapping.pending, rest[0] === "[");
      [flow] = readFlow(line, value + 1, inner, here ? cursor : -1, found);
    } else {
      const comment = rest.search(/(?:^|\s)#/);
      const scalar = comment < 0 ? rest : rest.slice(0, comment);
      if (here && cursor >= after && cursor <= Math.max(after, value) + scalar.length) putPlace({ container: mapping, key: mapping.pending, from: Math.min(cursor, value), values: true });
      if (scalar.trim()) mapping.keys.set(mapping.pending, bare(scalar));
    }
  }
  return found.place && { ...found.place, from: found.place.from + text.lastIndexOf("\n", offset - 1) + 1 };
}

const holds = (condition, keys) =>
  (condition.required ?? []).every((name) => keys.has(name)) &&
  Object.entries(condition.properties ?? {}).every(([name, one]) => !keys.has(name) || !one.enum || one.enum.includes(keys.get(name))) &&
  !(condition.not && holds(condition.not, keys));

/** All schemas that apply to a value with these keys, those that it may have to choose from among them. */
function expanded(schema, keys, whole, depth = 0) {
  if (!schema || schema === true || depth > 20) return [];
  const next = (one) => expanded(one, keys, whole, depth + 1);
  const parts = [...(schema.anyOf ?? []), ...(schema.oneOf ?? []), ...(schema.allOf ?? [])];
  if (schema.$ref) parts.push(whole.$defs[schema.$ref.split("/").at(-1)]);
  if (schema.if) parts.push(holds(schema.if, keys) ? schema.then : schema.else);
  return [schema, ...parts.flatMap(next)];
}

const ofKey = (schemas, name) => schemas.map((one) => one.properties?.[name] ?? one.additionalProperties);

function schemasOf(inner, whole) {
  if (!inner.parent) return expanded(whole, inner.keys, whole);
  const outer = schemasOf(inner.parent, whole);
  const own = inner.key === null ? outer.map((one) => one.items) : ofKey(outer, inner.key);
  return own.flatMap((one) => expanded(one, inner.keys, whole));
}

const sentence = (schemas) => schemas.find((one) => one.description)?.description.replaceAll("``", "") ?? "";
const isNothing = (schema) => schema.type === "null";

/** What follows a name that was chosen: a line of its own where a mapping or a list begins. */
function behind(schemas, { flow, keyed }, indent) {
  if (keyed) return "";
  const kind = schemas.map((one) => (one.enum ? "string" : [one.type].flat()[0])).find((one) => one && one !== "null");
  if (flow || !["object", "array"].includes(kind)) return ": ";
  return `:\n${" ".repeat(indent + 2)}${kind === "array" ? "- " : ""}`;
}

function namesOf(schemas, place, whole, indent) {
  const options = new Map();
  for (const [name, schema] of schemas.flatMap((one) => Object.entries(one.properties ?? {}))) {
    if (isNothing(schema) || (place.container.keys.has(name) && !place.keyed)) continue;
    const all = expanded(schema, new Map(), whole);
    const known = options.get(name);
    if (!known || (!known.info && all.length)) options.set(name, { label: name, type: "property", info: sentence(all), apply: name + behind(all, place, indent) });
  }
  const needed = new Set(schemas.flatMap((one) => one.required ?? []));
  return [...options.values()].map((one) => (needed.has(one.label) ? { ...one, detail: "required", boost: 2 } : one));
}

function valuesOf(schemas) {
  const values = schemas.flatMap((one) => [...(one.enum ?? []), ...("const" in one ? [one.const] : []), ...([one.type].flat().includes("boolean") ? [true, false] : [])]);
  const defaults = new Set(schemas.filter((one) => "default" in one && one.default !== null).map((one) => String(one.default)));
  // Names of Java classes follow the short ones.
  return [...new Set(values.filter((one) => one !== null).map(String))].map((label) => ({ label, type: "enum", detail: defaults.has(label) ? "default" : "", boost: label.includes(".") ? -2 : 0 }));
}

/** Return the completions that a schema allows at an offset of a text: ``{from, options}``; null for none. */
export function completionsAt(text, offset, whole) {
  const place = placeOf(text, offset);
  if (!place) return null;
  const schemas = schemasOf(place.container, whole);
  const line = text.lastIndexOf("\n", offset - 1) + 1;
  const indent = text.slice(line, offset).match(/^[\s-]*/)[0].length;
  const lists = schemas.filter((one) => one.items).flatMap((one) => expanded(one.items, new Map(), whole));
  const items = place.names && !place.container.keys.size ? namesOf(lists, place, whole, indent + 2).map((one) => ({ ...one, label: `- ${one.label}`, apply: `- ${one.apply}` })) : [];
  const names = place.names ? namesOf(schemas, place, whole, indent) : [];
  const target = place.key === null ? schemas : ofKey(schemas, place.key).flatMap((one) => expanded(one, new Map(), whole));
  const options = [...names, ...items, ...(place.values ? valuesOf(target) : [])];
  return options.length ? { from: place.from, options, values: place.values && !place.names } : null;
}
