// What the tests share: where the members are, clients that end with their test, queues of
// their own for each test, and waits with a deadline.
//
// Without PEEKLOCK_MEMBER_1 to _3 and PEEKLOCK_ADMIN_1 to _3 the members are those of
// `go run ./cmd/peeklock dev`, so that the suite can also be run by hand with `npm test`.

import assert from "node:assert/strict";
import { createHmac, randomUUID } from "node:crypto";
import { connect, createServer } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";

import { ServiceBusClient } from "@azure/service-bus";

/** The groups of tests for features that not every build has: what works, unless others are asked for by name. */
export const features = new Set((process.env.PEEKLOCK_FEATURES ?? "time,topics,sessions,admin").split(",").map((name) => name.trim()));

/** Each suite takes this: some tests side by side, because many only wait for a lock to end. */
export const suite = { concurrency: 4, timeout: 240_000 };

/** A test that has not ended by then never will. */
const testTimeoutMs = 60_000;

/** Members 1 to 3, at index 0 to 2. */
export const members = [1, 2, 3].map((n) => ({
  connectionString:
    process.env[`PEEKLOCK_MEMBER_${n}`] ??
    `Endpoint=sb://localhost:${5662 + 10 * n};SharedAccessKeyName=RootManageSharedAccessKey;` +
      "SharedAccessKey=SAS_KEY_VALUE;UseDevelopmentEmulator=true",
  admin: process.env[`PEEKLOCK_ADMIN_${n}`] ?? `http://127.0.0.1:${5290 + 10 * n}`,
}));

/** A connection string as the service gives it, of a member that speaks TLS by the authority in NODE_EXTRA_CA_CERTS. */
export const secureConnectionString =
  process.env.PEEKLOCK_TLS ?? "Endpoint=sb://localhost:5671;SharedAccessKeyName=RootManageSharedAccessKey;SharedAccessKey=SAS_KEY_VALUE";

/** The control API of that member. */
export const secureAdmin = process.env.PEEKLOCK_TLS_ADMIN ?? members[0].admin;

/** A member that is going to die, and what kills it; its address leads to another one then. */
export async function doomed() {
  const operator = process.env.PEEKLOCK_OPERATOR;
  assert.ok(operator, "only a run by `bash run` can kill a member");
  const answer = await fetch(`${operator}/doomed`, { method: "POST" });
  const connectionString = await answer.text();
  assert.ok(answer.ok, connectionString);
  return { connectionString, kill: () => fetch(`${operator}/kill`, { method: "POST" }) };
}

/** Options of one test. */
export const within = (ms = testTimeoutMs) => ({ timeout: ms });

/** The parts of a member's connection string. */
export function parts(member = 1) {
  return partsOf(members[member - 1].connectionString);
}

