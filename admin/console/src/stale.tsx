// Counts of entities whose partition has no leader: the last ones that were known, with their age.
import { useRef } from "preact/hooks";
import { type Entity, session } from "./api";
import { age, type Loaded } from "./ui";

/** Aged is an entity with the moment of its counts, if these are not current; 0: they were never known. */
export type Aged<T> = T & { staleSince?: number };

/** known has the last counts by namespace, partition and name. It is forgotten with the key. */
const known = new Map<string, { counts: Entity["counts"]; at: number }>();

export const forgetCounts = () => known.clear();

/** useLastCounts gives entities without counts those that they had before. */
export function useLastCounts<T extends Entity>(loaded: Loaded<T[]>): Aged<T>[] | undefined {
  const last = useRef<{ of?: T[]; aged?: Aged<T>[] }>({});
  if (last.current.of !== loaded.data) {
    const aged = loaded.data?.map((e): Aged<T> => {
      const key = `${session.namespace}/${e.partition}/${e.name}`;
      if (e.counts) {
        known.set(key, { counts: e.counts, at: loaded.at ?? 0 });
        return e;
      }
      const before = known.get(key);
      return { ...e, counts: before?.counts, staleSince: before?.at ?? 0 };
    });
    last.current = { of: loaded.data, aged };
  }
  return last.current.aged;
}

/** Stale marks an entity whose counts are not current. */
export function Stale({ of }: { of: { staleSince?: number } }) {
  return of.staleSince === undefined ? null : <span class="badge bad">no leader, {of.staleSince ? `counts are ${age(of.staleSince)} old` : "counts unknown"}</span>;
}
