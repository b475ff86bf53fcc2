import { useMemo, useState } from "preact/hooks";
import { call, session } from "./api";
import { useQuery } from "./route";
import { Field, number, Select, Table, time, useLoad, Waiting } from "./ui";

const every = 10_000; // milliseconds
const perPage = 500; // events, the most that the API returns

interface AuditEvent {
  at: string;
  member: string;
  number: number;
  event: string;
  fields: Record<string, string>;
}

interface Page {
  events: AuditEvent[];
  next?: string;
  unreachable?: string[];
}

/** load returns so many pages of the newest events. */
async function load(pages: number, signal: AbortSignal): Promise<Page> {
  const all: Page = { events: [] };
  do {
    const page = await call<Page>("GET", `/v1/audit?${new URLSearchParams({ max: String(perPage), ...(all.next && { after: all.next }) })}`, undefined, signal);
    Object.assign(all, page, { events: [...all.events, ...page.events] });
    all.next = page.next;
  } while (all.next && --pages > 0);
  return all;
}

const shownApart = ["who", "operation", "outcome", "peer", "kind", "name", "rule", "path"]; // fields with columns of their own

const whoOf = ({ fields: f }: AuditEvent) => f.who || (f.operation ? "" : (f.name ?? ""));
const actionOf = ({ event, fields: f }: AuditEvent) => (event === "admin_change" ? `${f.operation} ${f.kind?.replaceAll("_", " ")}` : event.replaceAll("_", " "));
const whatOf = ({ fields: f }: AuditEvent) => (f.operation && f.name ? [f.name, f.rule].filter(Boolean).join(", rule ") : (f.path ?? f.rule ?? ""));
const restOf = ({ fields: f }: AuditEvent) =>
  Object.keys(f)
    .filter((name) => f[name] && !shownApart.includes(name))
    .sort()
    .map((name) => `${name}: ${f[name]}`)
    .join(", ");

/** choices are the values of events, for a list to choose from. */
const choices = (events: AuditEvent[], of: (e: AuditEvent) => string, chosen: string): [string, string][] => [["", "All"], ...[...new Set([...events.map(of), chosen])].filter(Boolean).sort().map((v): [string, string] => [v, v])];

/** Audit shows the newest audit events of all members. */
export function Audit() {
  const [pages, setPages] = useState(1);
  const loaded = useLoad((signal) => load(pages, signal), [pages, session.namespace], every);
  const [text, setText] = useQuery("filter");
  const [who, setWho] = useQuery("who");
  const [action, setAction] = useQuery("action");
  const all = loaded.data?.events ?? [];
  const rows = useMemo(() => {
    const wanted = text.toLowerCase();
    return all.filter(
      (e) => (!who || whoOf(e) === who) && (!action || actionOf(e) === action) && [e.member, actionOf(e), ...Object.values(e.fields)].some((value) => value.toLowerCase().includes(wanted)),
    );
  }, [loaded.data, text, who, action]);
  return (
    <>
      <h1>Audit</h1>
      <p class="quiet">Changes, missing rights and refused logins at all members. Each member keeps its last 1,000 events since it started; the setting audit_log writes all of them to a file.</p>
      <div class="bar">
        <Field label="Filter by text" type="search" value={text} onValue={setText} />
        <Select label="Who" value={who} onValue={setWho} options={choices(all, whoOf, who)} />
        <Select label="Action" value={action} onValue={setAction} options={choices(all, actionOf, action)} />
      </div>
      <Waiting of={loaded} />
      {loaded.data && (
        <>
          {!!loaded.data.unreachable?.length && <p class="failed">These members did not answer, and their events are missing: {loaded.data.unreachable.join(", ")}.</p>}
          <Table
            name="Audit events"
            rows={rows}
            id={(e) => `${e.member}/${e.number}/${e.at}`}
            down
            empty={<p>{all.length ? "No event meets these conditions." : "Nothing has been changed since the members started."}</p>}
            columns={[
              { title: "Time", value: (e) => e.at, show: (e) => time(e.at) },
              { title: "Who", value: whoOf },
              { title: "Action", value: actionOf },
              { title: "What", value: whatOf },
              { title: "Outcome", value: (e) => e.fields.outcome ?? "", show: (e) => e.fields.outcome && <span class={e.fields.outcome.toUpperCase() === "OK" ? "badge good" : "badge bad"}>{e.fields.outcome}</span> },
              { title: "Address", value: (e) => e.fields.peer ?? "" },
              { title: "Member", value: (e) => e.member },
              { title: "Details", value: restOf },
            ]}
          />
          {loaded.data.next && (
            <p>
              The newest {number(all.length)} events are searched. <button onClick={() => setPages(pages + 1)}>Load {number(perPage)} older ones</button>
            </p>
          )}
        </>
      )}
    </>
  );
}
