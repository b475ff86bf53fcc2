// The stream of events of the member: a line of JSON each second, which all viewers with the same rights share.
import { useEffect, useState } from "preact/hooks";
import { type Condition, inNamespace, type Member, type RatesPage, Refusal, request } from "./api";
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

/** Events is what the lines so far say: a line omits parts that did not change. */
export interface Events {
  figures: { queues: number; topics: number; subscriptions: number; total: Depths; deepest: EntityFigures[]; deadLettered: EntityFigures[] };
  rates?: RatesPage;
  ratesAt?: number;
  cluster?: { members: Member[]; partitions: number; conditions: Condition[] };
}

const againAfter = 2000; // milliseconds, after the end of a stream

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

/** useEvents reads the stream while the page is visible, and begins again when it ends. After an error the last data stay. */
export function useEvents(): Loaded<Events> {
  const [state, setState] = useState<Omit<Loaded<Events>, "reload">>({});
  const [round, setRound] = useState(0);
  useEffect(() => {
    const again = () => setRound((n) => n + 1);
    document.addEventListener("visibilitychange", again);
    return () => document.removeEventListener("visibilitychange", again);
  }, []);
  useEffect(() => {
    if (document.hidden) {
      return;
    }
    const abort = new AbortController();
    let timer = 0;
    const read = async () => {
      let isRefused = false;
      try {
        for await (const line of linesOf(await request("GET", inNamespace("/v1/events"), {}, undefined, abort.signal))) {
          const { end, at: _, rows: __, ...event } = JSON.parse(line) as Partial<Events> & { end?: string; at: string; rows: unknown };
          if (!end) {
            const at = Date.now();
            setState((old) => ({ at, data: { ...old.data, ...(event.rates && { ratesAt: at }), ...event } as Events }));
          }
        }
      } catch (error) {
        if (abort.signal.aborted) {
          return;
        }
        isRefused = error instanceof Refusal && (error.status === 401 || error.status === 403);
        setState((old) => ({ ...old, error: error instanceof Refusal ? error : new Refusal(0, "Unreachable", "The member does not answer. Open the console at another member.") }));
      }
      if (!isRefused && !abort.signal.aborted) {
        timer = window.setTimeout(read, againAfter);
      }
    };
    void read();
    return () => {
      abort.abort();
      clearTimeout(timer);
    };
  }, [round]);
  return { ...state, reload: () => setRound((n) => n + 1) };
}
