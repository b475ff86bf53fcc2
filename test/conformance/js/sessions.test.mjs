// Sessions: accepting, order, locks, state, deferral. These run unless PEEKLOCK_FEATURES is given
// and does not list "sessions".

import assert from "node:assert/strict";
import { describe, test } from "node:test";

import {
  bodies, client, countsBecome, features, queue, refused, sleep, subscription, suite, take, takeOne, topic, until, within,
} from "./support.mjs";

const sessions = { ...suite, skip: features.has("sessions") ? false : 'PEEKLOCK_FEATURES does not list "sessions"' };
const noRenewal = { maxAutoLockRenewalDurationInMs: 0 };
const grouped = (settings = {}) => queue({ requiresSession: true, ...settings });

/** Sends bodies to a session at member 1. */
async function sendTo(t, name, sessionId, ...all) {
  await client(t).createSender(name).sendMessages(all.map((body) => ({ body, messageId: String(body), sessionId })));
}

/** A client that does not wait long for a session. */
const hasty = (t, member, timeoutInMs = 2_000) => client(t, { member, retryOptions: { maxRetries: 0, timeoutInMs } });

describe("sessions", sessions, () => {
  test("a session is accepted by name at any member, and gives its messages only, in order", within(), async (t) => {
    const name = await grouped();
    await sendTo(t, name, "red", 1, 2);
    await sendTo(t, name, "blue", 3);
    await sendTo(t, name, "red", 4);
    for (const [member, session, want] of [[1, "red", [1, 2, 4]], [2, "blue", [3]], [3, "empty", []]]) {
      const receiver = await client(t, { member }).acceptSession(name, session);
      assert.equal(receiver.sessionId, session);
      const left = receiver.sessionLockedUntilUtc.getTime() - Date.now();
      assert.ok(left > 20_000 && left < 31_000, `locked for ${left} ms`);
      const got = want.length > 0 ? await take(receiver, want.length) : [];
      assert.deepEqual(bodies(got), want);
      for (const message of got) {
        assert.equal(message.sessionId, session);
        assert.equal(message.deliveryCount, 0);
        await receiver.completeMessage(message);
      }
      assert.deepEqual(await receiver.receiveMessages(1, { maxWaitTimeInMs: 500 }), []);
      await receiver.close();
    }
    await countsBecome(name, { active: 0, locked: 0 });
  });

  test("the next session is the one with the oldest message that nobody holds", within(), async (t) => {
    const name = await grouped();
    await sendTo(t, name, "b", 1);
    await sendTo(t, name, "a", 2);
    await sendTo(t, name, "b", 3);
    const first = await client(t, { member: 1 }).acceptNextSession(name);
    const second = await client(t, { member: 2 }).acceptNextSession(name);
    assert.deepEqual([first.sessionId, second.sessionId], ["b", "a"]);
    await refused("ServiceTimeout", hasty(t, 3).acceptNextSession(name));
    assert.deepEqual(bodies(await take(first, 2)), [1, 3]);
    await first.close();
    const again = await client(t, { member: 3 }).acceptNextSession(name);
    assert.equal(again.sessionId, "b");
    const got = await take(again, 2);
    assert.deepEqual(got.map((m) => [m.body, m.deliveryCount]), [[1, 0], [3, 0]]);
  });

  test("who waits for a session gets the one that comes, and who has left does not", within(), async (t) => {
    const name = await grouped();
    await refused("ServiceTimeout", hasty(t, 2, 1_000).acceptNextSession(name));
    const waiting = client(t, { member: 3 }).acceptNextSession(name);
    await sleep(500); // let it wait
    const sent = Date.now();
    await sendTo(t, name, "red", 1);
    const receiver = await waiting;
    assert.equal(receiver.sessionId, "red");
    assert.ok(Date.now() - sent < 5_000);
    await receiver.completeMessage(await takeOne(receiver));
  });

  test("a session has one holder, until it closes", within(), async (t) => {
    const name = await grouped();
    await sendTo(t, name, "red", 1, 2);
    const holder = await client(t, { member: 1 }).acceptSession(name, "red");
    await holder.completeMessage(await takeOne(holder));
    for (const member of [1, 2, 3]) {
      await refused("SessionCannotBeLocked", client(t, { member }).acceptSession(name, "red"));
    }
    await holder.close();
    const next = await client(t, { member: 2 }).acceptSession(name, "red"); // not a moment later
    assert.equal((await takeOne(next)).body, 2);
  });

  test("several are in flight, and what is given back comes first again", within(), async (t) => {
    const name = await grouped();
    await sendTo(t, name, "red", 1, 2, 3, 4, 5);
    const receiver = await client(t, { member: 2 }).acceptSession(name, "red");
    const got = await take(receiver, 4);
    await receiver.completeMessage(got[3]);
    await receiver.abandonMessage(got[2]);
    await receiver.abandonMessage(got[0], { tried: "once" });
    const again = await take(receiver, 3);
    assert.deepEqual(again.map((m) => [m.body, m.deliveryCount]), [[1, 1], [3, 1], [5, 0]]);
    assert.equal(again[0].applicationProperties.tried, "once");
    for (const message of [...again, got[1]]) {
      await receiver.completeMessage(message);
    }
    await countsBecome(name, { active: 0, locked: 0 });
  });

  test("a renewed session is held beyond its first end; the client renews by itself", within(), async (t) => {
    const name = await grouped({ lockDuration: "5s" });
    await sendTo(t, name, "red", 1);
    await sendTo(t, name, "blue", 2);
    const by = client(t, { member: 2 });
    const hand = await by.acceptSession(name, "red", noRenewal);
    const itself = await by.acceptSession(name, "blue");
    const [one, two] = [await takeOne(hand), await takeOne(itself)];
    const first = hand.sessionLockedUntilUtc;
    for (let n = 0; n < 3; n++) {
      await sleep(2_500);
      const before = hand.sessionLockedUntilUtc;
      const end = await hand.renewSessionLock();
      assert.ok(end > before && hand.sessionLockedUntilUtc.getTime() === end.getTime(), `${before} was renewed to ${end}`);
    }
    assert.ok(Date.now() > first.getTime());
    await hand.completeMessage(one);
    await itself.completeMessage(two);
    await countsBecome(name, { active: 0, locked: 0 });
  });

  test("a session whose lock has ended is lost, with all that was locked under it", within(), async (t) => {
    const name = await grouped({ lockDuration: "5s" });
    await sendTo(t, name, "red", 1, 2);
    const late = await client(t, { member: 2 }).acceptSession(name, "red", noRenewal);
    const held = await takeOne(late);
    const next = await client(t, { member: 3 }).acceptNextSession(name); // waits for the end
    assert.ok(Date.now() >= late.sessionLockedUntilUtc.getTime());
    await refused("SessionLockLost", late.completeMessage(held)); // its link was detached
    await refused("SessionLockLost", late.renewSessionLock());
    await refused("SessionLockLost", late.getSessionState());
    const got = await take(next, 2);
    assert.deepEqual(got.map((m) => [m.body, m.deliveryCount]), [[1, 1], [2, 0]]);
    for (const message of got) {
      await next.completeMessage(message);
    }
    await countsBecome(name, { active: 0, locked: 0 });
  });

  test("a state stays with its session, whoever holds it", within(), async (t) => {
    const name = await grouped();
    await sendTo(t, name, "red", 1);
    let receiver = await client(t, { member: 1 }).acceptSession(name, "red");
    assert.equal(await receiver.getSessionState(), null);
    const states = [{ step: 7, done: ["a", "b"] }, "half way", Buffer.alloc(10_000, 7), Buffer.alloc(0), null];
    for (const [i, state] of states.entries()) {
      await receiver.setSessionState(state);
      await receiver.close();
      receiver = await client(t, { member: (i % 3) + 1 }).acceptSession(name, "red");
      assert.deepEqual(await receiver.getSessionState(), state?.length === 0 ? null : state); // an empty state is none
    }
    const other = await client(t, { member: 2 }).acceptSession(name, "blue");
    assert.equal(await other.getSessionState(), null);
  });

  test("what is deferred is fetched by the holder of its session, and does not hold up the rest", within(), async (t) => {
    const name = await grouped();
    await sendTo(t, name, "red", 1, 2, 3);
    await sendTo(t, name, "blue", 4);
    const first = await client(t, { member: 2 }).acceptSession(name, "red");
    const [one, two] = await take(first, 2);
    await first.deferMessage(one);
    await first.deferMessage(two);
    await first.completeMessage(await takeOne(first));
    await first.close();
    const blue = await client(t, { member: 1 }).acceptSession(name, "blue");
    await assert.rejects(async () => {
      const got = await blue.receiveDeferredMessages([one.sequenceNumber]);
      assert.notDeepEqual(got, [], "another session's message came");
    });
    const red = await client(t, { member: 3 }).acceptSession(name, "red");
    const got = await red.receiveDeferredMessages([one.sequenceNumber, two.sequenceNumber]);
    assert.deepEqual(bodies(got), [1, 2]);
    await red.completeMessage(got[0]);
    await red.deadLetterMessage(got[1], { deadLetterReason: "why" });
    await countsBecome(name, { active: 1, deferred: 0, deadLetter: 1 });
    const dead = client(t, { member: 1 }).createReceiver(name, { subQueueType: "deadLetter" });
    const letter = await takeOne(dead);
    assert.deepEqual([letter.body, letter.sessionId, letter.deadLetterReason], [2, "red", "why"]);
    await dead.completeMessage(letter);
  });

  test("the holder peeks at its session only", within(), async (t) => {
    const name = await grouped();
    await sendTo(t, name, "red", 1, 2);
    await sendTo(t, name, "blue", 3);
    await sendTo(t, name, "red", 4);
    const receiver = await client(t, { member: 2 }).acceptSession(name, "red");
    assert.deepEqual(bodies(await receiver.peekMessages(2)), [1, 2]);
    assert.deepEqual(bodies(await receiver.peekMessages(10)), [4]);
    await countsBecome(name, { active: 4, locked: 0 });
  });

  test("a scheduled message comes into its session when it is due", within(), async (t) => {
    const name = await grouped();
    const due = new Date(Date.now() + 2_000);
    const sender = client(t).createSender(name);
    const numbers = await sender.scheduleMessages([{ body: 1, sessionId: "red" }, { body: 2, sessionId: "red" }, { body: 3, sessionId: "blue" }], due);
    await sender.cancelScheduledMessages([numbers[1], numbers[2]]);
    const receiver = await client(t, { member: 3 }).acceptNextSession(name);
    assert.ok(Date.now() >= due.getTime());
    assert.equal(receiver.sessionId, "red");
    assert.equal((await takeOne(receiver)).body, 1);
    await until(new Date(due.getTime() + 500));
    await refused("ServiceTimeout", hasty(t, 1, 1_000).acceptNextSession(name));
  });

  test("a subscriber is told of the messages of its session, in order", within(), async (t) => {
    const name = await grouped();
    const all = Array.from({ length: 100 }, (_, i) => i);
    await sendTo(t, name, "red", ...all);
    await sendTo(t, name, "blue", 1_000);
    const receiver = await client(t, { member: 2 }).acceptSession(name, "red");
    const seen = [];
    await new Promise((resolve, reject) => {
      receiver.subscribe({
        processMessage: async (message) => {
          seen.push(message.body);
          if (seen.length === all.length) {
            resolve();
          }
        },
        processError: async ({ error }) => reject(error),
      });
    });
    assert.deepEqual(seen, all);
    await countsBecome(name, { active: 1, locked: 0 });
  });

  test("receive and delete takes the messages of the session", within(), async (t) => {
    const name = await grouped();
    await sendTo(t, name, "red", 1, 2, 3);
    await sendTo(t, name, "blue", 4);
    const receiver = await client(t, { member: 3 }).acceptSession(name, "red", { receiveMode: "receiveAndDelete" });
    assert.deepEqual(bodies(await take(receiver, 3)), [1, 2, 3]);
    await countsBecome(name, { active: 1, locked: 0 });
  });

  test("subscriptions have sessions of their own; a copy without one is a dead letter", within(), async (t) => {
    const name = await topic();
    const [a, plain] = [await subscription(name, { requiresSession: true }), await subscription(name)];
    await sendTo(t, name, "red", 1);
    await client(t).createSender(name).sendMessages({ body: 2 });
    await sendTo(t, name, "red", 3);
    const both = client(t, { member: 2 });
    const receiver = await both.acceptNextSession(a.topic, a.name);
    assert.equal(receiver.sessionId, "red");
    const got = await take(receiver, 2);
    assert.deepEqual(bodies(got), [1, 3]);
    for (const message of got) {
      await receiver.completeMessage(message);
    }
    await countsBecome(a.path, { active: 0, deadLetter: 1 });
    const dead = both.createReceiver(a.topic, a.name, { subQueueType: "deadLetter" });
    assert.equal((await takeOne(dead)).deadLetterReason, "Session ID is null");
    assert.deepEqual(bodies(await take(both.createReceiver(plain.topic, plain.name), 3)), [1, 2, 3]);
  });

  test("entities with sessions and without do not mix", within(), async (t) => {
    const [name, plain] = [await grouped(), await queue()];
    const both = client(t);
    await assert.rejects(both.createSender(name).sendMessages({ body: 1 }), /SessionId was not set/);
    await assert.rejects(both.createReceiver(name).receiveMessages(1, { maxWaitTimeInMs: 1_000 }), /requires sessions/);
    await assert.rejects(both.acceptSession(plain, "red"), /requested session 'red'/); // the client's own words
    await assert.rejects(both.acceptNextSession(plain));
    await refused("MessagingEntityNotFound", both.acceptSession(`${name}-nothing`, "red"));
    await countsBecome(name, { active: 0 });
  });

  test("two consumers work through twenty sessions: each message once, in the order of its session", within(), async (t) => {
    const name = await grouped();
    const seen = new Map();
    let left = 80;
    const work = async (member) => {
      const both = hasty(t, member, 3_000);
      while (left > 0) {
        let receiver;
        try {
          receiver = await both.acceptNextSession(name);
        } catch (error) {
          assert.equal(error.code, "ServiceTimeout");
          continue;
        }
        for (const message of await receiver.receiveMessages(4, { maxWaitTimeInMs: 300 })) {
          seen.set(receiver.sessionId, [...(seen.get(receiver.sessionId) ?? []), message.body]);
          await receiver.completeMessage(message);
          left--;
        }
        await receiver.close();
      }
    };
    const sender = client(t).createSender(name);
    const send = async () => {
      for (let round = 0; round < 4; round++) {
        await sender.sendMessages(Array.from({ length: 20 }, (_, i) => ({ body: round, sessionId: `s${i}` })));
      }
    };
    await Promise.all([work(2), work(3), send()]);
    assert.equal(seen.size, 20);
    for (const [session, got] of seen) {
      assert.deepEqual(got, [0, 1, 2, 3], session);
    }
    await countsBecome(name, { active: 0, locked: 0 });
  });
});
