// rhea: a client of AMQP 1.0 that knows nothing of the service. Name and key of a rule go into
// SASL PLAIN, and an address is the path of an entity.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { describe, test } from "node:test";

import rhea from "rhea";
import WebSocket from "ws";

import {
  countsBecome, doomed, partsOf, members, queue, secureConnectionString, secureQueue, sleep, subscription, suite, topic, within,
} from "./support.mjs";

/** What rhea needs to know of a member. */
function options(connectionString, more = {}) {
  const { endpoint, keyName, key } = partsOf(connectionString);
  const { hostname, port } = new URL(endpoint.replace(/^sb:/, "http:"));
  return { host: hostname, hostname, port: Number(port), username: keyName, password: key, reconnect: false, ...more };
}

/** Waits for an event of something of rhea's, or for one of those that say it will not come. */
function event(of, name, ...failures) {
  return new Promise((resolve, reject) => {
    of.once(name, resolve);
    for (const failure of failures) {
      of.once(failure, (context) => reject(context.error ?? context[failure.split("_")[0]]?.error ?? new Error(failure)));
    }
  });
}

/** An open connection to member 1, or as told, that is closed with the test. */
async function connect(t, { to = members[0].connectionString, ...more } = {}) {
  const container = rhea.create_container();
  const connection = container.connect(options(to, more));
  const closed = () => new Promise((resolve) => {
    const late = setTimeout(resolve, 1_000); // of one that is closed already nothing is heard; kept, or node would end
    const heard = () => { clearTimeout(late); resolve(); };
    connection.on("connection_close", heard);
    connection.on("disconnected", heard);
    connection.close();
  });
  t.after(closed);
  await event(connection, "connection_open", "connection_error", "disconnected");
  return connection;
}

/** Sends and waits for the answer: the event's name. */
async function send(connection, address, message, tag, format) {
  const sender = connection.open_sender(address);
  await event(sender, "sendable", "sender_error");
  const answered = new Promise((resolve) => {
    for (const outcome of ["accepted", "rejected", "released", "modified"]) {
      sender.once(outcome, (context) => resolve({ outcome, error: context.delivery.remote_state?.error }));
    }
  });
  sender.send(message, tag, format);
  const answer = await answered;
  sender.close();
  return answer;
}

/** A receiver that gives one message at a time, when it is asked: { message, delivery }. */
function receive(connection, address, more = {}) {
  const receiver = connection.open_receiver({ source: address, credit_window: 0, autoaccept: false, ...more });
  return {
    receiver,
    next: async () => {
      const came = event(receiver, "message", "receiver_error");
      receiver.add_credit(1);
      return came;
    },
  };
}

/** A queue with messages of these bodies. */
async function filled(connection, ...bodies) {
  const name = await queue();
  for (const body of bodies) {
    assert.equal((await send(connection, name, { body })).outcome, "accepted");
  }
  return name;
}

