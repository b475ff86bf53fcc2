import { useState } from "preact/hooks";
import { call, type Counts, type Entity, type Kind, list, path, type RatesPage, readOnly, type Rule, session } from "./api";
import { Rules as AccessRules } from "./access";
import { Browse } from "./browse";
import { Clients } from "./clients";
import { Create } from "./entities";
import { Hour } from "./rates";
import { Receive } from "./receive";
import { go, urlOf } from "./route";
import { Send } from "./send";
import { Sessions } from "./sessions";
import { Stale, useLastCounts } from "./stale";
import { type Draft, draftOf, SettingsFields, settingsOf } from "./settings";
import { Tile } from "./overview";
import { bytes, Confirm, Dialog, Failed, Field, Form, number, Table, time, useLoad, Waiting } from "./ui";

const every = 2000; // milliseconds

function Tabs({ kind, name, tab, tabs }: { kind: Kind; name: string; tab: string; tabs: Record<string, string> }) {
  return (
    <nav class="tabs" aria-label="Views">
      {Object.entries(tabs).map(([id, title]) => (
        <a key={id} href={urlOf(kind, name, { tab: id })} aria-current={id === tab ? "page" : undefined}>
          {title}
        </a>
      ))}
    </nav>
  );
}

function CountTiles({ counts }: { counts?: Counts }) {
  if (!counts) {
    return null;
  }
  return (
    <dl class="tiles">
      <Tile name="Active" value={number(counts.active)} />
      <Tile name="Locked" value={number(counts.locked)} />
      <Tile name="Scheduled" value={number(counts.scheduled)} />
      <Tile name="Deferred" value={number(counts.deferred)} />
      <Tile name="Dead letters" value={number(counts.deadLetter)} />
      <Tile name="Size" value={bytes(counts.bytes)} />
      {counts.transfer + counts.transferDeadLetter > 0 && <Tile name="To be forwarded" value={`${number(counts.transfer)}, failed ${number(counts.transferDeadLetter)}`} />}
    </dl>
  );
}

