// Scenarios through azure-sb, the retired client of JavaScript that sends and receives over HTTP only.
"use strict";
const assert = require("node:assert/strict");
const { test } = require("node:test");
const azure = require("azure-sb");

const namespace = process.env.PEEKLOCK_NAMESPACE;
const connect = (key) => azure.createServiceBusService(
  `Endpoint=sb://${namespace}.servicebus.windows.net/;SharedAccessKeyName=RootManageSharedAccessKey;SharedAccessKey=${key}`);
const bus = connect("SAS_KEY_VALUE");

/** Calls a method of the client; resolves to its result. */
const call = (method, ...args) => on(bus, method, ...args);
const on = (client, method, ...args) => new Promise((resolve, reject) => {
  client[method](...args, (error, result) => (error ? reject(error instanceof Error ? error : new Error(String(error))) : resolve(result)));
});
const within = { timeout: 60_000 };
const now = { timeoutIntervalInS: 1 };
const locked = { isPeekLock: true, timeoutIntervalInS: 5 };

test("a message arrives with its properties", within, async () => {
  await call("createQueue", "js-send");
  await call("sendQueueMessage", "js-send", {
    body: "one coffee", contentType: "text/plain", brokerProperties: { MessageId: "m1", Label: "subject", CorrelationId: "c" },
    customProperties: { Priority: "high", size: 7, ratio: 0.5, good: true },
  });
  const got = await call("receiveQueueMessage", "js-send", now);
  assert.equal(got.body, "one coffee");
  assert.equal(got.contentType, "text/plain");
  assert.equal(got.brokerProperties.MessageId, "m1");
  assert.equal(got.brokerProperties.Label, "subject");
  assert.equal(got.brokerProperties.CorrelationId, "c");
  assert.deepEqual({ ...got.customProperties }, { priority: "high", size: 7, ratio: 0.5, good: true });
  await assert.rejects(call("receiveQueueMessage", "js-send", now), /No messages to receive/);
});

test("a locked message is unlocked, renewed and completed", within, async () => {
  await call("createQueue", "js-lock");
  await call("sendQueueMessage", "js-lock", { body: "x" });
  const first = await call("receiveQueueMessage", "js-lock", locked);
  assert.equal(first.brokerProperties.DeliveryCount, 1);
  await call("unlockMessage", first);
  const second = await call("receiveQueueMessage", "js-lock", locked);
  assert.equal(second.brokerProperties.DeliveryCount, 2);
  await call("renewLockForMessage", second);
  await call("deleteMessage", second);
  await assert.rejects(call("deleteMessage", second), /404/);
  await assert.rejects(call("receiveQueueMessage", "js-lock", now), /No messages to receive/);
});

test("a rule selects what a subscription gets, and dead letters are read", within, async () => {
  await call("createTopic", "js-events");
  await call("createSubscription", "js-events", "eu", { MaxDeliveryCount: "1" });
  await call("deleteRule", "js-events", "eu", "$Default");
  await call("createRule", "js-events", "eu", "r", { sqlExpressionFilter: "region = 'eu'" });
  for (const region of ["us", "eu"]) {
    await call("sendTopicMessage", "js-events", { body: region, customProperties: { region } });
  }
  const got = await call("receiveSubscriptionMessage", "js-events", "eu", locked);
  assert.equal(got.body, "eu");
  await call("unlockMessage", got);
  const dead = await call("receiveSubscriptionMessage", "js-events", "eu/$DeadLetterQueue", { timeoutIntervalInS: 5 });
  assert.equal(dead.body, "eu");
  await assert.rejects(call("receiveSubscriptionMessage", "js-events", "eu", now), /No messages to receive/);
});

test("a wrong key and a missing queue are refused", within, async () => {
  await assert.rejects(on(connect("wrong"), "sendQueueMessage", "js-send", { body: "x" }), /401/);
  await assert.rejects(call("sendQueueMessage", "nowhere", { body: "x" }), /410|404/);
});
