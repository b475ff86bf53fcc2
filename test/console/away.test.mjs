// The console while members are away: moves, the last data with their age, and the conditions.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { browser, button, dialog, open as openPage, processes, signIn, until, visit } from "./kit.mjs";

let chromium, m;
before(async () => {
  [chromium, m] = await Promise.all([browser(), processes()]);
});
after(async () => {
  await Promise.all([chromium?.close(), m?.stop()]);
});

const open = (...how) => openPage(chromium, ...how);

test("a move is paused, resumed and cancelled, and pages show the last data and the conditions while members are away", async (t) => {
  const page = await open(t, `${m.members[0].server}/console`);
  await signIn(page, "root", m.key);
  await page.getByText("Nothing needs attention.").waitFor();
  await m.cli("queue", "create", "orders");
  await m.cli("message", "send", "orders", "one");
  const shown = async () => (await page.getByRole("list", { name: "Conditions" }).locator("strong").allInnerTexts()).map((text) => text.split(",")[0]).sort();
  const doctor = async () => m.cli("doctor").catch((e) => JSON.parse(e.stdout));

  // The partition of the queue gets a single replica, whose member is killed: the others stay available.
  const { partition } = await m.cli("queue", "show", "orders");
  await page.getByRole("link", { name: "Cluster" }).click();
  const other = partition === 1 ? 2 : 1;
  const choose = async (id, action, ...names) => {
    await button(page.getByRole("region", { name: "Partitions" }).getByRole("row").nth(1 + id), "Move").click();
    for (const name of names) {
      await action(dialog(page).getByRole("checkbox", { name }));
    }
    await button(dialog(page), "Move").click();
    await dialog(page).waitFor({ state: "detached" });
  };
  const replicas = async (id) => (await m.cli("cluster", "status")).partitions.find((p) => p.id === id).replicas.length;
  await choose(partition, (box) => box.uncheck(), "m0", "m1");
  await choose(other, (box) => box.uncheck(), "m2");
  await until(async () => assert.deepEqual([await replicas(partition), await replicas(other)], [1, 2]), 30_000);
  await visit(page, "/queues/orders");
  await page.getByLabel("Views").waitFor();
  await visit(page, "/entities");
  await page.getByRole("row").filter({ hasText: "orders" }).getByRole("cell", { name: "1", exact: true }).waitFor();
  await m.kill(m.members[2]);
  await page.getByRole("row").filter({ hasText: "orders" }).getByText(/no leader, counts are \d+ (s|min) old/).waitFor({ timeout: 60_000 });
  await page.getByRole("row").filter({ hasText: "orders" }).getByRole("cell", { name: "1", exact: true }).waitFor(); // the last count

  await visit(page, "/queues/orders");
  await page.getByRole("link", { name: "Send", exact: true }).click(); // the page has its last data
  await page.getByLabel("Body").fill("two");
  await button(page, "Send").click();
  await page.locator("form").getByRole("alert").waitFor({ timeout: 60_000 }); // refused, or unknown: in the member's words
  assert.doesNotMatch(await page.locator("form").getByRole("alert").innerText(), /does not answer/);

  await page.getByRole("link", { name: "Overview" }).click();
  await until(async () => {
    const names = (await doctor()).findings.map((f) => f.condition).sort();
    assert.deepEqual([await shown(), names.includes("PartitionWithoutLeader")], [names, true]);
  }, 30_000);
  await page.getByRole("link", { name: "Cluster" }).click();
  await choose(other, (box) => box.check(), "m2"); // it waits for the member
  const move = page.getByRole("region", { name: "Moves" }).getByRole("row").nth(1);
  const state = async () => (await m.cli("partition", "moves")).moves?.[0]?.state;
  await button(move, "Pause").click();
  await until(async () => assert.equal(await state(), "paused"));
  await button(move, "Resume").click();
  await until(async () => assert.notEqual(await state(), "paused"));
  await button(move, "Cancel").click();
  await until(async () => assert.equal(await state(), undefined), 30_000);

  await page.getByRole("link", { name: "Queues and topics" }).click();
  await m.kill(m.members[1]);
  await page.getByRole("alert").filter({ hasText: /The data below are \d+ s old/ }).first().waitFor({ timeout: 60_000 });
  await page.getByRole("link", { name: "orders" }).waitFor(); // the last data
  await m.kill(m.members[0]);
  await page.getByRole("alert").filter({ hasText: "The member does not answer. Open the console at another member." }).first().waitFor({ timeout: 30_000 });
});
