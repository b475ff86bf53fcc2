// Parts that all pages use: loading, tables, dialogs, forms and charts.
import type { ComponentChildren } from "preact";
import { useCallback, useEffect, useMemo, useRef, useState } from "preact/hooks";
import uPlot from "uplot";
import { Refusal } from "./api";

// --- loading ---

export interface Loaded<T> {
  data?: T;
  error?: Error;
  at?: number; // when data arrived
  late?: boolean; // a request has not been answered for some seconds
  reload: () => void;
}

/** lateAfter is how long a request may take, in milliseconds, before the age of the data is shown. */
const lateAfter = 5000;

/** kept has the last data of views that are shown at once when they are opened again, by name. */
const kept = new Map<string, { data: unknown; at: number }>();

/** forget drops what was loaded with a key. */
export const forget = () => kept.clear();

/**
 * useLoad loads data now and, if every is set, again every so many milliseconds while the page is visible. After an error the last data
 * stay, so that a page can show them with their age, and with a name to keep them by also when the page is opened again.
 */
export function useLoad<T>(load: (signal: AbortSignal) => Promise<T>, dependencies: unknown[], every = 0, keepAs = ""): Loaded<T> {
  const start = () => (kept.get(keepAs) as { data: T; at: number } | undefined) ?? {};
  const [state, setState] = useState<Omit<Loaded<T>, "reload">>(start);
  const [round, setRound] = useState(0);
  useEffect(() => setState(start), dependencies);
  useEffect(() => {
    const abort = new AbortController();
    let timer = 0;
    const run = async () => {
      if (!document.hidden || !every) {
        const late = setInterval(() => setState((old) => ({ ...old, late: true })), lateAfter);
        try {
          const next = { data: await load(abort.signal), at: Date.now() };
          if (keepAs) {
            kept.set(keepAs, next);
          }
          setState(next);
        } catch (error) {
          if (abort.signal.aborted) {
            return;
          }
          setState((old) => ({ ...old, error: error as Error }));
        } finally {
          clearInterval(late);
        }
      }
      if (every && !abort.signal.aborted) {
        timer = window.setTimeout(run, every);
      }
    };
    void run();
    return () => {
      abort.abort();
      clearTimeout(timer);
    };
  }, [...dependencies, round]);
  const reload = useCallback(() => setRound((n) => n + 1), []);
  return { ...state, reload };
}

/** Failed shows an error with the id by which it is found in the member's log. */
export function Failed({ error, at }: { error?: Error; at?: number }) {
  if (!error) {
    return null;
  }
  const id = error instanceof Refusal && error.trackingId;
  return (
    <p class="failed" role="alert">
      {error.message}
      {at && <> The data below are {age(at)} old.</>}
      {id && <small> Tracking id {id}</small>}
    </p>
  );
}

/** Waiting is shown until the first data are there. */
export function Waiting({ of }: { of: Loaded<unknown> }) {
  if (of.error) {
    return <Failed error={of.error} at={of.data ? of.at : undefined} />;
  }
  if (of.data === undefined) {
    return <p class="quiet">Loading…</p>;
  }
  return of.late ? (
    <p class="failed" role="alert">
      The member has not answered yet. The data below are {age(of.at ?? 0)} old.
    </p>
  ) : null;
}

// --- numbers ---

const whole = new Intl.NumberFormat("en");
export const number = (n: number | undefined) => (n === undefined ? "" : whole.format(n));

const tenths = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });
/** rate writes messages per second. */
export const rate = (n: number | undefined) => (n === undefined ? "" : n > 0 && n < 0.1 ? "< 0.1" : tenths.format(n));

export function bytes(n: number | undefined): string {
  if (n === undefined) {
    return "";
  }
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (n >= 1024 && unit < units.length - 1) {
    n /= 1024;
    unit++;
  }
  return `${unit && n < 10 ? n.toFixed(1) : Math.round(n)} ${units[unit]}`;
}

/** age writes the time since a moment, in milliseconds since 1970. */
export function age(at: number): string {
  const seconds = Math.max(0, Math.round((Date.now() - at) / 1000));
  return seconds < 120 ? `${seconds} s` : seconds < 7200 ? `${number(Math.round(seconds / 60))} min` : seconds < 172_800 ? `${Math.round(seconds / 3600)} h` : `${number(Math.round(seconds / 86_400))} days`;
}

export const time = (text?: string) => (text ? new Date(text).toLocaleString() : "");

// --- tables ---

export interface Column<T> {
  title: string;
  value: (row: T) => string | number; // sorted by
  show?: (row: T) => ComponentChildren;
  numeric?: boolean;
}

const collator = new Intl.Collator("en", { numeric: true });

/** rowsAtOnce is how many rows of a table are shown before "Show more". */
const rowsAtOnce = 200;

