import { useState } from "preact/hooks";
import { call, type Member, type Move, type PlannedMove, readOnly, type Status } from "./api";
import { bytes, Confirm, Dialog, Failed, Form, number, Select, Table, useLoad, Waiting } from "./ui";

const every = 2000; // milliseconds

export function Cluster() {
  const loaded = useLoad(
    async (signal) => {
      const [status, members, moves] = await Promise.all([
        call<Status>("GET", "/v1/status", undefined, signal),
        call<{ members: Member[] }>("GET", "/v1/members", undefined, signal),
        call<{ moves: Move[] | null }>("GET", "/v1/moves", undefined, signal),
      ]);
      return { status, members: members.members.filter((m) => !m.removed), moves: moves.moves ?? [] };
    },
    [],
    every,
  );
  const [error, setError] = useState<Error>();
  const [removing, setRemoving] = useState<Member>();
  const [transferring, setTransferring] = useState<number>();
  const [plan, setPlan] = useState<PlannedMove[]>();
  const names = new Map(loaded.data?.members.map((m) => [m.id, m.name || m.id]));
  const nameOf = (id: string) => names.get(id) ?? id;
  const act = (method: string, path: string, body?: unknown) => async () => {
    setError(undefined);
    try {
      await call(method, path, body);
      loaded.reload();
    } catch (e) {
      setError(e as Error);
    }
  };
  const d = loaded.data;
  return (
    <>
      <h1>Cluster</h1>
      <Waiting of={loaded} />
      <Failed error={error} />
      {d && (
        <>
          <p class="quiet">
            Cluster {d.status.clusterId}, format level {d.status.formatLevel}
          </p>
          <h2>Members</h2>
          <Table
            name="Members"
            rows={d.members}
            id={(m) => m.id}
            empty=""
            columns={[
              { title: "Name", value: (m) => m.name },
              { title: "State", value: (m) => m.state, show: (m) => <States of={m} /> },
              { title: "Zone", value: (m) => m.zone ?? "" },
              { title: "Leads", value: (m) => m.leads, numeric: true },
              { title: "Replicas", value: (m) => m.holds, numeric: true },
              { title: "AMQP", value: (m) => m.amqp },
              { title: "Version", value: (m) => m.version },
              {
                title: "Change",
                value: () => "",
                show: (m) =>
                  !readOnly && (
                    <span class="buttons">
                      {m.drained ? <button onClick={act("POST", `/v1/members/${m.id}/undrain`)}>Undrain</button> : <button onClick={act("POST", `/v1/members/${m.id}/drain`)}>Drain</button>}
                      <button class="danger" onClick={() => setRemoving(m)}>
                        Remove
                      </button>
                    </span>
                  ),
              },
            ]}
          />
          {d.moves.length > 0 && (
            <>
              <h2>Moves</h2>
              <Table
                name="Moves"
                rows={d.moves}
                id={(m) => m.partition}
                empty=""
                columns={[
                  { title: "Partition", value: (m) => m.partition, numeric: true },
                  { title: "From", value: (m) => m.from.map(nameOf).join(", ") },
                  { title: "To", value: (m) => m.to.map(nameOf).join(", ") },
                  { title: "State", value: (m) => m.state },
                  { title: "Copied", value: (m) => m.copied, show: (m) => (m.bytes ? <progress max={m.bytes} value={m.copied} aria-label={`${bytes(m.copied)} of ${bytes(m.bytes)}`} /> : "") },
                  {
                    title: "Change",
                    value: () => "",
                    show: (m) =>
                      !readOnly && (
                        <span class="buttons">
                          {m.state === "paused" ? <button onClick={act("POST", `/v1/partitions/${m.partition}/resume`)}>Resume</button> : <button onClick={act("POST", `/v1/partitions/${m.partition}/pause`)}>Pause</button>}
                          <button onClick={act("POST", `/v1/partitions/${m.partition}/cancel`)}>Cancel</button>
                        </span>
                      ),
                  },
                ]}
              />
            </>
          )}
          <h2>Partitions</h2>
          {!readOnly && (
            <p>
              <button
                onClick={async () => {
                  setError(undefined);
                  try {
                    setPlan((await call<{ moves: PlannedMove[] | null }>("GET", "/v1/rebalance")).moves ?? []);
                  } catch (e) {
                    setError(e as Error);
                  }
                }}
              >
                Plan a rebalance
              </button>
            </p>
          )}
          <Table
            name="Partitions"
            rows={d.status.partitions}
            id={(p) => p.id}
            empty=""
            columns={[
              { title: "Partition", value: (p) => p.id, show: (p) => (p.id ? p.id : "catalog"), numeric: true },
              { title: "Leader", value: (p) => (p.leader ? nameOf(p.leader) : ""), show: (p) => (p.leader ? nameOf(p.leader) : <span class="badge bad">none</span>) },
              { title: "Replicas", value: (p) => p.replicas.map(nameOf).join(", ") },
              { title: "Entities", value: (p) => p.entities, numeric: true },
              { title: "Messages", value: (p) => p.messages, numeric: true },
              { title: "Applied", value: (p) => p.applied, numeric: true },
              { title: "Change", value: () => "", show: (p) => !readOnly && p.replicas.length > 1 && <button onClick={() => setTransferring(p.id)}>Transfer</button> },
            ]}
          />
        </>
      )}
      {removing && (
        <Confirm
          title={`Remove member ${removing.name}`}
          text="Its replicas move to other members, and it never joins again. This takes as long as copying its data."
          name={removing.name}
          label="Remove"
          action={() => call("POST", `/v1/members/${removing.id}/remove`)}
          onClose={() => setRemoving(undefined)}
          onDone={() => {
            setRemoving(undefined);
            loaded.reload();
          }}
        />
      )}
      {transferring !== undefined && d && (
        <Transfer
          partition={transferring}
          members={d.members.filter((m) => d.status.partitions.find((p) => p.id === transferring)?.replicas.includes(m.id))}
          onClose={() => setTransferring(undefined)}
          onDone={() => {
            setTransferring(undefined);
            loaded.reload();
          }}
        />
      )}
      {plan && (
        <Dialog title="Rebalance" onClose={() => setPlan(undefined)}>
          {plan.length ? (
            <Form
              label={`Start ${number(plan.length)} moves`}
              action={() => call("POST", "/v1/rebalance", { moves: plan })}
              onCancel={() => setPlan(undefined)}
              onDone={() => {
                setPlan(undefined);
                loaded.reload();
              }}
            >
              <Table
                name="Planned moves"
                rows={plan}
                id={(m) => m.partition}
                empty=""
                columns={[
                  { title: "Partition", value: (m) => m.partition, numeric: true },
                  { title: "Now", value: (m) => m.from.map(nameOf).join(", ") },
                  { title: "Then", value: (m) => m.to.map(nameOf).join(", ") },
                  { title: "To copy", value: (m) => m.bytes, numeric: true, show: (m) => (m.leaderOnly ? "leader only" : bytes(m.bytes)) },
                ]}
              />
            </Form>
          ) : (
            <>
              <p>The partitions are spread evenly: there is nothing to move.</p>
              <button onClick={() => setPlan(undefined)}>Close</button>
            </>
          )}
        </Dialog>
      )}
    </>
  );
}

function States({ of: m }: { of: Member }) {
  const flags = [m.drained && "drained", m.readOnly && "accepts no new messages", m.clockOff && "wrong clock"].filter(Boolean);
  return (
    <>
      <span class={m.state === "alive" ? "badge good" : "badge bad"}>{m.state}</span> {flags.map((f) => <span class="badge">{f}</span>)}
    </>
  );
}

function Transfer({ partition, members, onClose, onDone }: { partition: number; members: Member[]; onClose: () => void; onDone: () => void }) {
  const [to, setTo] = useState("");
  return (
    <Dialog title={`Transfer the leadership of partition ${partition}`} onClose={onClose}>
      <Form label="Transfer" disabled={!to} action={() => call("POST", `/v1/partitions/${partition}/transfer`, { to })} onCancel={onClose} onDone={onDone}>
        <Select label="Next leader" value={to} onValue={setTo} required options={[["", "Choose a member"], ...members.map((m): [string, string] => [m.id, m.name])]} />
      </Form>
    </Dialog>
  );
}
