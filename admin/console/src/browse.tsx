import { useState } from "preact/hooks";
import { call, type Message, type MessagePage, path, readOnly } from "./api";
import { type Action, Change, type Selection } from "./change";
import { go, urlOf } from "./route";
import { editAgain } from "./send";
import { bytes, Check, Failed, Field, number, save, Select, Table, time } from "./ui";

const pageMessages = 50;
const bodyBytesShown = 64 * 1024;
const bodyBytesMax = 4 << 20; // of one that is downloaded

/** Conditions of the query of GET /v1/messages, by the name of their parameter. */
type Conditions = Partial<Record<"subQueue" | "state" | "session" | "where" | "contains" | "path" | "reason", string>>;

const names: (keyof Conditions)[] = ["subQueue", "state", "session", "where", "contains", "path", "reason"];

function conditionsIn(query: URLSearchParams): Conditions {
  return Object.fromEntries(names.filter((n) => query.has(n)).map((n) => [n, query.get(n)!]));
}

/** plain returns a value of the JSON form of AMQP as text: {"int": 7} is 7. */
function plain(value: unknown): string {
  if (value !== null && typeof value === "object" && !Array.isArray(value)) {
    const [inner] = Object.values(value);
    return typeof inner === "object" ? JSON.stringify(inner) : String(inner);
  }
  return value === undefined ? "" : String(value);
}

/** typeName returns the AMQP type of such a value. */
function typeName(value: unknown): string {
  if (value === null) {
    return "null";
  }
  return typeof value === "object" && !Array.isArray(value) ? (Object.keys(value)[0] ?? "") : typeof value;
}

/** bodyOf returns the body as the bytes of a file. */
function bodyOf(m: Message): Blob {
  return new Blob([m.bodyBase64 === undefined ? bodyText(m) : Uint8Array.from(atob(m.bodyBase64), (c) => c.charCodeAt(0))]);
}

function bodyText(m: Message): string {
  if (m.body !== undefined) {
    return m.body;
  }
  if (m.bodyBase64 !== undefined) {
    return Array.from(atob(m.bodyBase64), (c) => c.charCodeAt(0).toString(16).padStart(2, "0")).join(" ");
  }
  return m.value !== undefined ? JSON.stringify(m.value) : m.sequence !== undefined ? JSON.stringify(m.sequence) : "";
}

function stateOf(m: Message): string {
  return m.locked ? `${m.state}, locked` : m.state;
}