/** EntityPage shows a queue or a subscription. */
export function EntityPage({ kind, name, tab, query }: { kind: "queues" | "subscriptions"; name: string; tab: string; query: URLSearchParams }) {
  const loaded = useLoad((signal) => call<Entity>("GET", `/v1/${kind}/${path(name)}`, undefined, signal), [kind, name], every, `${session.namespace}/${kind}/${name}`);
  const e = loaded.data;
  const tabs: Record<string, string> = { messages: "Messages", rates: "Last hour", ...(kind === "queues" && { send: "Send" }), ...(e?.requiresSession && { sessions: "Sessions" }), ...(kind === "subscriptions" && { rules: "Rules" }), clients: "Clients", ...(kind === "queues" && { access: "Access" }), settings: "Settings" };
  const [topic] = name.split(/\/Subscriptions\//i);
  return (
    <>
      <p class="crumbs">
        <a href={urlOf("entities")}>Queues and topics</a>
        {kind === "subscriptions" && (
          <>
            {" / "}
            <a href={urlOf("topics", topic)}>{topic}</a>
          </>
        )}
      </p>
      <h1>{kind === "subscriptions" ? name.split(/\/Subscriptions\//i)[1] : name}</h1>
      <Waiting of={loaded} />
      {e && (
        <>
          {e.status && e.status !== "Active" && <p class="badge">{e.status}</p>}
          <CountTiles counts={e.counts} />
          <Tabs kind={kind} name={name} tab={tab} tabs={tabs} />
          {tab === "messages" && <Messages kind={kind} query={query} entity={e} name={name} onChange={loaded.reload} />}
          {tab === "rates" && <RatesTab name={name} />}
          {tab === "send" && <Send name={name} sessions={!!e.requiresSession} onSent={loaded.reload} />}
          {tab === "sessions" && <Sessions name={name} />}
          {tab === "rules" && <Rules name={name} />}
          {tab === "clients" && <Clients name={name} />}
          {tab === "access" && <EntityAccess name={name} />}
          {tab === "settings" && <SettingsTab kind={kind} name={name} entity={e} onChange={loaded.reload} />}
        </>
      )}
    </>
  );
}

const EntityAccess = ({ name }: { name: string }) => <AccessRules of={name} empty="It has no rules of its own. Keys of the namespace are valid here, too." />;

const ratesEvery = 10000; // milliseconds; the members sample as often

function RatesTab({ name }: { name: string }) {
  const loaded = useLoad((signal) => call<RatesPage>("GET", `/v1/rates/${path(name)}`, undefined, signal), [name], ratesEvery);
  return (
    <>
      <Waiting of={loaded} />
      {loaded.data && <Hour rates={loaded.data.entities[0]} everySeconds={loaded.data.everySeconds} at={loaded.at ?? 0} />}
    </>
  );
}

const subQueues: Record<string, string> = { main: "messages", deadLetter: "dead letters", transferDeadLetter: "dead letters of forwarding" };

function Messages({ kind, entity, name, query, onChange }: { kind: "queues" | "subscriptions"; entity: Entity; name: string; query: URLSearchParams; onChange: () => void }) {
  const [purging, setPurging] = useState("");
  const purge = async () => {
    let count: number;
    do {
      ({ count } = await call<{ count: number }>("POST", `/v1/purge/${path(name)}`, { subQueue: purging }));
    } while (count > 0);
  };
  const counts = entity.counts;
  return (
    <>
      <Browse name={name} kind={kind} query={query} onChange={onChange} />
      <Receive name={name} sessions={!!entity.requiresSession} onChange={onChange} />
      {!readOnly && counts && (
        <section>
          <h2>Delete messages</h2>
          <p class="buttons">
            <button class="danger" onClick={() => setPurging("main")} disabled={!counts.active}>
              Delete all messages
            </button>
            <button class="danger" onClick={() => setPurging("deadLetter")} disabled={!counts.deadLetter}>
              Delete all dead letters
            </button>
            {counts.transferDeadLetter > 0 && (
              <button class="danger" onClick={() => setPurging("transferDeadLetter")}>
                Delete all dead letters of forwarding
              </button>
            )}
          </p>
        </section>
      )}
      {purging && (
        <Confirm
          title={`Delete all ${subQueues[purging]} of ${name}`}
          text="Messages that a receiver has locked stay. The others are lost."
          name={name}
          label="Delete"
          action={purge}
          onClose={() => setPurging("")}
          onDone={() => {
            setPurging("");
            onChange();
          }}
        />
      )}
    </>
  );
}

const filterText = (r: Rule) => r.filter.expression ?? (r.filter.conditions ? Object.entries(r.filter.conditions).map(([k, v]) => `${k} = ${JSON.stringify(v)}`).join(" and ") : r.filter.kind);

function Rules({ name }: { name: string }) {
  const loaded = useLoad((signal) => call<{ rules: Rule[] }>("GET", `/v1/rules/${path(name)}`, undefined, signal), [name]);
  const [adding, setAdding] = useState(false);
  const [removing, setRemoving] = useState("");
  return (
    <>
      <Waiting of={loaded} />
      {loaded.data && (
        <Table
          name="Rules"
          rows={loaded.data.rules ?? []}
          id={(r) => r.name ?? ""}
          empty={<p>No rule: the subscription gets no messages.</p>}
          columns={[
            { title: "Name", value: (r) => r.name ?? "" },
            { title: "Filter", value: filterText, show: (r) => <code>{filterText(r)}</code> },
            { title: "Action", value: (r) => r.action?.expression ?? "", show: (r) => r.action?.expression && <code>{r.action.expression}</code> },
            {
              title: "Change",
              value: () => "",
              show: (r) =>
                !readOnly && (
                  <button aria-label={`Delete rule ${r.name}`} onClick={() => setRemoving(r.name ?? "")}>
                    Delete
                  </button>
                ),
            },
          ]}
        />
      )}
      {!readOnly && (
        <p>
          <button class="main" onClick={() => setAdding(true)}>
            Add a rule
          </button>{" "}
          <a href={urlOf("topics", name.split(/\/Subscriptions\//i)[0], { tab: "send" })}>Try a message</a>
        </p>
      )}
      {adding && (
        <AddRule
          name={name}
          onClose={() => setAdding(false)}
          onDone={() => {
            setAdding(false);
            loaded.reload();
          }}
        />
      )}
      {removing && (
        <Confirm
          title={`Delete rule ${removing}`}
          text="The subscription gets no more messages by this rule. Messages that it has stay."
          label="Delete"
          action={() => call("DELETE", `/v1/rules/${path(name)}?name=${encodeURIComponent(removing)}`)}
          onClose={() => setRemoving("")}
          onDone={() => {
            setRemoving("");
            loaded.reload();
          }}
        />
      )}
    </>
  );
}

function AddRule({ name, onClose, onDone }: { name: string; onClose: () => void; onDone: () => void }) {
  const [rule, setRule] = useState("");
  const [filter, setFilter] = useState("");
  const [action, setAction] = useState("");
  return (
    <Dialog title="Add a rule" onClose={onClose}>
      <Form
        label="Add"
        onCancel={onClose}
        onDone={onDone}
        action={() => call("PUT", `/v1/rules/${path(name)}?name=${encodeURIComponent(rule)}`, { filter: { kind: "sql", expression: filter }, ...(action && { action: { expression: action } }) })}
      >
        <Field label="Name" value={rule} onValue={setRule} required autocomplete="off" />
        <Field label="SQL filter" value={filter} onValue={setFilter} required hint="For example: amount > 100 AND sys.Label = 'order'" spellcheck={false} />
        <Field label="SQL action" value={action} onValue={setAction} hint="For example: SET checked = TRUE. Empty: none" spellcheck={false} />
      </Form>
    </Dialog>
  );
}

function SettingsTab({ kind, name, entity, onChange }: { kind: Kind; name: string; entity: Entity; onChange: () => void }) {
  const [old] = useState(() => draftOf(kind, entity));
  const [draft, setDraft] = useState<Draft>(old);
  const [removing, setRemoving] = useState(false);
  const [saved, setSaved] = useState(false);
  const [failed, setFailed] = useState<Error>();
  const enabled = (entity.status ?? "Active") === "Active";
  return (
    <>
      <p class="quiet">
        Created {time(entity.createdAt)}, changed {time(entity.updatedAt)}, in partition {entity.partition}.
        {entity.requiresSession && " It has sessions."}
        {entity.requiresDuplicateDetection && " It detects duplicates."}
        {entity.enablePartitioning && " It is spread over several partitions."}
      </p>
      <fieldset class="bare" disabled={readOnly}>
        <Form
          label="Save"
          action={async () => {
            setSaved(false);
            await call("PATCH", `/v1/${kind}/${path(name)}`, settingsOf(draft, old));
          }}
          onDone={() => {
            setSaved(true);
            onChange();
          }}
        >
          <SettingsFields kind={kind} draft={draft} onChange={setDraft} />
        </Form>
      </fieldset>
      {saved && <p role="status">Saved.</p>}
      <Failed error={failed} />
      {!readOnly && (
        <p class="buttons">
          <button
            onClick={() => {
              setFailed(undefined);
              call("PATCH", `/v1/${kind}/${path(name)}`, { status: enabled ? "Disabled" : "Active" }).then(onChange, setFailed);
            }}
          >
            {enabled ? "Disable" : "Enable"}
          </button>
          <button class="danger" onClick={() => setRemoving(true)}>
            Delete
          </button>
        </p>
      )}
      {removing && (
        <Confirm
          title={`Delete ${name}`}
          text={`All messages in it are lost${kind === "topics" ? ", and all its subscriptions" : ""}.`}
          name={name}
          label="Delete"
          action={() => call("DELETE", `/v1/${kind}/${path(name)}`)}
          onClose={() => setRemoving(false)}
          onDone={() => go(urlOf("entities"))}
        />
      )}
    </>
  );
}

/** TopicPage shows a topic with its subscriptions. */
export function TopicPage({ name, tab }: { name: string; tab: string }) {
  const loaded = useLoad((signal) => call<Entity>("GET", `/v1/topics/${path(name)}`, undefined, signal), [name], every);
  const subscriptions = useLoad((signal) => list("subscriptions", name, signal), [name], every);
  const known = useLastCounts(subscriptions);
  const [creating, setCreating] = useState(false);
  return (
    <>
      <p class="crumbs">
        <a href={urlOf("entities")}>Queues and topics</a>
      </p>
      <h1>{name}</h1>
      <Waiting of={loaded} />
      {loaded.data && (
        <>
          <dl class="tiles">
            <Tile name="Subscriptions" value={number(loaded.data.counts?.subscriptions)} />
            <Tile name="Scheduled" value={number(loaded.data.counts?.scheduled)} />
            <Tile name="Size" value={bytes(loaded.data.counts?.bytes)} />
          </dl>
          <Tabs kind="topics" name={name} tab={tab} tabs={{ subscriptions: "Subscriptions", rates: "Last hour", send: "Send", clients: "Clients", access: "Access", settings: "Settings" }} />
          {tab === "rates" && <RatesTab name={name} />}
          {tab === "clients" && <Clients name={name} />}
          {tab === "access" && <EntityAccess name={name} />}
          {tab === "send" && <Send name={name} sessions={false} topic onSent={subscriptions.reload} />}
          {tab === "settings" && <SettingsTab kind="topics" name={name} entity={loaded.data} onChange={loaded.reload} />}
          {tab === "subscriptions" && (
            <>
              <Waiting of={subscriptions} />
              {known && (
                <Table
                  name="Subscriptions"
                  rows={known}
                  id={(s) => s.name}
                  empty={<p>No subscription: messages that are sent to the topic are dropped.</p>}
                  columns={[
                    {
                      title: "Subscription",
                      value: (s) => s.subscriptionName ?? s.name,
                      show: (s) => (
                        <>
                          <a href={urlOf("subscriptions", s.name)}>{s.subscriptionName}</a> <Stale of={s} />
                        </>
                      ),
                    },
                    { title: "Active", value: (s) => s.counts?.active ?? 0, numeric: true },
                    { title: "Locked", value: (s) => s.counts?.locked ?? 0, numeric: true },
                    { title: "Dead letters", value: (s) => s.counts?.deadLetter ?? 0, numeric: true },
                    { title: "Forwards to", value: (s) => s.forwardTo ?? "" },
                  ]}
                />
              )}
              {!readOnly && (
                <p>
                  <button class="main" onClick={() => setCreating(true)}>
                    Create a subscription
                  </button>
                </p>
              )}
            </>
          )}
        </>
      )}
      {creating && <Create kinds={["subscriptions"]} topic={name} onClose={() => setCreating(false)} />}
    </>
  );
}
