import { useState } from "preact/hooks";
import { call, type Message, path, readOnly, session } from "./api";
import { load, plain, sendForms, typeName, types, valueOf } from "./message";
import { Failed, Field, Form, number, save, Select, Table } from "./ui";

/** Property is a value that is typed into a form. */
export interface Property {
  name: string;
  type: string; // as AMQP calls it
  value: string;
}

/** Outgoing is the JSON form of a message that is sent: without what the broker sets. */
type Outgoing = Partial<Omit<Message, "sequenceNumber" | "state" | "deliveryCount" | "bodyBytes">>;

let copied: Outgoing | undefined;

/** editAgain fills the form that is opened next. */
export function editAgain(message: Outgoing) {
  copied = message;
}

/** takeCopied returns the message to edit, once. */
function takeCopied(): Outgoing {
  const message = copied ?? {};
  copied = undefined;
  return message;
}

/** propertiesOf returns properties as they are typed. */
export const propertiesOf = (of: Record<string, unknown> = {}): Property[] => Object.entries(of).map(([name, v]) => ({ name, type: typeName(v), value: plain(v) }));

/** valuesOf returns typed properties as the API has them. */
export const valuesOf = (list: Property[]) => Object.fromEntries(list.filter((p) => p.name).map((p) => [p.name, valueOf(`Property ${p.name}`, p.type, p.value)]));

/** RuleTest says which subscriptions would get a message. */
interface RuleTest {
  subscriptions: { name: string; rules: string[]; copies: number }[];
  failed: { subscription: string; rule: string; error: string }[];
}

// The fields of a message that are texts.
const fields = [
  ["messageId", "Message id"],
  ["sessionId", "Session id"],
  ["correlationId", "Correlation id"],
  ["subject", "Subject (label)"],
  ["contentType", "Content type"],
  ["contentEncoding", "Content encoding"],
  ["to", "To"],
  ["replyTo", "Reply to"],
  ["replyToSessionId", "Reply to session id"],
] as const;

const partitionKey = "x-opt-partition-key";

type Kind = "body" | "bodyBase64" | "value" | "sequence" | "data";
const kinds: [Kind, string][] = [
  ["body", "text"],
  ["bodyBase64", "bytes, in base64"],
  ["value", "AMQP value, in JSON"],
  ["sequence", "AMQP sequence, in JSON"],
  ["data", "several sections, in JSON"],
];

/** bodyOf returns the kind of the body of a message, and the body as it is typed. */
function bodyOf(m: Outgoing): [Kind, string] {
  const kind = kinds.map(([k]) => k).find((k) => m[k] !== undefined) ?? "body";
  const value = m[kind] ?? "";
  return [kind, kind === "body" || kind === "bodyBase64" ? (value as string) : JSON.stringify(value)];
}

/** OtherHost says that messages are sent and received in the namespace of the host alone. */
export const OtherHost = () => (
  <p class="quiet">
    Messages are sent and received in the namespace of the host. Open the console at a host of the namespace {session.namespace} to send and receive here; browsing and all changes work here, too.
  </p>
);

/** Send sends a message, with the interface for messages over HTTP. */
export function Send({ name, sessions, topic, onSent }: { name: string; sessions: boolean; topic?: boolean; onSent: () => void }) {
  const [first, setFirst] = useState(takeCopied);
  const [key, setKey] = useState(0); // of the form: another message is another form
  const [error, setError] = useState<Error>();
  if (readOnly) {
    return <p class="quiet">This console is read-only.</p>;
  }
  if (session.namespace) {
    return <OtherHost />;
  }
  const open = async (file: File | undefined) => {
    setError(undefined);
    try {
      const [line = ""] = ((await file?.text()) ?? "").split("\n");
      setFirst(JSON.parse(line) as Outgoing);
      setKey(key + 1);
    } catch (e) {
      setError(new Error(`The file has no saved message: ${(e as Error).message}`));
    }
  };
  return (
    <>
      <FileField label="Open a saved message" onFile={open} />
      <Failed error={error} />
      <MessageForm key={key} first={first} name={name} sessions={sessions} topic={topic} onSent={onSent} />
      <Import name={name} onSent={onSent} />
    </>
  );
}