/** The parts of a connection string. */
export function partsOf(connectionString) {
  const part = (name) => new RegExp(`(?:^|;)${name}=([^;]*)`).exec(connectionString)[1];
  return {
    endpoint: part("Endpoint").replace(/\/*$/, "/"),
    keyName: part("SharedAccessKeyName"),
    key: part("SharedAccessKey"),
  };
}

/** A signature by a key over a path below an endpoint. */
export function signature({ endpoint, keyName, key }, path = "", expiresInSeconds = 600) {
  const resource = encodeURIComponent(endpoint + path);
  const expiry = Math.floor(Date.now() / 1000) + expiresInSeconds;
  const signed = createHmac("sha256", key).update(`${resource}\n${expiry}`).digest("base64");
  return `SharedAccessSignature sr=${resource}&sig=${encodeURIComponent(signed)}&se=${expiry}&skn=${encodeURIComponent(keyName)}`;
}

/** A connection string for a member that holds only a signature over path, and no key. */
export function signedConnectionString(member, path = "", { key = parts(member).key, expiresInSeconds } = {}) {
  const of = { ...parts(member), key };
  return `Endpoint=${of.endpoint};SharedAccessSignature=${signature(of, path, expiresInSeconds)};UseDevelopmentEmulator=true`;
}

/**
 * A client of a member that is closed with the test. The client does not retry unless it is told
 * to: a retry would hide what went wrong.
 */
export function client(t, { member = 1, connectionString = members[member - 1].connectionString, ...options } = {}) {
  const made = new ServiceBusClient(connectionString, {
    retryOptions: { maxRetries: 0, retryDelayInMs: 250, timeoutInMs: 20_000 },
    ...options,
  });
  t.after(() => made.close());
  return made;
}

/**
 * A connection string that leads to a member over a relay of this process, and cut(), which
 * breaks the connections that go over it.
 */
export async function cuttable(member) {
  const { endpoint, keyName, key } = parts(member);
  const { hostname, port } = new URL(endpoint.replace(/^sb:/, "http:"));
  const open = new Set();
  const relay = createServer((near) => {
    const far = connect({ host: hostname, port: Number(port) });
    open.add(near);
    for (const [one, other] of [[near, far], [far, near]]) {
      one.unref(); // the client's end keeps the process alive, or nothing does
      one.pipe(other);
      one.on("error", () => other.destroy());
      one.on("close", () => {
        open.delete(near);
        other.destroy();
      });
    }
  });
  await new Promise((listening) => relay.listen(0, "127.0.0.1", listening));
  relay.unref();
  const cut = () => {
    for (const socket of open) {
      socket.resetAndDestroy(); // as a crash of the host or a firewall does, without a farewell
    }
  };
  return {
    cut,
    connectionString:
      `Endpoint=sb://127.0.0.1:${relay.address().port}/;SharedAccessKeyName=${keyName};` +
      `SharedAccessKey=${key};UseDevelopmentEmulator=true`,
  };
}

/** Asks the control API of a member. */
export const control = (method, path, body, member = 1) => controlAt(members[member - 1].admin, method, path, body);

/** Asks the control API at an address. */
export async function controlAt(admin, method, path, body) {
  const answer = await fetch(admin + path, {
    method,
    headers: body === undefined ? {} : { "Content-Type": "application/json" },
    body: body === undefined ? undefined : JSON.stringify(body),
  });
  const text = await answer.text();
  assert.ok(answer.ok, `${method} ${path}: ${answer.status} ${text}`);
  return text === "" ? undefined : JSON.parse(text);
}

/** Creates a queue for one test and returns its name. */
export async function queue(settings = {}) {
  const name = `js-${randomUUID()}`;
  await control("PUT", `/v1/queues/${name}`, settings);
  return name;
}

/** Creates a topic for one test and returns its name. */
export async function topic(settings = {}) {
  const name = `js-${randomUUID()}`;
  await control("PUT", `/v1/topics/${name}`, settings);
  return name;
}

/** Creates a subscription of a topic, and returns the topic, its name there, and its path. */
export async function subscription(topic, settings = {}) {
  const name = `s-${randomUUID()}`;
  const path = `${topic}/Subscriptions/${name}`;
  await control("PUT", `/v1/subscriptions/${path}`, settings);
  return { topic, name, path };
}

/** Creates a queue at the members that speak TLS and returns its name. */
export async function secureQueue() {
  const name = `js-${randomUUID()}`;
  await controlAt(secureAdmin, "PUT", `/v1/queues/${name}`, {});
  return name;
}

/** The counts of a queue, or of a subscription by its path, as a member sees them. */
export async function counts(name, member = 1) {
  const noun = name.includes("/Subscriptions/") ? "subscriptions" : "queues";
  return (await control("GET", `/v1/${noun}/${name}`, undefined, member)).counts;
}

/** Waits until a queue has these counts; those not named are not looked at. */
export async function countsBecome(name, want, ms = 10_000) {
  await eventually(ms, async () => {
    const have = await counts(name);
    for (const [state, number] of Object.entries(want)) {
      assert.equal(have[state], number, `${state} of ${JSON.stringify(have)}`);
    }
  });
}

/** Tries until try returns without an exception, or throws its last one. */
export async function eventually(ms, attempt) {
  const deadline = Date.now() + ms;
  for (;;) {
    try {
      return await attempt();
    } catch (error) {
      if (Date.now() > deadline) {
        throw error;
      }
    }
    await sleep(50);
  }
}

/** Waits until a moment on the clock of this machine, which is that of the members too. */
export const until = (date) => sleep(Math.max(0, date.getTime() - Date.now()));

/** Receives exactly n messages; the client is free to hand out fewer for each call. */
export async function take(receiver, n, ms = 15_000) {
  const deadline = Date.now() + ms;
  const got = [];
  while (got.length < n && Date.now() < deadline) {
    got.push(...(await receiver.receiveMessages(n - got.length, { maxWaitTimeInMs: Math.min(5_000, ms) })));
  }
  assert.equal(got.length, n, `messages received within ${ms} ms`);
  return got;
}

/** Receives one message. */
export async function takeOne(receiver, ms) {
  return (await take(receiver, 1, ms))[0];
}

/** Shows that a receiver gets nothing for a while. */
export async function nothing(receiver, ms = 700) {
  const got = await receiver.receiveMessages(1, { maxWaitTimeInMs: ms });
  assert.deepEqual(got.map((m) => m.body), [], "nothing was to be received");
}

/** Waits for the failure of a call and checks the code that programs look at. */
export async function refused(code, promise) {
  let error;
  try {
    await promise;
  } catch (e) {
    error = e;
  }
  assert.ok(error, `expected ${code}, but the call succeeded`);
  assert.equal(error.code, code, `the code of: ${error.stack}`);
  return error;
}

/** Receive-and-delete. Always a new object: the client deletes the mode from what it is given. */
export const remove = () => ({ receiveMode: "receiveAndDelete" });

/** n bodies in order, with message ids. */
export const numbered = (n, prefix = "m") =>
  Array.from({ length: n }, (_, i) => ({ body: i, messageId: `${prefix}-${i}` }));

/** The bodies of messages. */
export const bodies = (messages) => messages.map((m) => m.body);

export { sleep };
