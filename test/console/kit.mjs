// Starts `peeklock dev` and a headless Chromium, and runs commands against the members.
import assert from "node:assert/strict";
import { execFile, spawn } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { chromium } from "playwright-core";

const run = promisify(execFile);
const binary = process.env.PEEKLOCK;
const chromiumPath = process.env.PEEKLOCK_CHROMIUM ?? "/usr/bin/chromium";

// Without these, Chromium asks hosts of its maker for updates.
const flags = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"];

/** members starts `peeklock dev` with the given flags and resolves when it is ready. */
export async function members(...args) {
  const dir = mkdtempSync(join(tmpdir(), "peeklock-console-"));
  const child = spawn(binary, ["dev", "--dir", dir, "--amqp-port", "0", "--admin-port", "0", "-o", "json", ...args], { stdio: ["ignore", "pipe", "inherit"] });
  let text = "";
  const ready = await new Promise((resolve, reject) => {
    child.on("exit", (code) => reject(new Error(`peeklock dev ended with code ${code}: ${text}`)));
    child.stdout.on("data", (part) => {
      text += part;
      try {
        resolve(JSON.parse(text));
      } catch {
        // The rest follows.
      }
    });
  });
  const server = ready.members[0].admin;
  return {
    ...ready,
    server,
    /** cli runs a command against the first member and returns its JSON. */
    async cli(...command) {
      const { stdout } = await run(binary, [...command, "--server", server, "-o", "json"]);
      return stdout.trim() ? JSON.parse(stdout) : undefined;
    },
    async stop() {
      child.removeAllListeners("exit");
      const ended = new Promise((resolve) => child.on("exit", resolve));
      child.kill("SIGTERM");
      await ended;
      rmSync(dir, { recursive: true, force: true });
    },
  };
}

/** processes starts three members with the given flags, each a process that kill ends at once, and resolves when all are ready. The first is the server. */
export async function processes(...args) {
  const dir = mkdtempSync(join(tmpdir(), "peeklock-console-"));
  const key = "console-test-key";
  const started = [];
  for (let i = 0; i < 3; i++) {
    const ports = [];
    for (let p = 0; p < 4; p++) {
      ports.push(`127.0.0.1:${await freePort()}`);
    }
    started.push({ name: `m${i}`, amqp: ports[0], admin: ports[1], peer: ports[2], gossip: ports[3] });
  }
  for (const [i, m] of started.entries()) {
    const join_ = started.filter((other) => other !== m).flatMap((other) => ["--join", other.gossip]);
    m.child = spawn(
      binary,
      ["serve", "--name", m.name, "--dir", join(dir, m.name), "--amqp", m.amqp, "--admin", m.admin, "--peer", m.peer, "--gossip", m.gossip, "--control-socket", join(dir, `${i}.sock`), "--expect", "3", "--partitions", "3", "--key-name", "root", "--key", key, "--log-level", "error", ...join_, ...args],
      { stdio: ["ignore", "ignore", "inherit"], env: Object.fromEntries(Object.entries(process.env).filter(([k]) => !k.startsWith("PEEKLOCK_"))) }, // the variables of test runs are no settings
    );
    m.server = `http://${m.admin}`;
  }
  for (const m of started) {
    await until(async () => assert.equal((await fetch(`${m.server}/readyz`)).status, 200), 60_000);
  }
  const kill = async (m) => {
    const ended = new Promise((resolve) => m.child.on("exit", resolve));
    m.child.kill("SIGKILL");
    await ended;
  };
  return {
    key,
    members: started,
    /** cli runs a command against the first member and returns its JSON. */
    async cli(...command) {
      const { stdout } = await run(binary, [...command, "--server", started[0].server, "--key-name", "root", "-o", "json"], { env: { ...process.env, PEEKLOCK_KEY: key } });
      return stdout.trim() ? JSON.parse(stdout) : undefined;
    },
    kill,
    async stop() {
      await Promise.all(started.filter((m) => m.child.exitCode === null && m.child.signalCode === null).map(kill));
      rmSync(dir, { recursive: true, force: true });
    },
  };
}

export async function browser() {
  return chromium.launch({ executablePath: chromiumPath, args: flags });
}

/** open opens a page of the console; an error in the page fails the test. */
export async function open(chromium, t, url, options = {}) {
  const context = await chromium.newContext({ viewport: { width: 1280, height: 900 }, ...options });
  const page = await context.newPage();
  const errors = [];
  page.on("pageerror", (e) => errors.push(e.message));
  page.on("console", (m) => m.type() === "error" && /Content Security Policy/.test(m.text()) && errors.push(m.text()));
  t.after(async () => {
    await context.close();
    assert.deepEqual(errors, [], "errors in the page");
  });
  page.setDefaultTimeout(15_000);
  await page.goto(url);
  return page;
}

export const button = (page, name) => page.getByRole("button", { name, exact: true });

/** until repeats a check until it passes, or fails with its last error. */
export async function until(check, within = 15_000) {
  const end = Date.now() + within;
  for (;;) {
    try {
      return await check();
    } catch (error) {
      if (Date.now() > end) {
        throw error;
      }
      await new Promise((resolve) => setTimeout(resolve, 100));
    }
  }
}

/** freePort returns a port that nothing listens on, below those that systems give to programs which ask for any port. */
export async function freePort() {
  for (;;) {
    const port = 12_000 + Math.floor(Math.random() * 18_000);
    const listener = createServer();
    const isFree = await new Promise((resolve) => listener.once("error", () => resolve(false)).listen(port, "127.0.0.1", () => resolve(true)));
    await new Promise((resolve) => listener.close(resolve));
    if (isFree) {
      return port;
    }
  }
}

/** dialog finds the open dialog of a page. */
export const dialog = (page) => page.getByRole("dialog");

/** signIn signs in with a key of an access rule. */
export const signIn = async (page, name, key) => {
  await page.getByLabel("Name of the rule").fill(name);
  await page.getByLabel("Key", { exact: true }).fill(key);
  await button(page, "Sign in").click();
};

/** visit opens a view without loading the page again, which would forget the key. */
export const visit = (page, path) =>
  page.evaluate((to) => {
    history.pushState(null, "", `/console${to}`);
    window.dispatchEvent(new Event("peeklock-navigate"));
  }, path);
