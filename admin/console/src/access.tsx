import { useState } from "preact/hooks";
import { type AccessRule, call, type Namespace, path, readOnly } from "./api";
import { bytes, Check, Confirm, Copy, Dialog, Field, Form, number, Table, time, useLoad, Waiting } from "./ui";

/** Access shows the keys of the namespace and, to operators, the namespaces. */
export function Access({ operator }: { operator: boolean }) {
  return (
    <>
      <h1>Access</h1>
      <h2>Keys of this namespace</h2>
      <Rules of="" empty="This namespace has no rules of its own. Applications can use the keys of the members' configuration." />
      {operator && <Namespaces />}
    </>
  );
}

/** Rules shows the access rules of a queue or topic, or of the namespace for "", and changes them. */
export function Rules({ of, empty }: { of: string; empty: string }) {
  const at = of && `/${path(of)}`;
  const rules = useLoad((signal) => call<{ rules: AccessRule[] | null }>("GET", `/v1/access${at}`, undefined, signal), [of]);
  const [creating, setCreating] = useState(false);
  const [changing, setChanging] = useState<{ rule: AccessRule; which?: "primary" | "secondary" }>();
  const done = () => {
    setCreating(false);
    setChanging(undefined);
    rules.reload();
  };
  return (
    <>
      <Waiting of={rules} />
      {rules.data && (
        <Table
          name="Keys"
          rows={rules.data.rules ?? []}
          id={(r) => r.name}
          empty={<p>{empty}</p>}
          columns={[
            { title: "Rule", value: (r) => r.name },
            { title: "Rights", value: (r) => r.rights.join(", ") },
            {
              title: "Connection strings",
              value: () => "",
              show: (r) => (
                <span class="buttons">
                  <Copy text={r.primaryConnectionString ?? r.primaryKey} label={r.primaryConnectionString ? "Copy primary" : "Copy primary key"} />
                  {(r.secondaryConnectionString ?? r.secondaryKey) && <Copy text={(r.secondaryConnectionString ?? r.secondaryKey)!} label={r.secondaryConnectionString ? "Copy secondary" : "Copy secondary key"} />}
                </span>
              ),
            },
            {
              title: "Change",
              value: () => "",
              show: (r) =>
                !readOnly && (
                  <span class="buttons">
                    <button onClick={() => setChanging({ rule: r, which: "primary" })}>Regenerate primary</button>
                    <button onClick={() => setChanging({ rule: r, which: "secondary" })}>Regenerate secondary</button>
                    <button class="danger" onClick={() => setChanging({ rule: r })}>
                      Revoke
                    </button>
                  </span>
                ),
            },
          ]}
        />
      )}
      {!readOnly && (
        <p>
          <button class="main" onClick={() => setCreating(true)}>
            Create a rule
          </button>
        </p>
      )}
      {creating && <CreateRule at={at} onClose={() => setCreating(false)} onDone={done} />}
      {changing?.which && (
        <Confirm
          title={`Regenerate the ${changing.which} key of ${changing.rule.name}`}
          text="Applications that use this key are refused from now on. Give them the other key first."
          label="Regenerate"
          action={() => call("POST", `/v1/regenerate${at}`, { rule: changing.rule.name, which: changing.which })}
          onClose={() => setChanging(undefined)}
          onDone={done}
        />
      )}
      {changing && !changing.which && (
        <Confirm
          title={`Revoke ${changing.rule.name}`}
          text="Both its keys are refused from now on."
          name={changing.rule.name}
          label="Revoke"
          action={() => call("DELETE", `/v1/access${at}?rule=${encodeURIComponent(changing.rule.name)}`)}
          onClose={() => setChanging(undefined)}
          onDone={done}
        />
      )}
    </>
  );
}

const rightsOf = ["Send", "Listen", "Manage"];

function CreateRule({ at, onClose, onDone }: { at: string; onClose: () => void; onDone: () => void }) {
  const [name, setName] = useState("");
  const [rights, setRights] = useState<string[]>(["Send", "Listen"]);
  const toggle = (right: string, on: boolean) => setRights(on ? (right === "Manage" ? rightsOf : [...rights, right]) : rights.filter((r) => r !== right && (right === "Manage" || r !== "Manage")));
  return (
    <Dialog title="Create a rule" onClose={onClose}>
      <Form label="Create" disabled={!rights.length} action={() => call("PUT", `/v1/access${at}?rule=${encodeURIComponent(name)}`, { rights })} onCancel={onClose} onDone={onDone}>
        <Field label="Name" value={name} onValue={setName} required autocomplete="off" spellcheck={false} />
        <fieldset>
          <legend>Rights</legend>
          {rightsOf.map((r) => (
            <Check key={r} label={r} value={rights.includes(r)} onValue={(on) => toggle(r, on)} />
          ))}
        </fieldset>
      </Form>
    </Dialog>
  );
}

