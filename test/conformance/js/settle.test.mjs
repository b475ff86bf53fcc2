// Settling: each way, on the link and through the management node, in time and too late.

import assert from "node:assert/strict";
import { describe, test } from "node:test";

import {
  bodies, client, counts, countsBecome, cuttable, eventually, nothing, numbered, queue, refused, remove, sleep, suite, take,
  takeOne, until, within,
} from "./support.mjs";

/** Receivers that leave the renewal of locks to the test. */
const noRenewal = { maxAutoLockRenewalDurationInMs: 0 };
const deadLetters = { subQueueType: "deadLetter" };

/** A moment after the lock of a message has run out. */
const afterLock = (message) => until(new Date(message.lockedUntilUtc.getTime() + 300));

/** A queue with n numbered messages, and a client of a member. */
async function filled(t, n, { member = 2, ...settings } = {}) {
  const name = await queue(settings);
  const both = client(t, { member });
  await both.createSender(name).sendMessages(numbered(n));
  return { name, both };
}

describe("settle", suite, () => {
  test("T.9 complete removes the message, and only that one", within(), async (t) => {
    const { name, both } = await filled(t, 3);
    const receiver = both.createReceiver(name);
    const got = await take(receiver, 3);
    await receiver.completeMessage(got[1]);
    await countsBecome(name, { active: 2, locked: 2 });
    await Promise.all([receiver.completeMessage(got[0]), receiver.completeMessage(got[2])]);
    await countsBecome(name, { active: 0, locked: 0, deferred: 0, deadLetter: 0 });
  });

  test("T.2 1,000 completions in flight are each answered", within(), async (t) => {
    const { name, both } = await filled(t, 1000);
    const receiver = both.createReceiver(name);
    const got = await take(receiver, 1000, 30_000);
    await Promise.all(got.map((message) => receiver.completeMessage(message)));
    assert.equal((await counts(name)).active, 0);
  });

  test("T.13 settling twice is refused by the client itself", within(), async (t) => {
    const { name, both } = await filled(t, 1);
    const receiver = both.createReceiver(name);
    const message = await takeOne(receiver);
    await receiver.completeMessage(message);
    await assert.rejects(receiver.completeMessage(message), /already settled/);
  });

  test("T.10 abandon unlocks at once, with properties, and counts", within(), async (t) => {
    const name = await queue();
    const both = client(t, { member: 3 });
    await both.createSender(name).sendMessages({
      body: "b", messageId: "abandoned", applicationProperties: { kept: "k", changed: "old" },
    });
    const receiver = both.createReceiver(name);
    const first = await takeOne(receiver);
    await receiver.abandonMessage(first, { changed: "new", added: 7, flag: true });
    const second = await takeOne(client(t, { member: 1 }).createReceiver(name));
    assert.equal(second.messageId, "abandoned");
    assert.equal(second.body, "b");
    assert.equal(second.deliveryCount, 1);
    assert.deepEqual(second.applicationProperties, { kept: "k", changed: "new", added: 7, flag: true });
    assert.equal(second.sequenceNumber.toString(), first.sequenceNumber.toString());
    assert.equal(second.enqueuedTimeUtc.getTime(), first.enqueuedTimeUtc.getTime());
    assert.notEqual(second.lockToken, first.lockToken);
  });

  test("T.10 abandon with a delivery time delays the message", within(), async (t) => {
    const { name, both } = await filled(t, 1);
    const receiver = both.createReceiver(name);
    const due = new Date(Date.now() + 2_000);
    await receiver.abandonMessage(await takeOne(receiver), { "x-opt-delivery-time": due, kept: "property" });
    const again = await takeOne(receiver);
    assert.ok(Date.now() >= due.getTime(), `came ${due.getTime() - Date.now()} ms before its time`);
    assert.equal(again.deliveryCount, 1);
    assert.deepEqual(again.applicationProperties, { kept: "property" });
  });

  test("T.7 an abandoned message is back at the front", within(), async (t) => {
    const { name, both } = await filled(t, 5);
    const receiver = both.createReceiver(name);
    const first = await take(receiver, 2);
    await receiver.abandonMessage(first[1]);
    await receiver.abandonMessage(first[0]);
    assert.deepEqual(bodies(await take(both.createReceiver(name, remove()), 5)), [0, 1, 2, 3, 4]);
  });

  test("T.12 defer, with properties, and receive by sequence number at any member", within(), async (t) => {
    const { name, both } = await filled(t, 3);
    const receiver = both.createReceiver(name);
    const got = await take(receiver, 3);
    await receiver.deferMessage(got[0], { why: "later" });
    await receiver.deferMessage(got[2]);
    await receiver.completeMessage(got[1]);
    await countsBecome(name, { active: 0, deferred: 2 });
    await nothing(receiver);

    const elsewhere = client(t, { member: 3 }).createReceiver(name);
    const [last, first] = await elsewhere.receiveDeferredMessages([got[2].sequenceNumber, got[0].sequenceNumber]);
    assert.deepEqual([first.body, last.body].toSorted(), [0, 2]);
    const byBody = new Map([first, last].map((m) => [m.body, m]));
    assert.deepEqual(byBody.get(0).applicationProperties, { why: "later" });
    assert.equal(byBody.get(0).state, "deferred");
    assert.match(byBody.get(0).lockToken, /^[0-9a-f-]{36}$/);
    assert.ok(byBody.get(0).lockedUntilUtc > new Date());

    await elsewhere.renewMessageLock(byBody.get(0)).catch((error) => {
      // Client libraries of this version look up the link of a deferred message without
      // checking that there is one; only such a slip is forgiven, not a refusal.
      assert.equal(error.name, "TypeError");
    });
    await elsewhere.completeMessage(byBody.get(0));
    await elsewhere.deadLetterMessage(byBody.get(2), {
      deadLetterReason: "stale", deadLetterErrorDescription: "deferred too long",
    });
    await countsBecome(name, { active: 0, deferred: 0, deadLetter: 1 });
    const dead = await takeOne(both.createReceiver(name, { ...deadLetters, ...remove() }));
    assert.equal(dead.deadLetterReason, "stale");
    assert.equal(dead.deadLetterErrorDescription, "deferred too long");
  });

  test("T.12 a deferred message can be received and deleted in one call", within(), async (t) => {
    const { name, both } = await filled(t, 1);
    const receiver = both.createReceiver(name);
    const message = await takeOne(receiver);
    await receiver.deferMessage(message);
    const [got] = await both.createReceiver(name, remove()).receiveDeferredMessages(message.sequenceNumber);
    assert.equal(got.body, 0);
    await countsBecome(name, { active: 0, deferred: 0 });
    await refused("MessageNotFound", receiver.receiveDeferredMessages(message.sequenceNumber));
  });

  test("T.12 only deferred messages are received by sequence number", within(), async (t) => {
    const { name, both } = await filled(t, 2);
    const receiver = both.createReceiver(name);
    const [active] = await receiver.peekMessages(1);
    await refused("MessageNotFound", receiver.receiveDeferredMessages(active.sequenceNumber));
    await refused("MessageNotFound", receiver.receiveDeferredMessages(active.sequenceNumber.add(1000)));
    assert.equal((await take(receiver, 2)).length, 2);
  });

  test("T.11 dead-letter with reason, description and properties", within(), async (t) => {
    const name = await queue();
    const both = client(t, { member: 2 });
    await both.createSender(name).sendMessages({ body: { poison: 1 }, messageId: "bad", applicationProperties: { kept: 1 } });
    const receiver = both.createReceiver(name);
    await receiver.deadLetterMessage(await takeOne(receiver), {
      deadLetterReason: "cannot parse", deadLetterErrorDescription: "unexpected token", line: 12,
    });
    await countsBecome(name, { active: 0, locked: 0, deadLetter: 1 });
    await nothing(receiver);

    const dead = client(t, { member: 3 }).createReceiver(name, deadLetters);
    const [peeked] = await dead.peekMessages(1);
    assert.equal(peeked.deadLetterReason, "cannot parse");
    const message = await takeOne(dead);
    assert.deepEqual(message.body, { poison: 1 });
    assert.equal(message.messageId, "bad");
    assert.equal(message.deadLetterReason, "cannot parse");
    assert.equal(message.deadLetterErrorDescription, "unexpected token");
    assert.equal(message.applicationProperties.kept, 1);
    assert.equal(message.applicationProperties.line, 12);
    await dead.completeMessage(message);
    await countsBecome(name, { deadLetter: 0 });
  });

  test("T.11 dead-letter without a reason; the dead-letter queue has locks of its own", within(), async (t) => {
    const { name, both } = await filled(t, 1);
    const receiver = both.createReceiver(name);
    await receiver.deadLetterMessage(await takeOne(receiver));
    const dead = both.createReceiver(name, deadLetters);
    const first = await takeOne(dead);
    assert.equal(first.deadLetterReason, undefined);
    await dead.abandonMessage(first);
    const second = await takeOne(dead);
    assert.equal(second.body, 0);
    const renewed = await dead.renewMessageLock(second);
    assert.ok(renewed >= second.lockedUntilUtc);
    await dead.deferMessage(second);
    const [deferred] = await dead.receiveDeferredMessages(second.sequenceNumber);
    await dead.completeMessage(deferred);
    await countsBecome(name, { active: 0, deferred: 0, deadLetter: 0 });
  });

  test("T.8 abandoned too often: dead-lettered with the reason that clients know", within(), async (t) => {
    const { name, both } = await filled(t, 1, { maxDeliveryCount: 3 });
    const receiver = both.createReceiver(name);
    for (let attempt = 0; attempt < 3; attempt++) {
      const message = await takeOne(receiver);
      assert.equal(message.deliveryCount, attempt);
      await receiver.abandonMessage(message, { attempt });
    }
    await nothing(receiver);
    await countsBecome(name, { active: 0, deadLetter: 1 });
    const dead = await takeOne(both.createReceiver(name, { ...deadLetters, ...remove() }));
    assert.equal(dead.deadLetterReason, "MaxDeliveryCountExceeded");
    assert.equal(dead.applicationProperties.attempt, 2);
    assert.equal(dead.body, 0);
  });

  test("T.8 expired too often: dead-lettered as well", within(), async (t) => {
    const { name, both } = await filled(t, 1, { maxDeliveryCount: 1, lockDuration: "5s" });
    await afterLock(await takeOne(both.createReceiver(name, noRenewal)));
    await countsBecome(name, { active: 0, locked: 0, deadLetter: 1 }); // with nobody receiving
    const dead = await takeOne(both.createReceiver(name, { ...deadLetters, ...remove() }));
    assert.equal(dead.deadLetterReason, "MaxDeliveryCountExceeded");
  });
});