/** Browse shows messages without locking them, page by page, filtered at the member. */
export function Browse({ name, kind, query, onChange }: { name: string; kind: "queues" | "subscriptions"; query: URLSearchParams; onChange: () => void }) {
  const [conditions, setConditions] = useState<Conditions>(() => conditionsIn(query));
  const [found, setFound] = useState<Message[]>();
  const [from, setFrom] = useState(0);
  const [end, setEnd] = useState(false);
  const [looked, setLooked] = useState(0);
  const [error, setError] = useState<Error>();
  const [chosen, setChosen] = useState<Set<number>>(new Set());
  const [open, setOpen] = useState<number>();
  const [change, setChange] = useState<{ action: Action; selection: Selection }>();
  const [done, setDone] = useState("");
  const dead = conditions.subQueue === "deadLetter";
  const set = (n: keyof Conditions) => (value: string) => setConditions({ ...conditions, [n]: value });
  const load = async (start: number, keep: Message[]) => {
    setError(undefined);
    const given = Object.fromEntries(names.filter((n) => conditions[n]).map((n) => [n, conditions[n]!]));
    go(urlOf(kind, name, { tab: "messages", ...given }), true);
    try {
      const page = await call<MessagePage>("GET", `/v1/messages/${path(name)}?${new URLSearchParams({ ...given, from: String(start), max: String(pageMessages), bodyBytes: String(bodyBytesShown) })}`);
      setFound([...keep, ...(page.messages ?? [])]);
      setFrom(page.next);
      setEnd(page.end);
      setLooked((start ? looked : 0) + page.looked);
    } catch (e) {
      setError(e as Error);
    }
  };
  const search = () => {
    setChosen(new Set());
    setOpen(undefined);
    setDone("");
    return load(0, []);
  };
  const reasons = new Map<string, number>();
  for (const m of found ?? []) {
    if (m.deadLetterReason) {
      reasons.set(m.deadLetterReason, (reasons.get(m.deadLetterReason) ?? 0) + 1);
    }
  }
  const has = (state: string) => found?.some((m) => chosen.has(m.sequenceNumber) && m.state === state);
  const ofChosen = (action: Action) => () => setChange({ action, selection: { subQueue: conditions.subQueue, sequences: [...chosen] } });
  const ofAll = (action: Action) => () => {
    const { state, ...others } = Object.fromEntries(names.filter((n) => conditions[n]).map((n) => [n, conditions[n]!]));
    setChange({ action, selection: { ...others, ...(state && { states: [state] }) } });
  };
  const shown = found?.find((m) => m.sequenceNumber === open);
  return (
    <section>
      <h2>Browse</h2>
      <form
        onSubmit={(e) => {
          e.preventDefault();
          void search();
        }}
      >
        <div class="grid">
          <Select
            label="From"
            value={conditions.subQueue ?? ""}
            onValue={(subQueue) => setConditions({ ...conditions, subQueue, reason: undefined })}
            options={[
              ["", "Messages"],
              ["deadLetter", "Dead letters"],
              ["transferDeadLetter", "Dead letters of forwarding"],
            ]}
          />
          <Select label="State" value={conditions.state ?? ""} onValue={set("state")} options={[["", "any"], "active", "locked", "deferred", "scheduled"]} />
          <Field label="Session" value={conditions.session ?? ""} onValue={set("session")} spellcheck={false} />
          <Field label="SQL filter" value={conditions.where ?? ""} onValue={set("where")} spellcheck={false} hint="For example: amount > 100" />
          <Field label="Text in the body" value={conditions.contains ?? ""} onValue={set("contains")} spellcheck={false} />
          <Field label="JSON path" value={conditions.path ?? ""} onValue={set("path")} spellcheck={false} hint="For example: $.customer.id=7" />
          {dead && <Field label="Reason" value={conditions.reason ?? ""} onValue={set("reason")} spellcheck={false} />}
        </div>
        <p class="buttons">
          <button type="submit" class="main">
            Browse
          </button>
        </p>
      </form>
      <Failed error={error} />
      {done && <p role="status">{done}</p>}
      {!readOnly && found && found.length > 0 && (
        <>
          <p class="buttons">
            {dead && (
              <button disabled={!chosen.size} onClick={ofChosen("redrive")}>
                Send {number(chosen.size)} again
              </button>
            )}
            {has("deferred") && <button onClick={ofChosen("undefer")}>Return those deferred of {number(chosen.size)}</button>}
            {has("scheduled") && <button onClick={ofChosen("cancel")}>Cancel those scheduled of {number(chosen.size)}</button>}
            <button class="danger" disabled={!chosen.size} onClick={ofChosen("delete")}>
              Delete {number(chosen.size)}
            </button>
          </p>
          <p class="buttons">
            <span class="quiet">All that meet the conditions:</span>
            {dead && <button onClick={ofAll("redrive")}>Send all again</button>}
            {!conditions.subQueue && <button onClick={ofAll("undefer")}>Return all deferred</button>}
            {!conditions.subQueue && <button onClick={ofAll("cancel")}>Cancel all scheduled</button>}
            <button class="danger" onClick={ofAll("delete")}>
              Delete all
            </button>
          </p>
        </>
      )}
      {reasons.size > 0 && (
        <ul class="reasons" aria-label="Reasons">
          {[...reasons].map(([reason, n]) => (
            <li key={reason}>
              <button
                onClick={() => {
                  setConditions({ ...conditions, reason });
                  setChosen(new Set(found?.filter((m) => m.deadLetterReason === reason).map((m) => m.sequenceNumber)));
                }}
              >
                {reason}: {number(n)}
              </button>
            </li>
          ))}
        </ul>
      )}
      {found && (
        <>
          <Table
            name="Messages"
            rows={found}
            id={(m) => m.sequenceNumber}
            empty={<p>{end ? "No message meets the conditions." : `None of ${number(looked)} messages meets the conditions so far.`}</p>}
            columns={[
              ...(!readOnly
                ? [
                    {
                      title: "Choose",
                      value: (m: Message) => (chosen.has(m.sequenceNumber) ? 1 : 0),
                      show: (m: Message) => (
                        <Check
                          label=""
                          name={`Choose message ${m.sequenceNumber}`}
                          value={chosen.has(m.sequenceNumber)}
                          onValue={(on) => {
                            const next = new Set(chosen);
                            if (on) {
                              next.add(m.sequenceNumber);
                            } else {
                              next.delete(m.sequenceNumber);
                            }
                            setChosen(next);
                          }}
                        />
                      ),
                    },
                  ]
                : []),
              { title: "Number", value: (m) => m.sequenceNumber, show: (m) => <button onClick={() => setOpen(m.sequenceNumber === open ? undefined : m.sequenceNumber)}>{m.sequenceNumber}</button> },
              { title: "State", value: stateOf },
              { title: "Message id", value: (m) => plain(m.messageId) },
              { title: "Subject", value: (m) => m.subject ?? "" },
              { title: "Session", value: (m) => m.sessionId ?? "" },
              { title: "Enqueued", value: (m) => m.enqueuedAt ?? "", show: (m) => time(m.enqueuedAt) || (m.scheduledFor && `due ${time(m.scheduledFor)}`) },
              { title: "Deliveries", value: (m) => m.deliveryCount, numeric: true },
              ...(dead ? [{ title: "Reason", value: (m: Message) => m.deadLetterReason ?? "" }] : []),
              { title: "Body", value: (m) => m.bodyBytes, show: (m) => <code>{bodyText(m).slice(0, 60)}</code> },
            ]}
          />
          {!end && (
            <p>
              {number(looked)} messages were compared. <button onClick={() => load(from, found)}>Go on</button>
            </p>
          )}
        </>
      )}
      {shown && <Detail message={shown} name={name} subQueue={conditions.subQueue ?? ""} editable={kind === "queues"} />}
      {change && (
        <Change
          {...change}
          name={name}
          onClose={() => setChange(undefined)}
          onDone={(count) => {
            setChange(undefined);
            onChange();
            void search().then(() => setDone(count === 1 ? "One message was changed." : `${number(count)} messages were changed.`));
          }}
        />
      )}
    </section>
  );
}

