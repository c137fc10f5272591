// A client of turnout's gRPC services and of its events: one scenario in, what was seen as one line of JSON out.
import http from "node:http";
import { once } from "node:events";
import grpc from "@grpc/grpc-js";
import loader from "@grpc/proto-loader";
import { EventSource } from "eventsource";

const [scenario, address, argument, protos] = process.argv.slice(2);
const deadline = () => ({ deadline: Date.now() + 100_000 });

// A status is the name of its code, with its details where it is none of OK.
const outcome = (error) => (error ? `${codeOf(error)}: ${error.details}` : "OK");
const codeOf = (error) => (error ? grpc.status[error.code] : "OK");

function connect() {
  const definition = loader.loadSync(
    ["turnout/rpc/v1/subscriptions.proto", "turnout/rpc/v1/matching.proto", "turnout/rpc/v1/feeds.proto"],
    { includeDirs: [protos], longs: String, keepCase: true, defaults: true, oneofs: true },
  );
  const root = grpc.loadPackageDefinition(definition);
  const make = (Client) => new Client(address, grpc.credentials.createInsecure());
  return {
    service: make(root.subscriptions.Service),
    matching: make(root.turnout.subscriptions.v1.Matching),
    feeds: make(root.turnout.feeds.v1.Feeds),
  };
}

const call = (client, method, request) =>
  new Promise((resolve) =>
    client[method](request, deadline(), (error, response) => resolve({ error, response })),
  );

async function answered(client, method, request) {
  const { error, response } = await call(client, method, request);
  if (error) throw error;
  return response;
}

const { service, matching, feeds } = scenario === "events" ? {} : connect();
const match = (subject) => call(matching, "Match", { metadata: { subject } });

async function create(pattern, metadata = {}) {
  const condition = { kiwiTreeCondition: { key: "subject", pattern } };
  return (await answered(service, "Create", { metadata, route: { destinations: ["out"], condition } })).id;
}

async function lifecycle() {
  const id = await create("orders", { name: "first" });
  const data = await answered(service, "Read", { id });
  const first = data.revision;
  data.metadata.name = "second";
  const conflict = await call(service, "Update", { id, data, expectedRevision: String(Number(first) + 1000) });
  const updated = await answered(service, "Update", { id, data, expectedRevision: first });
  const again = await answered(service, "Read", { id });
  const late = await call(service, "Delete", { id, expectedRevision: first });
  const deleted = await call(service, "Delete", { id, expectedRevision: updated.revision });
  const gone = await call(service, "Read", { id });
  return {
    conflict: outcome(conflict.error), name: again.metadata.name, same: again.revision === updated.revision,
    late: outcome(late.error), deleted: outcome(deleted.error), gone: outcome(gone.error),
  };
}

// Match eight times at once, right after each creation and each deletion.
async function concurrent() {
  const rounds = 25;
  let wrong = 0;
  async function check(id, expected) {
    const answers = await Promise.all(
      Array.from({ length: 8 }, () => answered(matching, "Match", { metadata: { subject: "round" } })),
    );
    wrong += answers.filter((one) => one.matches.some((each) => each.subscription_id === id) !== expected).length;
  }
  for (let round = 0; round < rounds; round++) {
    const id = await create("round");
    await check(id, true);
    await answered(service, "Delete", { id });
    await check(id, false);
  }
  return { matches: rounds * 16, wrong };
}

async function pages() {
  const created = [];
  for (let n = 0; n < 5; n++) created.push(await create("page", { kind: "page" }));
  const byMetadata = [], byCondition = [], lengths = [];
  let cursor = "";
  do {
    const page = await answered(service, "SearchByMetadata", { cursor, limit: 2, metadata: { kind: "page" } });
    lengths.push(page.page.length);
    byMetadata.push(...page.page.map((one) => one.id));
    cursor = page.cursor;
  } while (cursor);
  do {
    const kiwiConditionQuery = { key: "subject", pattern: "page" };
    const page = await answered(service, "SearchByCondition", { cursor, limit: 2, kiwiConditionQuery });
    byCondition.push(...page.page.map((one) => one.subscriptionId));
    cursor = page.cursor;
  } while (cursor);
  return { created, byMetadata, byCondition, lengths };
}

async function watch() {
  const before = await create("watched");
  const stream = matching.Watch({ since: 0 }, deadline());
  const created = new Set(), deleted = new Set();
  let changed = () => {};
  stream.on("error", () => {});
  stream.on("data", (changes) => {
    changes.created.forEach((one) => created.add(one.id));
    changes.deleted_ids.forEach((one) => deleted.add(one));
    changed();
  });
  const seen = async (set, id) => {
    while (!set.has(id)) await new Promise((resolve) => (changed = resolve));
  };
  await seen(created, before);
  const after = await create("watched");
  await seen(created, after);
  await answered(service, "Delete", { id: after });
  await seen(deleted, after);
  stream.cancel();
  return { created: created.has(before) && created.has(after), deleted: deleted.has(after), other: deleted.has(before) };
}

