// Starts `peeklock dev` and a headless Chromium, and runs commands against the members.
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

export async function browser() {
  return chromium.launch({ executablePath: chromiumPath, args: flags });
}

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

/** freePort returns a port that nothing listens on. */
export async function freePort() {
  const listener = createServer().listen(0, "127.0.0.1");
  await new Promise((resolve) => listener.on("listening", resolve));
  const { port } = listener.address();
  await new Promise((resolve) => listener.close(resolve));
  return port;
}
