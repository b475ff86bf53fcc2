import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { call, type Entity, type EntityRates, type Kind, list, path, type RatesPage, readOnly, session } from "./api";
import { Welcome } from "./connect";
import { go, urlOf, useQuery } from "./route";
import { SettingsFields, type Draft, settingsOf } from "./settings";
import { type Aged, Stale, useLastCounts } from "./stale";
import { type Depths, type EventRow, type Events, useEvents } from "./stream";
import { bytes, Dialog, Failed, Field, Form, type Loaded, number, rate, Table, useLoad, Waiting } from "./ui";

const every = 30_000; // milliseconds; the stream tells what changes on the screen
const againMin = 5000; // milliseconds between lists when others than those in the list exist
const ratesMax = 1000; // entities with rates, the most that the API returns

type Row = Entity & { kind: Kind };

/** useLive keeps the last row of each entity that was on the screen, and when it came. */
function useLive(events: Loaded<Events>): Map<string, EventRow & { at: number }> {
  const live = useRef(new Map<string, EventRow & { at: number }>());
  useMemo(() => {
    for (const row of events.data?.rows ?? []) {
      live.current.set(`${row.kind}s/${row.name}`, { ...row, at: events.at! });
    }
  }, [events.at]);
  return live.current;
}

export function Entities() {
  const loaded = useLoad(
    async (signal) => {
      const [queues, topics] = await Promise.all([list("queues", "", signal), list("topics", "", signal)]);
      return [...queues.map((q): Row => ({ ...q, kind: "queues" })), ...topics.map((t): Row => ({ ...t, kind: "topics" }))];
    },
    [],
    every,
    `${session.namespace}/entities`,
  );
  const rates = useLoad(
    async (signal) => {
      const page = await call<RatesPage>("GET", `/v1/rates?max=${ratesMax}`, undefined, signal);
      return new Map(page.entities.map((e): [string, EntityRates] => [`${e.kind}s/${e.name}`, e]));
    },
    [],
    every,
  );
  const all = useLastCounts(loaded);
  const [visible, setVisible] = useState<string[]>([]);
  const events = useEvents(visible);
  const live = useLive(events);
  const key = (e: Row) => `${e.kind}/${e.name}`;
  const ratesOf = (e: Row): Partial<EventRow> | undefined => {
    const seen = live.get(key(e));
    return seen && seen.at > (rates.at ?? 0) ? seen : rates.data?.get(key(e));
  };
  const countsOf = (e: Row): Partial<Depths> | undefined => {
    const seen = live.get(key(e));
    return seen && (!e.counts || seen.at > loaded.at!) ? seen : e.counts;
  };
  const staleOf = (e: Aged<Row>) => ({ staleSince: e.staleSince === undefined ? undefined : Math.max(e.staleSince, live.get(key(e))?.at ?? 0) });
  const [filter, setFilter] = useQuery("filter");
  const [creating, setCreating] = useState(false);
  const wanted = filter.toLowerCase();
  const rows = useMemo(() => (all ?? []).filter((e) => e.name.toLowerCase().includes(wanted)), [all, wanted, rates.data]);
  const figures = events.data?.figures;
  // When the list was asked for again, and how long its answer may take: another reload aborts that request, so it waits longer each time.
  const asked = useRef({ at: 0, within: againMin });
  useEffect(() => {
    // An entity was created or deleted elsewhere, or its partition has no leader.
    if (!all || !figures || figures.queues + figures.topics === all.length) {
      return;
    }
    const { at, within } = asked.current;
    const arrived = loaded.at! > at;
    if (Date.now() - Math.max(at, loaded.at!) > (arrived ? againMin : within)) {
      asked.current = { at: Date.now(), within: 2 * (arrived ? againMin : within) };
      loaded.reload();
    }
  }, [events.at]);
  return (
    <>
      <h1>Queues and topics</h1>
      <div class="bar">
        <Field label="Filter by name" type="search" value={filter} onValue={setFilter} />
        {!readOnly && (
          <button class="main" onClick={() => setCreating(true)}>
            Create
          </button>
        )}
      </div>
      <Waiting of={loaded} />
      {!loaded.error && <Failed error={events.error} at={events.at} />}
      {all && (
        <Table
          name="Queues and topics"
          rows={rows}
          onVisible={(shown) => setVisible(shown.map((e) => e.name).sort())}
          id={(e) => `${e.kind}/${e.name}`}
          empty={all.length ? <p>No name contains “{filter}”.</p> : <Welcome />}
          columns={[
            { title: "Name", value: (e) => e.name, show: (e) => <a href={urlOf(e.kind, e.name)}>{e.name}</a> },
            { title: "Kind", value: (e) => (e.kind === "queues" ? "queue" : "topic") },
            {
              title: "Status",
              value: (e) => e.status ?? "Active",
              show: (e) => (
                <>
                  {e.status ?? "Active"} <Stale of={staleOf(e)} />
                </>
              ),
            },
            { title: "In/s", value: (e) => ratesOf(e)?.incoming ?? 0, numeric: true, show: (e) => rate(ratesOf(e)?.incoming ?? 0) },
            { title: "Out/s", value: (e) => ratesOf(e)?.outgoing ?? 0, numeric: true, show: (e) => (e.kind === "topics" ? "" : rate(ratesOf(e)?.outgoing ?? 0)) },
            { title: "Consumers", value: (e) => ratesOf(e)?.consumers ?? 0, numeric: true, show: (e) => (e.kind === "topics" ? "" : number(ratesOf(e)?.consumers ?? 0)) },
            { title: "Active", value: (e) => e.counts?.active ?? 0, numeric: true, show: (e) => (e.kind === "topics" ? "" : number(countsOf(e)?.active)) },
            { title: "Locked", value: (e) => e.counts?.locked ?? 0, numeric: true, show: (e) => (e.kind === "topics" ? "" : number(countsOf(e)?.locked)) },
            { title: "Scheduled", value: (e) => e.counts?.scheduled ?? 0, numeric: true, show: (e) => number(countsOf(e)?.scheduled ?? 0) },
            { title: "Dead letters", value: (e) => e.counts?.deadLetter ?? 0, numeric: true, show: (e) => (e.kind === "topics" ? "" : number(countsOf(e)?.deadLetter)) },
            { title: "Size", value: (e) => e.counts?.bytes ?? 0, numeric: true, show: (e) => bytes(countsOf(e)?.bytes) },
            {
              title: "Forwards to",
              value: (e) => e.forwardTo ?? "",
              show: (e) => e.forwardTo && <a href={urlOf(all.find((o) => o.name === e.forwardTo)?.kind ?? "queues", e.forwardTo)}>{e.forwardTo}</a>,
            },
          ]}
        />
      )}
      {creating && <Create kinds={["queues", "topics"]} onClose={() => setCreating(false)} />}
    </>
  );
}

