// Any member serves any client: what one member took, the others give, settle and count.

import assert from "node:assert/strict";
import { describe, test } from "node:test";

import {
  bodies, client, control, counts, countsBecome, members, numbered, queue, remove, suite, take, takeOne, within,
} from "./support.mjs";

describe("members", suite, () => {
  test("T.17 sent at member 1, received and settled at 2 and 3, in every pairing", within(), async (t) => {
    const clients = members.map((_, i) => client(t, { member: i + 1 }));
    for (let queues = 0; queues < 3; queues++) { // they fall on different partitions
      const name = await queue();
      for (const [i, from] of clients.entries()) {
        await from.createSender(name).sendMessages(numbered(6, `from-${i}`));
      }
      await countsBecome(name, { active: 18 });
      const got = [];
      for (const to of clients) {
        const receiver = to.createReceiver(name);
        const messages = await take(receiver, 6);
        got.push(...messages);
        await Promise.all(messages.map((message) => receiver.completeMessage(message)));
      }
      assert.deepEqual(bodies(got), [...Array(3).keys()].flatMap(() => [0, 1, 2, 3, 4, 5]), "in the order of the sends");
      for (const member of [1, 2, 3]) {
        assert.equal((await counts(name, member)).active, 0, `as member ${member} sees it`);
      }
    }
  });

  test("T.9 a message locked at one member is settled at another, by its token", within(), async (t) => {
    const name = await queue();
    await client(t, { member: 1 }).createSender(name).sendMessages(numbered(2));
    const got = await take(client(t, { member: 2 }).createReceiver(name), 2);
    const elsewhere = client(t, { member: 3 }).createReceiver(name);
    await elsewhere.completeMessage(got[0]);
    const before = got[1].lockedUntilUtc;
    const renewed = await elsewhere.renewMessageLock(got[1]);
    assert.ok(renewed >= before);
    await elsewhere.deadLetterMessage(got[1], { deadLetterReason: "elsewhere", deadLetterErrorDescription: "" });
    await countsBecome(name, { active: 0, locked: 0, deadLetter: 1 });
  });

  test("T.17 a queue is known everywhere as soon as it is made", within(), async (t) => {
    for (const member of [2, 3]) {
      const both = client(t, { member });
      const name = await queue(); // at member 1
      await both.createSender(name).sendMessages({ body: member, messageId: "new" });
      assert.equal((await takeOne(both.createReceiver(name, remove()))).body, member);
    }
  });

  test("T.17 names are compared without case, and may have parts", within(), async (t) => {
    const name = await queue();
    const nested = `${name}/orders/EU.1_x`;
    await control("PUT", `/v1/queues/${encodeURIComponent(nested)}`, {});
    const both = client(t, { member: 2 });
    await both.createSender(nested.toUpperCase()).sendMessages({ body: "nested", messageId: "n" });
    await both.createSender(name.toUpperCase()).sendMessages({ body: "plain", messageId: "p" });
    assert.equal((await takeOne(both.createReceiver(nested, remove()))).body, "nested");
    assert.equal((await takeOne(both.createReceiver(name, remove()))).body, "plain");
  });
});