function FileField({ label, onFile }: { label: string; onFile: (file: File | undefined) => Promise<void> }) {
  return (
    <label class="field">
      <span>{label}</span>
      <input
        type="file"
        onChange={async (e) => {
          const input = e.currentTarget;
          await onFile(input.files?.[0]);
          input.value = "";
        }}
      />
    </label>
  );
}

/** Import sends all messages of a file that the page or `peeklock message dump` has written. */
function Import({ name, onSent }: { name: string; onSent: () => void }) {
  const [error, setError] = useState<Error>();
  const [done, setDone] = useState("");
  const send = async (file: File | undefined) => {
    setError(undefined);
    try {
      await load(name, (await file?.text()) ?? "", (sent) => setDone(`${number(sent)} messages were sent.`));
    } catch (e) {
      setError(e as Error);
    }
    onSent();
  };
  return (
    <section>
      <h2>Import</h2>
      <p class="quiet">Sends every message of a file that “Export” or peeklock message dump has written, in its order. Scheduled messages that are not due yet are scheduled again.</p>
      <FileField label="File to import" onFile={send} />
      {done && <p role="status">{done}</p>}
      <Failed error={error} />
    </section>
  );
}

/** Properties is the part of a form with typed properties. */
export function Properties({ list, onChange }: { list: Property[]; onChange: (list: Property[]) => void }) {
  const change = (i: number, part: Partial<Property>) => onChange(list.map((p, j) => (i === j ? { ...p, ...part } : p)));
  return (
    <>
      {list.map((p, i) => (
        <div class="row" key={i}>
          <Field label="Name" value={p.name} onValue={(v) => change(i, { name: v })} spellcheck={false} />
          <Select label="Type" value={p.type} onValue={(v) => change(i, { type: v })} options={types.includes(p.type) ? types : [...types, p.type]} />
          {p.type === "boolean" ? (
            <Select label="Value" value={p.value} onValue={(v) => change(i, { value: v })} options={["false", "true"]} />
          ) : (
            <Field label="Value" value={p.value} onValue={(v) => change(i, { value: v })} spellcheck={false} />
          )}
          <button type="button" aria-label={`Remove property ${p.name}`} onClick={() => onChange(list.filter((_, j) => j !== i))}>
            Remove
          </button>
        </div>
      ))}
      <p>
        <button type="button" onClick={() => onChange([...list, { name: "", type: "string", value: "" }])}>
          Add a property
        </button>
      </p>
    </>
  );
}