interface TableProps<T> {
  name: string;
  columns: Column<T>[];
  rows: T[];
  id: (row: T) => string | number;
  empty: ComponentChildren;
  by?: number;
  down?: boolean; // sorted downwards by it at first
  onVisible?: (rows: T[]) => void;
}

/**
 * Table shows rows, sorted by the column whose heading was chosen last; first by column `by`, downwards, if it or `down` is given. It sorts again when the
 * list of rows is another one. onVisible gets the rows on the screen whenever they are others.
 */
export function Table<T>({ name, columns, rows, id, empty, by: first = 0, down = first > 0, onVisible }: TableProps<T>) {
  const [sort, setSort] = useState({ column: first, down });
  const [shown, setShown] = useState(rowsAtOnce);
  const body = useRef<HTMLTableSectionElement>(null);
  const sorted = useMemo(() => {
    const by = columns[sort.column] ?? columns[0]!;
    const keyed = rows.map((row) => ({ row, key: by.value(row) }));
    const sign = sort.down ? -1 : 1;
    keyed.sort(({ key: x }, { key: y }) => sign * (typeof x === "number" && typeof y === "number" ? x - y : collator.compare(String(x), String(y))));
    return keyed.map((k) => k.row);
  }, [rows, sort]);
  useEffect(() => {
    if (!onVisible || !body.current) {
      onVisible?.([]);
      return;
    }
    const visible = new Set<number>();
    const observer = new IntersectionObserver((changes) => {
      for (const c of changes) {
        const at = (c.target as HTMLTableRowElement).sectionRowIndex;
        c.isIntersecting ? visible.add(at) : visible.delete(at);
      }
      onVisible([...visible].flatMap((at) => sorted[at] ?? []));
    });
    for (const row of body.current.rows) {
      observer.observe(row);
    }
    return () => observer.disconnect();
  }, [sorted, shown]);
  if (!rows.length) {
    return <div class="empty">{empty}</div>;
  }
  return (
    <div class="scroll" tabIndex={0} role="region" aria-label={name}>
      <table>
        <caption class="hidden">{name}</caption>
        <thead>
          <tr>
            {columns.map((c, i) => (
              <th key={c.title} scope="col" class={c.numeric ? "number" : ""} aria-sort={i !== sort.column ? "none" : sort.down ? "descending" : "ascending"}>
                <button class="plain" onClick={() => setSort({ column: i, down: i === sort.column ? !sort.down : !!c.numeric })}>
                  {c.title}
                  <span aria-hidden="true">{i === sort.column ? (sort.down ? " ▾" : " ▴") : ""}</span>
                </button>
              </th>
            ))}
          </tr>
        </thead>
        <tbody ref={body}>
          {sorted.slice(0, shown).map((row) => (
            <tr key={id(row)}>
              {columns.map((c) => (
                <td key={c.title} class={c.numeric ? "number" : ""}>
                  {c.show ? c.show(row) : c.numeric ? number(c.value(row) as number) : c.value(row)}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
      {sorted.length > shown && (
        <p>
          {number(shown)} of {number(sorted.length)} rows. <button onClick={() => setShown(shown + rowsAtOnce)}>Show {rowsAtOnce} more</button>
        </p>
      )}
    </div>
  );
}

// --- dialogs and forms ---

/** Dialog is a modal dialog; the browser keeps the focus in it, and Escape closes it. */
export function Dialog({ title, onClose, children }: { title: string; onClose: () => void; children: ComponentChildren }) {
  const ref = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    ref.current?.showModal();
  }, []);
  return (
    <dialog ref={ref} onClose={onClose} aria-labelledby="dialog-title">
      <h2 id="dialog-title">{title}</h2>
      {children}
    </dialog>
  );
}

/** Form runs an action when it is submitted, shows its error, and says done to the caller when it has succeeded. */
export function Form({ action, label, onDone, onCancel, danger, disabled, children }: { action: () => Promise<void>; label: string; onDone: () => void; onCancel?: () => void; danger?: boolean; disabled?: boolean; children?: ComponentChildren }) {
  const [error, setError] = useState<Error>();
  const [busy, setBusy] = useState(false);
  const submit = async (e: Event) => {
    e.preventDefault();
    setBusy(true);
    setError(undefined);
    try {
      await action();
      onDone();
    } catch (failure) {
      setError(failure as Error);
    } finally {
      setBusy(false);
    }
  };
  return (
    <form onSubmit={submit}>
      {children}
      <Failed error={error} />
      <p class="buttons">
        <button type="submit" class={danger ? "danger" : "main"} disabled={busy || disabled}>
          {label}
        </button>
        {onCancel && (
          <button type="button" onClick={onCancel}>
            Cancel
          </button>
        )}
      </p>
    </form>
  );
}

interface InputProps {
  type?: "text" | "password" | "number" | "search" | "datetime-local";
  min?: number;
  max?: number;
  step?: number;
  required?: boolean;
  autocomplete?: "off" | "username";
  spellcheck?: boolean;
}

export function Field({ label, value, onValue, hint, ...input }: { label: string; value: string; onValue: (value: string) => void; hint?: string } & InputProps) {
  return (
    <label class="field">
      <span>{label}</span>
      <input {...(input as object)} value={value} onInput={(e) => onValue(e.currentTarget.value)} />
      {hint && <small>{hint}</small>}
    </label>
  );
}

export function Check({ label, name, value, onValue }: { label: string; name?: string; value: boolean; onValue: (value: boolean) => void }) {
  return (
    <label class="check">
      <input type="checkbox" aria-label={name} checked={value} onChange={(e) => onValue(e.currentTarget.checked)} /> {label}
    </label>
  );
}

/** Select is a choice of one; options are texts, or pairs of a value and its text. */
export function Select({ label, value, onValue, options, required }: { label: string; value: string; onValue: (value: string) => void; options: (string | [string, string])[]; required?: boolean }) {
  return (
    <label class="field">
      <span aria-hidden="true">{label}</span>
      <select aria-label={label} value={value} required={required} onChange={(e) => onValue(e.currentTarget.value)}>
        {options.map((o) => {
          const [id, text] = typeof o === "string" ? [o, o] : o;
          return (
            <option key={id} value={id}>
              {text}
            </option>
          );
        })}
      </select>
    </label>
  );
}

/** Confirm asks for the name of what is lost, when it is given, before an action that cannot be undone. */
export function Confirm({ title, text, name, label, action, onClose, onDone }: { title: string; text: ComponentChildren; name?: string; label: string; action: () => Promise<void>; onClose: () => void; onDone: () => void }) {
  const [typed, setTyped] = useState("");
  return (
    <Dialog title={title} onClose={onClose}>
      <Form action={action} label={label} danger disabled={name !== undefined && typed !== name} onDone={onDone} onCancel={onClose}>
        <p>{text}</p>
        {name !== undefined && <Field label={`Type ${name} to confirm`} value={typed} onValue={setTyped} autocomplete="off" spellcheck={false} />}
      </Form>
    </Dialog>
  );
}

/** Copy is a button that copies a text, such as a connection string. */
export function Copy({ text, label }: { text: string; label: string }) {
  const [done, setDone] = useState(false);
  const copy = async () => {
    await navigator.clipboard.writeText(text);
    setDone(true);
    setTimeout(() => setDone(false), 2000);
  };
  return (
    <button onClick={copy} title={label}>
      {done ? "Copied" : label}
    </button>
  );
}

/** save stores bytes in a file of the person's machine. */
export function save(body: Blob, name: string) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(body);
  link.download = name;
  link.click();
  URL.revokeObjectURL(link.href);
}

// --- charts ---

/** secondsMin is the least time that a chart spans. */
const secondsMin = 60;

export interface Series {
  label: string;
  values: (number | null)[];
}

/** Chart draws series over a common time, in seconds since 1970. The table behind it is for readers of the screen. */
export function Chart({ title, times: at, series }: { title: string; times: number[]; series: Series[] }) {
  const times = at.length === 1 ? [at[0]! - secondsMin, at[0]!] : at; // of a single time, the library draws years
  const values = series.map((s) => (at.length === 1 ? [null, ...s.values] : s.values));
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  useEffect(() => {
    const element = box.current;
    if (!element) {
      return;
    }
    const style = getComputedStyle(document.documentElement);
    const color = (name: string) => style.getPropertyValue(name).trim();
    const axis: uPlot.Axis = { stroke: color("--quiet"), grid: { stroke: color("--line"), width: 1 }, ticks: { show: false } };
    const made = new uPlot(
      {
        width: element.clientWidth || 300,
        height: 180,
        legend: { live: true },
        series: [{}, ...series.map((s, i) => ({ label: s.label, stroke: color(`--series-${i + 1}`), width: 2, points: { show: false } }))],
        axes: [axis, { ...axis, size: 60, values: (_: uPlot, ticks: number[]) => ticks.map((t) => tenths.format(t)) }],
        scales: {
          x: { range: (_u: uPlot, min: number, max: number) => [Math.min(min, max - secondsMin), max] },
          y: { range: (_u: uPlot, _min: number, max: number) => [0, Math.max(max || 0, 1)] },
        },
      },
      [times, ...values],
      element,
    );
    plot.current = made;
    const resized = new ResizeObserver(() => made.setSize({ width: element.clientWidth, height: 180 }));
    resized.observe(element);
    return () => {
      resized.disconnect();
      made.destroy();
    };
  }, [series.map((s) => s.label).join()]);
  useEffect(() => plot.current?.setData([times, ...values]), [at]);
  const last = series.map((s) => `${s.label}: ${tenths.format(s.values.at(-1) ?? 0)}`).join(", ");
  return (
    <figure>
      <figcaption>{title}</figcaption>
      <div ref={box} role="img" aria-label={`${title}. Now ${last}.`} />
    </figure>
  );
}
