import { call, type Condition, type Kind } from "./api";
import { Welcome } from "./connect";
import { Hour } from "./rates";
import { urlOf } from "./route";
import { type EntityFigures, useEvents } from "./stream";
import { Failed, number, rate, Table, useLoad, Waiting } from "./ui";

const conditionsEvery = 5000; // milliseconds

export function Overview({ operator }: { operator: boolean }) {
  const events = useEvents();
  const { figures, rates, ratesAt, cluster } = events.data ?? {};
  const total = figures?.total;
  const members = operator ? cluster?.members : undefined;
  const alive = members?.filter((m) => m.state === "alive").length;
  if (figures && !figures.queues && !figures.topics) {
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
      <Waiting of={events} />
      {operator && <ClusterConditions />}
      <dl class="tiles">
        {members && <Tile name="Members alive" value={`${alive} of ${members.length}`} />}
        {figures && <Tile name="Queues" value={number(figures.queues)} />}
        {rates?.total && <Tile name="Incoming per second" value={rate(rates.total.incoming)} />}
        {rates?.total && <Tile name="Delivered per second" value={rate(rates.total.outgoing)} />}
        {total && <Tile name="Active messages" value={number(total.active)} />}
        {total && <Tile name="Locked" value={number(total.locked)} />}
        {total && <Tile name="Scheduled" value={number(total.scheduled)} />}
        {total && <Tile name="Dead letters" value={number(total.deadLetter)} />}
      </dl>
      {rates && <Hour rates={rates.total} everySeconds={rates.everySeconds} at={ratesAt ?? 0} />}
      {!!rates?.entities.length && (
        <>
          <h2>Busiest queues, topics and subscriptions</h2>
          <Table
            name="Busiest queues, topics and subscriptions"
            by={1}
            rows={rates.entities}
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
      <Deepest title="Deepest queues and subscriptions" list={figures?.deepest} />
      {!!figures?.deadLettered.length && <Deepest title="Most dead letters" list={figures.deadLettered} />}
    </>
  );
}

function Deepest({ title, list }: { title: string; list?: EntityFigures[] }) {
  return (
    <>
      <h2>{title}</h2>
      <Table
        name={title}
        by={title === "Most dead letters" ? 4 : 1}
        rows={list ?? []}
        id={(e) => `${e.kind}/${e.name}`}
        empty="None holds a message."
        columns={[
          { title: "Name", value: (e) => e.name, show: (e) => <a href={urlOf(`${e.kind}s` as Kind, e.name)}>{e.name}</a> },
          { title: "Active", value: (e) => e.active, numeric: true },
          { title: "Locked", value: (e) => e.locked, numeric: true },
          { title: "Scheduled", value: (e) => e.scheduled, numeric: true },
          { title: "Dead letters", value: (e) => e.deadLetter, numeric: true },
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
