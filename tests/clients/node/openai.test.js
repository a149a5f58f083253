// The unmodified `openai` npm package against a running omni at OMNI_BASE_URL.
import assert from "node:assert/strict";
import { test } from "node:test";
import OpenAI, { BadRequestError, NotFoundError, toFile } from "openai";

const client = new OpenAI({
  baseURL: `${process.env.OMNI_BASE_URL}/v1`,
  apiKey: "unused",
  maxRetries: 0,
  timeout: 120_000,
});
const japan = [{ role: "user", content: "What is the capital of Japan?" }];
const spoken = "The quick brown fox jumps over the lazy dog.";
const words = (text) => text.toLowerCase().replace(/[^a-z ]/g, "").trim();

async function speak(input) {
  const answer = await client.audio.speech.create({ model: "tts", voice: "heart", input, response_format: "wav" });
  return Buffer.from(await answer.arrayBuffer());
}

test("the list names every model", async () => {
  const listed = [];
  for await (const model of client.models.list()) listed.push(model.id);
  for (const name of ["smollm2-135m", "minilm", "tts", "whisper-tiny-en"]) assert.ok(listed.includes(name), name);
});

test("chat answers", async () => {
  const answer = await client.chat.completions.create({ model: "smollm2-135m", messages: japan, temperature: 0 });
  assert.equal(answer.choices[0].message.content, "The capital of Japan is Tokyo.");
  assert.ok(answer.usage.completion_tokens > 3);
});

test("chat streams the same answer in pieces", async () => {
  const stream = await client.chat.completions.create({
    model: "smollm2-135m",
    messages: japan,
    temperature: 0,
    stream: true,
  });
  const pieces = [];
  for await (const chunk of stream) {
    const piece = chunk.choices[0]?.delta?.content;
    if (piece) pieces.push(piece);
  }
  assert.ok(pieces.length > 3);
  assert.equal(pieces.join(""), "The capital of Japan is Tokyo.");
});

test("a stream that is left early frees the model", async () => {
  for (let round = 0; round < 4; ++round) {
    const stream = await client.chat.completions.create({
      model: "smollm2-135m",
      messages: [{ role: "user", content: "Tell me a long story." }],
      max_tokens: 900,
      stream: true,
    });
    for await (const _ of stream) break;
  }
  const answer = await client.chat.completions.create(
    { model: "smollm2-135m", messages: japan, temperature: 0 },
    { timeout: 20_000 },
  );
  assert.match(answer.choices[0].message.content, /Tokyo/);
});

test("a paraphrase is nearer than a stranger", async () => {
  const answer = await client.embeddings.create({
    model: "minilm",
    input: ["A man is eating food.", "A man is eating a piece of bread.", "The stock market fell sharply today."],
  });
  const [food, bread, market] = answer.data.map((row) => row.embedding);
  const dot = (left, right) => left.reduce((sum, value, index) => sum + value * right[index], 0);
  assert.equal(food.length, 384);
  assert.ok(dot(food, bread) > 0.6);
  assert.ok(dot(food, market) < 0.3);
});

test("what is spoken is heard word for word", async () => {
  const file = await toFile(await speak(spoken), "speech.wav");
  const answer = await client.audio.transcriptions.create({ model: "whisper-tiny-en", file });
  assert.equal(words(answer.text), words(spoken));
});

test("errors are the package's own classes, with code and parameter", async () => {
  await assert.rejects(client.chat.completions.create({ model: "nosuch", messages: japan }), (error) => {
    assert.ok(error instanceof NotFoundError);
    assert.equal(error.code, "model_not_found");
    return true;
  });
  await assert.rejects(speak("你好"), (error) => {
    assert.ok(error instanceof BadRequestError);
    assert.equal(error.param, "input");
    return true;
  });
  await assert.rejects(client.embeddings.create({ model: "tts", input: "hello" }), BadRequestError);
});
