// Keys, tokens and TLS: the sample of the manual, rights, tokens that end, the development
// authority, WebSocket, and a member that dies.

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import WebSocket from "ws";

import { AzureSASCredential } from "@azure/core-auth";
import { ServiceBusAdministrationClient, ServiceBusClient } from "@azure/service-bus";

import {
  client, countsBecome, doomed, eventually, members, parts, partsOf, queue, refused, remove, secureConnectionString, secureQueue,
  signature, sleep, suite, take, takeOne, within,
} from "./support.mjs";

/** A connection string of member 1 with the key of another name. */
const withKey = (name) => members[0].connectionString.replace(parts().keyName, name);

describe("keys", suite, () => {
  test("quickstart: the sample of the manual with its connection string changed", within(), async () => {
    const connectionString = members[0].connectionString;
    const queueName = await queue();
    const sbClient = new ServiceBusClient(connectionString);

    const sender = sbClient.createSender(queueName);
    const messages = ["Albert Einstein", "Werner Heisenberg", "Marie Curie"].map((body) => ({ body }));
    let batch = await sender.createMessageBatch();
    for (const message of messages) {
      assert.ok(batch.tryAddMessage(message));
    }
    await sender.sendMessages(batch);
    await sender.close();

    const receiver = sbClient.createReceiver(queueName);
    const received = [];
    receiver.subscribe({
      processMessage: async (message) => void received.push(message.body),
      processError: async (error) => assert.fail(error),
    });
    await eventually(20_000, async () => assert.equal(received.length, 3));
    await countsBecome(queueName, { active: 0, locked: 0 });
    await receiver.close();
    await sbClient.close();
    assert.deepEqual(received, messages.map((m) => m.body));
  });

  test("who may send may not receive, and the other way round", within(), async (t) => {
    const name = await queue();
    const [sends, listens] = ["Sender", "Listener"].map((key) => client(t, { connectionString: withKey(key) }));
    await sends.createSender(name).sendMessages({ body: 1, messageId: "1" });
    await refused("UnauthorizedAccess", listens.createSender(name).sendMessages({ body: 2 }));
    await refused("UnauthorizedAccess", sends.createReceiver(name).receiveMessages(1, { maxWaitTimeInMs: 5_000 }));
    await refused("UnauthorizedAccess", sends.createReceiver(name).peekMessages(1));
    assert.equal((await takeOne(listens.createReceiver(name))).body, 1);
    await countsBecome(name, { active: 1, locked: 1 });
  });

  test("a link ends with its token and goes on with the next one", within(90_000), async (t) => {
    const name = await secureQueue();
    const of = partsOf(secureConnectionString);
    const credential = new AzureSASCredential(signature(of, "", 8));
    const both = new ServiceBusClient(new URL(of.endpoint.replace(/^sb:/, "http:")).host, credential, {
      retryOptions: { maxRetries: 0, timeoutInMs: 20_000 },
    });
    t.after(() => both.close());
    await both.createSender(name).sendMessages([{ body: 1, messageId: "1" }, { body: 2, messageId: "2" }]);
    const receiver = both.createReceiver(name);
    const [first, second] = await take(receiver, 2);
    await receiver.completeMessage(first);
    await sleep(9_000);
    await refused("UnauthorizedAccess", both.createSender(name).sendMessages({ body: 3 }));
    credential.update(signature(of));
    await eventually(20_000, () => receiver.completeMessage(second));
    await both.createSender(name).sendMessages({ body: 4, messageId: "4" });
    assert.equal((await takeOne(receiver)).body, 4); // on the receiver that has seen its link go
  });
});

/** A client of member 1 with a role at the identity provider. */
function bearer(t, role) {
  const credential = {
    getToken: async () => {
      const answer = await fetch(`${process.env.PEEKLOCK_ISSUER}/token?seconds=600&role=${encodeURIComponent(role)}`);
      return { token: await answer.text(), expiresOnTimestamp: Date.now() + 600_000 };
    },
  };
  const made = new ServiceBusClient(process.env.PEEKLOCK_TRUSTED, credential, { retryOptions: { maxRetries: 0, timeoutInMs: 20_000 } });
  t.after(() => made.close());
  return made;
}

describe("identity", suite, () => {
  test("a token of an identity provider lets in to what its roles allow", within(), async (t) => {
    const name = await queue();
    const owner = bearer(t, "Azure Service Bus Data Owner");
    await owner.createSender(name).sendMessages({ body: 1, messageId: "1" });
    assert.equal((await takeOne(owner.createReceiver(name, remove()))).body, 1);
    const sends = bearer(t, "Azure Service Bus Data Sender");
    await sends.createSender(name).sendMessages({ body: 2, messageId: "2" });
    await refused("UnauthorizedAccess", sends.createReceiver(name).receiveMessages(1, { maxWaitTimeInMs: 5_000 }));
    await refused("UnauthorizedAccess", bearer(t, "Reader").createSender(name).sendMessages({ body: 3 }));
    await countsBecome(name, { active: 1 });
  });
});

describe("secure", suite, () => {
  test("TLS by the development authority", within(), async (t) => {
    const name = await secureQueue();
    const both = client(t, { connectionString: secureConnectionString });
    await both.createSender(name).sendMessages({ body: "x".repeat(100_000) });
    const receiver = both.createReceiver(name);
    const message = await takeOne(receiver);
    assert.equal(message.body.length, 100_000);
    await receiver.completeMessage(message);
  });

  test("AMQP over WebSocket", within(), async (t) => {
    const name = await secureQueue();
    const both = client(t, { connectionString: secureConnectionString, webSocketOptions: { webSocket: WebSocket } });
    await both.createSender(name).sendMessages({ body: "y".repeat(100_000) });
    assert.equal((await takeOne(both.createReceiver(name, remove()))).body.length, 100_000);
  });

  test("administration over https", within(), async () => {
    const admin = new ServiceBusAdministrationClient(secureConnectionString);
    const name = `${await secureQueue()}/made`;
    await admin.createQueue(name);
    assert.equal((await admin.getQueueRuntimeProperties(name)).totalMessageCount, 0);
    await admin.deleteQueue(name);
  });
});

describe("reconnect", suite, () => {
  test("its member dies: sender and receiver go on at another, with what was locked", within(180_000), async (t) => {
    const name = await queue();
    const { connectionString, kill } = await doomed();
    const both = client(t, {
      connectionString, retryOptions: { maxRetries: 10, retryDelayInMs: 250, maxRetryDelayInMs: 2_000, timeoutInMs: 10_000 },
    });
    const sender = both.createSender(name);
    const receiver = both.createReceiver(name);
    await sender.sendMessages({ body: "before", messageId: "1" });
    const held = await takeOne(receiver);
    await kill();
    // Before the receiver has a new link: with one, this client settles there what another gave, and waits in vain.
    await receiver.completeMessage(held);
    await sender.sendMessages({ body: "after", messageId: "2" });
    const after = await takeOne(receiver, 60_000);
    assert.equal(after.body, "after");
    await receiver.completeMessage(after);
    await countsBecome(name, { active: 0, locked: 0 });
  });
});
