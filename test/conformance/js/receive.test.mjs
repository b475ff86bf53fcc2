// Receiving: modes, competition, peeking, draining, streaming.

import assert from "node:assert/strict";
import { describe, test } from "node:test";

import {
  bodies, client, countsBecome, eventually, nothing, numbered, queue, remove, sleep, suite, take, takeOne, within,
} from "./support.mjs";

/** Sends numbered messages at member 1. */
async function fill(t, name, n) {
  const sender = client(t).createSender(name);
  for (let left = numbered(n); left.length > 0; left = left.slice(500)) {
    await sender.sendMessages(left.slice(0, 500));
  }
}

const upTo = (n) => Array.from({ length: n }, (_, i) => i);

describe("receive", suite, () => {
  test("T.4 receive and delete settles as it sends, in order", within(), async (t) => {
    const name = await queue();
    await fill(t, name, 50);
    const receiver = client(t, { member: 2 }).createReceiver(name, remove());
    const got = await take(receiver, 50);
    assert.deepEqual(bodies(got), upTo(50));
    assert.ok(got.every((m) => m.lockToken === undefined));
    await nothing(receiver);
    await countsBecome(name, { active: 0, locked: 0 });
  });

  test("T.4 3,000 messages in one call: more than the client's window of 2,048", within(), async (t) => {
    const name = await queue();
    await fill(t, name, 3000);
    const receiver = client(t, { member: 3 }).createReceiver(name, remove());
    assert.deepEqual(bodies(await take(receiver, 3000, 40_000)), upTo(3000));
  });

  test("T.5 a locked message is hidden from others, who lock the next ones", within(), async (t) => {
    const name = await queue();
    await fill(t, name, 2);
    const first = client(t, { member: 1 }).createReceiver(name);
    const second = client(t, { member: 2 }).createReceiver(name);
    const a = await takeOne(first);
    const b = await takeOne(second);
    assert.deepEqual([a.body, b.body], [0, 1]);
    await nothing(second);
    await countsBecome(name, { active: 2, locked: 2 });
    await second.completeMessage(b);
    await first.completeMessage(a);
    await countsBecome(name, { active: 0, locked: 0 });
  });

  test("T.5 a waiting receiver gets a message as soon as it is sent", within(), async (t) => {
    const name = await queue();
    const receiver = client(t, { member: 3 }).createReceiver(name);
    const waiting = receiver.receiveMessages(1, { maxWaitTimeInMs: 20_000 });
    await sleep(500); // let the receiver wait
    const sent = Date.now();
    await client(t).createSender(name).sendMessages({ body: "at last", messageId: "last" });
    const [message] = await waiting;
    assert.equal(message.body, "at last");
    assert.ok(Date.now() - sent < 5_000, `after ${Date.now() - sent} ms`);
    await receiver.completeMessage(message);
  });

  test("C.1 competing receivers at three members share the messages, each one once", within(), async (t) => {
    const name = await queue();
    const seen = [[], [], []];
    const errors = [];
    for (const [i, list] of seen.entries()) {
      const receiver = client(t, { member: i + 1 }).createReceiver(name);
      receiver.subscribe({
        processMessage: async (message) => void list.push(message.body),
        processError: async (args) => void errors.push(args.error),
      }, { maxConcurrentCalls: 5 });
    }
    await fill(t, name, 300);
    await countsBecome(name, { active: 0 });
    assert.deepEqual(seen.flat().toSorted((a, b) => a - b), upTo(300));
    for (const [i, list] of seen.entries()) {
      assert.ok(list.length > 10, `member ${i + 1} got ${list.length} of 300`);
    }
    assert.deepEqual(errors, []);
  });

  test("T.12 peek shows active, locked and deferred messages and touches none", within(), async (t) => {
    const name = await queue();
    await fill(t, name, 5);
    const both = client(t, { member: 2 });
    const receiver = both.createReceiver(name);
    const [locked, deferred] = await take(receiver, 2);
    await receiver.deferMessage(deferred);
    const peeker = client(t, { member: 3 }).createReceiver(name);
    const peeked = await peeker.peekMessages(3);
    assert.deepEqual(bodies(peeked), [0, 1, 2], "from the first one");
    assert.deepEqual(peeked.map((m) => m.state), ["active", "deferred", "active"]);
    assert.ok(peeked.every((m) => m.lockToken === undefined));
    assert.deepEqual(bodies(await peeker.peekMessages(10)), [3, 4], "goes on where it was");
    assert.deepEqual(await peeker.peekMessages(10), [], "and ends");
    assert.deepEqual(bodies(await peeker.peekMessages(2, { fromSequenceNumber: peeked[1].sequenceNumber })), [1, 2]);
    const [bare] = await peeker.peekMessages(1, { fromSequenceNumber: peeked[0].sequenceNumber, omitMessageBody: true });
    assert.equal(bare.messageId, "m-0", "without its body, for who asks so, or with it");
    await receiver.completeMessage(locked);
    await countsBecome(name, { active: 3, locked: 0, deferred: 1 });
  });

  test("T.12 peek pages through more than fits in one answer", within(), async (t) => {
    const name = await queue();
    const sender = client(t).createSender(name);
    const body = Buffer.alloc(100 * 1024, 7);
    for (const { messageId } of numbered(15)) {
      await sender.sendMessages({ body, messageId });
    }
    const peeker = client(t, { member: 2 }).createReceiver(name);
    const seen = [];
    for (let page; seen.length < 15; seen.push(...page)) {
      page = await peeker.peekMessages(100);
      assert.notEqual(page.length, 0, `an empty page after ${seen.length} of 15`);
    }
    assert.deepEqual(seen.map((m) => m.messageId), numbered(15).map((m) => m.messageId));
    assert.ok(seen.every((m) => body.equals(m.body)));
  });

  // The client drains its credit when the time of receiveMessages is over. When the broker
  // does not answer the drain within 200 ms, the client closes the link instead.
  test("T.5 a drained receiver keeps its link and holds nothing back", within(), async (t) => {
    const name = await queue();
    const receiver = client(t).createReceiver(name);
    await nothing(receiver, 300);
    const link = receiver._batchingReceiver.link;
    assert.ok(link?.isOpen(), "open after the drain");
    const started = Date.now();
    assert.deepEqual(await receiver.receiveMessages(10, { maxWaitTimeInMs: 300 }), []);
    assert.ok(Date.now() - started >= 290, "it waited as long as asked");
    const sender = client(t, { member: 2 }).createSender(name);
    await sender.sendMessages({ body: "after the drain", messageId: "drain" });
    const other = client(t, { member: 3 }).createReceiver(name);
    const message = await takeOne(other);
    assert.equal(message.body, "after the drain", "not sent on the credit that was drained");
    await other.abandonMessage(message);
    const again = await takeOne(receiver);
    assert.equal(again.body, "after the drain");
    await receiver.completeMessage(again);
    assert.equal(receiver._batchingReceiver.link, link, "still the same link");
    await countsBecome(name, { active: 0, locked: 0 });
  });

  test("T.5 no message is lost or doubled while receivers drain and messages come", within(), async (t) => {
    const name = await queue({ maxDeliveryCount: 1 }); // a message that was lost on the way would be seen
    const receiver = client(t, { member: 2 }).createReceiver(name);
    const sending = (async () => {
      const sender = client(t).createSender(name);
      for (const message of numbered(60)) {
        await sender.sendMessages(message);
        await sleep(5 + (message.body % 7) * 5);
      }
    })();
    const seen = [];
    const deadline = Date.now() + 40_000;
    while (seen.length < 60 && Date.now() < deadline) {
      for (const message of await receiver.receiveMessages(3, { maxWaitTimeInMs: 30 })) {
        seen.push(message.body);
        await receiver.completeMessage(message);
      }
    }
    await sending;
    assert.deepEqual(seen, upTo(60));
    await countsBecome(name, { active: 0, locked: 0, deadLetter: 0 });
  });

  test("T.5 a receive that is aborted leaves the message to others", within(), async (t) => {
    const name = await queue();
    const receiver = client(t).createReceiver(name);
    const abort = new AbortController();
    const waiting = receiver.receiveMessages(1, { maxWaitTimeInMs: 30_000, abortSignal: abort.signal });
    await sleep(500);
    abort.abort();
    await assert.rejects(waiting, { name: "AbortError" });
    await receiver.close();
    await fill(t, name, 1);
    const other = client(t, { member: 2 }).createReceiver(name);
    await other.completeMessage(await takeOne(other));
  });

  test("T.9 messages are iterated", within(), async (t) => {
    const name = await queue();
    await fill(t, name, 5);
    const receiver = client(t).createReceiver(name);
    const seen = [];
    for await (const message of receiver.getMessageIterator({ maxWaitTimeInMs: 5_000 })) {
      seen.push(message.body);
      await receiver.completeMessage(message);
      if (seen.length === 5) {
        break;
      }
    }
    assert.deepEqual(seen, upTo(5));
    await countsBecome(name, { active: 0 });
  });
});

