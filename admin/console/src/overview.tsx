import { call, type Entity, type Kind, list, type RatesPage, type Status } from "./api";
import { Welcome } from "./connect";
import { Hour } from "./rates";
import { urlOf } from "./route";
import { number, rate, Table, useLoad, Waiting } from "./ui";

const every = 2000; // milliseconds
const ratesEvery = 10000; // the member samples as often
const busiest = 10; // rows of the tables

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
  const rates = useLoad((signal) => call<RatesPage>("GET", `/v1/rates?total=true&max=${busiest}`, undefined, signal), [], ratesEvery);
  const rows = queues.data ?? [];
  const sum = (of: (c: NonNullable<Entity["counts"]>) => number) => rows.reduce((total, q) => total + (q.counts ? of(q.counts) : 0), 0);
  const active = sum((c) => c.active);
  const dead = sum((c) => c.deadLetter);
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
        {rates.data?.total && <Tile name="Incoming per second" value={rate(rates.data.total.incoming)} />}
        {rates.data?.total && <Tile name="Delivered per second" value={rate(rates.data.total.outgoing)} />}
        <Tile name="Active messages" value={number(active)} />
        <Tile name="Locked" value={number(sum((c) => c.locked))} />
        <Tile name="Scheduled" value={number(sum((c) => c.scheduled))} />
        <Tile name="Dead letters" value={number(dead)} />
      </dl>
      <Waiting of={rates} />
      {rates.data && <Hour rates={rates.data.total} everySeconds={rates.data.everySeconds} at={rates.at ?? 0} />}
      {!!rates.data?.entities.length && (
        <>
          <h2>Busiest queues, topics and subscriptions</h2>
          <Table
            name="Busiest queues, topics and subscriptions"
            by={1}
            rows={rates.data.entities}
            id={(e) => `${e.kind}/${e.name}`}
            empty=""
            columns={[
              { title: "Name", value: (e) => e.name, show: (e) => <a href={urlOf(`${e.kind}s` as Kind, e.name)}>{e.name}</a> },
              { title: "In per second", value: (e) => e.incoming, numeric: true, show: (e) => rate(e.incoming) },
              { title: "Delivered per second", value: (e) => e.outgoing, numeric: true, show: (e) => rate(e.outgoing) },
              { title: "Completed per second", value: (e) => e.completed, numeric: true, show: (e) => rate(e.completed) },
              { title: "Consumers", value: (e) => e.consumers, numeric: true },
              { title: "Dead-lettered per second", value: (e) => e.deadLettered, numeric: true, show: (e) => rate(e.deadLettered) },
            ]}
          />
        </>
      )}
      <h2>Deepest queues</h2>
      <Table
        name="Deepest queues"
        by={1}
        rows={[...rows].sort((a, b) => (b.counts?.active ?? 0) - (a.counts?.active ?? 0)).slice(0, busiest)}
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
