// Topics, subscriptions, rules and forwarding. These run unless PEEKLOCK_FEATURES is given and
// does not list "topics".

import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { describe, test } from "node:test";

import {
  bodies, client, control, counts, countsBecome, features, nothing, numbered, queue, refused, remove, subscription, suite, take,
  takeOne, topic, within,
} from "./support.mjs";

const topics = { ...suite, skip: features.has("topics") ? false : 'PEEKLOCK_FEATURES does not list "topics"' };
const noRenewal = { maxAutoLockRenewalDurationInMs: 0 };

/** A receiver of a subscription. */
const from = (both, { topic, name }, options) => both.createReceiver(topic, name, options);

/** The rules of a subscription, as the rule manager of the client lists them. */
async function rules(manager) {
  const all = [];
  for await (const rule of manager.listRules()) {
    all.push(rule);
  }
  return all.filter(Boolean); // of no rule at all, the client makes one that is undefined
}

describe("topics", topics, () => {
  test("each subscription gets each message, at any member", within(), async (t) => {
    const name = await topic();
    const [a, b] = [await subscription(name), await subscription(name)];
    const sender = client(t, { member: 1 }).createSender(name);
    await sender.sendMessages(numbered(3));
    await sender.sendMessages({ body: 3, messageId: "m-3" });
    await countsBecome(a.path, { active: 4 });
    for (const [member, sub] of [[2, a], [3, b]]) {
      const receiver = from(client(t, { member }), sub);
      const got = await take(receiver, 4);
      assert.deepEqual(bodies(got), [0, 1, 2, 3]);
      assert.deepEqual(got.map((m) => m.sequenceNumber.toNumber()), [1, 2, 3, 4]);
      await Promise.all(got.map((m) => receiver.completeMessage(m)));
      await countsBecome(sub.path, { active: 0, locked: 0 });
    }
  });

  test("each way to settle a copy touches that copy alone", within(), async (t) => {
    const name = await topic();
    const [a, b] = [await subscription(name), await subscription(name)];
    const both = client(t);
    await both.createSender(name).sendMessages(numbered(4));
    const receiver = from(both, a, noRenewal);
    const got = await take(receiver, 4);
    await receiver.completeMessage(got[0]);
    await receiver.deferMessage(got[1]);
    await receiver.deadLetterMessage(got[2], { deadLetterReason: "why", deadLetterErrorDescription: "because" });
    await receiver.abandonMessage(got[3], { tried: "once" });
    await countsBecome(a.path, { active: 1, deferred: 1, deadLetter: 1 });
    assert.equal((await counts(b.path)).active, 4);
    const again = await takeOne(receiver);
    assert.deepEqual([again.body, again.deliveryCount, again.applicationProperties.tried], [3, 1, "once"]);
    await receiver.completeMessage(again);
    const [deferred] = await receiver.receiveDeferredMessages(got[1].sequenceNumber);
    assert.equal(deferred.body, 1);
    await receiver.completeMessage(deferred);
    const dead = await takeOne(from(client(t, { member: 2 }), a, { subQueueType: "deadLetter", ...remove() }));
    assert.deepEqual([dead.body, dead.deadLetterReason, dead.deadLetterErrorDescription], [2, "why", "because"]);
    await countsBecome(a.path, { active: 0, deferred: 0, deadLetter: 0 });
    assert.deepEqual(bodies(await take(from(both, b, remove()), 4)), [0, 1, 2, 3]);
  });

  test("peeking shows copies without taking them", within(), async (t) => {
    const name = await topic();
    const a = await subscription(name);
    await client(t).createSender(name).sendMessages(numbered(3));
    const receiver = from(client(t, { member: 2 }), a);
    assert.deepEqual(bodies(await receiver.peekMessages(10)), [0, 1, 2]);
    assert.equal((await counts(a.path)).active, 3);
  });

  test("a scheduled message comes to all subscriptions when it is due, a cancelled one never", within(), async (t) => {
    const name = await topic();
    const [a, b] = [await subscription(name), await subscription(name)];
    const due = new Date(Date.now() + 2_000);
    const both = client(t);
    const sender = both.createSender(name);
    const numbers = await sender.scheduleMessages(numbered(3), due);
    await sender.cancelScheduledMessages(numbers[1]);
    for (const sub of [a, b]) {
      assert.deepEqual(bodies(await take(from(both, sub, remove()), 2)), [0, 2]);
      assert.ok(Date.now() >= due.getTime());
    }
  });

  test("a subscriber is told of each message once", within(), async (t) => {
    const name = await topic();
    const a = await subscription(name);
    const both = client(t, { member: 3 });
    const seen = new Set();
    const all = new Promise((resolve, reject) => {
      from(both, a).subscribe({
        processMessage: async (message) => {
          assert.ok(!seen.has(message.messageId), `${message.messageId} came twice`);
          seen.add(message.messageId);
          if (seen.size === 200) {
            resolve();
          }
        },
        processError: async ({ error }) => reject(error),
      }, { maxConcurrentCalls: 10 });
    });
    const sender = client(t).createSender(name);
    for (let n = 0; n < 4; n++) {
      await sender.sendMessages(numbered(50, `batch-${n}`));
    }
    await all;
    await countsBecome(a.path, { active: 0, locked: 0 });
  });

  test("a topic gives nothing, a subscription takes nothing, and what is not there is not found", within(), async (t) => {
    const name = await topic();
    const a = await subscription(name);
    const both = client(t);
    await assert.rejects(both.createReceiver(name).receiveMessages(1, { maxWaitTimeInMs: 1_000 }), /not.allowed|topic/i);
    await assert.rejects(both.createSender(a.path).sendMessages({ body: 1 }), /not.allowed|subscription/i);
    await refused("MessagingEntityNotFound", both.createReceiver(name, "nobody").receiveMessages(1, { maxWaitTimeInMs: 1_000 }));
    await refused("MessagingEntityNotFound", both.createSender(`${name}-nothing`).sendMessages({ body: 1 }));
  });
});

