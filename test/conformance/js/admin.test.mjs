// The administration client. These run unless PEEKLOCK_FEATURES is given and does not list
// "admin".

import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { describe, test } from "node:test";

import { ServiceBusAdministrationClient } from "@azure/service-bus";

import { client, features, members, numbered, parts, queue, refused, suite, takeOne, topic, within } from "./support.mjs";

const admins = { ...suite, skip: features.has("admin") ? false : 'PEEKLOCK_FEATURES does not list "admin"' };
const never = "P10675199DT2H48M5.4775807S";

/**
 * An administration client of a member. It only ever asks over https; as for the emulator, the
 * request is sent over http instead, by the method of the client that sends.
 */
function admin(member = 1, { key = parts(member).key, ...options } = {}) {
  const { host } = new URL(members[member - 1].admin);
  const made = new ServiceBusAdministrationClient(
    `Endpoint=sb://${host}/;SharedAccessKeyName=${parts(member).keyName};SharedAccessKey=${key}`,
    { retryOptions: { maxRetries: 0 }, ...options },
  );
  const send = made.sendRequest.bind(made);
  made.sendRequest = (request) => {
    request.url = request.url.replace(/^https:/, "http:");
    request.allowInsecureConnection = true;
    return send(request);
  };
  return made;
}

/** What a client shows, without the answer that it shows beside it. */
const shown = (value) => {
  const { _response, ...rest } = value;
  return JSON.parse(JSON.stringify(rest));
};

/** Everything that an iterator gives. */
async function all(iterator) {
  const list = [];
  for await (const item of iterator) {
    list.push(item);
  }
  return list;
}

const queueDefaults = {
  lockDuration: "PT1M", maxSizeInMegabytes: 1024, requiresDuplicateDetection: false, requiresSession: false,
  defaultMessageTimeToLive: never, deadLetteringOnMessageExpiration: false, duplicateDetectionHistoryTimeWindow: "PT10M",
  maxDeliveryCount: 10, enableBatchedOperations: true, status: "Active", autoDeleteOnIdle: never, enablePartitioning: false,
  enableExpress: false, availabilityStatus: "Available", maxMessageSizeInKilobytes: 256,
};

