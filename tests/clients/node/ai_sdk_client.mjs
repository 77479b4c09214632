// The Vercel AI SDK: `openai.chat` and `openai.responses`.
import assert from "node:assert/strict";
import { createOpenAI } from "@ai-sdk/openai";
import { generateText, Output, stepCountIs, streamText, tool } from "ai";
import { z } from "zod";
import { API, BOTH, FOUND, KEY, PARIS, reversedQuestion, run } from "./checks.mjs";

globalThis.AI_SDK_LOG_WARNINGS = false;
const openai = createOpenAI({ baseURL: API, apiKey: KEY });
const chat = openai.chat("parley");
const responses = openai.responses("parley");
const Place = z.object({ city: z.string(), country: z.string() });
const weather = tool({
  description: "The weather in a town.",
  inputSchema: z.object({ town: z.string() }),
  execute: async ({ town }) => FOUND[town],
});
const both = {
  prompt: "Weather in Oslo and Rome?",
  tools: { weather },
  stopWhen: stepCountIs(3),
  maxRetries: 0,
};

await run({
  async plain() {
    const { text } = await generateText({ model: chat, prompt: "hello", maxRetries: 0 });
    assert.equal(text, reversedQuestion("hello"));
  },

  async stream() {
    const { textStream } = streamText({ model: chat, prompt: "hello there", maxRetries: 0 });
    const chunks = [];
    for await (const chunk of textStream) chunks.push(chunk);
    assert.ok(chunks.length > 1);
    assert.equal(chunks.join(""), reversedQuestion("hello there"));
  },

  async tools() {
    assert.equal((await generateText({ model: chat, ...both })).text, BOTH);
    assert.equal(await streamText({ model: chat, ...both }).text, BOTH);
  },

  async required_tool() {
    const made = await generateText({
      model: chat,
      ...both,
      stopWhen: stepCountIs(1),
      toolChoice: "required",
    });
    assert.deepEqual(made.toolCalls.map((call) => call.input.town), ["Oslo", "Rome"]);
  },

  async structured() {
    const output = Output.object({ schema: Place });
    const made = await generateText({ model: chat, prompt: "Where?", output, maxRetries: 0 });
    assert.deepEqual(made.output, PARIS);
  },

  async responses() {
    const { text } = await generateText({ model: responses, prompt: "hello", maxRetries: 0 });
    assert.equal(text, reversedQuestion("hello"));
    const output = Output.object({ schema: Place });
    const made = await generateText({ model: responses, prompt: "Where?", output, maxRetries: 0 });
    assert.deepEqual(made.output, PARIS);
  },

  // Its second request refers to the items of the first answer by their ids.
  async responses_second_turn() {
    assert.equal((await generateText({ model: responses, ...both })).text, BOTH);
  },
});
