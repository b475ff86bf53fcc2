// Time and duplicates: scheduled messages, time to live, duplicate detection. These run unless
// PEEKLOCK_FEATURES is given and does not list "time".

import assert from "node:assert/strict";
import { describe, test } from "node:test";

import {
  bodies, client, countsBecome, eventually, features, nothing, numbered, queue, refused, remove, sleep, suite, take, takeOne,
  until, within,
} from "./support.mjs";

const time = { ...suite, skip: features.has("time") ? false : 'PEEKLOCK_FEATURES does not list "time"' };
const noRenewal = { maxAutoLockRenewalDurationInMs: 0 };
const deadLetters = { subQueueType: "deadLetter" };

/** How late a message may come on a machine that is busy with other tests. */
const lateMs = 1_500;

describe("scheduled messages", time, () => {
  test("schedule returns sequence numbers; messages come when they are due", within(), async (t) => {
    const name = await queue();
    const both = client(t, { member: 2 });
    const due = new Date(Date.now() + 3_000);
    const numbers = await both.createSender(name).scheduleMessages(numbered(3), due);
    assert.equal(new Set(numbers.map(String)).size, 3);
    const receiver = client(t, { member: 3 }).createReceiver(name, remove());
    const peeked = await receiver.peekMessages(10);
    assert.deepEqual(peeked.map((m) => m.state), ["scheduled", "scheduled", "scheduled"]);
    assert.deepEqual(peeked.map((m) => m.sequenceNumber.toString()), numbers.map(String));
    assert.equal(peeked[0].scheduledEnqueueTimeUtc.getTime(), due.getTime());
    await nothing(receiver, 500);
    const got = await take(receiver, 3);
    assert.ok(Date.now() >= due.getTime(), "not before it is due");
    assert.ok(Date.now() <= due.getTime() + lateMs + 1_000, "nor long after"); // the client waits 1 s for more
    assert.deepEqual(bodies(got), [0, 1, 2]);
    for (const message of got) {
      assert.ok(!numbers.some((n) => n.equals(message.sequenceNumber)), "a new number at activation");
      assert.ok(message.enqueuedTimeUtc.getTime() >= due.getTime());
      assert.equal(message.state, "scheduled");
    }
  });

  test("a message is scheduled by its property too", within(), async (t) => {
    const name = await queue();
    const both = client(t);
    const due = new Date(Date.now() + 2_000);
    await both.createSender(name).sendMessages([
      { body: "later", messageId: "1", scheduledEnqueueTimeUtc: due },
      { body: "past", messageId: "2", scheduledEnqueueTimeUtc: new Date(Date.now() - 60_000) },
      { body: "now", messageId: "3" },
    ]);
    const receiver = both.createReceiver(name, remove());
    assert.deepEqual(bodies(await take(receiver, 2)), ["past", "now"]);
    assert.equal((await takeOne(receiver)).body, "later");
    assert.ok(Date.now() >= due.getTime());
  });

  test("cancelled messages never come; a number is cancelled once", within(), async (t) => {
    const name = await queue();
    const sender = client(t).createSender(name);
    const due = new Date(Date.now() + 1_500);
    const numbers = await sender.scheduleMessages(numbered(3), due);
    await client(t, { member: 2 }).createSender(name).cancelScheduledMessages([numbers[0], numbers[2]]);
    await refused("MessageNotFound", sender.cancelScheduledMessages(numbers[0]));
    await until(new Date(due.getTime() + lateMs));
    const receiver = client(t, { member: 3 }).createReceiver(name, remove());
    assert.equal((await takeOne(receiver)).body, 1);
    await nothing(receiver);
  });
});