function Namespaces() {
  const loaded = useLoad((signal) => call<{ namespaces: Namespace[] }>("GET", "/v1/namespaces?max=1000", undefined, signal), []);
  const [creating, setCreating] = useState(false);
  const [removing, setRemoving] = useState("");
  const [limiting, setLimiting] = useState("");
  const [name, setName] = useState("");
  const done = () => {
    setCreating(false);
    setRemoving("");
    setLimiting("");
    loaded.reload();
  };
  return (
    <>
      <h2>Namespaces</h2>
      <Waiting of={loaded} />
      {loaded.data && (
        <Table
          name="Namespaces"
          rows={loaded.data.namespaces}
          id={(n) => n.name}
          empty=""
          columns={[
            { title: "Namespace", value: (n) => n.name },
            { title: "Hosts", value: (n) => (n.hosts ?? []).join(", ") },
            { title: "Created", value: (n) => n.createdAt, show: (n) => time(n.createdAt) },
            {
              title: "Change",
              value: () => "",
              show: (n) => (
                <span class="buttons">
                  <button aria-label={`Limits and use of ${n.name}`} onClick={() => setLimiting(n.name)}>
                    Limits and use
                  </button>
                  {!readOnly && n.name !== "default" && (
                    <button class="danger" onClick={() => setRemoving(n.name)}>
                      Delete
                    </button>
                  )}
                </span>
              ),
            },
          ]}
        />
      )}
      {!readOnly && (
        <p>
          <button onClick={() => setCreating(true)}>Create a namespace</button>
        </p>
      )}
      {creating && (
        <Dialog title="Create a namespace" onClose={() => setCreating(false)}>
          <Form label="Create" action={() => call("PUT", `/v1/namespaces/${encodeURIComponent(name)}`)} onCancel={() => setCreating(false)} onDone={done}>
            <Field label="Name" value={name} onValue={setName} required autocomplete="off" spellcheck={false} />
          </Form>
        </Dialog>
      )}
      {limiting && <Limits name={limiting} onClose={() => setLimiting("")} onDone={done} />}
      {removing && (
        <Confirm
          title={`Delete namespace ${removing}`}
          text="All its queues, topics, messages and keys are lost."
          name={removing}
          label="Delete"
          action={() => call("DELETE", `/v1/namespaces/${encodeURIComponent(removing)}`)}
          onClose={() => setRemoving("")}
          onDone={done}
        />
      )}
    </>
  );
}

type Limit = "maxEntities" | "maxMessages" | "maxBytes" | "maxRules";

/** Limits shows the limits of a namespace beside what it uses, and changes them. */
function Limits({ name, onClose, onDone }: { name: string; onClose: () => void; onDone: () => void }) {
  const route = `/v1/namespaces/${encodeURIComponent(name)}`;
  const loaded = useLoad((signal) => call<Namespace>("GET", route, undefined, signal), [name]);
  const [draft, setDraft] = useState<Partial<Record<Limit, string>>>({});
  const n = loaded.data;
  const limits: [Limit, string, string][] = [
    ["maxEntities", "Queues and topics", number(n?.usage?.queuesAndTopics)],
    ["maxMessages", "Messages", number(n?.usage?.messages)],
    ["maxBytes", "Bytes on disk", bytes(n?.usage?.diskBytes)],
    ["maxRules", "Rules of subscriptions", number(n?.usage?.rules)],
  ];
  return (
    <Dialog title={`Limits and use of ${name}`} onClose={onClose}>
      <Waiting of={loaded} />
      {n && (
        <Form
          label="Save"
          disabled={readOnly}
          action={() => call("PATCH", route, Object.fromEntries(Object.entries(draft).map(([k, v]) => [k, Number(v)])))}
          onCancel={onClose}
          onDone={onDone}
        >
          <p class="quiet">0 means no limit of its own. Its index uses {bytes(n.usage?.memoryBytes) || "an unknown amount"} of memory.</p>
          {limits.map(([id, label, used]) => (
            <Field key={id} label={label} type="number" min={0} value={draft[id] ?? String(n[id] ?? 0)} hint={used && `In use: ${used}`} onValue={(v) => setDraft({ ...draft, [id]: v })} />
          ))}
        </Form>
      )}
    </Dialog>
  );
}
