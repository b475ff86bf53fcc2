import { useEffect, useState } from "preact/hooks";
import { path, readOnly, request, session } from "./api";
import { bodyBytesShown as bodyBytesMax, indented } from "./message";
import { OtherHost } from "./send";
import { Failed, save, time } from "./ui";

interface Received {
  system: Record<string, unknown>; // BrokerProperties
  properties: [string, string][];
  contentType: string;
  body: Blob;
  text: string;
  lock: string; // URL; "" if the message was deleted
}

// Headers of an answer that are no properties of the message.
const notProperties = new Set(["brokerproperties", "content-type", "content-length", "date", "location", "cache-control", "x-content-type-options", "server", "transfer-encoding", "connection", "strict-transport-security"]);

async function receive(name: string, method: "POST" | "DELETE"): Promise<Received | undefined> {
  const response = await request(method, `/${path(name)}/messages/head?timeout=1`);
  if (response.status === 204) {
    return undefined;
  }
  const body = await response.blob();
  const location = response.headers.get("Location");
  return {
    system: JSON.parse(response.headers.get("BrokerProperties") ?? "{}") as Record<string, unknown>,
    properties: [...response.headers].filter(([k]) => !notProperties.has(k)),
    contentType: response.headers.get("Content-Type") ?? "",
    body,
    text: await body.slice(0, bodyBytesMax).text(),
    lock: location ? new URL(location).pathname : "",
  };
}

/** Receive takes one message at a time, under a lock whose time is shown. */
export function Receive({ name, sessions, onChange }: { name: string; sessions: boolean; onChange: () => void }) {
  const [got, setGot] = useState<Received>();
  const [note, setNote] = useState("");
  const [error, setError] = useState<Error>();
  const [now, setNow] = useState(Date.now());
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), 1000);
    return () => clearInterval(timer);
  }, []);
  const run = (work: () => Promise<string>) => async () => {
    setError(undefined);
    setNote("");
    try {
      setNote(await work());
    } catch (e) {
      setError(e as Error);
    }
    onChange();
  };
  if (readOnly) {
    return null;
  }
  if (session.namespace) {
    return <OtherHost />;
  }
  if (sessions) {
    return <p class="quiet">Receivers of this entity accept a session first, which HTTP cannot: use an AMQP client or peeklock message receive.</p>;
  }
  const take = (from: string, method: "POST" | "DELETE") =>
    run(async () => {
      const message = await receive(from, method);
      setGot(message);
      return message ? (method === "DELETE" ? "The message was received and deleted." : "") : "No message is ready.";
    });
  const settle = (method: string, done: string) =>
    run(async () => {
      await request(method, got!.lock);
      setGot(undefined);
      return done;
    });
  const until = got?.system.LockedUntilUtc as string | undefined;
  const left = until ? Math.max(0, Math.round((Date.parse(until) - now) / 1000)) : 0;
  return (
    <section>
      <h2>Receive</h2>
      <p class="buttons">
        <button onClick={take(name, "POST")}>Receive a message under a lock</button>
        <button onClick={take(`${name}/$deadletterqueue`, "POST")}>Receive a dead letter under a lock</button>
      </p>
      {note && <p role="status">{note}</p>}
      <Failed error={error} />
      {got && (
        <article>
          <h3>Message {String(got.system.SequenceNumber ?? "")}</h3>
          {got.lock && (
            <p class="buttons">
              <span class={left ? "badge" : "badge bad"}>{left ? `locked for ${left} s` : "the lock has ended"}</span>
              <button class="main" onClick={settle("DELETE", "The message was completed.")}>
                Complete
              </button>
              <button onClick={settle("PUT", "The message was abandoned: it is ready again.")}>Abandon</button>
              <button
                onClick={run(async () => {
                  const response = await request("POST", got.lock);
                  const renewed = JSON.parse(response.headers.get("BrokerProperties") ?? "{}") as Record<string, unknown>;
                  setGot({ ...got, system: { ...got.system, ...(renewed.LockedUntilUtc ? { LockedUntilUtc: renewed.LockedUntilUtc } : {}) } });
                  return "The lock was renewed.";
                })}
              >
                Renew the lock
              </button>
            </p>
          )}
          <dl class="properties">
            {Object.entries(got.system).map(([k, v]) => (
              <div key={k}>
                <dt>{k}</dt>
                <dd>{/UTC$/i.test(k) ? time(String(v)) : String(v)}</dd>
              </div>
            ))}
            {got.properties.map(([k, v]) => (
              <div key={k}>
                <dt>{k}</dt>
                <dd>{v}</dd>
              </div>
            ))}
          </dl>
          <Body of={got} />
        </article>
      )}
    </section>
  );
}

function Body({ of }: { of: Received }) {
  const [text] = of.body.size <= bodyBytesMax ? indented(of.text) : [of.text];
  return (
    <>
      <pre tabIndex={0} aria-label="Body">
        {text}
      </pre>
      <p>
        {of.body.size > bodyBytesMax && `The first 64 KiB of ${of.body.size} bytes. `}
        <button onClick={() => save(of.body, `message-${String(of.system.SequenceNumber ?? "")}`)}>Download the body</button>
      </p>
    </>
  );
}