describe("time to live", time, () => {
  test("E.1 expiresAtUtc is the enqueued time plus the time to live", within(), async (t) => {
    const name = await queue();
    const both = client(t, { member: 2 });
    await both.createSender(name).sendMessages({ body: 1, messageId: "4", timeToLive: 60_000 });
    const message = await takeOne(both.createReceiver(name));
    assert.equal(message.timeToLive, 60_000);
    assert.equal(message.expiresAtUtc.getTime(), message.enqueuedTimeUtc.getTime() + 60_000);
  });

  test("E.2 an expired message is never delivered, and leaves by itself", within(), async (t) => {
    const name = await queue();
    const both = client(t);
    await both.createSender(name).sendMessages([
      { body: "short", messageId: "5", timeToLive: 1_000 },
      { body: "long", messageId: "6", timeToLive: 60_000 },
    ]);
    await countsBecome(name, { active: 2 });
    await sleep(1_000);
    await countsBecome(name, { active: 1, deadLetter: 0 }, lateMs); // with nobody receiving
    assert.equal((await takeOne(both.createReceiver(name, remove()))).body, "long");
  });

  test("E.3 a locked message may be completed after it has expired", within(), async (t) => {
    const name = await queue({ deadLetteringOnMessageExpiration: true });
    const both = client(t);
    await both.createSender(name).sendMessages({ body: 1, messageId: "7", timeToLive: 1_000 });
    const receiver = both.createReceiver(name, noRenewal);
    const message = await takeOne(receiver);
    await until(new Date(message.expiresAtUtc.getTime() + 500));
    await receiver.completeMessage(message);
    await countsBecome(name, { active: 0, deadLetter: 0 });
  });

  test("E.3 a locked message that has expired goes when it is abandoned or its lock ends", within(), async (t) => {
    const name = await queue({ deadLetteringOnMessageExpiration: true, lockDuration: "5s" });
    const both = client(t);
    await both.createSender(name).sendMessages([
      { body: "abandoned", messageId: "8", timeToLive: 1_000 },
      { body: "left", messageId: "9", timeToLive: 1_000 },
    ]);
    const receiver = both.createReceiver(name, noRenewal);
    const [abandoned, left] = await take(receiver, 2);
    await until(new Date(left.expiresAtUtc.getTime() + 500));
    await countsBecome(name, { active: 2, locked: 2, deadLetter: 0 });
    await receiver.abandonMessage(abandoned);
    await countsBecome(name, { active: 1, locked: 1, deadLetter: 1 }, lateMs);
    await until(left.lockedUntilUtc);
    await countsBecome(name, { active: 0, locked: 0, deadLetter: 2 }, lateMs);
  });

  test("E.4 the queue's time to live is default and ceiling", within(), async (t) => {
    const name = await queue({ defaultMessageTimeToLive: "30s" });
    const both = client(t);
    await both.createSender(name).sendMessages([
      { body: "none", messageId: "10" },
      { body: "more", messageId: "11", timeToLive: 3_600_000 },
      { body: "less", messageId: "12", timeToLive: 10_000 },
    ]);
    const got = await take(both.createReceiver(name), 3);
    assert.deepEqual(got.map((m) => m.expiresAtUtc.getTime() - m.enqueuedTimeUtc.getTime()), [30_000, 30_000, 10_000]);
  });

  test("E.5 expired messages are dead-lettered with their reason, when the queue says so", within(), async (t) => {
    const name = await queue({ deadLetteringOnMessageExpiration: true });
    const both = client(t, { member: 3 });
    await both.createSender(name).sendMessages({ body: "job", messageId: "late", timeToLive: 1_000 });
    await countsBecome(name, { active: 0, deadLetter: 1 }, 1_000 + lateMs);
    const dead = await takeOne(both.createReceiver(name, { ...deadLetters, ...remove() }));
    assert.equal(dead.deadLetterReason, "TTLExpiredException");
    assert.equal(dead.messageId, "late");
    await nothing(both.createReceiver(name, { ...deadLetters, ...remove() })); // (E.6) once
  });
});

describe("duplicate detection", time, () => {
  test("T.15 a second message with the same id is accepted and dropped", within(), async (t) => {
    const name = await queue({ requiresDuplicateDetection: true });
    const sender = client(t, { member: 1 }).createSender(name);
    await sender.sendMessages({ body: "first", messageId: "same" });
    await client(t, { member: 2 }).createSender(name).sendMessages({ body: "second", messageId: "same" });
    await sender.sendMessages([{ body: "third", messageId: "same" }, { body: "other", messageId: "other" }]);
    const receiver = client(t, { member: 3 }).createReceiver(name, remove());
    assert.deepEqual(bodies(await take(receiver, 2)), ["first", "other"]);
    await sender.sendMessages({ body: "after it was received", messageId: "same" });
    await nothing(receiver);
  });

  test("T.15 scheduled messages count as well", within(), async (t) => {
    const name = await queue({ requiresDuplicateDetection: true });
    const sender = client(t).createSender(name);
    const due = new Date(Date.now() + 1_500);
    await sender.scheduleMessages({ body: "scheduled", messageId: "same" }, due);
    await sender.sendMessages({ body: "sent", messageId: "same" });
    const receiver = client(t).createReceiver(name, remove());
    assert.equal((await takeOne(receiver)).body, "scheduled");
    await nothing(receiver);
  });

  test("T.15 an id is forgotten when its window is over", within(90_000), async (t) => {
    const name = await queue({ requiresDuplicateDetection: true, duplicateDetectionHistoryTimeWindow: "20s" });
    const sender = client(t).createSender(name);
    await sender.sendMessages({ body: 1, messageId: "same" });
    await sleep(15_000);
    await sender.sendMessages({ body: 2, messageId: "same" });
    await countsBecome(name, { active: 1 });
    await sleep(5_000);
    await eventually(10_000, async () => {
      await sender.sendMessages({ body: 3, messageId: "same" });
      await countsBecome(name, { active: 2 }, 0);
    });
  });
});
