import { useMemo, useRef, useState } from "preact/hooks";
import { call, type Connection, type Link, readOnly, session } from "./api";
import { HowToConnect } from "./connect";
import { urlOf, useQuery } from "./route";
import { bytes, Confirm, Field, type Loaded, number, rate, Table, time, useLoad, Waiting } from "./ui";

const every = 5000; // milliseconds
const perPage = 500; // connections; the most that the API returns
const connectionsMax = 5000; // that are shown

interface Found {
  connections: Connection[];
  unreachable: string[];
  more: boolean;
}

/** connectionsOf loads the connections of all members, page by page. */
async function connectionsOf(signal: AbortSignal): Promise<Found> {
  const found: Found = { connections: [], unreachable: [], more: false };
  for (let after = ""; ; ) {
    const query = new URLSearchParams({ max: String(perPage), ...(after && { after }) });
    const page = await call<{ connections: Connection[]; next?: string; unreachable?: string[] }>("GET", `/v1/connections?${query}`, undefined, signal);
    found.connections.push(...page.connections);
    found.unreachable = page.unreachable ?? [];
    after = page.next ?? "";
    if (!after || found.connections.length >= connectionsMax) {
      return { ...found, more: !!after };
    }
  }
}

/** Rates are messages per second from and to a client. */
interface Rates {
  received: number;
  delivered: number;
}

/** useRates compares the connections of each list with those of the one before. */
function useRates({ data, at }: Loaded<Found>): Map<string, Rates> {
  const before = useRef({ of: new Map<string, Connection>(), at: 0 });
  const rates = useRef(new Map<string, Rates>());
  useMemo(() => {
    const seconds = (at! - before.current.at) / 1000;
    const last = before.current.of;
    before.current = { of: new Map(data?.connections.map((c) => [c.id, c])), at: at! };
    rates.current = new Map(
      data?.connections.flatMap((c) => {
        const old = last.get(c.id);
        return old ? [[c.id, { received: (c.received - old.received) / seconds, delivered: (c.delivered - old.delivered) / seconds }] as const] : [];
      }),
    );
  }, [at]);
  return rates.current;
}

const clientOf = (c: Connection) => c.keys?.join(", ") ?? "";
const libraryOf = (c: Connection) => [c.product, c.version].filter(Boolean).join(" ");
const sum = (links: Link[], of: (l: Link) => number) => links.reduce((total, l) => total + of(l), 0);

/** Missing says what the list lacks. */
function Missing({ found }: { found: Found }) {
  return (
    <>
      {found.unreachable.length > 0 && <p class="failed">These members did not answer, and their connections are missing: {found.unreachable.join(", ")}.</p>}
      {found.more && <p class="quiet">The first {number(found.connections.length)} connections are shown. Choose a namespace to see fewer.</p>}
    </>
  );
}

/** Connections shows the AMQP connections of clients at all members, and closes them. */
export function Connections() {
  const loaded = useLoad(connectionsOf, [session.namespace], every);
  const [filter, setFilter] = useQuery("filter");
  const [open, setOpen] = useQuery("connection");
  const [closing, setClosing] = useState<Connection>();
  const rates = useRates(loaded);
  const all = loaded.data?.connections ?? [];
  const wanted = filter.toLowerCase();
  const rows = all.filter((c) => [c.id, clientOf(c), c.remote, c.container, libraryOf(c), c.member, ...c.links.map((l) => l.entity)].some((text) => text?.toLowerCase().includes(wanted)));
  const shown = all.find((c) => c.id === open);
  return (
    <>
      <h1>Connections</h1>
      <div class="bar">
        <Field label="Filter by client, address, library, member or entity" type="search" value={filter} onValue={setFilter} />
      </div>
      <Waiting of={loaded} />
      {loaded.data && (
        <>
          <Missing found={loaded.data} />
          <Table
            name="Connections"
            rows={rows}
            id={(c) => c.id}
            empty={all.length ? <p>No connection matches “{filter}”.</p> : <HowToConnect text="No client is connected by AMQP. Connect one:" />}
            columns={[
              {
                title: "Connection",
                value: (c) => c.id,
                show: (c) => (
                  <button aria-expanded={c.id === open} aria-label={`Links of connection ${c.id}`} onClick={() => setOpen(c.id === open ? "" : c.id)}>
                    {c.id}
                  </button>
                ),
              },
              { title: "Key", value: clientOf, show: (c) => clientOf(c) || <i>not authenticated</i> },
              { title: "Address", value: (c) => c.remote, show: (c) => `${c.remote}${c.tls ? "" : ", without TLS"}` },
              ...(new Set(all.map((c) => c.namespace)).size > 1 ? [{ title: "Namespace", value: (c: Connection) => c.namespace ?? "" }] : []),
              { title: "Library", value: libraryOf },
              { title: "Member", value: (c) => c.member },
              { title: "Since", value: (c) => c.since, show: (c) => time(c.since) },
              { title: "From it/s", value: (c) => rates.get(c.id)?.received ?? 0, numeric: true, show: (c) => rate(rates.get(c.id)?.received) },
              { title: "To it/s", value: (c) => rates.get(c.id)?.delivered ?? 0, numeric: true, show: (c) => rate(rates.get(c.id)?.delivered) },
              { title: "Memory", value: (c) => c.memoryBytes, numeric: true, show: (c) => <Memory of={c} /> },
              { title: "Links", value: (c) => c.linkCount, numeric: true },
              { title: "Credit", value: (c) => sum(c.links, (l) => l.credit), numeric: true },
              { title: "Unsettled", value: (c) => sum(c.links, (l) => l.unsettled), numeric: true },
              {
                title: "Change",
                value: () => "",
                show: (c) =>
                  !readOnly && (
                    <button class="danger" aria-label={`Close connection ${c.id}`} onClick={() => setClosing(c)}>
                      Close
                    </button>
                  ),
              },
            ]}
          />
        </>
      )}
      {shown && <Detail of={shown} />}
      {closing && (
        <Confirm
          title={`Close connection ${closing.id}`}
          text="Its client connects again. Locks that it holds end, and their messages are delivered again."
          label="Close"
          action={() => call("DELETE", `/v1/connections/${encodeURIComponent(closing.id)}`)}
          onClose={() => setClosing(undefined)}
          onDone={() => {
            setClosing(undefined);
            loaded.reload();
          }}
        />
      )}
    </>
  );
}