const singular: Record<Kind, string> = { queues: "queue", topics: "topic", subscriptions: "subscription" };

/** Create is the dialog that creates an entity, and opens its page. */
export function Create({ kinds, topic, onClose }: { kinds: Kind[]; topic?: string; onClose: () => void }) {
  const [kind, setKind] = useState(kinds[0]!);
  const [name, setName] = useState("");
  const [draft, setDraft] = useState<Draft>({});
  const full = topic ? `${topic}/Subscriptions/${name}` : name;
  return (
    <Dialog title={`Create a ${kinds.map((k) => singular[k]).join(" or a ")}`} onClose={onClose}>
      <Form
        label="Create"
        onCancel={onClose}
        action={async () => {
          await call("PUT", `/v1/${kind}/${path(full)}`, settingsOf(draft));
        }}
        onDone={() => go(urlOf(kind, full))}
      >
        {kinds.length > 1 && (
          <fieldset class="choice">
            <legend>Kind</legend>
            {kinds.map((k) => (
              <label key={k}>
                <input type="radio" name="kind" checked={kind === k} onChange={() => setKind(k)} /> {singular[k]}
              </label>
            ))}
          </fieldset>
        )}
        <Field label="Name" value={name} onValue={setName} required autocomplete="off" spellcheck={false} />
        <details>
          <summary>Settings</summary>
          <p class="quiet">An empty field means the default. Durations are written as 30s, 5m or 24h.</p>
          <SettingsFields kind={kind} draft={draft} onChange={setDraft} creating />
        </details>
      </Form>
    </Dialog>
  );
}