describe("subscribe", suite, () => {
  test("T.9 streaming with automatic completion", within(), async (t) => {
    const name = await queue();
    const receiver = client(t, { member: 2 }).createReceiver(name);
    const seen = [];
    const errors = [];
    let now = 0;
    let most = 0;
    receiver.subscribe(
      {
        processMessage: async (message) => {
          most = Math.max(most, ++now);
          await sleep(5);
          seen.push(message.body);
          now--;
        },
        processError: async (args) => void errors.push(args.error),
      },
      { maxConcurrentCalls: 8 },
    );
    await fill(t, name, 200);
    await countsBecome(name, { active: 0, locked: 0, deadLetter: 0 }, 20_000);
    assert.deepEqual(seen.toSorted((a, b) => a - b), upTo(200));
    assert.ok(most > 1 && most <= 8, `${most} handlers at once`);
    assert.deepEqual(errors, []);
  });

  test("T.5 streaming without automatic completion leaves the lock to the handler", within(), async (t) => {
    const name = await queue();
    await fill(t, name, 4);
    const receiver = client(t, { member: 3 }).createReceiver(name);
    const held = [];
    receiver.subscribe(
      { processMessage: async (message) => void held.push(message), processError: async () => {} },
      { maxConcurrentCalls: 2, autoCompleteMessages: false },
    );
    await eventually(10_000, () => assert.equal(held.length, 4));
    await countsBecome(name, { active: 4, locked: 4 });
    await Promise.all(held.map((message) => receiver.completeMessage(message)));
    await countsBecome(name, { active: 0, locked: 0 });
  });

  test("T.10 a handler that throws abandons the message, which comes again", within(), async (t) => {
    const name = await queue();
    await fill(t, name, 1);
    const attempts = [];
    client(t).createReceiver(name).subscribe({
      processMessage: async (message) => {
        attempts.push(message.deliveryCount);
        if (attempts.length < 3) {
          throw new Error("not yet");
        }
      },
      processError: async () => {},
    });
    await countsBecome(name, { active: 0, deadLetter: 0 });
    assert.deepEqual(attempts, [0, 1, 2]);
  });

  test("C.10 a subscription that is closed takes nothing more, and can be opened again", within(), async (t) => {
    const name = await queue();
    const receiver = client(t).createReceiver(name);
    const seen = [];
    const handlers = { processMessage: async (message) => void seen.push(message.body), processError: async () => {} };
    const subscription = receiver.subscribe(handlers, { maxConcurrentCalls: 3 });
    const sender = client(t, { member: 2 }).createSender(name);
    await sender.sendMessages({ body: "before", messageId: "before" });
    await eventually(10_000, () => assert.deepEqual(seen, ["before"]));
    await subscription.close();
    await sender.sendMessages({ body: "while closed", messageId: "closed" });
    await countsBecome(name, { active: 1, locked: 0 });
    await sleep(500);
    assert.deepEqual(seen, ["before"]);
    receiver.subscribe(handlers);
    await eventually(10_000, () => assert.deepEqual(seen, ["before", "while closed"]));
    await countsBecome(name, { active: 0 });
  });
});