function MessageForm({ first, name, sessions, topic, onSent }: { first: Outgoing; name: string; sessions: boolean; topic?: boolean; onSent: () => void }) {
  const [[kind, body], setBody] = useState(() => bodyOf(first));
  const [texts, setTexts] = useState<Record<string, string>>(() => ({
    ...Object.fromEntries(fields.map(([id]) => [id, plain(first[id])])),
    [partitionKey]: plain(first.annotations?.[partitionKey]),
  }));
  const [seconds, setSeconds] = useState(first.ttlMilliseconds ? String(first.ttlMilliseconds / 1000) : "");
  const [priority, setPriority] = useState(plain(first.priority));
  const [durable, setDurable] = useState(plain(first.durable));
  const [due, setDue] = useState("");
  const [properties, setProperties] = useState(() => propertiesOf(first.properties));
  const [copies, setCopies] = useState("1");
  const [done, setDone] = useState("");
  const [test, setTest] = useState<RuleTest>();
  const [failed, setFailed] = useState<Error>();
  /** message returns the JSON form of what was typed. What has no field, and what was not changed, stays as it was copied. */
  const message = (): Outgoing => {
    const annotations = { ...first.annotations };
    delete annotations["x-opt-scheduled-enqueue-time"];
    const m: Record<string, unknown> = {
      deliveryAnnotations: first.deliveryAnnotations,
      footer: first.footer,
      userId: first.userId,
      groupSequence: first.groupSequence,
      [kind]: kind === "body" || kind === "bodyBase64" ? body : JSON.parse(body),
      properties: valuesOf(properties),
      ...(seconds && { ttlMilliseconds: Math.round(Number(seconds) * 1000) }),
      ...(priority && { priority: Number(priority) }),
      ...(durable && { durable: durable === "true" }),
    };
    for (const [id, text] of Object.entries(texts)) {
      const to = id === partitionKey ? annotations : m;
      const old = id === partitionKey ? first.annotations?.[id] : first[id as (typeof fields)[number][0]];
      if (text) {
        to[id] = plain(old) === text ? old : text;
      } else {
        delete to[id];
      }
    }
    return { ...m, annotations };
  };
  const tryRules = async () => {
    setFailed(undefined);
    setTest(undefined);
    try {
      setTest(await call<RuleTest>("POST", `/v1/rule-test/${path(name)}`, message()));
    } catch (e) {
      setFailed(e as Error);
    }
  };
  const send = async () => {
    setDone("");
    const m = message();
    const n = Math.max(1, Math.min(1000, Number(copies) || 1));
    const forms = Array.from({ length: n }, (_, i) => ({ ...m, ...(due && { scheduledFor: new Date(due).toISOString() }), ...(n > 1 && texts.messageId && { messageId: `${texts.messageId}-${i + 1}` }) }));
    await sendForms(name, forms.map((f) => JSON.stringify(f)));
    setDone(n === 1 ? "One message was sent." : `${n} messages were sent.`);
  };
  const keep = () => {
    setFailed(undefined);
    try {
      save(new Blob([`${JSON.stringify(message())}\n`]), "message.jsonl");
    } catch (e) {
      setFailed(e as Error);
    }
  };
  return (
    <Form label="Send" action={send} onDone={onSent}>
      <label class="field">
        <span>Body</span>
        <textarea rows={6} value={body} onInput={(e) => setBody([kind, e.currentTarget.value])} spellcheck={false} />
      </label>
      <div class="grid">
        <Select label="Sent as" value={kind} onValue={(v) => setBody([v as Kind, body])} options={kinds} />
        {fields.map(([id, label]) => (
          <Field key={id} label={label} value={texts[id] ?? ""} required={id === "sessionId" && sessions} onValue={(v) => setTexts({ ...texts, [id]: v })} spellcheck={false} />
        ))}
        <Field label="Partition key" value={texts[partitionKey] ?? ""} onValue={(v) => setTexts({ ...texts, [partitionKey]: v })} spellcheck={false} />
        <Field label="Time to live in seconds" type="number" min={0} step={0.001} value={seconds} onValue={setSeconds} />
        <Field label="Scheduled for (local time)" type="datetime-local" step={1} value={due} onValue={setDue} />
        <Field label="Priority" type="number" min={0} max={255} value={priority} onValue={setPriority} />
        <Select label="Durable" value={durable} onValue={setDurable} options={[["", "not set"], "true", "false"]} />
        <Field label="Copies" type="number" min={1} max={1000} value={copies} onValue={setCopies} hint="With a message id, each copy gets a number after it" />
      </div>
      <h2>Application properties</h2>
      <Properties list={properties} onChange={setProperties} />
      <p>
        <button type="button" onClick={keep}>
          Save the message
        </button>
      </p>
      {topic && (
        <p>
          <button type="button" onClick={tryRules}>
            Which subscriptions would get it?
          </button>
        </p>
      )}
      <Failed error={failed} />
      {test && (
        <Table
          name="Subscriptions that would get it"
          rows={test.subscriptions}
          id={(s) => s.name}
          empty={<p>No subscription would get this message.</p>}
          columns={[
            { title: "Subscription", value: (s) => s.name },
            { title: "By the rules", value: (s) => s.rules.join(", ") },
            { title: "Copies", value: (s) => s.copies, numeric: true },
          ]}
        />
      )}
      {test && test.failed.length > 0 && (
        <Table
          name="Rules that fail for it"
          rows={test.failed}
          id={(f) => `${f.subscription} ${f.rule}`}
          empty=""
          columns={[
            { title: "Subscription", value: (f) => f.subscription },
            { title: "Rule", value: (f) => f.rule },
            { title: "Failure", value: (f) => f.error },
          ]}
        />
      )}
      {done && <p role="status">{done}</p>}
    </Form>
  );
}