describe("rules", topics, () => {
  test("a new subscription takes everything; without rules it takes nothing", within(), async (t) => {
    const name = await topic();
    const a = await subscription(name);
    const both = client(t);
    const manager = both.createRuleManager(a.topic, a.name);
    assert.deepEqual((await rules(manager)).map((r) => [r.name, r.filter.sqlExpression]), [["$Default", "1=1"]]);
    await manager.deleteRule("$Default");
    assert.deepEqual(await rules(manager), []);
    await both.createSender(name).sendMessages({ body: "nobody wants it" });
    const receiver = from(client(t, { member: 2 }), a, remove());
    await nothing(receiver);
    await manager.createRule("all", { sqlExpression: "1=1" });
    await both.createSender(name).sendMessages({ body: "wanted" });
    assert.equal((await takeOne(receiver)).body, "wanted");
  });

  test("rules are made, listed whole, and removed", within(), async (t) => {
    const name = await topic();
    const a = await subscription(name);
    const manager = client(t, { member: 2 }).createRuleManager(a.topic, a.name);
    await manager.deleteRule("$Default");
    await manager.createRule("sql", { sqlExpression: "quantity > 5 AND sys.Label = 'order'" }, { sqlExpression: "SET color = 'green'" });
    const correlation = {
      correlationId: "c", messageId: "m", to: "t", replyTo: "r", subject: "s", sessionId: "i", replyToSessionId: "ri", contentType: "ct",
      applicationProperties: { text: "x", number: 5, yes: true },
    };
    await manager.createRule("correlation", correlation);
    await manager.createRule("false", { sqlExpression: "1=0" });
    const other = client(t, { member: 3 }).createRuleManager(a.topic, a.name);
    const listed = await rules(other);
    assert.deepEqual(listed.map((r) => r.name), ["correlation", "false", "sql"]);
    const [filtered, never, sql] = listed; // by name
    assert.equal(sql.filter.sqlExpression, "quantity > 5 AND sys.Label = 'order'");
    assert.equal(sql.action.sqlExpression, "SET color = 'green'");
    assert.deepEqual({ ...filtered.filter }, correlation);
    assert.equal(filtered.action.sqlExpression, undefined);
    assert.equal(never.filter.sqlExpression, "1=0");
    await other.deleteRule("SQL");
    assert.deepEqual((await rules(manager)).map((r) => r.name), ["correlation", "false"]);
  });

  test("a rule that is there, not there, or no rule at all, is refused", within(), async (t) => {
    const name = await topic();
    const a = await subscription(name);
    const both = client(t);
    const manager = both.createRuleManager(a.topic, a.name);
    await refused("MessagingEntityAlreadyExists", manager.createRule("$default", { sqlExpression: "1=1" }));
    await assert.rejects(manager.deleteRule("nothing"), /nothing/);
    await assert.rejects(manager.createRule("bad", { sqlExpression: "quantity >" }), /character 11/);
    await assert.rejects(manager.createRule("bad", { sqlExpression: "1=1" }, { sqlExpression: "SET" }), /character/);
    assert.deepEqual((await rules(manager)).map((r) => r.name), ["$Default"]);
    await refused("MessagingEntityNotFound", both.createRuleManager(a.topic, "nobody").createRule("r", { sqlExpression: "1=1" }));
  });

  test("filters say who gets what", within(), async (t) => {
    const name = await topic();
    const both = client(t);
    const cases = [
      [{ sqlExpression: "quantity > 5" }, ["many"]],
      [{ sqlExpression: "sys.Label LIKE 'or%' AND NOT EXISTS(gone)" }, ["few", "many"]],
      [{ sqlExpression: "price * 2 = 5" }, ["few"]],
      [{ subject: "other" }, ["neither"]],
      [{ applicationProperties: { quantity: 2, color: "red" } }, ["few"]],
      [{ applicationProperties: { color: "Red" } }, []],
      [{ correlationId: "x", to: "there" }, ["neither"]],
    ];
    const subs = [];
    for (const [filter] of cases) {
      const sub = await subscription(name);
      const manager = both.createRuleManager(sub.topic, sub.name);
      await manager.deleteRule("$Default");
      await manager.createRule("the rule", filter);
      subs.push(sub);
    }
    await client(t, { member: 2 }).createSender(name).sendMessages([
      { body: "few", subject: "order", applicationProperties: { quantity: 2, color: "red", price: 2.5 } },
      { body: "many", subject: "order", applicationProperties: { quantity: 200, color: "blue" } },
      { body: "neither", subject: "other", correlationId: "x", to: "there" },
    ]);
    for (const [n, [filter, want]] of cases.entries()) {
      await countsBecome(subs[n].path, { active: want.length });
      if (want.length > 0) {
        assert.deepEqual(bodies(await take(from(both, subs[n], remove()), want.length)), want, JSON.stringify(filter));
      }
    }
  });

  test("a rule with an action gives a copy of its own", within(), async (t) => {
    const name = await topic();
    const a = await subscription(name);
    const both = client(t, { member: 2 });
    const manager = both.createRuleManager(a.topic, a.name);
    await manager.createRule("paint", { sqlExpression: "color = 'red'" }, { sqlExpression: "SET color = 'green'; SET sys.Label = 'painted'; REMOVE size" });
    await manager.createRule("twice", { applicationProperties: { color: "red" } }, { sqlExpression: "SET price = price * 2" });
    await both.createSender(name).sendMessages({ body: "b", subject: "order", applicationProperties: { color: "red", size: 1, price: 2.5 } });
    const got = await take(from(client(t, { member: 3 }), a, remove()), 3);
    assert.deepEqual(got.map((m) => [m.body, m.subject, { ...m.applicationProperties }]), [
      ["b", "order", { color: "red", size: 1, price: 2.5 }],
      ["b", "painted", { color: "green", price: 2.5, RuleName: "paint" }],
      ["b", "order", { color: "red", size: 1, price: 5, RuleName: "twice" }],
    ]);
  });

  test("what a filter fails on is a dead letter", within(), async (t) => {
    const name = await topic();
    const a = await subscription(name, { deadLetteringOnFilterEvaluationExceptions: true });
    const both = client(t);
    const manager = both.createRuleManager(a.topic, a.name);
    await manager.deleteRule("$Default");
    await manager.createRule("divides", { sqlExpression: "10 / (quantity - 1) = 10" });
    await both.createSender(name).sendMessages([
      { body: 1, applicationProperties: { quantity: 1 } }, { body: 2, applicationProperties: { quantity: 2 } },
    ]);
    assert.equal((await takeOne(from(both, a, remove()))).body, 2);
    const dead = await takeOne(from(both, a, { subQueueType: "deadLetter", ...remove() }));
    assert.deepEqual([dead.body, dead.deadLetterReason], [1, "FilterEvaluationException"]);
  });

  test("several hundred rules are listed, by pages too", within(), async (t) => {
    const name = await topic();
    const a = await subscription(name);
    const manager = client(t).createRuleManager(a.topic, a.name);
    const names = Array.from({ length: 250 }, (_, n) => `rule-${n}`);
    for (const rule of names) {
      await manager.createRule(rule, { correlationId: rule });
    }
    assert.deepEqual((await rules(manager)).map((r) => r.name), ["$Default", ...names.sort()]);
    const pages = [];
    for await (const page of manager.listRules().byPage({ maxPageSize: 100 })) {
      pages.push(page.length);
    }
    assert.deepEqual(pages.filter((n) => n > 0), [100, 100, 51]);
  });
});

