// Writes the results in JUnit's format, into PEEKLOCK_REPORT. Node's own reporter for that
// writes behind its back, and loses the end when node is told not to wait for open sockets.

import { writeFileSync } from "node:fs";

/** A text as the value of an attribute. */
const escaped = (text) => text.replaceAll(/[<>&"']/g, (c) => `&#${c.charCodeAt(0)};`);

export default async function* report(events) {
  const cases = [];
  for await (const { type, data } of events) {
    if ((type !== "test:pass" && type !== "test:fail") || data.details?.type === "suite") {
      continue;
    }
    const inside = type === "test:fail" ? "<failure/>" : data.skip === undefined && data.todo === undefined ? "" : "<skipped/>";
    cases.push(`<testcase name="${escaped(data.name)}">${inside}</testcase>`);
    writeFileSync(process.env.PEEKLOCK_REPORT, `<testsuite>\n${cases.join("\n")}\n</testsuite>\n`);
  }
  yield "";
}
