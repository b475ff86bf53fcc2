// The JSON form of messages, as the API shows and accepts it (package amqp/jsonmessage).
import { call, type Message, type MessagePage, path, Refusal, request } from "./api";

/** bodyBytesShown is how much of a body the page loads; the rest can be downloaded. */
export const bodyBytesShown = 64 * 1024;
/** bodyBytesMax is the most of a body that the API shows. */
export const bodyBytesMax = 4 << 20;

const formType = "application/vnd.peeklock.messages+json";

/** plain returns a value as text: {"int": 7} is 7. */
export function plain(value: unknown): string {
  if (value !== null && typeof value === "object" && !Array.isArray(value)) {
    const [inner] = Object.values(value);
    return typeof inner === "object" ? JSON.stringify(inner) : String(inner);
  }
  return value === undefined ? "" : String(value);
}

/** typeName returns the AMQP type of a value. */
export function typeName(value: unknown): string {
  if (value === null) {
    return "null";
  }
  return typeof value === "object" && !Array.isArray(value) ? (Object.keys(value)[0] ?? "") : typeof value;
}

/** types are those that can be typed into a form. Others of a copied message stay as they are. */
export const types = ["string", "boolean", "int", "long", "double", "uint", "ulong", "short", "byte", "float", "timestamp", "uuid", "symbol", "binary", "null"];

const isInteger = /^-?\d+$/;

/** valueOf returns the value of a type that was typed as text; it throws an Error for what is none. */
export function valueOf(name: string, type: string, text: string): unknown {
  switch (type) {
    case "string":
      return text;
    case "boolean":
      return text === "true";
    case "null":
      return null;
    case "double":
    case "float":
      if (!text.trim() || !Number.isFinite(Number(text))) {
        throw new Error(`${name}: ${text} is not a number.`);
      }
      return { [type]: Number(text) };
    case "timestamp":
    case "uuid":
    case "symbol":
    case "binary":
      return { [type]: text };
  }
  if (types.includes(type)) {
    if (!isInteger.test(text.trim())) {
      throw new Error(`${name}: ${text} is not a whole number.`);
    }
    const n = Number(text);
    return { [type]: Number.isSafeInteger(n) ? n : text.trim() };
  }
  return { [type]: JSON.parse(text) as unknown };
}

/** bodyText returns the body of a message as it is shown. */
export function bodyText(m: Message): string {
  if (m.body !== undefined) {
    return m.body;
  }
  if (m.bodyBase64 !== undefined) {
    return Array.from(atob(m.bodyBase64), (c) => c.charCodeAt(0).toString(16).padStart(2, "0")).join(" ");
  }
  return m.value !== undefined ? JSON.stringify(m.value) : m.sequence !== undefined ? JSON.stringify(m.sequence) : "";
}

/** bodyFile returns the body as the bytes of a file. */
export function bodyFile(m: Message): Blob {
  return new Blob([m.bodyBase64 === undefined ? bodyText(m) : Uint8Array.from(atob(m.bodyBase64), (c) => c.charCodeAt(0))]);
}

/** indented returns a body that is JSON or XML with a line for each part, and the name of what it is. */
export function indented(text: string): [string, string] {
  const start = text.trimStart()[0];
  try {
    if (start === "{" || start === "[") {
      return [JSON.stringify(JSON.parse(text), null, 2), "JSON"];
    }
    if (start === "<") {
      return [indentedXML(text), "XML"];
    }
  } catch {
    // It is shown as it is.
  }
  return [text, "text"];
}

/** indentedXML puts elements that have no text of their own on lines of their own. It throws an Error for what is no XML. */
function indentedXML(text: string): string {
  const parsed = new DOMParser().parseFromString(text, "application/xml"); // runs and loads nothing
  if (parsed.querySelector("parsererror")) {
    throw new Error("no XML");
  }
  const write = new XMLSerializer();
  const lines = (e: Element, indent: string): string => {
    const children = [...e.childNodes];
    if (!e.children.length || children.some((c) => c.nodeType === Node.TEXT_NODE && c.textContent?.trim())) {
      return `${indent}${write.serializeToString(e)}`;
    }
    const shell = write.serializeToString(e.cloneNode(false)).replace(/\/>$/, `></${e.nodeName}>`);
    const end = shell.lastIndexOf("</");
    const inner = children.filter((c) => c.nodeType !== Node.TEXT_NODE).map((c) => (c instanceof Element ? lines(c, `${indent}  `) : `${indent}  ${write.serializeToString(c)}`));
    return [`${indent}${shell.slice(0, end)}`, ...inner, `${indent}${shell.slice(end)}`].join("\n");
  };
  return lines(parsed.documentElement, "");
}

/** sendForms sends messages in their JSON form, each a text. They are stored all together or not at all. */
export async function sendForms(name: string, forms: string[]) {
  await request("POST", `/${path(name)}/messages`, { "Content-Type": formType }, `[${forms.join(",")}]`);
}

/** wholeMessage loads a message with all of its body that the API shows. */
export async function wholeMessage(name: string, subQueue: string, sequence: number): Promise<Message> {
  const query = new URLSearchParams({ ...(subQueue && { subQueue }), sequence: String(sequence), max: "1", bodyBytes: String(bodyBytesMax) });
  const [whole] = (await call<MessagePage>("GET", `/v1/messages/${path(name)}?${query}`)).messages ?? [];
  if (!whole) {
    throw new Error("The message is gone.");
  }
  return whole;
}

// Limits of batches that are sent from a file, as of `peeklock message load`.
const batchMessages = 100;
const batchBytes = 128 * 1024;

/** load sends the lines of a dump in batches, in their order, and reports how many were sent. Messages of a batch have one session and partition key. */
export async function load(name: string, text: string, report: (sent: number) => void) {
  const lines = text.split("\n").filter((l) => l.trim());
  const keys = lines.map((line, i) => {
    try {
      const m = JSON.parse(line) as Message;
      if (m.bodyCut) {
        throw new Error("its body was cut");
      }
      return JSON.stringify([m.sessionId, m.annotations?.["x-opt-partition-key"]]);
    } catch (e) {
      throw new Error(`Line ${i + 1} is no message of a dump: ${(e as Error).message}`);
    }
  });
  for (let from = 0; from < lines.length; ) {
    let to = from;
    for (let size = 0; to < lines.length && to - from < batchMessages && keys[to] === keys[from] && (to === from || size + lines[to]!.length <= batchBytes); to++) {
      size += lines[to]!.length;
    }
    try {
      await sendForms(name, lines.slice(from, to));
    } catch (e) {
      const isUnknown = e instanceof Refusal && [0, 500, 504].includes(e.status);
      throw new Error(`${from} of ${lines.length} messages were sent; lines ${from + 1} to ${to} ${isUnknown ? "may or may not have been sent" : "were refused"}: ${(e as Error).message}`);
    }
    report((from = to));
  }
}