describe("administration", admins, () => {
  test("queues are made, shown, changed and deleted", within(), async () => {
    const name = `js-${randomUUID()}/made`;
    assert.equal((await admin(1).createQueue(name)).name, name);
    assert.equal((await refused("MessageEntityAlreadyExistsError", admin(2).createQueue(name))).statusCode, 409);
    const got = await admin(2).getQueue(name);
    assert.deepEqual(shown(got), { name, ...queueDefaults });
    got.lockDuration = "PT2M30S";
    got.maxDeliveryCount = 3;
    got.userMetadata = "a <b> & \"c\"";
    got.status = "ReceiveDisabled";
    assert.deepEqual(shown(await admin(3).updateQueue(got)), shown(got));
    assert.deepEqual(shown(await admin(1).getQueue(name)), shown(got));
    assert.equal(await admin(2).queueExists(name), true);
    await admin(3).deleteQueue(name);
    assert.equal(await admin(1).queueExists(name), false);
    await refused("MessageEntityNotFoundError", admin(2).getQueue(name));
    await refused("MessageEntityNotFoundError", admin(2).deleteQueue(name));
    await refused("MessageEntityNotFoundError", admin(2).updateQueue(got));
  });

  test("either version of the API is spoken", within(), async () => {
    const name = `js-${randomUUID()}`;
    await admin(1, { serviceVersion: "2017-04" }).createQueue(name, { lockDuration: "PT5S" });
    assert.equal((await admin(2, { serviceVersion: "2017-04" }).getQueue(name)).lockDuration, "PT5S");
  });

  test("topics and subscriptions are made, shown, changed and deleted", within(), async () => {
    const name = `js-${randomUUID()}`;
    const made = await admin(1).createTopic(name, { requiresDuplicateDetection: true, maxSizeInMegabytes: 2048 });
    assert.deepEqual([made.name, made.requiresDuplicateDetection, made.maxSizeInMegabytes, made.supportOrdering], [name, true, 2048, true]);
    assert.equal((await admin(2).updateTopic({ ...made, status: "SendDisabled" })).status, "SendDisabled");
    await refused("MessageEntityAlreadyExistsError", admin(3).createQueue(name));

    const sub = await admin(2).createSubscription(name, "Audit", {
      requiresSession: true, maxDeliveryCount: 7, defaultRuleOptions: { name: "first", filter: { sqlExpression: "color = 'red'" } },
    });
    assert.deepEqual([sub.topicName, sub.subscriptionName, sub.requiresSession, sub.maxDeliveryCount], [name, "Audit", true, 7]);
    assert.equal((await admin(3).getRule(name, "Audit", "first")).filter.sqlExpression, "color = 'red'");
    assert.equal((await admin(1).updateSubscription({ ...sub, lockDuration: "PT5S" })).lockDuration, "PT5S");
    assert.equal((await admin(2).getSubscription(name, "AUDIT")).subscriptionName, "Audit");
    await refused("MessageEntityNotFoundError", admin(2).createSubscription(`${name}-none`, "x"));
    await admin(3).deleteSubscription(name, "Audit");
    assert.equal(await admin(1).subscriptionExists(name, "Audit"), false);
    await admin(1).deleteTopic(name);
    assert.equal(await admin(2).topicExists(name), false);
  });

  test("rules come back as they were written", within(), async () => {
    const name = await topic();
    await admin(1).createSubscription(name, "sub");
    assert.deepEqual((await all(admin(2).listRules(name, "sub"))).map((r) => [r.name, r.filter.sqlExpression]), [["$Default", "1=1"]]);
    const when = new Date("2026-11-20T12:00:00.250Z");
    const filters = {
      sql: { sqlExpression: "color = @color AND size > @size OR late = @late OR at < @at",
        sqlParameters: { "@color": "<red & \"blue\">", "@size": -7.5, "@late": true, "@at": when } },
      one: { sqlExpression: "a = @a", sqlParameters: { "@a": 7 } },
      correlation: { subject: "order", to: "there", correlationId: "c", applicationProperties: { color: "red", "sys.To": "x", count: 3, late: false } },
      property: { applicationProperties: { color: "red" } },
    };
    const action = { sqlExpression: "SET color = @color", sqlParameters: { "@color": "green" } };
    for (const [rule, filter] of Object.entries(filters)) {
      await admin(1).createRule(name, "sub", rule, filter, action);
      const got = await admin(2).getRule(name, "sub", rule);
      assert.deepEqual([got.name, shown(got.filter), shown(got.action)], [rule, JSON.parse(JSON.stringify(filter)), action]);
    }
    const sql = await admin(3).getRule(name, "sub", "sql");
    await admin(3).updateRule(name, "sub", { ...sql, filter: { sqlExpression: "1=0" } });
    assert.equal((await admin(1).getRule(name, "sub", "sql")).filter.sqlExpression, "1=0");
    await refused("MessageEntityAlreadyExistsError", admin(1).createRule(name, "sub", "sql", filters.sql));
    await refused("ServiceError", admin(1).createRule(name, "sub", "bad", { sqlExpression: "color =" }));
    await admin(2).deleteRule(name, "sub", "$Default");
    assert.equal(await admin(1).ruleExists(name, "sub", "$Default"), false);
    assert.deepEqual((await all(admin(3).listRules(name, "sub"))).map((r) => r.name), Object.keys(filters).sort());
  });

  test("lists are followed over their pages", within(), async () => {
    const name = await topic();
    const want = [];
    for (let i = 0; i < 7; i++) {
      want.push(`sub-${i}`);
      await admin(1 + (i % 3)).createSubscription(name, want[i]);
    }
    for (const maxPageSize of [1, 3, 7, 100]) {
      const got = [];
      let pages = 0;
      for await (const page of admin(2).listSubscriptions(name).byPage({ maxPageSize })) {
        got.push(...page.map((s) => s.subscriptionName));
        pages++;
      }
      assert.deepEqual(got, want, `${maxPageSize} each`);
      assert.equal(pages, Math.ceil(want.length / maxPageSize), `pages of ${maxPageSize}`);
    }
    assert.ok((await all(admin(3).listTopics())).some((t) => t.name === name));
    assert.ok(!(await all(admin(3).listQueues())).some((q) => q.name === name));
  });

  test("runtime properties count what there is", within(), async (t) => {
    const name = await queue();
    const both = client(t);
    await both.createSender(name).sendMessages(numbered(4));
    const receiver = both.createReceiver(name);
    await receiver.deadLetterMessage(await takeOne(receiver));
    await both.createSender(name).scheduleMessages({ body: "later" }, new Date(Date.now() + 3_600_000));
    for (const member of [1, 2, 3]) {
      const p = await admin(member).getQueueRuntimeProperties(name);
      assert.deepEqual([p.totalMessageCount, p.activeMessageCount, p.deadLetterMessageCount, p.scheduledMessageCount], [5, 3, 1, 1]);
      assert.ok(p.sizeInBytes > 0 && Date.now() - p.createdAt.getTime() < 60_000 && p.modifiedAt >= p.createdAt);
    }
    const listed = (await all(admin(2).listQueuesRuntimeProperties())).find((q) => q.name === name);
    assert.equal(listed.activeMessageCount, 3);
    const on = await topic();
    await admin(1).createSubscription(on, "sub");
    await both.createSender(on).sendMessages(numbered(2));
    assert.equal((await admin(2).getTopicRuntimeProperties(on)).subscriptionCount, 1);
    assert.equal((await admin(3).getSubscriptionRuntimeProperties(on, "sub")).activeMessageCount, 2);
  });

  test("a queue forwards to where the client says", within(), async (t) => {
    const to = await queue();
    const from = `js-${randomUUID()}`;
    await admin(1).createQueue(from, { forwardTo: to, forwardDeadLetteredMessagesTo: to });
    assert.match((await admin(2).getQueue(from)).forwardTo, new RegExp(`^sb://.*/${to}$`));
    await client(t).createSender(from).sendMessages({ body: "on" });
    assert.equal((await takeOne(client(t, { member: 3 }).createReceiver(to))).body, "on");
  });

  test("access rules come back and stay", within(), async () => {
    const name = `js-${randomUUID()}`;
    const rules = [
      { claimType: "SharedAccessKey", accessRights: ["Send"], keyName: "app", primaryKey: "first-key-of-the-app", secondaryKey: "second-key-of-the-app" },
      { claimType: "SharedAccessKey", accessRights: ["Manage", "Send", "Listen"], keyName: "owner", primaryKey: "first-key-of-the-owner", secondaryKey: "second-key-of-the-owner" },
    ];
    await admin(1).createQueue(name, { authorizationRules: rules });
    const got = await admin(2).getQueue(name);
    assert.deepEqual(got.authorizationRules, rules);
    await admin(3).updateQueue({ ...got, maxDeliveryCount: 3 });
    assert.deepEqual((await admin(1).getQueue(name)).authorizationRules, rules);
    await admin(2).updateQueue({ ...got, authorizationRules: [rules[1]] });
    assert.deepEqual((await admin(3).getQueue(name)).authorizationRules, [rules[1]]);
    await admin(1).updateQueue({ ...got, authorizationRules: [] });
    assert.equal((await admin(2).getQueue(name)).authorizationRules, undefined);
  });

  test("the namespace is shown, and a wrong key shows nothing", within(), async () => {
    const namespace = await admin(1).getNamespaceProperties();
    assert.equal(namespace.messagingSku, "Standard");
    await refused("UnauthorizedRequestError", admin(2, { key: "another key" }).getNamespaceProperties());
    await refused("ServiceError", admin(3).createQueue(`js-${randomUUID()}`, { lockDuration: "PT6M" }));
  });
});
