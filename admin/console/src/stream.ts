// The stream of events of the member: a line of JSON each second, which all viewers with the same rights share. The tabs of a browser with
// one sign-in share one stream: the tab that holds a lock of the browser reads it and passes the lines on. A tab that is hidden takes no part.
import { useEffect, useRef, useState } from "preact/hooks";
import { type Condition, identity, inNamespace, type Member, type RatesPage, Refusal, request } from "./api";
import type { Loaded } from "./ui";

export interface Depths {
  active: number;
  locked: number;
  deferred: number;
  scheduled: number;
  deadLetter: number;
  bytes: number;
}

export interface EntityFigures extends Depths {
  name: string;
  kind: string; // queue, topic or subscription
}

export interface EventRow extends EntityFigures {
  incoming: number;
  outgoing: number;
  completed: number;
  consumers: number;
}

/** Events is what the lines so far say: a line omits parts that did not change. */
export interface Events {
  figures: { queues: number; topics: number; subscriptions: number; total: Depths; deepest: EntityFigures[]; deadLettered: EntityFigures[] };
  rates?: RatesPage;
  ratesAt?: number;
  cluster?: { members: Member[]; partitions: number; conditions: Condition[] };
  rows: EventRow[]; // of the names that the tabs have on their screens
}

/** Shared is what tabs tell each other. */
interface Shared {
  tab: string; // the sender
  names?: string[]; // that it has on its screen
  gone?: boolean; // it takes no part any longer
  lead?: boolean; // it reads the stream now, and asks for the names of the others
  events?: Partial<Events>; // of a line, or all that is known for a tab that has come
  at?: number; // when the line arrived, the last one for all that is known; milliseconds since 1970
  failure?: { status: number; code: string; message: string };
}

const againAfter = 2000; // milliseconds, after the end of a stream
const namesAfter = 300; // milliseconds, after names have changed
const namesMax = 100; // of one stream, the most that the API accepts
const nameBytesMax = 8000; // of all names in the address of a stream; a member accepts 16 KiB of header

/** linesOf reads the lines of an answer. */
async function* linesOf(answer: Response) {
  const reader = answer.body!.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (let part = await reader.read(); !part.done; part = await reader.read()) {
    const lines = (text + part.value).split("\n");
    text = lines.pop()!;
    yield* lines;
  }
}

/** queryOf writes names into the address of a stream, as many as fit. */
function queryOf(names: Iterable<string>): string {
  let query = "";
  let count = 0;
  for (const name of [...new Set(names)].sort()) {
    const next = `${query}${query && ","}${encodeURIComponent(name)}`;
    if (++count > namesMax || next.length > nameBytesMax) {
      break;
    }
    query = next;
  }
  return query;
}

/** Participant is a tab that reads the stream, or gets its lines from the tab that does. */
class Participant {
  private readonly tab = crypto.randomUUID();
  private readonly ended = new AbortController();
  private readonly names = new Map<string, string[]>(); // of all tabs, where this one leads
  private own: string[] = [];
  private channel?: BroadcastChannel;
  private isLeader = false;
  private told: Pick<Shared, "events" | "at" | "failure"> = {}; // all that is known from the stream, and what failed since
  private query = "";
  private stream?: AbortController;
  private timer = 0;

  constructor(
    private readonly onEvents: (events: Partial<Events>, at: number) => void,
    private readonly onFailure: (failure: Refusal) => void,
  ) {
    void this.run();
  }

  /** show says which names are on the screen. */
  show(names: string[]) {
    this.own = names;
    if (this.isLeader) {
      this.changed();
    } else {
      this.tell({ names });
    }
  }

  /** end takes no part any longer: another tab reads the stream then. */
  end() {
    this.tell({ gone: true });
    this.ended.abort();
    this.stream?.abort();
    clearTimeout(this.timer);
    this.channel?.close();
  }

  private tell(what: Omit<Shared, "tab">) {
    if (!this.ended.signal.aborted) {
      this.channel?.postMessage({ ...what, tab: this.tab } satisfies Shared);
    }
  }

