// Sending: results, pipelining, batches, sizes.

import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { describe, test } from "node:test";

import { bodies, client, countsBecome, numbered, queue, refused, remove, suite, take, takeOne, within } from "./support.mjs";

describe("send", suite, () => {
  test("T.1 a send waits for the broker's word and the message is there", within(), async (t) => {
    const name = await queue();
    const sender = client(t).createSender(name);
    await sender.sendMessages({ body: "hello", messageId: "one" });
    await countsBecome(name, { active: 1, locked: 0, deferred: 0, deadLetter: 0 });
    await sender.sendMessages([{ body: 1 }, { body: 2 }, { body: 3 }]); // an array travels as a batch
    await countsBecome(name, { active: 4 });
  });

  test("T.1 too large a message is refused for good and the link lives on", within(), async (t) => {
    const name = await queue(); // 256 KiB by default
    const sender = client(t).createSender(name);
    const error = await refused("MessageSizeExceeded", sender.sendMessages({ body: Buffer.alloc(300 * 1024, 1) }));
    assert.equal(error.retryable, false);
    assert.match(error.message, /TrackingId:/);
    await sender.sendMessages({ body: "small" });
    await countsBecome(name, { active: 1 });
  });

  test("T.2 500 sends in flight on one link are all confirmed", within(), async (t) => {
    const name = await queue();
    const sender = client(t).createSender(name);
    await sender.sendMessages({ body: -1, messageId: "first" }); // opens the link
    await Promise.all(numbered(500).map((message) => sender.sendMessages(message)));
    await countsBecome(name, { active: 501 });
    const receiver = client(t, { member: 2 }).createReceiver(name, remove());
    const got = bodies(await take(receiver, 501));
    assert.deepEqual(got.toSorted((a, b) => a - b), Array.from({ length: 501 }, (_, i) => i - 1), "each once");
  });

  test("T.2 sends of two links overlap on one connection", within(), async (t) => {
    const [first, second] = [await queue(), await queue()];
    const both = client(t);
    const senders = [both.createSender(first), both.createSender(second)];
    await Promise.all(numbered(100).map((message, i) => senders[i % 2].sendMessages(message)));
    await countsBecome(first, { active: 50 });
    await countsBecome(second, { active: 50 });
  });

  test("T.1 a batch is stored as its messages, in order", within(), async (t) => {
    const name = await queue();
    const sender = client(t).createSender(name);
    const batch = await sender.createMessageBatch();
    assert.ok(batch.maxSizeInBytes >= 256 * 1024, `room for ${batch.maxSizeInBytes} bytes`);
    for (const message of numbered(200)) {
      assert.ok(batch.tryAddMessage({ ...message, applicationProperties: { n: message.body } }));
    }
    assert.equal(batch.count, 200);
    await sender.sendMessages(batch);
    await countsBecome(name, { active: 200 });
    const receiver = client(t, { member: 3 }).createReceiver(name, remove());
    const got = await take(receiver, 200);
    assert.deepEqual(bodies(got), Array.from({ length: 200 }, (_, i) => i));
    assert.deepEqual(got.map((m) => m.messageId), numbered(200).map((m) => m.messageId));
    assert.deepEqual(got.map((m) => m.applicationProperties), bodies(got).map((n) => ({ n })), "inner ones, not the envelope's");
  });

  test("T.1 a batch takes no more than the link allows and a full one is stored", within(), async (t) => {
    const name = await queue();
    const sender = client(t).createSender(name);
    const batch = await sender.createMessageBatch();
    const piece = randomBytes(10 * 1024);
    while (batch.tryAddMessage({ body: piece })) {
      assert.ok(batch.count < 1000, "a batch must become full");
    }
    assert.ok(batch.count >= 24, `${batch.count} messages of 10 KiB in 256 KiB`);
    assert.ok(batch.sizeInBytes <= batch.maxSizeInBytes);
    await sender.sendMessages(batch);
    await countsBecome(name, { active: batch.count });
    const receiver = client(t, { member: 2 }).createReceiver(name, remove());
    for (const message of await take(receiver, batch.count)) {
      assert.ok(piece.equals(message.body));
    }
  });

  test("T.1 bodies of 256 KiB and nearly 1 MiB travel over many frames, both ways", within(), async (t) => {
    const name = await queue({ maxMessageBytes: 1024 * 1024 });
    const sender = client(t).createSender(name);
    // The last one is no digit: the client makes a number of a body that is JSON.
    const sent = [randomBytes(256 * 1024), randomBytes(1000 * 1024), Buffer.of(0)];
    for (const [i, body] of sent.entries()) {
      await sender.sendMessages({ body, messageId: `${i}`, applicationProperties: { i } });
    }
    const receiver = client(t, { member: 3 }).createReceiver(name);
    for (const [i, message] of (await take(receiver, sent.length)).entries()) {
      assert.ok(sent[i].equals(message.body), `body ${i} of ${sent[i].length} bytes`);
      assert.deepEqual(message.applicationProperties, { i });
      await receiver.completeMessage(message);
    }
    await countsBecome(name, { active: 0 });
  });

  test("C.10 the sample: a queue with three attempts, a batch of ten, ten handlers", within(), async (t) => {
    const name = await queue({ maxDeliveryCount: 3 });
    const both = client(t);
    const sender = both.createSender(name);
    const batch = await sender.createMessageBatch();
    for (const message of numbered(10)) {
      assert.ok(batch.tryAddMessage(message));
    }
    await sender.sendMessages(batch);
    const receiver = both.createReceiver(name);
    const seen = [];
    const errors = [];
    const subscription = receiver.subscribe(
      {
        processMessage: async (message) => {
          await receiver.completeMessage(message);
          seen.push(message.messageId);
        },
        processError: async (args) => void errors.push(args.error),
      },
      { maxConcurrentCalls: 10, autoCompleteMessages: false },
    );
    await countsBecome(name, { active: 0 });
    await subscription.close();
    assert.deepEqual(seen.toSorted(), numbered(10).map((m) => m.messageId).toSorted());
    assert.deepEqual(errors, []);
  });

  test("C.7 an answer comes back through a reply queue, correlated", within(), async (t) => {
    const [requests, replies] = [await queue(), await queue()];
    const asking = client(t, { member: 1 });
    const answering = client(t, { member: 2 });
    await asking.createSender(requests).sendMessages({ body: "6*7", messageId: "question", replyTo: replies });
    const server = answering.createReceiver(requests);
    const question = await takeOne(server);
    await answering.createSender(question.replyTo).sendMessages({ body: 42, correlationId: question.messageId });
    await server.completeMessage(question);
    const answer = await takeOne(asking.createReceiver(replies, remove()));
    assert.equal(answer.body, 42);
    assert.equal(answer.correlationId, "question");
  });
});
