// Each action of the console is checked by its effect on the cluster, as the command line or an SDK sees it.
import assert from "node:assert/strict";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, statfsSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { ServiceBusClient } from "@azure/service-bus";
import { browser, button, dialog, members, open as openPage, signIn, until, visit } from "./kit.mjs";

const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const pictures = process.env.PEEKLOCK_PICTURES;

let chromium;
before(async () => {
  chromium = await browser();
});
after(() => chromium?.close());

const open = (...how) => openPage(chromium, ...how);

describe("without a key, on the machine of the member", () => {
  let m;
  before(async () => {
    m = await members();
  });
  after(() => m?.stop());

  test("the root leads to the console, and an empty cluster shows how to connect", async (t) => {
    const page = await open(t, m.server);
    assert.equal(new URL(page.url()).pathname, "/console");
    await page.getByText("There are no queues and topics yet").waitFor();
    await button(page, "Python").click();
    await page.getByText("from_connection_string").waitFor();
  });

  test("a queue is created, changed, disabled and deleted", async (t) => {
    const page = await open(t, `${m.server}/console/entities`);
    await button(page, "Create").click();
    await dialog(page).getByLabel("Name", { exact: true }).fill("a/b");
    await dialog(page).getByText("Settings", { exact: true }).click();
    await dialog(page).getByLabel("Maximum delivery count").fill("3");
    await button(dialog(page), "Create").click();
    await page.getByRole("heading", { name: "a/b", level: 1 }).waitFor();
    assert.equal((await m.cli("queue", "show", "a/b")).maxDeliveryCount, 3);

    await page.getByRole("link", { name: "Settings" }).click();
    await page.getByLabel("Lock duration").fill("1m");
    await button(page, "Save").click();
    await page.getByText("Saved.").waitFor();
    assert.equal((await m.cli("queue", "show", "a/b")).lockDuration, "1m0s");
    await page.getByLabel("Lock duration").fill("2h");
    await button(page, "Save").click();
    await page.getByRole("alert").filter({ hasText: "lock" }).waitFor(); // the server's words
    await button(page, "Disable").click();
    await until(async () => assert.equal((await m.cli("queue", "show", "a/b")).status, "Disabled"));

    await button(page, "Delete").click();
    assert.equal(await button(dialog(page), "Delete").isDisabled(), true);
    await dialog(page).getByLabel("Type a/b to confirm").fill("a/b");
    await button(dialog(page), "Delete").click();
    await page.getByRole("heading", { name: "Queues and topics" }).waitFor();
    assert.deepEqual(await m.cli("queue", "list"), []);
  });

  test("a message is sent with all its properties, and an SDK receives it", async (t) => {
    await m.cli("queue", "create", "sent");
    const page = await open(t, `${m.server}/console/queues/sent?tab=send`);
    await page.getByLabel("Body").fill('{"grüße":1}');
    for (const [label, value] of [["Message id", "m-1"], ["Correlation id", "c-1"], ["Subject (label)", "order"], ["Content type", "application/json"], ["Reply to", "answers"], ["Time to live in seconds", "600"]]) {
      await page.getByLabel(label, { exact: true }).fill(value);
    }
    const property = async (i, name, type, value) => {
      await button(page, "Add a property").click();
      await page.getByLabel("Name", { exact: true }).nth(i).fill(name);
      await page.getByLabel("Type", { exact: true }).nth(i).selectOption(type);
      const field = page.getByLabel("Value", { exact: true }).nth(i);
      await (type === "boolean" ? field.selectOption(value) : field.fill(value));
    };
    await property(0, "region", "string", "nörd");
    await property(1, "amount", "double", "12.5");
    await property(2, "rush", "boolean", "true");
    await button(page, "Send").click();
    await page.getByText("One message was sent.").waitFor();

    const client = new ServiceBusClient(m.members[1].connectionString);
    t.after(() => client.close());
    const [got] = await client.createReceiver("sent").receiveMessages(1, { maxWaitTimeInMs: 10_000 });
    assert.deepEqual(got.body, { "grüße": 1 });
    assert.deepEqual(
      [got.messageId, got.correlationId, got.subject, got.contentType, got.replyTo, got.timeToLive],
      ["m-1", "c-1", "order", "application/json", "answers", 600_000],
    );
    assert.deepEqual({ ...got.applicationProperties }, { region: "nörd", amount: 12.5, rush: true });
  });

  test("a message is received under a lock, renewed, abandoned and completed", async (t) => {
    await m.cli("queue", "create", "taken");
    await m.cli("message", "send", "taken", "one");
    const page = await open(t, `${m.server}/console/queues/taken`);
    await button(page, "Receive a message under a lock").click();
    await page.getByText("locked for").waitFor();
    await page.getByLabel("Body", { exact: true }).getByText("one").waitFor();
    await until(async () => assert.equal((await m.cli("queue", "show", "taken")).counts.locked, 1));
    await button(page, "Renew the lock").click();
    await page.getByText("The lock was renewed.").waitFor();
    await button(page, "Abandon").click();
    await page.getByText("it is ready again").waitFor();
    await until(async () => assert.equal((await m.cli("queue", "show", "taken")).counts.locked, 0));
    await button(page, "Receive a message under a lock").click();
    await button(page, "Complete").click();
    await page.getByText("The message was completed.").waitFor();
    await until(async () => assert.equal((await m.cli("queue", "show", "taken")).counts.active, 0));
    await button(page, "Receive a message under a lock").click();
    await page.getByText("No message is ready.").waitFor();
  });

  test("messages are browsed by conditions, and dead letters are sent again or edited", async (t) => {
    await m.cli("queue", "create", "browsed");
    const client = new ServiceBusClient(m.members[0].connectionString);
    t.after(() => client.close());
    const sender = client.createSender("browsed");
    await sender.sendMessages([7, 70, 700].map((amount) => ({ body: { amount }, subject: `order ${amount}`, messageId: `m-${amount}`, applicationProperties: { amount } })));
    const receiver = client.createReceiver("browsed");
    const [bad] = await receiver.receiveMessages(1, { maxWaitTimeInMs: 10_000 });
    await receiver.deadLetterMessage(bad, { deadLetterReason: "too small" });
    await receiver.close();

    const page = await open(t, `${m.server}/console/queues/browsed`);
    const rows = page.getByRole("region", { name: "Messages" }).getByRole("row");
    await button(page, "Browse").click();
    await until(async () => assert.equal(await rows.count(), 1 + 2));
    await page.getByLabel("SQL filter").fill("amount > 100");
    await button(page, "Browse").click();
    await until(async () => assert.equal(await rows.count(), 1 + 1));
    assert.equal(new URL(page.url()).searchParams.get("where"), "amount > 100");
    await rows.nth(1).getByRole("button").click();
    await page.getByRole("row").filter({ hasText: "amount" }).filter({ hasText: "700" }).first().waitFor();
    await page.getByLabel("SQL filter").fill("amount >");
    await button(page, "Browse").click();
    await page.getByRole("alert").waitFor(); // the place of the mistake, in the server's words

    await page.getByLabel("SQL filter").fill("");
    await page.getByLabel("From", { exact: true }).selectOption("deadLetter");
    await button(page, "Browse").click();
    await button(page, "too small: 1").click(); // chooses those with this reason
    await button(page, "Send 1 again").click();
    await button(dialog(page), "Send again").click();
    await dialog(page).waitFor({ state: "detached" });
    await until(async () => {
      const { counts } = await m.cli("queue", "show", "browsed");
      assert.deepEqual([counts.active, counts.deadLetter], [3, 0]);
    });

    await page.getByLabel("From", { exact: true }).selectOption("");
    await page.getByLabel("Text in the body").fill('"amount":700');
    await button(page, "Browse").click();
    await until(async () => assert.equal(await rows.count(), 1 + 1));
    await rows.nth(1).getByRole("button").click();
    await button(page, "Edit a copy and send it").click();
    assert.equal(await page.getByLabel("Message id", { exact: true }).inputValue(), "m-700");
    await page.getByLabel("Body").fill('{"amount":701}');
    await button(page, "Send").click();
    await page.getByText("One message was sent.").waitFor();
    assert.equal((await m.cli("queue", "show", "browsed")).counts.active, 4);
  });

  test("messages are deleted, cancelled and returned by selection and by conditions", async (t) => {
    await m.cli("queue", "create", "changed");
    const client = new ServiceBusClient(m.members[0].connectionString);
    t.after(() => client.close());
    const sender = client.createSender("changed");
    await sender.sendMessages(["a", "b", "c", "d"].map((subject) => ({ body: subject, subject })));
    await sender.scheduleMessages([{ body: "later", subject: "later" }], new Date(Date.now() + 3_600_000));
    const receiver = client.createReceiver("changed");
    const [first] = await receiver.receiveMessages(1, { maxWaitTimeInMs: 10_000 });
    await receiver.deferMessage(first);
    await receiver.close();
    const counts = async () => {
      const { active, deferred, scheduled } = (await m.cli("queue", "show", "changed")).counts;
      return [active, deferred, scheduled];
    };
    await until(async () => assert.deepEqual(await counts(), [3, 1, 1]));

    const page = await open(t, `${m.server}/console/queues/changed`);
    const browse = () => button(page, "Browse").click();
    await browse();
    await page.getByRole("row").filter({ hasText: "deferred" }).getByRole("checkbox").check();
    await button(page, "Return those deferred of 1").click();
    await button(dialog(page), "Return").click();
    await page.getByText("One message was changed.").waitFor();
    assert.deepEqual(await counts(), [4, 0, 1]);

    await page.getByLabel("SQL filter").fill("sys.Label = 'b' OR sys.Label = 'c'");
    await browse();
    await button(page, "Delete all").click();
    await dialog(page).getByRole("heading", { name: "Delete 2" }).waitFor(); // counted first
    assert.equal(await button(dialog(page), "Delete").isDisabled(), true);
    await dialog(page).getByLabel("Type changed to confirm").fill("changed");
    await button(dialog(page), "Delete").click();
    await page.getByText("2 messages were changed.").waitFor();
    assert.deepEqual(await counts(), [2, 0, 1]);

    await page.getByLabel("SQL filter").fill("");
    await browse();
    await button(page, "Cancel all scheduled").click();
    await dialog(page).getByLabel("Type changed to confirm").fill("changed");
    await button(dialog(page), "Cancel").first().click();
    await page.getByText("One message was changed.").waitFor();
    assert.deepEqual(await counts(), [2, 0, 0]);

    await page.getByRole("row").filter({ hasText: "d" }).getByRole("checkbox").first().check();
    await button(page, "Delete 1").click();
    await dialog(page).getByLabel("Type changed to confirm").fill("changed");
    await button(dialog(page), "Delete").click();
    await page.getByText("One message was changed.").waitFor();
    assert.deepEqual(await counts(), [1, 0, 0]);
  });

  test("the state of a session is read, set and cleared, and its lock is released", async (t) => {
    await m.cli("queue", "create", "carts", "--requires-session");
    await m.cli("message", "send", "carts", "apple", "--session", "ann");
    const client = new ServiceBusClient(m.members[0].connectionString);
    t.after(() => client.close());
    const receiver = await client.acceptSession("carts", "ann");
    await receiver.setSessionState("half");
    const state = async () => (await m.cli("session", "state", "carts", "ann")).state ?? "";

    const page = await open(t, `${m.server}/console/queues/carts?tab=sessions`);
    await button(page, "State of session ann").click();
    await page.getByLabel("State", { exact: true }).fill("full");
    await button(dialog(page), "Set the state").click();
    await dialog(page).waitFor({ state: "detached" });
    assert.equal(await state(), "full");
    await button(page, "State of session ann").click();
    await button(dialog(page), "Clear the state").click();
    await dialog(page).waitFor({ state: "detached" });
    assert.equal(await state(), "");
    await button(page, "Release session ann").click();
    await button(dialog(page), "Release").click();
    await dialog(page).waitFor({ state: "detached" });
    const next = await client.acceptSession("carts", "ann"); // waits 60 s for a session that is held
    await next.close();
  });

  test("connections and their links are shown, also at their queue and session, and one is closed", async (t) => {
    await m.cli("queue", "create", "linked", "--requires-session");
    const client = new ServiceBusClient(m.members[0].connectionString);
    t.after(() => client.close());
    await client.createSender("linked").sendMessages({ body: "x", sessionId: "eve" });
    const receiver = await client.acceptSession("linked", "eve");
    await receiver.receiveMessages(1, { maxWaitTimeInMs: 10_000 });
    const connection = async () => (await m.cli("connection", "list")).connections.find((c) => c.links.some((l) => l.entity === "linked"));
    const { id } = await connection();

    const page = await open(t, `${m.server}/console/queues/linked?tab=clients`);
    const links = page.getByRole("region", { name: "Clients" }).getByRole("row");
    await links.filter({ hasText: "receiver" }).filter({ hasText: "eve" }).filter({ hasText: "MSJSClient" }).waitFor();
    await links.filter({ hasText: "sender" }).waitFor();
    await page.getByRole("link", { name: "Sessions" }).click();
    await page.getByRole("row").filter({ hasText: "eve" }).filter({ hasText: id }).waitFor(); // the holder

    await page.getByRole("link", { name: "Connections" }).click();
    await page.getByLabel("Filter by client").fill("LINKED");
    await button(page, `Links of connection ${id}`).click();
    await page.getByRole("region", { name: "Links" }).getByRole("row").filter({ hasText: "eve" }).waitFor();
    await page.reload(); // the view has a URL
    await page.getByRole("region", { name: "Links" }).getByRole("row").filter({ hasText: "eve" }).waitFor();
    const row = page.getByRole("region", { name: "Connections" }).getByRole("row").filter({ hasText: id });
    const cell = async (title) => {
      const titles = await page.getByRole("region", { name: "Connections" }).getByRole("columnheader").allInnerTexts();
      return row.getByRole("cell").nth(titles.findIndex((text) => text.startsWith(title))).innerText();
    };
    const sender = client.createSender("linked");
    await until(async () => {
      await sender.sendMessages([1, 2, 3].map((body) => ({ body, sessionId: "eve" })));
      assert.ok((await cell("From it/s")) > 0 && (await cell("To it/s")) === "0");
    });
    const { received, delivered } = await connection();
    const shown = Number(await page.locator("dl.properties div", { hasText: "Messages from it" }).locator("dd").innerText());
    assert.ok(shown > 1 && shown <= received && delivered === 1, `the page shows ${shown} messages from the client, the command line ${received}, and ${delivered} to it`);
    assert.match(await cell("Memory"), /^[\d.]+ (B|KiB|MiB)$/);
    await button(page, `Close connection ${id}`).click();
    await button(dialog(page), "Close").click();
    await dialog(page).waitFor({ state: "detached" });
    await until(async () => assert.notEqual((await connection())?.id, id));
  });

  test("a topic shows which subscriptions would get a message", async (t) => {
    await m.cli("topic", "create", "tried");
    await m.cli("subscription", "create", "tried/Subscriptions/all");
    await m.cli("subscription", "create", "tried/Subscriptions/large", "--sql", "amount > 100");
    const page = await open(t, `${m.server}/console/topics/tried?tab=send`);
    const rows = page.getByRole("region", { name: "Subscriptions that would get it" }).getByRole("row");
    await button(page, "Which subscriptions would get it?").click();
    await until(async () => assert.equal(await rows.count(), 1 + 1));
    await button(page, "Add a property").click();
    await page.getByLabel("Name", { exact: true }).fill("amount");
    await page.getByLabel("Type", { exact: true }).selectOption("int");
    await page.getByLabel("Value", { exact: true }).fill("700");
    await button(page, "Which subscriptions would get it?").click();
    await until(async () => assert.equal(await rows.count(), 1 + 2));
    assert.equal((await m.cli("subscription", "show", "tried/Subscriptions/all")).counts.active, 0); // nothing was sent
  });

  test("a message keeps the AMQP type of every value when it is copied, saved, exported and imported", async (t) => {
    await m.cli("queue", "create", "typed");
    await m.cli("queue", "create", "loaded");
    const form = { messageId: { ulong: 7 }, subject: "order", properties: { big: { long: "9007199254740993" }, small: { int: 7 }, when: { timestamp: "2026-11-20T12:00:00Z" } }, value: { list: [{ short: 1 }, "a"] } };
    const sent = await fetch(`${m.server}/typed/messages`, { method: "POST", headers: { "Content-Type": "application/vnd.peeklock.messages+json" }, body: JSON.stringify([form]) });
    assert.equal(sent.status, 201);
    /** formsOf returns the messages of a queue without what the broker sets. */
    const formsOf = async (queue) => (await (await fetch(`${m.server}/v1/messages/${queue}`)).json()).messages.map(({ messageId, subject, properties, value }) => ({ messageId, subject, properties, value }));
    const whole = await formsOf("typed");
    assert.deepEqual(whole[0], form);

    const page = await open(t, `${m.server}/console/queues/typed`);
    await button(page, "Browse").click();
    await page.getByRole("region", { name: "Messages" }).getByRole("row").nth(1).getByRole("button").click();
    await page.getByRole("region", { name: "Properties" }).getByRole("row").filter({ hasText: "long" }).filter({ hasText: "9007199254740993" }).waitFor();
    await page.reload(); // the open message has a URL
    await page.getByRole("region", { name: "Properties" }).getByRole("row").filter({ hasText: "timestamp" }).waitFor();
    await button(page, "Edit a copy and send it").click();
    const [saved] = await Promise.all([page.waitForEvent("download"), button(page, "Save the message").click()]);
    await page.getByLabel("Subject (label)").fill("other");
    await button(page, "Send").click();
    await page.getByText("One message was sent.").waitFor();
    await page.getByLabel("Open a saved message").setInputFiles(await saved.path());
    await until(async () => assert.equal(await page.getByLabel("Subject (label)").inputValue(), "order"));
    await button(page, "Send").click();
    await page.getByText("One message was sent.").waitFor();
    assert.deepEqual(await formsOf("typed"), [form, { ...form, subject: "other" }, form]);

    await page.getByRole("link", { name: "Messages" }).click();
    const [exported] = await Promise.all([page.waitForEvent("download"), button(page, "Export").click()]);
    await page.goto(`${m.server}/console/queues/loaded?tab=send`);
    await page.getByLabel("File to import").setInputFiles(await exported.path());
    await page.getByText("3 messages were sent.").waitFor();
    assert.deepEqual(await formsOf("loaded"), await formsOf("typed"));
    await m.cli("message", "load", "loaded", "--file", await exported.path()); // the file is one of message dump
    assert.equal((await formsOf("loaded")).length, 6);
    await page.getByLabel("File to import").setInputFiles({ name: "wrong", mimeType: "text/plain", buffer: Buffer.from("{}\nno message") });
    await page.getByRole("alert").filter({ hasText: "Line 2" }).waitFor();
  });

  test("a dead letter is edited and sent again in one step, and a body that is XML has lines", async (t) => {
    await m.cli("queue", "create", "mended");
    const client = new ServiceBusClient(m.members[0].connectionString);
    t.after(() => client.close());
    await client.createSender("mended").sendMessages({ body: Buffer.from("<order><id>7</id><script>x</script></order>"), messageId: "m-7", applicationProperties: { tries: 1, drop: "x" } });
    const receiver = client.createReceiver("mended");
    const [bad] = await receiver.receiveMessages(1, { maxWaitTimeInMs: 10_000 });
    await receiver.deadLetterMessage(bad, { deadLetterReason: "no customer" });

    const page = await open(t, `${m.server}/console/queues/mended?subQueue=deadLetter`);
    await page.getByRole("region", { name: "Messages" }).getByRole("row").nth(1).getByRole("button").click();
    assert.match(await page.locator("pre").innerText(), /^<order>\n {2}<id>7<\/id>\n/); // as text, not as markup
    await button(page, "Edit and send again").click();
    await dialog(page).getByLabel("Body").fill("<order/>");
    await button(dialog(page), "Remove property drop").click();
    await dialog(page).getByLabel("Value", { exact: true }).first().fill("2");
    await button(dialog(page), "Send again").click();
    await page.getByText("One message was sent again").waitFor();
    const [again] = await receiver.receiveMessages(1, { maxWaitTimeInMs: 10_000 });
    assert.deepEqual([again.body.toString(), again.messageId, { ...again.applicationProperties }], ["<order/>", "m-7", { tries: 2 }]);
    await receiver.completeMessage(again);
    const { counts } = await m.cli("queue", "show", "mended");
    assert.deepEqual([counts.active, counts.deadLetter], [0, 0]);
  });

  test("all messages are deleted after the name was typed", async (t) => {
    await m.cli("queue", "create", "full");
    await m.cli("message", "send", "full", "x", "--count", "20");
    const page = await open(t, `${m.server}/console/queues/full`);
    await button(page, "Delete all messages").click();
    await dialog(page).getByLabel("Type full to confirm").fill("full");
    await button(dialog(page), "Delete").click();
    await dialog(page).waitFor({ state: "detached" });
    assert.equal((await m.cli("queue", "show", "full")).counts.active, 0);
  });

  test("a topic gets a subscription and a rule, which select messages", async (t) => {
    await m.cli("topic", "create", "events");
    const page = await open(t, `${m.server}/console/topics/events`);
    await button(page, "Create a subscription").click();
    await dialog(page).getByLabel("Name", { exact: true }).fill("large");
    await button(dialog(page), "Create").click();
    await page.getByRole("heading", { name: "large", level: 1 }).waitFor();
    await page.getByRole("link", { name: "Rules" }).click();
    await button(page, "Add a rule").click();
    await dialog(page).getByLabel("Name", { exact: true }).fill("amount");
    await dialog(page).getByLabel("SQL filter").fill("amount >");
    await button(dialog(page), "Add").click();
    await dialog(page).getByRole("alert").waitFor(); // the place of the mistake, in the server's words
    await dialog(page).getByLabel("SQL filter").fill("amount > 100");
    await button(dialog(page), "Add").click();
    await dialog(page).waitFor({ state: "detached" });
    await button(page, "Delete rule $Default").click();
    await button(dialog(page), "Delete").click();
    await dialog(page).waitFor({ state: "detached" });
    const rules = await m.cli("rule", "list", "events/Subscriptions/large");
    assert.deepEqual(rules.map((r) => [r.name, r.filter.expression]), [["amount", "amount > 100"]]);
  });

  test("a member is drained and undrained, and a leadership is transferred", async (t) => {
    const page = await open(t, `${m.server}/console/cluster`);
    const row = page.getByRole("row").filter({ hasText: "member-2" }).filter({ hasText: "alive" });
    await button(row, "Drain").click();
    await button(row, "Undrain").waitFor();
    await until(async () => assert.equal((await m.cli("member", "list")).members.find((x) => x.name === "member-2").leads, 0));
    await button(row, "Undrain").click();
    await button(row, "Drain").waitFor();

    const leader = async () => (await m.cli("cluster", "status")).partitions.find((p) => p.id === 1).leader;
    const old = await leader();
    const ids = (await m.cli("member", "list")).members.map((x) => x.id);
    const next = ids.find((id) => id !== old);
    await page.getByRole("region", { name: "Partitions" }).getByRole("row").nth(2).getByRole("button", { name: "Transfer" }).click();
    await dialog(page).getByLabel("Next leader").selectOption(next);
    await button(dialog(page), "Transfer").click();
    await dialog(page).waitFor({ state: "detached" });
    await until(async () => assert.notEqual(await leader(), old));

    await button(row, "Zone and weight").click();
    await dialog(page).getByLabel("Zone").fill("east");
    await dialog(page).getByLabel("Weight").fill("20");
    await button(dialog(page), "Save").click();
    await dialog(page).waitFor({ state: "detached" });
    const changed = (await m.cli("member", "list")).members.find((x) => x.name === "member-2");
    assert.deepEqual([changed.zone, changed.weight], ["east", 20]);

    const replicas = async () => (await m.cli("cluster", "status")).partitions.find((p) => p.id === 1).replicas;
    await page.getByRole("region", { name: "Partitions" }).getByRole("row").nth(2).getByRole("button", { name: "Move" }).click();
    await dialog(page).getByRole("checkbox").last().uncheck();
    await button(dialog(page), "Move").click();
    await dialog(page).waitFor({ state: "detached" });
    await until(async () => assert.equal((await replicas()).length, 2), 30_000);
    await button(page, "Plan a rebalance").click();
    await dialog(page).getByRole("region", { name: "Before and after" }).getByRole("row").nth(3).waitFor();
    await dialog(page).getByRole("button", { name: /^Start/ }).click();
    await dialog(page).waitFor({ state: "detached" });
    await until(async () => assert.equal((await replicas()).length, 3), 30_000);
  });

  test("the disks of all members and the age of the last backup of each partition are shown", async (t) => {
    const page = await open(t, `${m.server}/console/cluster`);
    const partitions = page.getByRole("region", { name: "Partitions" }).getByRole("row");
    await partitions.filter({ hasText: "not known" }).first().waitFor();
    const rows = (await partitions.count()) - 1;
    assert.equal(await partitions.filter({ hasText: "not known" }).count(), rows);
    const { bsize, blocks } = statfsSync(tmpdir()); // where the members are
    const size = `of ${Math.round((bsize * blocks) / 2 ** 30)} GiB`;
    const members = page.getByRole("region", { name: "Members" }).getByRole("row");
    await until(async () => assert.equal(await members.filter({ hasText: size }).count(), 3, size));
    const dir = mkdtempSync(join(tmpdir(), "peeklock-console-backup-"));
    t.after(() => rmSync(dir, { recursive: true, force: true }));
    await m.cli("cluster", "backup", join(dir, "copy"));
    await page.reload();
    await until(async () => assert.equal(await partitions.filter({ hasText: / s ago/ }).count(), rows));
  });

  test("a rule of access is created, regenerated and revoked, and its keys work and stop working", async (t) => {
    await m.cli("queue", "create", "guarded");
    const page = await open(t, `${m.server}/console/access`, { permissions: ["clipboard-read", "clipboard-write"] });
    await button(page, "Create a rule").click();
    await dialog(page).getByLabel("Name", { exact: true }).fill("app");
    await button(dialog(page), "Create").click();
    await dialog(page).waitFor({ state: "detached" });
    const row = page.getByRole("row").filter({ hasText: "app" });
    await button(row, "Copy primary").click();
    const copied = await page.evaluate(() => navigator.clipboard.readText());
    const client = new ServiceBusClient(copied);
    t.after(() => client.close());
    await client.createSender("guarded").sendMessages({ body: "x" });
    const primary = async () => (await m.cli("key", "show", "app")).primaryKey;
    const old = await primary();
    await button(row, "Regenerate primary").click();
    await button(dialog(page), "Regenerate").click();
    await dialog(page).waitFor({ state: "detached" });
    assert.notEqual(await primary(), old);
    await button(row, "Revoke").click();
    await dialog(page).getByLabel("Type app to confirm").fill("app");
    await button(dialog(page), "Revoke").click();
    await dialog(page).waitFor({ state: "detached" });
    assert.deepEqual(await m.cli("key", "list"), []);

    await page.goto(`${m.server}/console/queues/guarded?tab=access`);
    await button(page, "Create a rule").click();
    await dialog(page).getByLabel("Name", { exact: true }).fill("own");
    await dialog(page).getByLabel("Send").uncheck();
    await button(dialog(page), "Create").click();
    await dialog(page).waitFor({ state: "detached" });
    assert.deepEqual((await m.cli("key", "list", "guarded")).map((k) => [k.name, k.rights]), [["own", ["Listen"]]]);
  });

  test("a namespace is created and chosen, and shows its own queues", async (t) => {
    const page = await open(t, `${m.server}/console/access`);
    await button(page, "Create a namespace").click();
    await dialog(page).getByLabel("Name", { exact: true }).fill("tenant");
    await button(dialog(page), "Create").click();
    await dialog(page).waitFor({ state: "detached" });
    await button(page, "Limits and use of tenant").click();
    await dialog(page).getByLabel("Queues and topics").fill("1");
    await button(dialog(page), "Save").click();
    await dialog(page).waitFor({ state: "detached" });
    assert.equal((await m.cli("namespace", "show", "tenant")).maxEntities, 1);
    await m.cli("queue", "create", "theirs", "--namespace", "tenant");
    await page.goto(`${m.server}/console/entities`);
    await page.getByLabel("Namespace").selectOption("tenant");
    await page.getByRole("link", { name: "theirs" }).waitFor();
    assert.equal(await page.getByRole("link", { name: "guarded" }).count(), 0);
    await button(page, "Create").click();
    await dialog(page).getByLabel("Name", { exact: true }).fill("second");
    await button(dialog(page), "Create").click();
    await dialog(page).getByRole("alert").filter({ hasText: "1" }).waitFor(); // the limit, in the server's words
    await page.keyboard.press("Escape");
    await page.getByRole("link", { name: "theirs" }).click();
    await page.getByRole("link", { name: "Send", exact: true }).click();
    await page.getByText("Open the console at a host of the namespace tenant").waitFor(); // this host's namespace has no queue of that name
  });

  test("the overview, the table of queues and the page of a queue show messages per second and the last hour", async (t) => {
    await m.cli("message", "send", "taken", ...Array(20).fill("more")); // the tests above sent to it before
    const page = await open(t, `${m.server}/console`);
    const row = page.getByRole("table", { name: "Busiest queues" }).getByRole("link", { name: "taken", exact: true });
    await row.waitFor({ timeout: 40_000 });
    await page.getByRole("img", { name: /Messages per second, last hour/ }).waitFor();
    const asked = [];
    page.on("request", (r) => asked.push(r.url().slice(m.server.length)));
    await m.cli("message", "send", "taken", "streamed");
    await page.reload();
    const active = () => page.locator("dl.tiles div", { hasText: "Active messages" }).locator("dd").textContent();
    const before = Number((await active()).replaceAll(",", ""));
    await m.cli("message", "send", "taken", ...Array(3).fill("streamed"));
    await until(async () => assert.equal(Number((await active()).replaceAll(",", "")), before + 3), 5_000);
    assert.ok(asked.includes("/v1/events") && !asked.some((path) => path.includes("counts=true")), `the overview asks for ${asked}, want the stream and no list of queues`);
    assert.ok((await m.cli("top")).entities.some((e) => e.name === "taken" && e.kind === "queue"));
    await row.click();
    await page.getByRole("link", { name: "Last hour" }).click();
    await page.getByRole("img", { name: /Messages stored, last hour/ }).waitFor();
    await page.goto(`${m.server}/console/entities`);
    await page.getByRole("columnheader", { name: "In/s" }).getByRole("button").click();
    await page.getByRole("columnheader", { name: "In/s" }).and(page.locator("[aria-sort=descending]")).waitFor();
  });

  test("the table of queues follows those on the screen by the stream, and asks for no list each time", async (t) => {
    for (let i = 0; i < 60; i++) {
      assert.equal((await fetch(`${m.server}/v1/queues/seen-${String(i).padStart(2, "0")}`, { method: "PUT" })).status, 201);
    }
    const page = await open(t, `${m.server}/console`);
    const asked = [];
    page.on("request", (r) => asked.push(r.url().slice(m.server.length)));
    const named = () => new URLSearchParams(asked.findLast((path) => path.startsWith("/v1/events"))?.split("?")[1]).get("entities")?.split(",") ?? [];
    const lists = () => asked.filter((path) => path.includes("counts=true")).length;
    const row = (name) => page.getByRole("region", { name: "Queues and topics" }).getByRole("row").filter({ hasText: name });
    await page.goto(`${m.server}/console/entities?filter=seen-`);
    await until(() => assert.ok(named().includes("seen-00") && !named().includes("seen-59") && named().every((n) => n.startsWith("seen-")), `the stream names ${named()}, want the first queues`));
    const before = lists();
    await m.cli("message", "send", "seen-00", "x", "--count", "3");
    await row("seen-00").getByRole("cell", { name: "3", exact: true }).waitFor({ timeout: 5000 });
    await page.evaluate(() => document.querySelector("tbody").lastElementChild.scrollIntoView());
    await until(() => assert.ok(named().includes("seen-59") && !named().includes("seen-00"), `after scrolling the stream names ${named()}, want the last queues`));
    await m.cli("message", "send", "seen-59", "x", "--count", "4");
    await row("seen-59").getByRole("cell", { name: "4", exact: true }).waitFor({ timeout: 5000 });
    await page.getByLabel("Filter by name").fill("seen-3");
    await until(() => assert.deepEqual(named(), Array.from({ length: 10 }, (_, i) => `seen-3${i}`)));
    assert.equal(lists(), before, "lists of entities while rows changed");
    await page.route("**/v1/queues?*", async (route) => {
      await new Promise((resolve) => setTimeout(resolve, 6000)); // longer than lists are apart
      await route.continue().catch(() => undefined); // the page aborted it
    });
    await m.cli("queue", "delete", "seen-33", "--yes");
    await row("seen-33").waitFor({ state: "detached", timeout: 20_000 });
    await page.unrouteAll({ behavior: "ignoreErrors" });
  });

  test("a queue is created, filled, read and deleted with the keyboard alone", async (t) => {
    const page = await open(t, `${m.server}/console`);
    /** focus moves on with Tab until the element has the focus. */
    const focus = async (locator) => {
      await locator.waitFor();
      for (let i = 0; i < 150; i++) {
        if (await locator.evaluate((e) => e === document.activeElement)) {
          return;
        }
        await page.keyboard.press("Tab");
      }
      assert.fail(`Tab does not reach ${locator}`);
    };
    const press = async (locator, key = "Enter") => {
      await focus(locator);
      await page.keyboard.press(key);
    };
    await press(page.getByRole("link", { name: "Queues and topics", exact: true }));
    await press(button(page, "Create"));
    await focus(dialog(page).getByLabel("Name", { exact: true }));
    await page.keyboard.type("keyed");
    await page.keyboard.press("Enter");
    await page.getByRole("heading", { name: "keyed", level: 1 }).waitFor();
    await press(page.getByRole("link", { name: "Send", exact: true }));
    await focus(page.getByLabel("Body"));
    await page.keyboard.type("hello");
    await press(button(page, "Send"), " ");
    await page.getByText("One message was sent.").waitFor();
    assert.equal((await m.cli("queue", "show", "keyed")).counts.active, 1);
    await press(page.getByRole("link", { name: "Messages" }));
    await press(button(page, "Browse"));
    await press(page.getByRole("region", { name: "Messages" }).getByRole("row").nth(1).getByRole("button"));
    await page.getByLabel("Body", { exact: true }).getByText("hello").waitFor();
    await press(page.getByRole("link", { name: "Settings" }));
    await press(button(page, "Delete"));
    await focus(dialog(page).getByLabel("Type keyed to confirm"));
    await page.keyboard.type("keyed");
    await page.keyboard.press("Enter");
    await page.getByRole("heading", { name: "Queues and topics" }).waitFor();
    assert.ok(!(await m.cli("queue", "list")).some((q) => q.name === "keyed"));
  });

  test("every page and dialog passes axe, dark and light, wide and narrow", async (t) => {
    await m.cli("queue", "create", "pictured");
    await m.cli("message", "send", "pictured", '{"order": 7}', "bad");
    await m.cli("message", "receive", "pictured", "--dead-letter", "--reason", "no order");
    await m.cli("queue", "create", "drawers", "--requires-session");
    await m.cli("message", "send", "drawers", "sock", "--session", "left");
    await m.cli("topic", "create", "drawn");
    await m.cli("subscription", "create", "drawn/Subscriptions/large", "--sql", "amount > 100");
    await m.cli("message", "send", "drawn", "large", "--property", "amount:=700");
    const places = {
      overview: "",
      entities: "/entities",
      queue: "/queues/pictured",
      send: "/queues/pictured?tab=send",
      settings: "/queues/pictured?tab=settings",
      clients: "/queues/pictured?tab=clients",
      sessions: "/queues/drawers?tab=sessions",
      topic: "/topics/drawn",
      subscription: "/subscriptions/drawn/Subscriptions/large",
      rules: "/subscriptions/drawn/Subscriptions/large?tab=rules",
      cluster: "/cluster",
      access: "/access",
      audit: "/audit",
      connections: "/connections",
      connect: "/connect",
    };
    const dialogs = {
      entities: ["Create"],
      settings: ["Delete"],
      sessions: ["State of session left"],
      topic: ["Create a subscription"],
      subscription: ["Delete all messages"],
      rules: ["Add a rule"],
      cluster: ["Zone and weight", "Replace", "Move", "Plan a rebalance"],
      access: ["Create a rule", "Create a namespace", "Limits and use of default"],
    };
    /** check runs axe on what is shown, at both widths. */
    const check = async (page, name, within) => {
      for (const width of [1280, 390]) {
        await page.setViewportSize({ width, height: 900 });
        if (pictures) {
          mkdirSync(pictures, { recursive: true });
          await page.screenshot({ path: join(pictures, `${name}-${width}.png`), fullPage: within === "body" });
        }
        const { violations } = await page.evaluate((at) => globalThis.axe.run(at === "body" ? document : at, { resultTypes: ["violations"] }), within);
        assert.deepEqual(violations.map((v) => `${v.id}: ${v.nodes.map((n) => n.html).join(" ")}`), [], `${name}, ${width}`);
        const wider = await page.evaluate((at) => Math.max(...[document.documentElement, document.querySelector(at)].map((e) => e.scrollWidth - e.clientWidth)), within);
        assert.equal(wider > 0, false, `${name} at ${width} is ${wider} pixels too wide`);
      }
    };
    const look = async (colorScheme) => {
      const page = await open(t, `${m.server}/console`, { colorScheme });
      for (const [name, path] of Object.entries(places)) {
        await page.setViewportSize({ width: 1280, height: 900 });
        await page.goto(`${m.server}/console${path}`);
        await page.getByRole("heading", { level: 1 }).waitFor();
        await page.getByText("Loading…").first().waitFor({ state: "detached" });
        await page.evaluate(axe);
        await check(page, `${name}-${colorScheme}`, "body");
        for (const label of dialogs[name] ?? []) {
          await button(page, label).first().click();
          await dialog(page).getByRole("button").first().waitFor();
          await check(page, `${label.toLowerCase().replaceAll(" ", "-")}-dialog-${colorScheme}`, "dialog");
          await page.keyboard.press("Escape");
          await dialog(page).waitFor({ state: "detached" });
        }
      }
      await page.goto(`${m.server}/console/queues/pictured?subQueue=deadLetter`);
      await page.getByRole("region", { name: "Messages" }).getByRole("row").nth(1).getByRole("button").click();
      await page.evaluate(axe);
      await check(page, `dead-letter-${colorScheme}`, "body");
      await button(page, "Edit and send again").click();
      await check(page, `edit-dialog-${colorScheme}`, "dialog");
    };
    await Promise.all(["light", "dark"].map(look));
  });
});

