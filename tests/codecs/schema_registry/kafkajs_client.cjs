// Runs @kafkajs/confluent-schema-registry: a JSON list of requests on the input, their results as a list on the output.
const { SchemaRegistry } = require("@kafkajs/confluent-schema-registry");

const text = (buffer) => buffer.toString("base64");

async function answer(registry, request) {
  if (request.schema !== undefined) {
    const schema = { type: request.type, schema: request.schema };
    return (await registry.register(schema, { subject: request.subject })).id;
  }
  if (request.value !== undefined) {
    return text(await registry.encode(request.id, request.value));
  }
  return registry.decode(Buffer.from(request.text, "base64"));
}

async function main() {
  const chunks = [];
  for await (const chunk of process.stdin) chunks.push(chunk);
  const { url, requests } = JSON.parse(Buffer.concat(chunks).toString());
  const registry = new SchemaRegistry({ host: url });
  const answers = [];
  for (const request of requests) answers.push(await answer(registry, request));
  console.log(JSON.stringify(answers));
}

main();
