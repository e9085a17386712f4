// The OpenAI SDK for Node as a client of Longhaul: begin URL | continue URL ID LAST | tour URL. Prints events as JSON.

import assert from "node:assert/strict";
import { setTimeout as sleep } from "node:timers/promises";
import OpenAI from "openai";

const client = new OpenAI({ timeout: 60_000 });
const show = (event) => console.log(JSON.stringify(event));
const all = async (list) => {
  const found = [];
  for await (const one of list) found.push(one);
  return found;
};

async function begin() {
  let deltas = 0;
  const stream = await client.responses.create({ model: "alpha", input: "count", background: true, stream: true });
  for await (const event of stream) {
    show(event);
    deltas += event.type === "response.output_text.delta";
    if (deltas === 6) break;
  }
}

async function carryOn(id, last) {
  const stream = await client.responses.retrieve(id, { stream: true, starting_after: Number(last) });
  for await (const event of stream) show(event);
}

async function tour() {
  const models = await all(client.models.list());
  assert.deepEqual(models.map((model) => model.id).slice(0, 3), ["alpha", "alpha/lead", "alpha/scout"]);
  assert.equal((await client.models.retrieve("alpha/lead")).id, "alpha/lead");

  const one = await client.responses.create({ model: "alpha", input: "hello", instructions: "Be kind.", metadata: { a: "b" } });
  assert.equal(one.status, "completed");
  assert.deepEqual(one.metadata, { a: "b" });
  assert.match(one.output_text, /^answer 1/);
  assert.equal(one.usage.total_tokens, 15);

  const two = await client.responses.create({ model: "alpha", input: "again", previous_response_id: one.id });
  assert.match(two.output_text, /^answer 2/);
  const items = await all(client.responses.inputItems.list(one.id, { order: "asc" }));
  assert.deepEqual(items.map((item) => item.role), ["developer", "user"]);

  let slow = await client.responses.create({ model: "alpha/lead", input: "look", background: true });
  while (["queued", "in_progress"].includes(slow.status)) {
    await sleep(50);
    slow = await client.responses.retrieve(slow.id);
  }
  assert.match(slow.output_text, /^answer 1/);
  const full = await client.responses.retrieve(slow.id, { include: ["longhaul.tool_calls"] });
  assert.deepEqual(full.output.map((item) => item.type), ["function_call", "function_call_output", "message"]);

  for (const input of ["look", "write it down"]) {
    const stream = client.responses.stream({ model: "alpha", input });
    if (input === "look") {
      assert.match((await stream.finalResponse()).output_text, /^answer 1/);
      continue;
    }
    // A person is needed: the stream says so, and stays open.
    for await (const event of stream) {
      if (event.response?.metadata?.["longhaul.needs"]) break;
    }
  }

  const gone = await client.responses.create({ model: "alpha", input: "count", background: true });
  assert.equal((await client.responses.cancel(gone.id)).status, "cancelled");

  const key = { headers: { "Idempotency-Key": "k" } };
  const [first, again] = [0, 0].map(() => client.responses.create({ model: "alpha", input: "once" }, key));
  assert.equal((await first).id, (await again).id);

  await assert.rejects(client.responses.create({ model: "gpt-4o", input: "x" }), OpenAI.NotFoundError);
  await assert.rejects(client.responses.retrieve("resp_00000"), OpenAI.NotFoundError);
  await assert.rejects(client.responses.create({ model: "alpha", input: [] }), OpenAI.BadRequestError);
  await assert.rejects(client.responses.create({ model: "alpha", input: "x" }, key), OpenAI.ConflictError);
}

const parts = { begin, continue: carryOn, tour };
await parts[process.argv[2]](...process.argv.slice(4));
process.exit(0);
