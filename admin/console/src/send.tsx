import { useState } from "preact/hooks";
import { call, path, readOnly, request } from "./api";
import { Failed, Field, Form, Select, Table } from "./ui";

const batchType = "application/vnd.microsoft.servicebus.json";

export interface Property {
  name: string;
  type: "text" | "number" | "boolean";
  value: string;
}

/** Copied is a message that was copied into the form. */
interface Copied {
  body: string;
  broker: Record<string, string>;
  properties: Property[];
}

let copied: Copied | undefined;

/** editAgain fills the form that is opened next. */
export function editAgain(message: Copied) {
  copied = message;
}

/** takeCopied returns the message to edit, once. */
function takeCopied(): Copied {
  const message = copied ?? { body: "", broker: {}, properties: [] };
  copied = undefined;
  return message;
}

/** RuleTest says which subscriptions would get a message. */
interface RuleTest {
  subscriptions: { name: string; rules: string[]; copies: number }[];
  failed: { subscription: string; rule: string; error: string }[];
}

// The name of a field in BrokerProperties, its label, and its name in the JSON form of messages.
const fields = [
  ["MessageId", "Message id", "messageId"],
  ["SessionId", "Session id", "sessionId"],
  ["CorrelationId", "Correlation id", "correlationId"],
  ["Label", "Subject (label)", "subject"],
  ["ContentType", "Content type", "contentType"],
  ["To", "To", "to"],
  ["ReplyTo", "Reply to", "replyTo"],
  ["ReplyToSessionId", "Reply to session id", "replyToSessionId"],
  ["PartitionKey", "Partition key", ""],
] as const;

function valueOf(p: Property): unknown {
  switch (p.type) {
    case "number": {
      const n = Number(p.value);
      if (!p.value.trim() || !Number.isFinite(n)) {
        throw new Error(`Property ${p.name}: ${p.value} is not a number.`);
      }
      return n;
    }
    case "boolean":
      return p.value === "true";
    default:
      return p.value;
  }
}

/** Send sends a message, with the interface for messages over HTTP. */
export function Send({ name, sessions, topic, onSent }: { name: string; sessions: boolean; topic?: boolean; onSent: () => void }) {
  const [first] = useState(takeCopied);
  const [body, setBody] = useState(first.body);
  const [broker, setBroker] = useState(first.broker);
  const [seconds, setSeconds] = useState("");
  const [due, setDue] = useState("");
  const [properties, setProperties] = useState(first.properties);
  const [copies, setCopies] = useState("1");
  const [done, setDone] = useState("");
  const [test, setTest] = useState<RuleTest>();
  const [failed, setFailed] = useState<Error>();
  if (readOnly) {
    return <p class="quiet">This console is read-only.</p>;
  }
  const userProperties = () => Object.fromEntries(properties.filter((p) => p.name).map((p) => [p.name, valueOf(p)]));
  const tryRules = async () => {
    setFailed(undefined);
    setTest(undefined);
    try {
      const system = fields.filter(([id, , key]) => key && broker[id]).map(([id, , key]) => [key, broker[id]]);
      const typed = Object.entries(userProperties()).map(([k, v]) => [k, typeof v !== "number" ? v : Number.isInteger(v) ? { long: v } : { double: v }]);
      setTest(await call<RuleTest>("POST", `/v1/rule-test/${path(name)}`, { ...Object.fromEntries(system), body, properties: Object.fromEntries(typed) }));
    } catch (e) {
      setFailed(e as Error);
    }
  };
  const send = async () => {
    setDone("");
    const system: Record<string, unknown> = Object.fromEntries(Object.entries(broker).filter(([, v]) => v !== ""));
    if (seconds) {
      system.TimeToLive = Number(seconds);
    }
    if (due) {
      system.ScheduledEnqueueTimeUtc = new Date(due).toUTCString();
    }
    const message = { Body: body, BrokerProperties: system, UserProperties: userProperties() };
    const n = Math.max(1, Math.min(1000, Number(copies) || 1));
    const list = Array.from({ length: n }, (_, i) => (n > 1 && system.MessageId ? { ...message, BrokerProperties: { ...system, MessageId: `${String(system.MessageId)}-${i + 1}` } } : message));
    await request("POST", `/${path(name)}/messages`, { "Content-Type": batchType }, JSON.stringify(list));
    setDone(n === 1 ? "One message was sent." : `${n} messages were sent.`);
  };
  const change = (i: number, part: Partial<Property>) => setProperties(properties.map((p, j) => (i === j ? { ...p, ...part } : p)));
  return (
    <Form label="Send" action={send} onDone={onSent}>
      <label class="field">
        <span>Body</span>
        <textarea rows={6} value={body} onInput={(e) => setBody(e.currentTarget.value)} spellcheck={false} />
      </label>
      <div class="grid">
        {fields.map(([id, label]) => (
          <Field key={id} label={label} value={broker[id] ?? ""} required={id === "SessionId" && sessions} onValue={(v) => setBroker({ ...broker, [id]: v })} spellcheck={false} />
        ))}
        <Field label="Time to live in seconds" type="number" min={1} value={seconds} onValue={setSeconds} />
        <Field label="Scheduled for (local time)" type="datetime-local" step={1} value={due} onValue={setDue} />
        <Field label="Copies" type="number" min={1} max={1000} value={copies} onValue={setCopies} hint="With a message id, each copy gets a number after it" />
      </div>
      <h2>Application properties</h2>
      {properties.map((p, i) => (
        <div class="row" key={i}>
          <Field label="Name" value={p.name} onValue={(v) => change(i, { name: v })} spellcheck={false} />
          <Select label="Type" value={p.type} onValue={(v) => change(i, { type: v as Property["type"] })} options={["text", "number", "boolean"]} />
          {p.type === "boolean" ? (
            <Select label="Value" value={p.value} onValue={(v) => change(i, { value: v })} options={["false", "true"]} />
          ) : (
            <Field label="Value" value={p.value} onValue={(v) => change(i, { value: v })} spellcheck={false} />
          )}
          <button type="button" aria-label={`Remove property ${p.name}`} onClick={() => setProperties(properties.filter((_, j) => j !== i))}>
            Remove
          </button>
        </div>
      ))}
      <p>
        <button type="button" onClick={() => setProperties([...properties, { name: "", type: "text", value: "" }])}>
          Add a property
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
