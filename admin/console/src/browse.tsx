import { useEffect, useState } from "preact/hooks";
import { call, type Message, type MessagePage, path, readOnly } from "./api";
import { type Action, Change, type Selection } from "./change";
import { HowToConnect } from "./connect";
import { go, urlOf } from "./route";
import { bodyBytesMax, bodyBytesShown, bodyFile, bodyText, indented, plain, typeName, wholeMessage } from "./message";
import { editAgain, Properties, propertiesOf, valuesOf } from "./send";
import { bytes, Check, Dialog, Failed, Field, Form, number, save, Select, Table, time } from "./ui";

const pageMessages = 50;
const exportBytesMax = 256 << 20; // the page holds an export in memory

/** Conditions of the query of GET /v1/messages, by the name of their parameter. */
type Conditions = Partial<Record<"subQueue" | "state" | "session" | "where" | "contains" | "path" | "reason", string>>;

const names: (keyof Conditions)[] = ["subQueue", "state", "session", "where", "contains", "path", "reason"];

function conditionsIn(query: URLSearchParams): Conditions {
  return Object.fromEntries(names.filter((n) => query.has(n)).map((n) => [n, query.get(n)!]));
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
  const [open, setOpen] = useState<number | undefined>(() => Number(query.get("message")) || undefined);
  const [exporting, setExporting] = useState("");
  const [change, setChange] = useState<{ action: Action; selection: Selection }>();
  const [done, setDone] = useState("");
  const dead = conditions.subQueue === "deadLetter";
  const set = (n: keyof Conditions) => (value: string) => setConditions({ ...conditions, [n]: value });
  const given = Object.fromEntries(names.filter((n) => conditions[n]).map((n) => [n, conditions[n]!]));
  const load = async (start: number, keep: Message[], shown?: number) => {
    setError(undefined);
    go(urlOf(kind, name, { tab: "messages", ...given, ...(shown !== undefined && { message: String(shown) }) }), true);
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
  /** toggle opens a message, or closes the one that is open. */
  const toggle = (n: number) => {
    const next = n === open ? undefined : n;
    setOpen(next);
    go(urlOf(kind, name, { tab: "messages", ...given, ...(next !== undefined && { message: String(next) }) }), true);
  };
  /** dump downloads all messages that meet the conditions, as `peeklock message dump` writes them. */
  const dump = async () => {
    setError(undefined);
    setDone("");
    const lines: string[] = [];
    try {
      for (let next = 0, all = false, size = 0; !all; ) {
        const page = await call<MessagePage>("GET", `/v1/messages/${path(name)}?${new URLSearchParams({ ...given, from: String(next), max: String(pageMessages), bodyBytes: String(bodyBytesMax) })}`);
        for (const m of page.messages ?? []) {
          if (m.bodyCut) {
            throw new Error(`Message ${m.sequenceNumber} has a body of ${bytes(m.bodyBytes)}, and an export holds up to ${bytes(bodyBytesMax)} of each: receive it with a client.`);
          }
          lines.push(JSON.stringify(m));
          size += lines.at(-1)!.length;
        }
        if (size > exportBytesMax) {
          throw new Error(`The export is larger than ${bytes(exportBytesMax)}: use peeklock message dump.`);
        }
        ({ next, end: all } = page);
        setExporting(`${number(lines.length)} messages so far…`);
      }
      save(new Blob(lines.map((l) => `${l}\n`)), `${name.replaceAll("/", "-")}.jsonl`);
      setDone(`${number(lines.length)} messages were exported.`);
    } catch (e) {
      setError(e as Error);
    }
    setExporting("");
  };
  useEffect(() => {
    if (query.has("message") || names.some((n) => query.has(n))) {
      void load(0, [], open); // the URL of a view that was shared
    }
  }, []);
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
    const { state, ...others } = given;
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
          <button type="button" disabled={!!exporting} onClick={dump}>
            Export
          </button>
          {exporting && <span role="status">{exporting}</span>}
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
            empty={
              !looked && end && !conditions.subQueue ? (
                <HowToConnect to={name.split(/\/Subscriptions\//i)[0]} text={kind === "queues" ? "The queue has no messages. Send one:" : "The subscription has no messages. Send one to its topic:"} />
              ) : (
                <p>{end ? "No message meets the conditions." : `None of ${number(looked)} messages meets the conditions so far.`}</p>
              )
            }
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
              { title: "Number", value: (m) => m.sequenceNumber, show: (m) => <button aria-expanded={m.sequenceNumber === open} onClick={() => toggle(m.sequenceNumber)}>{m.sequenceNumber}</button> },
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
      {shown && <Detail
          message={shown}
          name={name}
          subQueue={conditions.subQueue ?? ""}
          onSentAgain={() => {
            onChange();
            void search().then(() => setDone("One message was sent again, and its dead letter deleted."));
          }}
        />}
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

/** Row is a value of a section of a message. */
interface Row {
  section: string;
  name: string;
  value: unknown;
}

const typed = ["messageId", "correlationId", "to", "replyTo"] as const;

/** rowsOf returns the sections of a message, with the AMQP type of each value. */
function rowsOf(m: Message): Row[] {
  const section = (title: string, of: Record<string, unknown> = {}) => Object.entries(of).map(([name, value]) => ({ section: title, name, value }));
  return [
    ...section("application", m.properties),
    ...typed.filter((n) => m[n] !== undefined).map((name) => ({ section: "system", name, value: m[name] })),
    ...section("annotation", m.annotations),
    ...section("delivery annotation", m.deliveryAnnotations),
    ...section("footer", m.footer),
  ];
}

function Detail({ message: m, name, subQueue, onSentAgain }: { message: Message; name: string; subQueue: string; onSentAgain: () => void }) {
  const facts: [string, string][] = [
    ["State", stateOf(m)],
    ["Enqueued", time(m.enqueuedAt)],
    ["Due", time(m.scheduledFor)],
    ["Expires", time(m.expiresAt)],
    ["Locked until", time(m.lockedUntil)],
    ["Held by connection", m.holder ?? ""],
    ["Deliveries", String(m.deliveryCount)],
    ["Subject", m.subject ?? ""],
    ["Session", m.sessionId ?? ""],
    ["Reply to session", m.replyToSessionId ?? ""],
    ["Content type", m.contentType ?? ""],
    ["Content encoding", m.contentEncoding ?? ""],
    ["Time to live", m.ttlMilliseconds === undefined ? "" : `${number(m.ttlMilliseconds / 1000)} s`],
    ["Priority", plain(m.priority)],
    ["Durable", plain(m.durable)],
    ["Dead-letter reason", m.deadLetterReason ?? ""],
    ["Description", m.deadLetterErrorDescription ?? ""],
    ["Dead-letter source", m.deadLetterSource ?? ""],
  ];
  const [note, setNote] = useState("");
  const [editing, setEditing] = useState(false);
  const [text, kind] = m.bodyCut ? [bodyText(m), "text"] : m.body === undefined ? [bodyText(m), m.bodyBase64 === undefined ? "AMQP value" : "bytes"] : indented(m.body);
  const rows = rowsOf(m);
  const [topic] = name.split(/\/Subscriptions\//i);
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
      {rows.length > 0 && (
        <Table
          name="Properties"
          rows={rows}
          id={(r) => `${r.section}/${r.name}`}
          empty=""
          columns={[
            { title: "Property", value: (r) => r.name },
            { title: "AMQP type", value: (r) => typeName(r.value) },
            { title: "Value", value: (r) => plain(r.value) },
            { title: "Section", value: (r) => r.section },
          ]}
        />
      )}
      <p class="quiet">
        Body of {bytes(m.bodyBytes)}, {kind}
        {m.bodyCut && `, of which the first ${bytes(bodyBytesShown)} are shown`}
      </p>
      <pre tabIndex={0} aria-label="Body">
        {text}
      </pre>
      <p class="buttons">
        <button
          onClick={async () => {
            try {
              const whole = m.bodyCut ? await wholeMessage(name, subQueue, m.sequenceNumber) : m;
              save(bodyFile(whole), `message-${m.sequenceNumber}`);
              setNote(whole.bodyCut ? `The file has the first ${bytes(bodyBytesMax)}: receive the message with a client for the rest.` : "");
            } catch (e) {
              setNote((e as Error).message);
            }
          }}
        >
          Download the body
        </button>
        {!readOnly && !m.bodyCut && (
          <button
            onClick={() => {
              const { DeadLetterReason: _reason, DeadLetterErrorDescription: _description, ...properties } = m.properties ?? {};
              editAgain({ ...m, properties });
              go(urlOf(topic === name ? "queues" : "topics", topic, { tab: "send" }));
            }}
          >
            Edit a copy and send it{topic !== name && " to the topic"}
          </button>
        )}
        {!readOnly && subQueue && !m.bodyCut && <button onClick={() => setEditing(true)}>Edit and send again</button>}
      </p>
      {note && <p role="status">{note}</p>}
      {editing && (
        <SendAgain
          message={m}
          name={name}
          subQueue={subQueue}
          topic={topic === name ? "" : topic!}
          onClose={() => setEditing(false)}
          onDone={() => {
            setEditing(false);
            onSentAgain();
          }}
        />
      )}
    </article>
  );
}

/** SendAgain sends a dead letter changed and deletes it, both or neither. */
function SendAgain({ message: m, name, subQueue, topic, onClose, onDone }: { message: Message; name: string; subQueue: string; topic: string; onClose: () => void; onDone: () => void }) {
  const { DeadLetterReason: _reason, DeadLetterErrorDescription: _description, ...old } = m.properties ?? {};
  const [body, setBody] = useState(m.body);
  const [properties, setProperties] = useState(() => propertiesOf(old));
  const [newId, setNewId] = useState(false);
  const [to, setTo] = useState("");
  const send = async () => {
    const set = valuesOf(properties);
    await call("POST", `/v1/redrive/${path(name)}`, {
      subQueue,
      sequences: [m.sequenceNumber],
      set,
      remove: Object.keys(old).filter((n) => !(n in set)),
      newId,
      ...(body !== m.body && { body }),
      ...(to && { to }),
    });
  };
  return (
    <Dialog title={`Edit dead letter ${m.sequenceNumber} and send it again`} onClose={onClose}>
      <Form label="Send again" action={send} onCancel={onClose} onDone={onDone}>
        <p>The changed message is sent, and the dead letter is deleted: both or neither.</p>
        {body === undefined ? (
          <p class="quiet">Its body is not text and stays as it is.</p>
        ) : (
          <label class="field">
            <span>Body</span>
            <textarea rows={6} value={body} onInput={(e) => setBody(e.currentTarget.value)} spellcheck={false} />
          </label>
        )}
        <Properties list={properties} onChange={setProperties} />
        <Check label="A new message id, instead of the same" value={newId} onValue={setNewId} />
        <Field label="To" value={to} onValue={setTo} hint={topic ? `Empty: to this subscription alone, whatever its rules say. The topic ${topic} sends it to all its subscriptions` : "Empty: to this queue"} spellcheck={false} />
      </Form>
    </Dialog>
  );
}
