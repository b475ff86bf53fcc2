import { call, type Condition, type Entity, type Kind, list, type RatesPage, session, type Status } from "./api";
import { Welcome } from "./connect";
import { Hour } from "./rates";
import { urlOf } from "./route";
import { Stale, useLastCounts } from "./stale";
import { Failed, number, rate, Table, useLoad, Waiting } from "./ui";

const every = 2000; // milliseconds
const ratesEvery = 10000; // the member samples as often
const conditionsEvery = 5000;
const busiest = 10; // rows of the tables

export function Overview({ operator }: { operator: boolean }) {
  const status = useLoad((signal) => (operator ? call<Status>("GET", "/v1/status", undefined, signal) : Promise.resolve(undefined)), [operator], every);
  const queues = useLoad((signal) => list("queues", "", signal), [], every, `${session.namespace}/queues`);
  const rates = useLoad((signal) => call<RatesPage>("GET", `/v1/rates?total=true&max=${busiest}`, undefined, signal), [], ratesEvery);
  const rows = useLastCounts(queues) ?? [];
  const stale = rows.filter((q) => q.staleSince !== undefined);
  const sum = (of: (c: NonNullable<Entity["counts"]>) => number) => rows.reduce((total, q) => total + (q.counts ? of(q.counts) : 0), 0);
  const active = sum((c) => c.active);
  const dead = sum((c) => c.deadLetter);
  const alive = status.data?.members.filter((m) => m.state === "alive").length;
  if (queues.data && !rows.length) {
    return (
      <>
        <h1>Overview</h1>
        {operator && <ClusterConditions />}
        <Welcome />
      </>
    );
  }
  return (
    <>
      <h1>Overview</h1>
      <Waiting of={queues} />
      {stale.length > 0 && <p class="failed">{number(stale.length)} queues are in partitions without a leader: their numbers below are the last ones that are known.</p>}
      {operator && <ClusterConditions />}
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
          {
            title: "Queue",
            value: (q) => q.name,
            show: (q) => (
              <>
                <a href={urlOf("queues", q.name)}>{q.name}</a> <Stale of={q} />
              </>
            ),
          },
          { title: "Active", value: (q) => q.counts?.active ?? 0, numeric: true },
          { title: "Locked", value: (q) => q.counts?.locked ?? 0, numeric: true },
          { title: "Scheduled", value: (q) => q.counts?.scheduled ?? 0, numeric: true },
          { title: "Dead letters", value: (q) => q.counts?.deadLetter ?? 0, numeric: true },
        ]}
      />
    </>
  );
}

/** ClusterConditions shows what needs attention in the words of `peeklock doctor`, with the way to mend it. */
export function ClusterConditions() {
  const of = useLoad((signal) => call<{ conditions: Condition[] }>("GET", "/v1/conditions", undefined, signal), [], conditionsEvery);
  const list = of.data?.conditions;
  return (
    <>
      <Failed error={of.error} at={list && of.at} />
      {list?.length === 0 && <p class="quiet">Nothing needs attention.</p>}
      {!!list?.length && (
        <ul class={list.some((c) => c.severity !== "info") ? "conditions bad-edge" : "conditions"} aria-label="Conditions">
          {list.map((c) => (
            <li key={`${c.condition} ${c.subject}`}>
              <strong>
                {c.condition}, {c.severity}:
              </strong>{" "}
              {c.subject}
              {c.detail && `: ${c.detail}`}. {c.mend.split("`").map((part, i) => (i % 2 ? <code key={i}>{part}</code> : part))}
            </li>
          ))}
        </ul>
      )}
    </>
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
