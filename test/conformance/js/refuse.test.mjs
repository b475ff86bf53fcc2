// Refusals: keys, signatures, entities. Programs look at the code, people read the text.

import assert from "node:assert/strict";
import { describe, test } from "node:test";

import {
  bodies, client, countsBecome, eventually, parts, queue, refused, signedConnectionString, suite, take, takeOne, within,
} from "./support.mjs";

/** A connection string of member 1 with other credentials. */
function withKey(keyName, key) {
  return `Endpoint=${parts().endpoint};SharedAccessKeyName=${keyName};SharedAccessKey=${key};UseDevelopmentEmulator=true`;
}

describe("refuse", suite, () => {
  test("T.1 a wrong key is refused, when sending and when receiving", within(), async (t) => {
    const name = await queue();
    const wrongKey = client(t, { connectionString: withKey(parts().keyName, "wrong") });
    await refused("UnauthorizedAccess", wrongKey.createSender(name).sendMessages({ body: 1 }));
    await refused("UnauthorizedAccess", wrongKey.createReceiver(name).receiveMessages(1, { maxWaitTimeInMs: 1_000 }));
    await refused("UnauthorizedAccess", wrongKey.createReceiver(name).peekMessages(1));
    await countsBecome(name, { active: 0 });
  });

  test("T.1 an unknown key name is refused", within(), async (t) => {
    const name = await queue();
    const wrongKey = client(t, { connectionString: withKey("Nobody", parts().key) });
    await refused("UnauthorizedAccess", wrongKey.createSender(name).sendMessages({ body: 1 }));
  });

  test("T.1 an unknown entity is named by its own code", within(), async (t) => {
    const both = client(t);
    const unknown = "js-no-such-queue";
    const error = await refused("MessagingEntityNotFound", both.createSender(unknown).sendMessages({ body: 1 }));
    assert.match(error.message, /js-no-such-queue/);
    assert.match(error.message, /TrackingId:[0-9a-f]{8}/, "to be searched for in the logs of the members");
    assert.equal(error.retryable, false);
    await refused("MessagingEntityNotFound", both.createSender(unknown).createMessageBatch());
    await refused("MessagingEntityNotFound", both.createReceiver(unknown).receiveMessages(1, { maxWaitTimeInMs: 1_000 }));
    await refused("MessagingEntityNotFound", both.createReceiver(unknown).peekMessages(1));
    await refused(
      "MessagingEntityNotFound",
      both.createReceiver(unknown, { subQueueType: "deadLetter" }).receiveMessages(1, { maxWaitTimeInMs: 1_000 }),
    );
    // The connection lives on.
    const name = await queue();
    await both.createSender(name).sendMessages({ body: "fine", messageId: "fine" });
    assert.equal((await takeOne(both.createReceiver(name))).body, "fine");
  });

  test("C.10 a subscription reports an unknown entity to its handler", within(), async (t) => {
    const errors = [];
    const receiver = client(t).createReceiver("js-no-such-queue");
    const subscription = receiver.subscribe({
      processMessage: async () => {},
      processError: async (args) => void errors.push(args.error),
    });
    await eventually(10_000, () => assert.ok(errors.length > 0));
    assert.equal(errors[0].code, "MessagingEntityNotFound", errors[0].stack);
    await receiver.close();
    await subscription.close();
  });

  test("T.11 nobody sends to a dead-letter queue", within(), async (t) => {
    const name = await queue();
    const both = client(t);
    const sender = both.createSender(`${name}/$DeadLetterQueue`);
    await assert.rejects(sender.sendMessages({ body: 1 }), { name: "ServiceBusError", retryable: false });
    await both.createSender(name).sendMessages({ body: 1 });
    await countsBecome(name, { active: 1, deadLetter: 0 });
  });
});

describe("signature only", suite, () => {
  // With such a connection string the client has no user name and opens AMQP without the
  // security layer before it.
  test("T.1 a client that holds only a signature does its work without SASL", within(), async (t) => {
    const name = await queue();
    const both = client(t, { connectionString: signedConnectionString(1) });
    await both.createSender(name).sendMessages([{ body: 1, messageId: "1" }, { body: 2, messageId: "2" }]);
    const { connection } = both._connectionContext;
    assert.equal(connection._connection.sasl_transport, undefined, "this client is meant to skip SASL");
    const receiver = both.createReceiver(name);
    const got = await take(receiver, 2);
    assert.deepEqual(bodies(got), [1, 2]);
    await Promise.all(got.map((message) => receiver.completeMessage(message)));
    assert.deepEqual(await receiver.peekMessages(1), []);
  });

  test("T.1 a signature for one queue does not open another", within(), async (t) => {
    const [own, other] = [await queue(), await queue()];
    const both = client(t, { connectionString: signedConnectionString(1, own) });
    await both.createSender(own).sendMessages({ body: 1, messageId: "1" });
    await refused("UnauthorizedAccess", both.createSender(other).sendMessages({ body: 1 }));
    await refused("UnauthorizedAccess", both.createReceiver(other).receiveMessages(1, { maxWaitTimeInMs: 1_000 }));
    assert.equal((await takeOne(both.createReceiver(own))).body, 1);
  });

  test("T.1 a signature by a wrong key, or that has run out, is refused", within(), async (t) => {
    const name = await queue();
    const forged = client(t, { connectionString: signedConnectionString(1, "", { key: "wrong" }) });
    await refused("UnauthorizedAccess", forged.createSender(name).sendMessages({ body: 1 }));
    const late = client(t, { connectionString: signedConnectionString(1, "", { expiresInSeconds: -60 }) });
    await refused("UnauthorizedAccess", late.createSender(name).sendMessages({ body: 1 }));
  });
});