describe("forwarding", topics, () => {
  test("a queue forwards to a queue, and nobody receives from it", within(), async (t) => {
    const to = await queue();
    const name = await queue({ forwardTo: to });
    const both = client(t);
    await both.createSender(to).sendMessages(numbered(1)); // so that numbers differ: only then clients are told the first
    await both.createSender(name).sendMessages(numbered(3));
    const got = await take(client(t, { member: 2 }).createReceiver(to, remove()), 4);
    assert.deepEqual(bodies(got), [0, 0, 1, 2]);
    assert.deepEqual(got.map((m) => m.enqueuedSequenceNumber), [undefined, 1, 2, 3]);
    await assert.rejects(both.createReceiver(name).receiveMessages(1, { maxWaitTimeInMs: 1_000 }), /forward/i);
    await countsBecome(name, { active: 0, transfer: 0, transferDeadLetter: 0 });
  });

  test("a queue forwards to a topic, a subscription to a queue", within(), async (t) => {
    const end = await queue();
    const middle = await topic();
    const name = await queue({ forwardTo: middle });
    const a = await subscription(middle, { forwardTo: end });
    const both = client(t, { member: 3 });
    const manager = both.createRuleManager(a.topic, a.name);
    await manager.deleteRule("$Default");
    await manager.createRule("paint", { sqlExpression: "color = 'red'" }, { sqlExpression: "SET color = 'green'" });
    await both.createSender(name).sendMessages([
      { body: "red", applicationProperties: { color: "red" } }, { body: "blue", applicationProperties: { color: "blue" } },
    ]);
    const receiver = client(t, { member: 2 }).createReceiver(end, remove());
    const message = await takeOne(receiver);
    assert.deepEqual([message.body, { ...message.applicationProperties }], ["red", { color: "green", RuleName: "paint" }]);
    await nothing(receiver);
  });

  test("dead letters are forwarded with their reason and their source", within(), async (t) => {
    const to = await queue();
    const name = await queue({ forwardDeadLetteredMessagesTo: to });
    const both = client(t, { member: 2 });
    await both.createSender(name).sendMessages({ body: 1 });
    const receiver = both.createReceiver(name);
    await receiver.deadLetterMessage(await takeOne(receiver), { deadLetterReason: "why", deadLetterErrorDescription: "because" });
    const message = await takeOne(client(t, { member: 3 }).createReceiver(to, remove()));
    assert.deepEqual(
      [message.body, message.deadLetterReason, message.deadLetterErrorDescription, message.deadLetterSource],
      [1, "why", "because", name],
    );
  });

  test("what cannot be forwarded is in the dead-letter queue", within(), async (t) => {
    const to = await queue();
    const name = await queue({ forwardTo: to });
    await control("DELETE", `/v1/queues/${to}`);
    const both = client(t);
    await both.createSender(name).sendMessages(numbered(2));
    await countsBecome(name, { transfer: 0, deadLetter: 2, transferDeadLetter: 0 });
    const receiver = both.createReceiver(name, { subQueueType: "deadLetter" });
    const [first, second] = await take(receiver, 2);
    assert.deepEqual([first.body, first.deadLetterReason, second.body], [0, "MessagingEntityNotFound", 1]);
    await receiver.completeMessage(first);
    await receiver.completeMessage(second);
    await countsBecome(name, { deadLetter: 0 });
  });

  test("a reply finds the one who asked", within(), async (t) => {
    const questions = await queue();
    const replies = await queue({ autoDeleteOnIdle: "5m" });
    const asker = client(t, { member: 1 });
    const service = client(t, { member: 2 });
    const id = randomUUID();
    await asker.createSender(questions).sendMessages({ body: "who?", messageId: id, replyTo: replies, replyToSessionId: "talk" });
    const receiver = service.createReceiver(questions);
    const question = await takeOne(receiver);
    await service.createSender(question.replyTo).sendMessages({
      body: "you", correlationId: question.messageId, sessionId: question.replyToSessionId,
    });
    await receiver.completeMessage(question);
    const reply = await takeOne(asker.createReceiver(replies, remove()));
    assert.deepEqual([reply.body, reply.correlationId, reply.sessionId], ["you", id, "talk"]);
  });
});
