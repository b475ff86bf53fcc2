// Sign-in to the console at an identity provider, checked by its effect on the cluster.
import assert from "node:assert/strict";
import { after, before, beforeEach, test } from "node:test";
import { audience, clientID, issuer } from "./issuer.mjs";
import { browser, button, open as openPage, processes, until } from "./kit.mjs";

let chromium, provider, m;
before(async () => {
  provider = await issuer();
  [chromium, m] = await Promise.all([
    browser(),
    processes("--oidc-issuer", provider.url, "--oidc-audience", audience, "--oidc-client-id", clientID, "--oidc-scopes", "openid offline_access", "--oidc-token-origin", provider.tokenOrigin),
  ]);
});
beforeEach(() => provider.reset());
after(async () => {
  await Promise.all([chromium?.close(), m?.stop()]);
  await provider.close().catch(() => undefined); // a test closes it
});

const open = (...how) => openPage(chromium, ...how);
const signIn = (page) => button(page, `Sign in at ${new URL(provider.url).host}`).click();
const alert = (page, text) => page.getByRole("alert").filter({ hasText: text }).waitFor();
const stored = (page) => page.evaluate(() => [localStorage.length, sessionStorage.length, document.cookie]);

/** create creates a queue in the page, and checks that the cluster has it. */
const create = async (page, name) => {
  await page.getByRole("link", { name: "Queues and topics" }).click();
  await button(page, "Create").click();
  await page.getByRole("dialog").getByLabel("Name", { exact: true }).fill(name);
  await button(page.getByRole("dialog"), "Create").click();
  await page.getByRole("heading", { name, level: 1 }).waitFor();
  assert.equal((await m.cli("queue", "show", name)).name, name);
};

test("an operator signs in at each member, returns to the view, and acts; nothing is stored", async (t) => {
  for (const [i, member] of m.members.entries()) {
    const page = await open(t, `${member.server}/console/entities?find=orders`);
    const streams = [];
    page.on("response", async (r) => {
      if (!r.url().endsWith("/v1/events")) return;
      const headers = await r.request().allHeaders().catch(() => ({})); // the page may be closed meanwhile
      streams.push([r.status(), headers.authorization?.slice(0, 10)]);
    });
    await signIn(page);
    await page.getByTitle("Signed in as ada@example.com").waitFor();
    assert.equal(page.url(), `${member.server}/console/entities?find=orders`);
    assert.deepEqual(await stored(page), [0, 0, ""]);
    const asked = provider.asked.at(-1);
    assert.deepEqual([asked.response_type, asked.code_challenge_method, asked.scope, asked.redirect_uri], ["code", "S256", "openid offline_access", `${member.server}/console`]);
    await create(page, `signed-in-${i}`);
    await page.getByRole("link", { name: "Overview" }).click();
    await until(() => assert.deepEqual(streams[0], [200, "Bearer eyJ"]));
  }
  const { events } = await m.cli("audit", "list");
  assert.ok(events.some((e) => JSON.stringify(e).includes('"u-1"')), "the audit log names the subject");
});

test("an ID token signs in where access tokens are opaque", async (t) => {
  provider.gives.opaque = true;
  const page = await open(t, `${m.members[0].server}/console`);
  await signIn(page);
  await page.getByRole("link", { name: "Cluster" }).waitFor();
});

test("sign-ins whose names are empty do not share a stream, and can be ended", async (t) => {
  provider.gives.name = "";
  const first = await open(t, `${m.members[0].server}/console`);
  const pages = [first, await first.context().newPage()];
  const streams = [0, 0];
  for (const [i, page] of pages.entries()) {
    page.on("request", (r) => (streams[i] += r.url().includes("/v1/events") ? 1 : 0));
    await page.goto(`${m.members[0].server}/console/overview`);
    await signIn(page);
    await page.getByTitle("Signed in as u-1").waitFor(); // the button that signs out
  }
  await until(() => assert.deepEqual(streams, [1, 1], "streams of the two tabs"));
});

