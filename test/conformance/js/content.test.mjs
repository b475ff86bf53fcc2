// What a message carries, and that it comes back as it went.

import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { describe, test } from "node:test";

import { client, queue, remove, suite, take, takeOne, within } from "./support.mjs";

/** Sends a message at member 1 and takes it from member 2. */
async function there(t, message, receiverOptions = {}) {
  const name = await queue();
  await client(t, { member: 1 }).createSender(name).sendMessages(message);
  const receiver = client(t, { member: 2 }).createReceiver(name, { ...remove(), ...receiverOptions });
  return takeOne(receiver);
}

describe("content", suite, () => {
  test("T.15 system properties come back as they were sent", within(), async (t) => {
    const sent = {
      body: "text",
      messageId: "id-1",
      correlationId: "cor-1",
      contentType: "text/plain",
      subject: "subject",
      to: "somewhere",
      replyTo: "reply-queue",
      replyToSessionId: "reply-session",
      sessionId: "session",
      partitionKey: "session", // the client library lets it equal the session id only
      timeToLive: 60 * 60 * 1000,
    };
    const got = await there(t, sent);
    for (const [property, value] of Object.entries(sent)) {
      assert.deepEqual(got[property], value, property);
    }
    assert.equal(got.deliveryCount, 0);
    assert.equal(got.state, "active");
  });

  test("T.15 message ids keep their type: text, number, uuid", within(), async (t) => {
    assert.equal((await there(t, { body: 1, messageId: "x".repeat(128) })).messageId, "x".repeat(128));
    assert.equal((await there(t, { body: 1, messageId: 7, correlationId: 4_000_000_000 })).messageId, 7);
    const uuid = randomBytes(16);
    const got = await there(t, { body: 1, messageId: uuid, correlationId: uuid });
    assert.deepEqual(Buffer.from(got.messageId), uuid);
    assert.deepEqual(Buffer.from(got.correlationId), uuid);
  });

  // The lock renewer of the client, which is on by default, keys by message id and throws at
  // settlement when a message has none; the sample of the client's own README sends none.
  test("T.15 a message without an id can be received and settled", within(), async (t) => {
    const name = await queue();
    const both = client(t);
    const sender = both.createSender(name);
    await sender.sendMessages({ body: "no id" });
    await sender.sendMessages([{ body: "no id in a batch" }, { body: "nor here" }]);
    const receiver = both.createReceiver(name);
    const got = await take(receiver, 3);
    assert.equal(new Set(got.map((m) => m.messageId)).size, 3, "three different ids");
    for (const message of got) {
      await receiver.completeMessage(message);
    }
  });

  test("T.15 application properties of every type", within(), async (t) => {
    const properties = {
      text: "text",
      empty: "",
      unicode: "žluťoučký kůň 🐎",
      long: "l".repeat(2000),
      zero: 0,
      small: 42,
      byte: 255,
      uint: 3_000_000_000,
      ulong: 2 ** 40,
      negative: -7,
      int: -2_000_000_000,
      negativeLong: -(2 ** 40),
      double: 1.5,
      tiny: Number.MIN_VALUE,
      yes: true,
      no: false,
      date: new Date("2024-02-29T12:34:56.789Z"),
      before1970: new Date(-1),
      nothing: null,
      binary: Buffer.from([0, 1, 2, 255]),
    };
    const got = await there(t, { body: 1, applicationProperties: properties }, { skipConvertingDate: true });
    assert.deepEqual(got.applicationProperties, properties);
    assert.deepEqual(Object.keys(got.applicationProperties), Object.keys(properties), "in the order sent");
  });

  test("T.1 bodies: objects, arrays, text, numbers, nothing", within(), async (t) => {
    for (const body of [{ a: 1, b: { c: [1, "2", null, true] } }, [], [1, 2], "text", "", "žluť 🐎", 0, -1.5, true, null]) {
      assert.deepEqual((await there(t, { body })).body, body, JSON.stringify(body));
    }
    assert.equal((await there(t, { body: undefined })).body, null, "the client sends undefined as null");
  });

  test("T.1 bodies: bytes", within(), async (t) => {
    for (const body of [Buffer.from([0]), Buffer.alloc(0), randomBytes(255), randomBytes(256), randomBytes(70_000)]) {
      const got = await there(t, { body }, { skipParsingBodyAsJson: true });
      assert.ok(body.equals(got.body), `${body.length} bytes`);
      assert.equal(got._rawAmqpMessage.bodyType, "data");
    }
  });

  test("T.1 bodies: an AMQP value and an AMQP sequence", within(), async (t) => {
    for (const body of ["text", 42, -42, true, { key: "value", list: [1, 2, 3] }, ["in", "a", "value"]]) {
      const got = await there(t, { bodyType: "value", body });
      assert.deepEqual(got.body, body);
      assert.equal(got._rawAmqpMessage.bodyType, "value");
    }
    const got = await there(t, { bodyType: "sequence", body: [1, "two", { three: 3 }] });
    assert.deepEqual(got.body, [1, "two", { three: 3 }]);
    assert.equal(got._rawAmqpMessage.bodyType, "sequence");
  });

  test("T.1 the sections of an annotated message", within(), async (t) => {
    const got = await there(t, {
      bodyType: "data",
      body: Buffer.from("annotated"),
      header: { durable: true, priority: 7 },
      messageAnnotations: { "x-opt-of-the-user": "kept", "x-opt-sequence-number": 999_999 },
      applicationProperties: { a: "b" },
      properties: {
        messageId: "annotated-1",
        contentEncoding: "identity",
        groupSequence: 3,
        creationTime: Date.UTC(2024, 0, 1),
      },
    });
    const raw = got._rawAmqpMessage;
    assert.equal(got.messageId, "annotated-1");
    assert.equal(raw.header.durable, true);
    assert.equal(raw.header.priority, 7);
    assert.equal(raw.messageAnnotations["x-opt-of-the-user"], "kept");
    assert.equal(raw.messageAnnotations["x-opt-sequence-number"], 1, "the broker's own, not the sender's");
    assert.deepEqual(raw.applicationProperties, { a: "b" });
    assert.equal(raw.properties.contentEncoding, "identity");
    assert.equal(raw.properties.groupSequence, 3);
    assert.equal(new Date(raw.properties.creationTime).getTime(), Date.UTC(2024, 0, 1));
  });

  // The client writes the footer in front of the body, against the order of AMQP 1.0 part 3, 3.2.
  test("T.1 a footer is kept, wherever the client puts it", within(), async (t) => {
    const got = await there(t, { bodyType: "data", body: Buffer.from("body"), footer: { "x-footer": "end" } });
    assert.deepEqual(got._rawAmqpMessage.footer, { "x-footer": "end" });
    assert.equal(got.body.toString(), "body");
  });

  test("T.5 the broker's annotations have their types", within(), async (t) => {
    const name = await queue({ lockDuration: "20s" });
    const both = client(t);
    const before = Date.now();
    await both.createSender(name).sendMessages([{ body: 1 }, { body: 2 }]);
    const got = await take(both.createReceiver(name, { maxAutoLockRenewalDurationInMs: 0 }), 2);
    for (const message of got) {
      assert.match(message.lockToken, /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/);
      const { enqueuedTimeUtc: enqueued, lockedUntilUtc: locked, expiresAtUtc: expires } = message;
      assert.ok(Math.abs(enqueued.getTime() - before) < 10_000, `enqueued ${enqueued.toISOString()}`);
      const lockMs = locked.getTime() - Date.now();
      assert.ok(lockMs > 5_000 && lockMs <= 20_500, `locked for ${lockMs} ms`);
      assert.ok(expires > new Date("9999-01-01"), `no time to live is forever: ${expires}`);
      assert.equal(message.deliveryCount, 0);
    }
    assert.deepEqual(got.map((m) => m.sequenceNumber.toNumber()), [1, 2]);
    assert.notEqual(got[0].lockToken, got[1].lockToken);
  });

  test("C.9 a message that was received can be sent on as it is", within(), async (t) => {
    const [first, second] = [await queue(), await queue()];
    const both = client(t);
    await both.createSender(first).sendMessages({ body: { n: 1 }, messageId: "passed", applicationProperties: { p: 1 } });
    const receiver = both.createReceiver(first);
    const message = await takeOne(receiver);
    await both.createSender(second).sendMessages(message);
    await receiver.completeMessage(message);
    const got = await takeOne(both.createReceiver(second, remove()));
    assert.deepEqual(got.body, { n: 1 });
    assert.equal(got.messageId, "passed");
    assert.deepEqual(got.applicationProperties, { p: 1 });
  });
});