describe("with keys", () => {
  let m;
  let watcher;
  before(async () => {
    m = await members("--require-key");
    process.env.PEEKLOCK_KEY = "SAS_KEY_VALUE";
    await m.cli("queue", "create", "orders");
    watcher = await m.cli("key", "create", "watcher", "--rights", "listen");
  });
  after(async () => {
    delete process.env.PEEKLOCK_KEY;
    await m?.stop();
  });

  test("a wrong key is refused, the right one signs in, and nothing of it is stored", async (t) => {
    const page = await open(t, `${m.server}/console`);
    await signIn(page, "RootManageSharedAccessKey", "wrong");
    await page.getByRole("alert").waitFor();
    await signIn(page, "RootManageSharedAccessKey", "SAS_KEY_VALUE");
    await page.getByRole("link", { name: "Cluster" }).waitFor();
    assert.deepEqual(await page.evaluate(() => [localStorage.length, sessionStorage.length, document.cookie]), [0, 0, ""]);
    await button(page, "Sign out").click();
    await page.getByLabel("Name of the rule").waitFor();
  });

  test("tabs with one sign-in share a stream and hand it over, another sign-in has its own, and a revoked key ends it", async (t) => {
    const { primaryKey } = await m.cli("key", "create", "second", "--rights", "manage,send,listen");
    const first = await open(t, `${m.server}/console`);
    const tab = async (page, name, key) => {
      page.setDefaultTimeout(15_000);
      page.streams = 0;
      page.on("request", (r) => (page.streams += r.url().includes("/v1/events") ? 1 : 0));
      await page.goto(`${m.server}/console`);
      await signIn(page, name, key);
      await page.getByRole("heading", { name: "Overview" }).waitFor();
      return page;
    };
    const root = ["RootManageSharedAccessKey", "SAS_KEY_VALUE"];
    const a = await tab(first, ...root);
    const queues = async (page) => Number(await page.locator("dl.tiles div", { hasText: "Queues" }).locator("dd").textContent());
    await queues(a);
    const b = await tab(await first.context().newPage(), ...root);
    const other = await tab(await first.context().newPage(), "second", primaryKey);
    let made = (await m.cli("queue", "list")).length;
    const follow = async (...pages) => {
      await m.cli("queue", "create", `counted-${++made}`);
      for (const page of pages) {
        await until(async () => assert.equal(await queues(page), made), 5000);
      }
    };
    await follow(a, b, other);
    assert.deepEqual([a.streams, b.streams, other.streams], [1, 0, 1]);

    const hide = (page, hidden) =>
      page.evaluate((is) => {
        Object.defineProperty(document, "hidden", { configurable: true, get: () => is });
        document.dispatchEvent(new Event("visibilitychange"));
      }, hidden);
    await hide(a, true);
    await follow(b);
    assert.deepEqual([a.streams, b.streams, (await queues(a)) < made], [1, 1, true]); // the tab that is hidden is not told
    await hide(a, false);
    await follow(a, b);
    assert.deepEqual([a.streams, b.streams], [1, 1]);
    await b.close();
    await follow(a);
    assert.equal(a.streams, 2);

    await m.cli("key", "delete", "second");
    await other.getByRole("alert").first().waitFor({ timeout: 20_000 });
    await follow(a);
    for (const { name } of await m.cli("queue", "list")) {
      if (name.startsWith("counted-")) {
        await m.cli("queue", "delete", name, "--yes");
      }
    }
  });

  test("a tab that comes while the stream fails shows the last data with their age and the failure", async (t) => {
    const first = await open(t, `${m.server}/console`);
    const overview = async (page) => {
      page.setDefaultTimeout(15_000);
      await page.goto(`${m.server}/console`);
      await signIn(page, "RootManageSharedAccessKey", "SAS_KEY_VALUE");
      await page.getByRole("heading", { name: "Overview" }).waitFor();
    };
    const queues = (page, count) => page.locator("dl.tiles div", { hasText: "Queues" }).locator("dd").filter({ hasText: new RegExp(`^${count}$`) }).waitFor();
    const failure = (page) => page.getByRole("alert").filter({ hasText: /The member does not answer\. .* The data below are ([2-9]|\d\d) s old/ });
    const figures = { queues: 777, topics: 0, subscriptions: 0, total: {}, deepest: [], deadLettered: [] };
    const line = JSON.stringify({ at: new Date().toISOString(), rows: [], figures });
    const answers = [(route) => route.fulfill({ body: `${line}\n` }), (route) => route.abort()];
    const held = []; // requests without an answer: the page is told of one failure alone
    await first.route("**/v1/events*", (route) => (answers.shift() ?? ((r) => held.push(r)))(route));
    await overview(first);
    await failure(first).waitFor();
    const second = await first.context().newPage();
    await overview(second);
    await queues(second, 777);
    await failure(second).waitFor();
    assert.equal(await failure(first).count(), 1, "failures at the tab that reads the stream");

    await until(() => assert.equal(held.length, 1));
    await held[0].continue();
    for (const page of [first, second]) {
      await queues(page, (await m.cli("queue", "list")).length);
      await failure(page).waitFor({ state: "detached" });
    }
  });

  test("the audit page shows the events of all members and filters them, and a key of a namespace is refused", async (t) => {
    const { primaryKey } = await m.cli("key", "create", "clerk", "--rights", "manage,send,listen");
    await m.cli("queue", "create", "audited-a");
    const clerk = await open(t, `${m.members[1].admin}/console`);
    await signIn(clerk, "clerk", primaryKey);
    await clerk.getByRole("link", { name: "Queues and topics" }).click();
    await button(clerk, "Create").click();
    await dialog(clerk).getByLabel("Name", { exact: true }).fill("audited-b");
    await button(dialog(clerk), "Create").click();
    await clerk.getByRole("heading", { name: "audited-b", level: 1 }).waitFor();
    assert.equal(await clerk.getByRole("link", { name: "Audit" }).count(), 0);
    await visit(clerk, "/audit");
    await clerk.getByRole("alert").filter({ hasText: /right|access|Unauthorized|authoriz|operator/i }).waitFor();

    const client = new ServiceBusClient(m.members[0].connectionString);
    t.after(() => client.close());
    await m.cli("topic", "create", "ruled");
    await m.cli("subscription", "create", "ruled/Subscriptions/all");
    await client.createRuleManager("ruled", "all").createRule("by-amqp", { sqlExpression: "1 = 1" });
    await m.cli("topic", "delete", "ruled", "--yes");

    const page = await open(t, `${m.server}/console`);
    await signIn(page, "RootManageSharedAccessKey", "SAS_KEY_VALUE");
    await page.getByRole("link", { name: "Audit" }).click();
    const rows = page.getByRole("region", { name: "Audit events" }).getByRole("row");
    await page.getByLabel("Filter by text").fill("AUDITED-");
    await until(async () => assert.equal(await rows.count(), 1 + 2));
    assert.match(await rows.nth(1).innerText(), /clerk\s+create queue\s+audited-b\s+OK/); // the newest first
    const { events } = await m.cli("audit", "list");
    for (const [i, name] of ["audited-b", "audited-a"].entries()) {
      const { member, fields } = events.find((e) => e.fields.name === name && e.event === "admin_change");
      for (const text of [member, fields.who, fields.peer]) {
        await rows.nth(i + 1).getByRole("cell", { name: text, exact: true }).waitFor();
      }
    }
    await page.getByLabel("Filter by text").fill("by-amqp");
    assert.equal(await rows.filter({ hasText: "rule change" }).locator(".badge.good").innerText(), "ok");
    await page.getByLabel("Filter by text").fill("audited-");
    await page.getByLabel("Who").selectOption("clerk");
    await until(async () => assert.equal(await rows.count(), 1 + 1));
    await page.getByLabel("Filter by text").fill("/v1/audit");
    await page.getByLabel("Action").selectOption("right missing");
    await rows.filter({ hasText: "clerk" }).filter({ hasText: "/v1/audit" }).first().waitFor();
    await page.getByLabel("Filter by text").fill("nothing has this");
    await page.getByText("No event meets these conditions.").waitFor();
    await m.cli("key", "delete", "clerk");
    for (const name of ["audited-a", "audited-b"]) {
      await m.cli("queue", "delete", name, "--yes");
    }
  });

  test("a dead letter of a subscription is edited and returns to it alone, unless the key lacks the right", async (t) => {
    const key = await m.cli("key", "create", "mender", "--rights", "manage,send,listen");
    const one = "offers/Subscriptions/one";
    await m.cli("topic", "create", "offers");
    await m.cli("subscription", "create", one, "--sql", "price < 10");
    await m.cli("subscription", "create", "offers/Subscriptions/two");
    const client = new ServiceBusClient(m.members[0].connectionString);
    t.after(() => client.close());
    await client.createSender("offers").sendMessages({ body: "7 coins", messageId: "m-7", applicationProperties: { price: 7 } });
    const receiver = client.createReceiver("offers", "one");
    const [bad] = await receiver.receiveMessages(1, { maxWaitTimeInMs: 10_000 });
    await receiver.deadLetterMessage(bad, { deadLetterReason: "no coins" });

    const page = await open(t, `${m.server}/console`);
    await signIn(page, "mender", key.primaryKey);
    await page.getByRole("link", { name: "Queues and topics" }).waitFor();
    await visit(page, `/subscriptions/${one}?subQueue=deadLetter`);
    await button(page, "Browse").click();
    await page.getByRole("region", { name: "Messages" }).getByRole("row").nth(1).getByRole("button").click();
    await button(page, "Edit and send again").click();
    await dialog(page).getByLabel("Body").fill('"700 cents"'); // the SDK writes text as JSON
    await dialog(page).getByLabel("Value", { exact: true }).first().fill("700"); // its rule would not select it
    await m.cli("key", "update", "mender", "--rights", "listen");
    await until(async () => {
      await button(dialog(page), "Send again").click();
      await dialog(page).getByRole("alert").filter({ hasText: /right|access|Unauthorized|authoriz/i }).waitFor({ timeout: 2000 });
    }, 20_000);
    assert.equal((await m.cli("subscription", "show", one)).counts.deadLetter, 1);
    await m.cli("key", "update", "mender", "--rights", "manage,send,listen");
    await until(async () => {
      await button(dialog(page), "Send again").click({ timeout: 2000 });
      await page.getByText("One message was sent again").waitFor({ timeout: 2000 });
    }, 20_000);
    const [again] = await receiver.receiveMessages(1, { maxWaitTimeInMs: 10_000 });
    assert.deepEqual([again.body, again.messageId, { ...again.applicationProperties }], ["700 cents", "m-7", { price: 700 }]);
    await receiver.completeMessage(again);
    const [first, second] = await Promise.all([one, "offers/Subscriptions/two"].map(async (name) => (await m.cli("subscription", "show", name)).counts));
    assert.deepEqual([first.active, first.deadLetter, second.active], [0, 0, 1]);
    await m.cli("key", "delete", "mender");
    await m.cli("topic", "delete", "offers", "--yes");
  });

  test("a key that may only listen sees no page of administration", async (t) => {
    const page = await open(t, `${m.server}/console`);
    await signIn(page, "watcher", watcher.primaryKey);
    await page.getByRole("link", { name: "Connect" }).waitFor();
    for (const name of ["Cluster", "Access", "Queues and topics"]) {
      assert.equal(await page.getByRole("link", { name, exact: true }).count(), 0, name);
    }
  });

  test("a key whose rights were removed is refused each change, in the server's words", async (t) => {
    const { primaryKey } = await m.cli("key", "create", "fading", "--rights", "manage,send,listen");
    await m.cli("queue", "create", "shown");
    await m.cli("message", "send", "shown", "one");
    const page = await open(t, `${m.server}/console`);
    await signIn(page, "fading", primaryKey);
    await page.getByRole("link", { name: "Queues and topics" }).waitFor();
    assert.equal(await page.getByRole("link", { name: "Cluster" }).count(), 0);
    for (const path of ["/cluster", "/access"]) {
      await visit(page, path);
      await page.getByRole(path === "/cluster" ? "alert" : "button", path === "/cluster" ? {} : { name: "Create a rule" }).first().waitFor();
    }
    await visit(page, "/queues/shown");
    await button(page, "Delete all messages").waitFor();
    const before = await m.cli("queue", "show", "shown");

    const refused = (at) => at.getByRole("alert").filter({ hasText: /right|access|Unauthorized|authoriz/i });
    const limit = async (rights) => {
      await m.cli("key", "update", "fading", "--rights", rights);
      await refused(page).first().waitFor({ timeout: 20_000 }); // of a request that the page repeats
    };
    await limit("listen,send");
    const inDialog = async (opens, fills, name) => {
      await button(page, opens).click();
      for (const [label, text] of Object.entries(fills)) {
        await dialog(page).getByLabel(label, { exact: true }).fill(text);
      }
      await (name ? button(dialog(page), name).click() : undefined);
      await refused(dialog(page)).waitFor();
      await page.keyboard.press("Escape");
      await dialog(page).waitFor({ state: "detached" });
    };
    await inDialog("Delete all messages", { "Type shown to confirm": "shown" }, "Delete");
    await button(page, "Browse").click(); // the right Listen is enough
    await inDialog("Delete all", {});
    await inDialog("Cancel all scheduled", {});
    await inDialog("Return all deferred", {});
    await page.getByRole("checkbox", { name: /^Choose message/ }).check();
    await inDialog("Delete 1", { "Type shown to confirm": "shown" }, "Delete");
    await page.getByRole("link", { name: "Access" }).last().click();
    await inDialog("Create a rule", { Name: "own" }, "Create");
    await page.getByRole("link", { name: "Settings" }).click();
    await page.getByLabel("Lock duration").fill("1m");
    const alerts = await refused(page).count();
    await button(page, "Save").click();
    await until(async () => assert.equal(await refused(page).count(), alerts + 1));
    await button(page, "Disable").click();
    await until(async () => assert.equal(await refused(page).count(), alerts + 2));
    await inDialog("Delete", { "Type shown to confirm": "shown" }, "Delete");

    await page.getByRole("link", { name: "Messages" }).click();
    await m.cli("key", "update", "fading", "--rights", "send");
    for (const name of ["Browse", "Export", "Receive a message under a lock"]) {
      await until(async () => {
        await button(page, name).click();
        await page.locator("section").filter({ has: button(page, name) }).getByRole("alert").waitFor({ timeout: 2000 });
      }, 20_000);
    }
    await m.cli("key", "update", "fading", "--rights", "listen");
    await page.getByRole("link", { name: "Send", exact: true }).click();
    await until(async () => {
      await page.getByLabel("Body").fill("two");
      await button(page, "Send").click();
      await page.locator("form").getByRole("alert").waitFor({ timeout: 2000 });
    }, 20_000);
    const { counts, lockDuration, status } = await m.cli("queue", "show", "shown");
    assert.deepEqual([lockDuration, status, counts.deadLetter], [before.lockDuration, before.status, 0]);
    await visit(page, "/entities");
    await inDialog("Create", { Name: "other" }, "Create");
    assert.deepEqual((await m.cli("queue", "list")).map((q) => q.name), ["orders", "shown"]);
  });
});
