import { useRef } from "preact/hooks";
import { call, type Entity, list, type Status } from "./api";
import { Welcome } from "./connect";
import { urlOf } from "./route";
import { Chart, number, Table, useLoad, Waiting } from "./ui";

const every = 2000; // milliseconds
const samplesMax = 1800; // an hour

interface Condition {
  text: string;
  remedy: string;
}

/** conditionsOf lists what an operator has to look after, worst first. */
function conditionsOf(status: Status | undefined, queues: Entity[]): Condition[] {
  const found: Condition[] = [];
  if (status) {
    const leaderless = status.partitions.filter((p) => !p.leader);
    if (leaderless.length) {
      found.push({
        text: `${leaderless.length} of ${status.partitions.length} partitions have no leader`,
        remedy: "Start the members that are away. Messages of these partitions wait until a majority of their replicas is alive.",
      });
    }
    for (const m of status.members) {
      if (m.state === "dead" || m.state === "unknown") {
        found.push({ text: `Member ${m.name || m.id} is ${m.state}`, remedy: "Start it again with its data folder, or replace it: peeklock member replace." });
      }
      if (m.readOnly) {
        found.push({ text: `Member ${m.name} accepts no new messages`, remedy: "Its disk or its memory is nearly full: free space, or receive messages." });
      }
      if (m.clockOff) {
        found.push({ text: `The clock of member ${m.name} is wrong`, remedy: "Check its time synchronization (NTP)." });
      }
      if (m.drained) {
        found.push({ text: `Member ${m.name} is drained`, remedy: `peeklock member undrain ${m.name} lets it lead partitions again.` });
      }
    }
  }
  const dead = queues.filter((q) => q.counts && q.counts.deadLetter > 0);
  if (dead.length) {
    found.push({ text: `${number(dead.length)} queues have dead letters`, remedy: "See why below; send them again when the cause is mended." });
  }
  return found;
}

export function Overview({ operator }: { operator: boolean }) {
  const status = useLoad((signal) => (operator ? call<Status>("GET", "/v1/status", undefined, signal) : Promise.resolve(undefined)), [operator], every);
  const queues = useLoad((signal) => list("queues", "", signal), [], every);
  const samples = useRef({ times: [] as number[], active: [] as number[], dead: [] as number[], at: 0 });
  const rows = queues.data ?? [];
  const sum = (of: (c: NonNullable<Entity["counts"]>) => number) => rows.reduce((total, q) => total + (q.counts ? of(q.counts) : 0), 0);
  const active = sum((c) => c.active);
  const dead = sum((c) => c.deadLetter);
  const s = samples.current;
  if (queues.at && queues.at !== s.at) {
    s.at = queues.at;
    s.times = [...s.times, queues.at / 1000].slice(-samplesMax);
    s.active = [...s.active, active].slice(-samplesMax);
    s.dead = [...s.dead, dead].slice(-samplesMax);
  }
  const conditions = conditionsOf(status.data, rows);
  const alive = status.data?.members.filter((m) => m.state === "alive").length;
  if (queues.data && !rows.length) {
    return (
      <>
        <h1>Overview</h1>
        <Conditions list={conditions} />
        <Welcome />
      </>
    );
  }
  return (
    <>
      <h1>Overview</h1>
      <Waiting of={queues} />
      <Conditions list={conditions} />
      <dl class="tiles">
        {status.data && <Tile name="Members alive" value={`${alive} of ${status.data.members.length}`} />}
        <Tile name="Queues" value={number(rows.length)} />
        <Tile name="Active messages" value={number(active)} />
        <Tile name="Locked" value={number(sum((c) => c.locked))} />
        <Tile name="Scheduled" value={number(sum((c) => c.scheduled))} />
        <Tile name="Dead letters" value={number(dead)} />
      </dl>
      <Chart
        title="Messages in queues since this page was opened"
        times={s.times}
        series={[
          { label: "Active", values: s.active },
          { label: "Dead letters", values: s.dead },
        ]}
      />
      <h2>Deepest queues</h2>
      <Table
        name="Deepest queues"
        by={1}
        rows={[...rows].sort((a, b) => (b.counts?.active ?? 0) - (a.counts?.active ?? 0)).slice(0, 10)}
        id={(q) => q.name}
        empty=""
        columns={[
          { title: "Queue", value: (q) => q.name, show: (q) => <a href={urlOf("queues", q.name)}>{q.name}</a> },
          { title: "Active", value: (q) => q.counts?.active ?? 0, numeric: true },
          { title: "Locked", value: (q) => q.counts?.locked ?? 0, numeric: true },
          { title: "Scheduled", value: (q) => q.counts?.scheduled ?? 0, numeric: true },
          { title: "Dead letters", value: (q) => q.counts?.deadLetter ?? 0, numeric: true },
        ]}
      />
    </>
  );
}

function Conditions({ list: conditions }: { list: Condition[] }) {
  if (!conditions.length) {
    return null;
  }
  return (
    <ul class="conditions" aria-label="Conditions">
      {conditions.map((c) => (
        <li key={c.text}>
          <strong>{c.text}.</strong> {c.remedy}
        </li>
      ))}
    </ul>
  );
}

export function Tile({ name, value }: { name: string; value: string }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd>{value}</dd>
    </div>
  );
}