test("an answer with another state or nonce, or to no sign-in, is refused before its code is used", async (t) => {
  provider.gives.state = "of-somebody-else";
  const page = await open(t, `${m.members[0].server}/console`);
  await signIn(page);
  await alert(page, "does not belong to a sign-in that began in this tab");
  assert.equal(new URL(page.url()).search, "");
  await page.goto(`${m.members[0].server}/console?code=stolen&state=x`);
  await alert(page, "does not belong to a sign-in that began in this tab");
  assert.deepEqual(provider.grants, []);
  provider.reset();
  provider.gives.nonce = "of-somebody-else";
  await signIn(page);
  await alert(page, /is not valid: .*nonce/);
  assert.deepEqual(await stored(page), [0, 0, ""]);
  assert.equal(await page.getByRole("link", { name: "Overview" }).count(), 0);
  provider.reset();
  await signIn(page);
  await page.getByRole("link", { name: "Cluster" }).waitFor();
});

test("what the provider and the members refuse is said with what to do", async (t) => {
  const page = await open(t, `${m.members[0].server}/console`);
  for (const [gives, text] of [
    [{ error: "access_denied" }, /refused the sign-in: access_denied\. Sign in as somebody who may use Peeklock/],
    [{ error: "invalid_scope" }, /the client console must be a public one there with PKCE and the redirect URI http.*\/console/],
    [{ roles: [] }, /no role that gives rights here: let the identity provider give one of .* in the claim "roles"/],
    [{ audience: "https://other.example" }, /not one of the identity provider's for this audience/],
    [{ tokenEndpoint: "http://127.0.0.2:1/token" }, "give the members the setting oidc_token_origin: http://127.0.0.2:1"],
  ]) {
    provider.reset();
    Object.assign(provider.gives, gives);
    await signIn(page);
    await alert(page, text);
    assert.deepEqual(await stored(page), [0, 0, ""]);
    assert.equal(await page.getByRole("link", { name: "Overview" }).count(), 0);
  }
});

test("a role that may only read sees figures, and no operator's page", async (t) => {
  provider.gives.roles = ["peeklock.read"];
  const page = await open(t, `${m.members[0].server}/console`);
  await signIn(page);
  await page.getByRole("link", { name: "Queues and topics" }).waitFor();
  assert.equal(await page.getByRole("link", { name: "Cluster" }).count(), 0);
});

test("a token that expires leads to the sign-in again, and back to the same view", async (t) => {
  const page = await open(t, `${m.members[0].server}/console/overview?x=1`);
  for (const [expiresIn, text] of [
    [4, "Your sign-in has expired. Sign in again."],
    [3600, /ExpiredToken: .* Sign in again\./], // the page takes the token for valid, as with a clock that is late
  ]) {
    Object.assign(provider.gives, { seconds: 4, expiresIn });
    await signIn(page);
    await page.getByTitle("Signed in as ada@example.com").waitFor();
    await alert(page, text);
  }
  provider.reset();
  await signIn(page);
  await page.getByTitle("Signed in as ada@example.com").waitFor();
  assert.equal(page.url(), `${m.members[0].server}/console/overview?x=1`);
  await create(page, "after-expiry");
});

test("a refresh token renews the sign-in without a word", async (t) => {
  Object.assign(provider.gives, { seconds: 4, refresh: true });
  const page = await open(t, `${m.members[0].server}/console/overview`);
  await signIn(page);
  await page.getByTitle("Signed in as ada@example.com").waitFor();
  await until(() => assert.ok(provider.grants.filter((g) => g === "refresh_token").length >= 2, provider.grants.join()));
  await create(page, "renewed");
  assert.deepEqual(await stored(page), [0, 0, ""]);
  await button(page, "Sign out").click();
  await page.getByLabel("Name of the rule").waitFor();
});

test("a provider that does not answer is named, and a key still signs in", async (t) => {
  await provider.close();
  const page = await open(t, `${m.members[0].server}/console`);
  await signIn(page);
  await alert(page, `This page gets no answer from ${new URL(provider.url).host}`);
  await page.getByLabel("Name of the rule").fill("root");
  await page.getByLabel("Key", { exact: true }).fill(m.key);
  await button(page, "Sign in").click();
  await page.getByRole("link", { name: "Cluster" }).waitFor();
});