describe("locks", suite, () => {
  test("T.13 a late completion is refused, on the link", within(), async (t) => {
    const { name, both } = await filled(t, 1, { lockDuration: "5s" });
    const receiver = both.createReceiver(name, noRenewal);
    const message = await takeOne(receiver);
    await afterLock(message);
    const error = await refused("MessageLockLost", receiver.completeMessage(message));
    assert.equal(error.retryable, false);
    const again = await takeOne(receiver); // the link lives on, and gets the message again (T.7)
    assert.equal(again.deliveryCount, 1);
    assert.equal(again.messageId, message.messageId); // (T.16)
    await receiver.completeMessage(again);
    await countsBecome(name, { active: 0 });
  });

  test("T.13 late abandon, defer, dead-letter and renew are refused", within(), async (t) => {
    const { name, both } = await filled(t, 4, { lockDuration: "5s" });
    const receiver = both.createReceiver(name, noRenewal);
    const got = await take(receiver, 4);
    await afterLock(got[3]);
    await refused("MessageLockLost", receiver.abandonMessage(got[0]));
    await refused("MessageLockLost", receiver.deferMessage(got[1]));
    await refused("MessageLockLost", receiver.deadLetterMessage(got[2], { deadLetterReason: "late" }));
    await refused("MessageLockLost", receiver.renewMessageLock(got[3]));
    await countsBecome(name, { active: 4, locked: 0, deferred: 0, deadLetter: 0 });
  });

  test("C.3 the lock of a receiver that is gone runs out and another one gets the message", within(), async (t) => {
    const { name, both } = await filled(t, 1, { lockDuration: "5s" });
    const lost = await takeOne(both.createReceiver(name, noRenewal));
    await both.close();
    const other = client(t, { member: 3 }).createReceiver(name, noRenewal);
    const waited = Date.now();
    const message = await takeOne(other);
    assert.equal(message.messageId, lost.messageId);
    assert.equal(message.deliveryCount, 1);
    assert.ok(Date.now() >= lost.lockedUntilUtc.getTime() - 50, `not before the lock ended, ${Date.now() - waited} ms`);
    await other.completeMessage(message);
  });

  test("T.6 RenewLock extends the lock", within(), async (t) => {
    const { name, both } = await filled(t, 1, { lockDuration: "5s" });
    const receiver = both.createReceiver(name, noRenewal);
    const message = await takeOne(receiver);
    const original = message.lockedUntilUtc;
    for (let i = 0; i < 2; i++) {
      const before = message.lockedUntilUtc;
      await until(new Date(before.getTime() - 2_000));
      const renewed = await receiver.renewMessageLock(message);
      assert.ok(renewed > before, `${renewed.toISOString()} after ${before.toISOString()}`);
      assert.ok(Math.abs(renewed.getTime() - Date.now() - 5_000) < 1_500, "a full lock duration from now");
    }
    await until(new Date(original.getTime() + 1_000));
    await nothing(client(t, { member: 3 }).createReceiver(name), 300);
    await receiver.completeMessage(message);
    await countsBecome(name, { active: 0 });
  });

  test("T.6 the client renews by itself", within(), async (t) => {
    const { name, both } = await filled(t, 1, { lockDuration: "10s" });
    const receiver = both.createReceiver(name); // renews at half time, for up to five minutes
    const message = await takeOne(receiver);
    const original = message.lockedUntilUtc;
    await until(new Date(original.getTime() + 1_000));
    assert.ok(message.lockedUntilUtc > original);
    await receiver.completeMessage(message);
    await countsBecome(name, { active: 0, deadLetter: 0 });
  });

  test("T.9 settlement after the link was closed, in each way", within(), async (t) => {
    const { name, both } = await filled(t, 4);
    const closed = both.createReceiver(name, noRenewal);
    const got = await take(closed, 4);
    await closed.close();
    await countsBecome(name, { active: 4, locked: 4 }); // locks outlive the link
    // Another receiver of the client does not find the link and takes the management node.
    const receiver = both.createReceiver(name, noRenewal);
    await receiver.completeMessage(got[0]);
    await receiver.deferMessage(got[1], { deferred: true });
    await receiver.deadLetterMessage(got[2], { deadLetterReason: "closed", deadLetterErrorDescription: "no link" });
    await receiver.abandonMessage(got[3], { abandoned: true });
    await countsBecome(name, { active: 1, locked: 0, deferred: 1, deadLetter: 1 });
    const again = await takeOne(receiver);
    assert.equal(again.body, 3);
    assert.equal(again.deliveryCount, 1);
    assert.equal(again.applicationProperties.abandoned, true);
    const [deferred] = await receiver.receiveDeferredMessages(got[1].sequenceNumber);
    assert.equal(deferred.applicationProperties.deferred, true);
    const dead = await takeOne(both.createReceiver(name, { ...deadLetters, ...remove() }));
    assert.equal(dead.deadLetterReason, "closed");
    assert.equal(dead.deadLetterErrorDescription, "no link");
  });

  test("T.13 settlement after link and lock are gone is refused", within(), async (t) => {
    const { name, both } = await filled(t, 1, { lockDuration: "5s" });
    const closed = both.createReceiver(name, noRenewal);
    const message = await takeOne(closed);
    await closed.close();
    await afterLock(message);
    await refused("MessageLockLost", both.createReceiver(name).completeMessage(message));
    await countsBecome(name, { active: 1, locked: 0 });
  });

  test("T.14 a lock survives its broken connection", within(), async (t) => {
    const name = await queue();
    const wire = await cuttable(2);
    const both = client(t, { connectionString: wire.connectionString });
    await both.createSender(name).sendMessages(numbered(2));
    const receiver = both.createReceiver(name, noRenewal);
    const [first, second] = await take(receiver, 2);
    wire.cut();
    await sleep(500); // a settlement before the client has noticed waits in vain, and fails after its time
    await eventually(15_000, () => receiver.completeMessage(first)); // over a new connection
    await countsBecome(name, { active: 1, locked: 1 });
    const renewed = await receiver.renewMessageLock(second);
    assert.ok(renewed > new Date());
    await receiver.abandonMessage(second);
    const again = await takeOne(receiver); // the receiver makes a new link by itself
    assert.equal(again.body, 1);
    assert.equal(again.deliveryCount, 1);
    await receiver.completeMessage(again);
    await countsBecome(name, { active: 0, locked: 0 });
  });

  test("T.14 a subscription goes on over a new connection", within(), async (t) => {
    const name = await queue({ lockDuration: "5s" }); // of a message that is sent into the break
    const wire = await cuttable(3);
    const seen = [];
    client(t, { connectionString: wire.connectionString }).createReceiver(name).subscribe({
      processMessage: async (message) => void seen.push(message.body),
      processError: async () => {},
    });
    const sender = client(t).createSender(name);
    await sender.sendMessages({ body: "before", messageId: "1" });
    await countsBecome(name, { active: 0 });
    wire.cut();
    await sender.sendMessages({ body: "after", messageId: "2" });
    await countsBecome(name, { active: 0, locked: 0 }, 30_000);
    assert.deepEqual(seen, ["before", "after"]);
  });
});