describe("rhea", suite, () => {
  test("rhea quickstart: the program of its manual", within(), async (t) => {
    const name = await queue();
    const container = rhea.create_container();
    const hello = new Promise((resolve) => container.on("message", (context) => {
      resolve(context.message.body);
      context.connection.close();
    }));
    container.once("sendable", (context) => context.sender.send({ body: "Hello World!" }));
    const connection = container.connect(options(members[0].connectionString));
    t.after(() => connection.close());
    connection.open_receiver(name);
    connection.open_sender(name);
    assert.equal(await hello, "Hello World!");
    await countsBecome(name, { active: 0, locked: 0 });
  });

  test("rhea sends every section, and gets it back", within(), async (t) => {
    const connection = await connect(t);
    const name = await queue();
    const sent = {
      message_id: "id", subject: "s", correlation_id: "c", content_type: "text/plain", reply_to: "r",
      application_properties: { text: "t", number: 7, flag: true }, body: { a: [1, "two", null] }, durable: true,
    };
    assert.equal((await send(connection, name, sent)).outcome, "accepted");
    const { message } = await receive(connection, name).next();
    for (const key of Object.keys(sent)) {
      assert.deepEqual(message[key], sent[key], key);
    }
  });

  test("rhea sends a batch by its format", within(), async (t) => {
    const connection = await connect(t);
    const name = await queue();
    const batch = rhea.message.encode({
      body: rhea.message.data_sections(["one", "two", "three"].map((body) => rhea.message.encode({ message_id: body, body }))),
    });
    assert.equal((await send(connection, name, batch, undefined, 0x80013700)).outcome, "accepted");
    const from = receive(connection, name);
    for (const want of ["one", "two", "three"]) {
      assert.equal((await from.next()).message.body, want);
    }
  });

  test("rhea: as large as the queue takes, and no larger", within(), async (t) => {
    const connection = await connect(t, { max_frame_size: 16_384 });
    const name = await queue();
    const body = "z".repeat(255 * 1024);
    assert.equal((await send(connection, name, { body })).outcome, "accepted");
    assert.equal((await receive(connection, name).next()).message.body, body);
    await assert.rejects(async () => {
      const { outcome, error } = await send(connection, name, { body: body + body });
      throw Object.assign(new Error(outcome), { condition: error?.condition });
    }, { condition: "amqp:link:message-size-exceeded" });
    assert.equal((await send(connection, name, { body: "small" })).outcome, "accepted");
  });

  test("rhea receives what is settled as it is sent", within(), async (t) => {
    const connection = await connect(t);
    const name = await filled(connection, "x");
    const { message } = await receive(connection, name, { snd_settle_mode: 1 }).next();
    assert.equal(message.body, "x");
    await countsBecome(name, { active: 0 });
  });

  test("rhea settles with each outcome", within(), async (t) => {
    const connection = await connect(t);
    const name = await filled(connection, "accept", "release", "reject", "aside");
    const from = receive(connection, name);
    (await from.next()).delivery.accept();
    const released = await from.next();
    (await from.next()).delivery.reject({
      condition: "com.microsoft:dead-letter", info: { DeadLetterReason: "why", DeadLetterErrorDescription: "because" },
    });
    (await from.next()).delivery.modified({ undeliverable_here: true });
    await countsBecome(name, { active: 1, locked: 1, deferred: 1, deadLetter: 1 });
    released.delivery.release();
    const again = await from.next();
    assert.equal(again.message.body, "release");
    again.delivery.modified({ delivery_failed: true });
    assert.equal((await from.next()).message.delivery_count, 1);
    const dead = await receive(connection, `${name}/$DeadLetterQueue`).next();
    assert.equal(dead.message.body, "reject");
    assert.equal(dead.message.application_properties.DeadLetterReason, "why");
    assert.equal(dead.message.application_properties.DeadLetterErrorDescription, "because");
  });

  test("rhea schedules by an annotation", within(), async (t) => {
    const connection = await connect(t);
    const name = await queue();
    const due = Date.now() + 2_000;
    await send(connection, name, {
      body: "later", message_annotations: { "x-opt-scheduled-enqueue-time": rhea.types.wrap_timestamp(due) },
    });
    assert.equal((await receive(connection, name).next()).message.body, "later");
    assert.ok(Date.now() >= due);
  });

  test("rhea: the second message with an id is dropped", within(), async (t) => {
    const connection = await connect(t);
    const name = await queue({ requiresDuplicateDetection: true });
    for (const body of ["first", "second"]) {
      assert.equal((await send(connection, name, { message_id: "same", body })).outcome, "accepted");
    }
    await countsBecome(name, { active: 1 });
    assert.equal((await receive(connection, name).next()).message.body, "first");
  });

  test("rhea publishes to a topic", within(), async (t) => {
    const connection = await connect(t);
    const name = await topic();
    const both = [await subscription(name), await subscription(name)];
    assert.equal((await send(connection, name, { body: "to both" })).outcome, "accepted");
    for (const { path } of both) {
      assert.equal((await receive(connection, path).next()).message.body, "to both");
    }
  });

  test("rhea: request and reply over a dynamic node", within(), async (t) => {
    const name = await queue();
    const asking = await connect(t);
    const answering = await connect(t, { to: members[1].connectionString });
    const replies = receive(asking, { dynamic: true });
    await event(replies.receiver, "receiver_open", "receiver_error");
    assert.equal((await send(asking, name, { body: "question", reply_to: replies.receiver.source.address })).outcome, "accepted");
    const { message, delivery } = await receive(answering, name).next();
    delivery.accept();
    assert.equal((await send(answering, message.reply_to, { body: "answer" })).outcome, "accepted");
    assert.equal((await replies.next()).message.body, "answer");
  });

  test("rhea: a browser shows messages and removes none", within(), async (t) => {
    const name = await queue();
    const connection = await connect(t);
    for (const body of ["1", "2"]) {
      await send(connection, name, { body });
    }
    const browser = receive(connection, { address: name, distribution_mode: "copy" });
    assert.equal((await browser.next()).message.body, "1");
    assert.equal((await browser.next()).message.body, "2");
    await countsBecome(name, { active: 2, locked: 0 });
  });

  test("rhea: a wrong key is refused by SASL", within(), async (t) => {
    await assert.rejects(connect(t, { password: "wrong" }), /auth/i);
    await assert.rejects(connect(t, { username: "Nobody" }), /auth/i);
  });

  test("rhea over TLS and over WebSocket", within(), async (t) => {
    const name = await secureQueue();
    const ca = [readFileSync(process.env.PEEKLOCK_CA)];
    const secure = await connect(t, { to: secureConnectionString, transport: "tls", servername: "localhost", ca });
    assert.equal((await send(secure, name, { body: "in TLS" })).outcome, "accepted");

    const { host } = new URL(partsOf(secureConnectionString).endpoint.replace(/^sb:/, "http:"));
    const dial = rhea.websocket_connect(WebSocket);
    const socket = await connect(t, {
      to: secureConnectionString, connection_details: dial(`wss://${host}/$servicebus/websocket`, ["AMQPWSB10"], { ca }),
    });
    const { message, delivery } = await receive(socket, name).next();
    assert.equal(message.body, "in TLS");
    delivery.accept();
  });

  test("rhea: a client certificate in the name of a rule", within(), async (t) => {
    const name = await queue();
    const [host, port] = process.env.PEEKLOCK_TRUSTED.split(":");
    const connection = await connect(t, {
      host, hostname: host, port: Number(port), transport: "tls", servername: host, username: undefined, password: undefined,
      enable_sasl_external: true, ca: [readFileSync(process.env.PEEKLOCK_CA)],
      cert: readFileSync(process.env.PEEKLOCK_CLIENT_CERT), key: readFileSync(process.env.PEEKLOCK_CLIENT_KEY),
    });
    assert.equal((await send(connection, name, { body: "vouched for" })).outcome, "accepted");
    assert.equal((await receive(connection, name).next()).message.body, "vouched for");
  });

  test("rhea goes on at another member when its own dies", within(180_000), async (t) => {
    const name = await queue();
    const { connectionString, kill } = await doomed();
    const connection = await connect(t, { to: connectionString, reconnect: true, initial_reconnect_delay: 100, max_reconnect_delay: 1_000 });
    const sender = connection.open_sender(name);
    const from = receive(connection, name);
    await event(sender, "sendable");
    sender.send({ body: "before" });
    assert.equal((await from.next()).message.body, "before");
    const again = event(connection, "connection_open");
    const open = event(sender, "sendable");
    await kill();
    await again;
    await open;
    const came = from.next();
    sender.send({ body: "after" });
    const { message, delivery } = await came;
    assert.equal(message.body, "after"); // what was locked before stays locked: rhea cannot settle it any more
    delivery.accept();
    await countsBecome(name, { active: 1, locked: 1 });
    await sleep(0);
  });
});
