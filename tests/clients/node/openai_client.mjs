// npm openai: chat completions and responses.
import assert from "node:assert/strict";
import OpenAI from "openai";
import { zodResponseFormat } from "openai/helpers/zod";
import { z } from "zod";
import { API, BOTH, FOUND, KEY, PARIS, reversedQuestion, run } from "./checks.mjs";

const client = new OpenAI({ baseURL: API, apiKey: KEY, maxRetries: 0 });
const model = "parley";
const user = (content) => ({ role: "user", content });
const WEATHER = {
  name: "weather",
  description: "The weather in a town.",
  parameters: { type: "object", properties: { town: { type: "string" } }, required: ["town"] },
};
const Place = z.object({ city: z.string(), country: z.string() });

await run({
  async plain() {
    const made = await client.chat.completions.create({ model, messages: [user("hello")] });
    assert.equal(made.choices[0].message.content, reversedQuestion("hello"));
  },

  async stream() {
    const chunks = [];
    const made = client.chat.completions.stream({ model, messages: [user("hello there")] });
    made.on("content", (delta) => chunks.push(delta));
    assert.equal(await made.finalContent(), reversedQuestion("hello there"));
    assert.ok(chunks.length > 1);
  },

  async tools() {
    const found = { function: ({ town }) => FOUND[town], parse: JSON.parse, ...WEATHER };
    const made = client.chat.completions.runTools({
      model,
      messages: [user("Weather in Oslo and Rome?")],
      tools: [{ type: "function", function: found }],
    });
    assert.equal(await made.finalContent(), BOTH);
  },

  async structured() {
    const made = await client.chat.completions.parse({
      model,
      messages: [user("Where?")],
      response_format: zodResponseFormat(Place, "place"),
    });
    assert.deepEqual(made.choices[0].message.parsed, PARIS);
  },

  async responses() {
    const made = await client.responses.create({ model, input: "hello" });
    assert.equal(made.output_text, reversedQuestion("hello"));
    const again = { model, input: "again", previous_response_id: made.id, stream: true };
    let text = "";
    for await (const event of await client.responses.create(again)) {
      if (event.type === "response.output_text.delta") text += event.delta;
    }
    assert.equal(text, reversedQuestion("again"));
  },
});
