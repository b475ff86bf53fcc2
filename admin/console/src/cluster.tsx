import { useState } from "preact/hooks";
import { call, type Member, type Move, type Partition, type PlannedMove, readOnly, type Status, type Storage } from "./api";
import { ClusterConditions } from "./overview";
import { age, bytes, Check, Confirm, Dialog, Failed, Field, Form, number, Select, Table, time, useLoad, Waiting } from "./ui";

const every = 2000; // milliseconds
const storageEvery = 10_000; // milliseconds

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
  const storage = useLoad((signal) => call<Storage>("GET", "/v1/storage", undefined, signal), [], storageEvery);
  const disks = new Map(storage.data?.members.map((m) => [m.id, m]));
  const backups = new Map(storage.data?.backups.map((b) => [b.partition, b]));
  const [error, setError] = useState<Error>();
  const [removing, setRemoving] = useState<Member>();
  const [changing, setChanging] = useState<Member>();
  const [replacing, setReplacing] = useState<Member>();
  const [transferring, setTransferring] = useState<number>();
  const [moving, setMoving] = useState<Partition>();
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
      <ClusterConditions />
      {d && (
        <>
          <p class="quiet">
            Cluster {d.status.clusterId}, format level {d.status.formatLevel}
          </p>
          <h2>Members</h2>
          {!loaded.error && <Failed error={storage.error} at={storage.data && storage.at} />}
          {!!storage.data?.unreachable?.length && <p class="failed">These members did not answer about their disks and backups: {storage.data.unreachable.join(", ")}.</p>}
          <Table
            name="Members"
            rows={d.members}
            id={(m) => m.id}
            empty=""
            columns={[
              { title: "Name", value: (m) => m.name },
              { title: "State", value: (m) => m.state, show: (m) => <States of={m} /> },
              { title: "Zone", value: (m) => m.zone ?? "" },
              { title: "Weight", value: (m) => m.weight ?? 0, numeric: true },
              { title: "Leads", value: (m) => m.leads, numeric: true },
              { title: "Replicas", value: (m) => m.holds, numeric: true },
              {
                title: "Disk free",
                value: (m) => free(disks.get(m.id)),
                show: (m) => {
                  const disk = disks.get(m.id);
                  return disk?.diskBytes ? `${bytes(disk.freeBytes)} of ${bytes(disk.diskBytes)}, ${Math.floor(free(disk) * 100)} %` : "";
                },
                numeric: true,
              },
              { title: "AMQP", value: (m) => m.amqp },
              { title: "Version", value: (m) => m.version },
              {
                title: "Change",
                value: () => "",
                show: (m) =>
                  !readOnly && (
                    <span class="buttons">
                      {m.drained ? <button onClick={act("POST", `/v1/members/${m.id}/undrain`)}>Undrain</button> : <button onClick={act("POST", `/v1/members/${m.id}/drain`)}>Drain</button>}
                      <button onClick={() => setChanging(m)}>Zone and weight</button>
                      <button onClick={() => setReplacing(m)}>Replace</button>
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
          <p class="quiet">A member knows the backups that were read through it since it started.</p>
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
              { title: "Heard from the leader", value: (p) => p.contactNs, numeric: true, show: (p) => (p.contactNs ? `${number(Math.round(p.contactNs / 1e6))} ms ago` : "") },
              {
                title: "Last backup",
                value: (p) => backups.get(p.id)?.at ?? "",
                show: (p) => {
                  const last = backups.get(p.id);
                  return last ? <span title={`${time(last.at)}, ${bytes(last.bytes)}`}>{age(Date.parse(last.at))} ago</span> : storage.data && "not known";
                },
              },
              {
                title: "Change",
                value: () => "",
                show: (p) =>
                  !readOnly && (
                    <span class="buttons">
                      {p.replicas.length > 1 && <button onClick={() => setTransferring(p.id)}>Transfer</button>}
                      <button onClick={() => setMoving(p)}>Move</button>
                    </span>
                  ),
              },
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
      {changing && (
        <ChangeMember
          member={changing}
          onClose={() => setChanging(undefined)}
          onDone={() => {
            setChanging(undefined);
            loaded.reload();
          }}
        />
      )}
      {replacing && d && (
        <ReplaceMember
          member={replacing}
          members={d.members.filter((m) => m.id !== replacing.id)}
          onClose={() => setReplacing(undefined)}
          onDone={() => {
            setReplacing(undefined);
            loaded.reload();
          }}
        />
      )}
      {moving && d && (
        <MovePartition
          partition={moving}
          members={d.members}
          onClose={() => setMoving(undefined)}
          onDone={() => {
            setMoving(undefined);
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
                name="Before and after"
                rows={d ? balance(d.members, d.status.partitions, plan) : []}
                id={(b) => b.member.id}
                empty=""
                columns={[
                  { title: "Member", value: (b) => nameOf(b.member.id) },
                  { title: "Replicas now", value: (b) => b.now, numeric: true },
                  { title: "Then", value: (b) => b.then, numeric: true },
                  { title: "Preferred leader now", value: (b) => b.leadsNow, numeric: true },
                  { title: "Leader then", value: (b) => b.leadsThen, numeric: true },
                ]}
              />
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

/** free is the part of a disk that is free, 0 to 1. */
const free = (disk?: { diskBytes: number; freeBytes: number }) => (disk?.diskBytes ? disk.freeBytes / disk.diskBytes : 0);

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

/** balance returns the replicas of each member, and the partitions that prefer it as leader, before and after a plan. */
function balance(members: Member[], partitions: Partition[], plan: PlannedMove[]) {
  const planned = new Map(plan.map((m) => [m.partition, m]));
  const now = partitions.map((p) => planned.get(p.id)?.from ?? p.replicas);
  const then = partitions.map((p) => planned.get(p.id)?.to ?? p.replicas);
  const holds = (of: string[][], id: string) => of.filter((replicas) => replicas.includes(id)).length;
  const leads = (of: string[][], id: string) => of.filter((replicas) => replicas[0] === id).length;
  return members.map((member) => ({ member, now: holds(now, member.id), then: holds(then, member.id), leadsNow: leads(now, member.id), leadsThen: leads(then, member.id) }));
}

function ChangeMember({ member, onClose, onDone }: { member: Member; onClose: () => void; onDone: () => void }) {
  const [zone, setZone] = useState(member.zone ?? "");
  const [weight, setWeight] = useState(String(member.weight ?? ""));
  return (
    <Dialog title={`Zone and weight of ${member.name}`} onClose={onClose}>
      <Form label="Save" action={() => call("PATCH", `/v1/members/${member.id}`, { zone, weight: Number(weight) })} onCancel={onClose} onDone={onDone}>
        <Field label="Zone" value={zone} onValue={setZone} hint="Replicas of a partition are placed in different zones" spellcheck={false} />
        <Field label="Weight" type="number" min={1} max={100} required value={weight} onValue={setWeight} hint="Its share of the replicas, compared with other members" />
      </Form>
    </Dialog>
  );
}

function ReplaceMember({ member, members, onClose, onDone }: { member: Member; members: Member[]; onClose: () => void; onDone: () => void }) {
  const [to, setTo] = useState("");
  const [typed, setTyped] = useState("");
  return (
    <Dialog title={`Replace member ${member.name}`} onClose={onClose}>
      <Form label="Replace" danger disabled={!to || typed !== member.name} action={() => call("POST", `/v1/members/${member.id}/replace`, { with: to })} onCancel={onClose} onDone={onDone}>
        <p>The other member gets all replicas of {member.name}, which never joins again. This takes as long as copying its data.</p>
        <Select label="By" value={to} onValue={setTo} required options={[["", "Choose a member"], ...members.map((m): [string, string] => [m.id, m.name])]} />
        <Field label={`Type ${member.name} to confirm`} value={typed} onValue={setTyped} autocomplete="off" spellcheck={false} />
      </Form>
    </Dialog>
  );
}

/** MovePartition chooses the members that are to have replicas of a partition. */
function MovePartition({ partition: p, members, onClose, onDone }: { partition: Partition; members: Member[]; onClose: () => void; onDone: () => void }) {
  const [chosen, setChosen] = useState(p.replicas);
  const toggle = (id: string, on: boolean) => setChosen(on ? [...chosen, id] : chosen.filter((c) => c !== id));
  return (
    <Dialog title={`Move partition ${p.id}`} onClose={onClose}>
      <Form label="Move" disabled={!chosen.length} action={() => call("POST", `/v1/partitions/${p.id}/move`, { members: chosen })} onCancel={onClose} onDone={onDone}>
        <fieldset>
          <legend>Members with a replica</legend>
          {members.map((m) => (
            <Check key={m.id} label={m.name || m.id} value={chosen.includes(m.id)} onValue={(on) => toggle(m.id, on)} />
          ))}
        </fieldset>
        <Select label="Preferred leader" value={chosen[0] ?? ""} onValue={(id) => setChosen([id, ...chosen.filter((c) => c !== id)])} options={chosen.map((id): [string, string] => [id, members.find((m) => m.id === id)?.name ?? id])} />
      </Form>
    </Dialog>
  );
}