/** Memory is what a connection holds of the memory of its member. */
function Memory({ of: c }: { of: Connection }) {
  return (
    <>
      {bytes(c.memoryBytes)} {c.restricted && <span class="badge bad">above its share</span>}
    </>
  );
}

function Detail({ of: c }: { of: Connection }) {
  return (
    <section aria-label={`Connection ${c.id}`}>
      <h2>Connection {c.id}</h2>
      <dl class="properties">
        {[
          ["Container", c.container ?? ""],
          ["Last bytes received", time(c.lastRead)],
          ["AMQP sessions", number(c.sessions)],
          ["Messages from it", number(c.received)],
          ["Messages to it", number(c.delivered)],
        ].map(([k, v]) => (
          <div key={k}>
            <dt>{k}</dt>
            <dd>{v}</dd>
          </div>
        ))}
      </dl>
      <Table
        name="Links"
        rows={c.links}
        id={(l) => `${l.role}/${l.name}`}
        empty={<p>It has no links.</p>}
        columns={[
          { title: "Entity", value: (l) => l.entity },
          { title: "Client is", value: (l) => l.role },
          { title: "Link", value: (l) => l.name },
          { title: "Credit", value: (l) => l.credit, numeric: true },
          { title: "Unsettled", value: (l) => l.unsettled, numeric: true },
          { title: "Session", value: (l) => l.session ?? "" },
        ]}
      />
      {c.linkCount > c.links.length && (
        <p class="quiet">
          {number(c.links.length)} of {number(c.linkCount)} links are shown.
        </p>
      )}
    </section>
  );
}

/** isOf reports whether an address that a client named is that of an entity, or of one of its sub-queues. */
function isOf(address: string, name: string): boolean {
  const at = address.replace(/^\w+:\/\/[^/]*/, "").replace(/^\//, "").toLowerCase();
  return at === name.toLowerCase() || at.startsWith(`${name.toLowerCase()}/$`);
}

type ClientLink = Link & { of: Connection };

/** linksOf returns the links to an entity. */
const linksOf = (found: Found | undefined, name: string): ClientLink[] => (found?.connections ?? []).flatMap((of) => of.links.filter((l) => isOf(l.entity, name)).map((l) => ({ ...l, of })));

/** Clients shows who sends to an entity and who receives from it. */
export function Clients({ name }: { name: string }) {
  const loaded = useLoad(connectionsOf, [session.namespace], every);
  const links = linksOf(loaded.data, name);
  return (
    <>
      <Waiting of={loaded} />
      {loaded.data && (
        <>
          <Missing found={loaded.data} />
          <Table
            name="Clients"
            rows={links}
            id={(l) => `${l.of.id}/${l.role}/${l.name}`}
            empty={<HowToConnect to={name.split(/\/Subscriptions\//i)[0]} text="No client sends or receives here by AMQP. Connect one:" />}
            columns={[
              { title: "Client is", value: (l) => l.role },
              { title: "Key", value: (l) => clientOf(l.of), show: (l) => clientOf(l.of) || <i>not authenticated</i> },
              { title: "Connection", value: (l) => l.of.id, show: (l) => <a href={urlOf("connections", "", { connection: l.of.id })}>{l.of.id}</a> },
              { title: "Address", value: (l) => l.of.remote },
              ...(new Set(links.map((l) => l.of.namespace)).size > 1 ? [{ title: "Namespace", value: (l: ClientLink) => l.of.namespace ?? "" }] : []),
              { title: "Library", value: (l) => libraryOf(l.of) },
              { title: "Since", value: (l) => l.of.since, show: (l) => time(l.of.since) },
              { title: "Entity", value: (l) => l.entity },
              { title: "Credit", value: (l) => l.credit, numeric: true },
              { title: "Unsettled", value: (l) => l.unsettled, numeric: true },
              { title: "Session", value: (l) => l.session ?? "" },
            ]}
          />
        </>
      )}
    </>
  );
}

/** useHolders returns the clients that hold sessions of an entity, by the id of the session. */
export function useHolders(name: string): Map<string, string> {
  const loaded = useLoad(connectionsOf, [session.namespace], every);
  return new Map(linksOf(loaded.data, name).flatMap((l) => (l.session === undefined ? [] : [[l.session, `${clientOf(l.of) || l.of.remote} (${l.of.id})`] as const])));
}