function Detail({ message: m, name, subQueue, editable }: { message: Message; name: string; subQueue: string; editable: boolean }) {
  const facts: [string, string][] = [
    ["State", stateOf(m)],
    ["Enqueued", time(m.enqueuedAt)],
    ["Due", time(m.scheduledFor)],
    ["Expires", time(m.expiresAt)],
    ["Locked until", time(m.lockedUntil)],
    ["Deliveries", String(m.deliveryCount)],
    ["Message id", plain(m.messageId)],
    ["Correlation id", plain(m.correlationId)],
    ["Subject", m.subject ?? ""],
    ["Session", m.sessionId ?? ""],
    ["Content type", m.contentType ?? ""],
    ["To", plain(m.to)],
    ["Reply to", plain(m.replyTo)],
    ["Dead-letter reason", m.deadLetterReason ?? ""],
    ["Description", m.deadLetterErrorDescription ?? ""],
    ["Dead-letter source", m.deadLetterSource ?? ""],
  ];
  const [note, setNote] = useState("");
  let text = bodyText(m);
  if (m.body !== undefined && !m.bodyCut) {
    try {
      text = JSON.stringify(JSON.parse(m.body), null, 2);
    } catch {
      // It is no JSON, and is shown as it is.
    }
  }
  return (
    <article>
      <h3>Message {m.sequenceNumber}</h3>
      <dl class="properties">
        {facts
          .filter(([, v]) => v)
          .map(([k, v]) => (
            <div key={k}>
              <dt>{k}</dt>
              <dd>{v}</dd>
            </div>
          ))}
      </dl>
      {m.properties && (
        <Table
          name="Application properties"
          rows={Object.entries(m.properties)}
          id={([k]) => k}
          empty=""
          columns={[
            { title: "Property", value: ([k]) => k },
            { title: "Type", value: ([, v]) => typeName(v) },
            { title: "Value", value: ([, v]) => plain(v) },
          ]}
        />
      )}
      <p class="quiet">
        Body of {bytes(m.bodyBytes)}
        {m.bodyCut && `, of which the first ${bytes(bodyBytesShown)} are shown`}
      </p>
      <pre tabIndex={0} aria-label="Body">
        {text}
      </pre>
      <p>
        <button
          onClick={async () => {
            const query = new URLSearchParams({ ...(subQueue && { subQueue }), sequence: String(m.sequenceNumber), max: "1", bodyBytes: String(bodyBytesMax) });
            try {
              const page = m.bodyCut ? await call<MessagePage>("GET", `/v1/messages/${path(name)}?${query}`) : { messages: [m] };
              const [whole] = page.messages ?? [];
              if (!whole) {
                throw new Error("The message is gone.");
              }
              save(bodyOf(whole), `message-${m.sequenceNumber}`);
              setNote(whole.bodyCut ? `The file has the first ${bytes(bodyBytesMax)}: receive the message with a client for the rest.` : "");
            } catch (e) {
              setNote((e as Error).message);
            }
          }}
        >
          Download the body
        </button>
      </p>
      {note && <p role="status">{note}</p>}
      {editable && !readOnly && m.body !== undefined && !m.bodyCut && (
        <p>
          <button
            onClick={() => {
              editAgain({
                body: m.body!,
                broker: {
                  MessageId: plain(m.messageId),
                  SessionId: m.sessionId ?? "",
                  CorrelationId: plain(m.correlationId),
                  Label: m.subject ?? "",
                  ContentType: m.contentType ?? "",
                  To: plain(m.to),
                  ReplyTo: plain(m.replyTo),
                  ReplyToSessionId: m.replyToSessionId ?? "",
                },
                properties: Object.entries(m.properties ?? {}).map(([k, v]) => {
                  const type = typeof v === "boolean" ? "boolean" : typeof v === "string" ? "text" : "number";
                  return { name: k, type, value: plain(v) };
                }),
              });
              go(urlOf("queues", name, { tab: "send" }));
            }}
          >
            Edit a copy and send it
          </button>
        </p>
      )}
    </article>
  );
}