async function burst() {
  await create("burst");
  const counts = {};
  const calls = await Promise.all(Array.from({ length: Number(argument) }, () => match("burst")));
  for (const { error } of calls) counts[codeOf(error)] = (counts[codeOf(error)] ?? 0) + 1;
  return { counts };
}

const large = async () => ({ outcome: outcome((await match("large")).error) });

// Follow a feed that is left after two messages each time, behind the cursor of the last one.
async function feed() {
  const messages = [];
  let cursor = "", connections = 0;
  while (messages.length < 15) {
    connections++;
    const stream = feeds.Read(deadline());
    const ended = new Promise((resolve) => stream.on("error", resolve));
    stream.write({ start: { subscription_id: argument, after: cursor, follow: true } });
    const page = await Promise.race([once(stream, "data").then(([data]) => data), ended]);
    if (page instanceof Error) throw page;
    for (const message of page.messages.slice(0, Math.min(2, 15 - messages.length))) {
      cursor = message.cursor;
      messages.push([message.value.toString(), message.topic]);
    }
    stream.cancel();
    await ended;
  }
  return { messages, connections };
}

// Call until the server is away; a line after the first answer says that it may be stopped.
async function stop() {
  await answered(matching, "Match", { metadata: { subject: "stop" } });
  console.log("ready");
  const counts = {};
  await Promise.all(
    Array.from({ length: 50 }, async () => {
      for (let error = null; !error; ) {
        ({ error } = await match("stop"));
        counts[outcome(error)] = (counts[outcome(error)] ?? 0) + 1;
      }
    }),
  );
  await once(process.stdin, "data");
  const away = await match("stop");
  process.stdin.destroy();
  return { counts, away: codeOf(away.error) };
}

// A proxy that cuts each connection after two events with an id, and shortens the time before the next one.
async function cutting(target) {
  let connections = 0;
  const server = http.createServer((request, response) => {
    connections++;
    const upstream = http.get(target + request.url, { headers: { ...request.headers, host: new URL(target).host } });
    upstream.on("response", (answer) => {
      response.writeHead(answer.statusCode, answer.headers);
      let buffer = "", left = 2;
      answer.setEncoding("utf8");
      answer.on("data", (part) => {
        buffer += part;
        for (let end = buffer.indexOf("\n\n"); end >= 0 && left > 0; end = buffer.indexOf("\n\n")) {
          const event = buffer.slice(0, end + 2);
          buffer = buffer.slice(end + 2);
          response.write(event.replace(/^retry: \d+/, "retry: 20"));
          if (event.startsWith("id: ")) left--;
          if (left === 0) {
            upstream.destroy();
            setTimeout(() => response.destroy(), 20);
          }
        }
      });
      answer.on("end", () => response.end());
      answer.on("error", () => {});
    });
    upstream.on("error", () => response.destroy());
    response.on("close", () => upstream.destroy());
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  return { server, url: `http://127.0.0.1:${server.address().port}`, count: () => connections };
}

// Read events with npm's eventsource until `end`, or one with a text in its data. *argument* is the path and, behind
// blanks, the number of events after which a line says that more may happen, and the text.
async function events() {
  const [path, ready, last] = argument.split(" ");
  const proxy = await cutting(address);
  const seen = [];
  const source = new EventSource(proxy.url + path);
  const ended = await new Promise((resolve) => {
    const take = (event) => {
      seen.push([event.lastEventId, event.data]);
      if (last && event.data.includes(last)) resolve("last");
      if (seen.length === Number(ready)) console.log("ready");
    };
    for (const kind of ["message", "route.state", "route.version", "route.offsets"])
      source.addEventListener(kind, take);
    source.addEventListener("end", () => resolve("end"));
    source.addEventListener("problem", (event) => resolve(`problem ${event.data}`));
    source.addEventListener("error", (event) => event.code && resolve(`error ${event.code}`));
  });
  source.close();
  proxy.server.close();
  proxy.server.closeAllConnections();
  return { seen, ended, connections: proxy.count() };
}

setTimeout(() => process.exit(3), 110_000).unref();
const scenarios = { lifecycle, concurrent, pages, watch, burst, large, feed, stop, events };
console.log(JSON.stringify(await scenarios[scenario]()));
process.exit(0);