  private async run() {
    const name = `peeklock-events ${await identity()}`;
    const signal = this.ended.signal;
    if (signal.aborted) {
      return;
    }
    this.channel = new BroadcastChannel(name);
    this.channel.onmessage = ({ data }: MessageEvent<Shared>) => this.hear(data);
    this.tell({ names: this.own });
    try {
      await navigator.locks.request(name, { signal }, () => this.lead());
    } catch {
      // It has ended before it led.
    }
  }

  private hear(from: Shared) {
    if (from.events && from.at) {
      this.onEvents(from.events, from.at);
    }
    if (from.failure) {
      this.onFailure(new Refusal(from.failure.status, from.failure.code, from.failure.message));
    }
    if (from.lead) {
      this.tell({ names: this.own });
    }
    if (!this.isLeader) {
      return;
    }
    if (from.gone) {
      this.names.delete(from.tab);
    } else if (from.names) {
      this.names.set(from.tab, from.names);
      this.tell(this.told);
    }
    this.changed();
  }

  /** changed opens the stream again if other names are shown. */
  private changed() {
    clearTimeout(this.timer);
    this.timer = window.setTimeout(() => {
      if (queryOf(this.wanted()) !== this.query) {
        this.stream?.abort();
      }
    }, namesAfter);
  }

  private wanted(): string[] {
    return [...this.own, ...[...this.names.values()].flat()];
  }

  /** lead reads streams, one after the other, until the tab takes no part any longer or is refused. */
  private async lead() {
    const signal = this.ended.signal;
    this.isLeader = true;
    this.tell({ lead: true });
    while (!signal.aborted) {
      const stream = new AbortController();
      this.stream = stream;
      this.query = queryOf(this.wanted());
      try {
        await this.read(stream.signal);
      } catch (error) {
        if (!stream.signal.aborted) {
          const failure = error instanceof Refusal ? error : new Refusal(0, "Unreachable", "The member does not answer. Open the console at another member.");
          this.onFailure(failure);
          if (failure.status === 401 || failure.status === 403) {
            break; // another tab may have another token
          }
          this.told.failure = { status: failure.status, code: failure.code, message: failure.message };
          this.tell({ failure: this.told.failure });
        }
      }
      if (!stream.signal.aborted) {
        await new Promise((resolve) => {
          setTimeout(resolve, againAfter);
          signal.addEventListener("abort", resolve, { once: true });
        });
      }
    }
    this.isLeader = false;
  }

  private async read(signal: AbortSignal) {
    const path = this.query ? `/v1/events?entities=${this.query}` : "/v1/events";
    for await (const line of linesOf(await request("GET", inNamespace(path), {}, undefined, signal))) {
      const { end, at: _, ...event } = JSON.parse(line) as Partial<Events> & { end?: string; at: string };
      if (!end) {
        const at = Date.now();
        const events = { ...event, ...(event.rates && { ratesAt: at }) };
        this.told = { events: { ...this.told.events, ...events }, at };
        this.onEvents(events, at);
        this.tell({ events, at });
      }
    }
  }
}

/**
 * useEvents takes part in the stream while the page is visible, and gets rows of the entities with these names, which are those on the screen.
 * After an error the last data stay.
 */
export function useEvents(names: string[] = []): Loaded<Events> {
  const [state, setState] = useState<Omit<Loaded<Events>, "reload">>({});
  const [round, setRound] = useState(0);
  const participant = useRef<Participant | null>(null);
  useEffect(() => {
    const again = () => setRound((n) => n + 1);
    const leave = () => participant.current?.end();
    document.addEventListener("visibilitychange", again);
    window.addEventListener("pagehide", leave);
    return () => {
      document.removeEventListener("visibilitychange", again);
      window.removeEventListener("pagehide", leave);
    };
  }, []);
  useEffect(() => {
    if (document.hidden) {
      return;
    }
    const joined = new Participant(
      (events, at) => setState((old) => (old.data || events.figures ? { at, data: { ...old.data, ...events } as Events } : old)),
      (error) => setState((old) => ({ ...old, error })),
    );
    participant.current = joined;
    joined.show(names);
    return () => joined.end();
  }, [round]);
  useEffect(() => participant.current?.show(names), [names.join()]);
  return { ...state, reload: () => setRound((n) => n + 1) };
}
