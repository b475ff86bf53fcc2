// Addresses of the pages: every view has a URL below /console.
import { useEffect, useState } from "preact/hooks";

export interface Route {
  page: string; // the first part below /console
  name: string; // the rest: the name of an entity
  query: URLSearchParams;
}

const base = "/console";
const changed = "peeklock-navigate";

function current(): Route {
  const [page = "", ...rest] = location.pathname.slice(base.length).split("/").filter(Boolean);
  return { page: page || "overview", name: rest.map(decodeURIComponent).join("/"), query: new URLSearchParams(location.search) };
}

/** urlOf returns the URL of a page. */
export function urlOf(page: string, name = "", query: Record<string, string> = {}): string {
  const search = new URLSearchParams(query).toString();
  const path = [base, page, ...name.split("/").filter(Boolean).map(encodeURIComponent)].join("/");
  return search ? `${path}?${search}` : path;
}

export function go(url: string, replace = false) {
  if (replace) {
    history.replaceState(null, "", url);
  } else {
    history.pushState(null, "", url);
  }
  window.dispatchEvent(new Event(changed));
}

/** useQuery is a state that is kept in the query of the URL. */
export function useQuery(name: string): [string, (value: string) => void] {
  const read = () => new URLSearchParams(location.search).get(name) ?? "";
  const [value, setValue] = useState(read);
  useEffect(() => {
    const update = () => setValue(read());
    window.addEventListener("popstate", update);
    window.addEventListener(changed, update);
    return () => {
      window.removeEventListener("popstate", update);
      window.removeEventListener(changed, update);
    };
  }, [name]);
  const set = (next: string) => {
    const query = new URLSearchParams(location.search);
    if (next) {
      query.set(name, next);
    } else {
      query.delete(name);
    }
    history.replaceState(null, "", query.size ? `?${query}` : location.pathname);
    setValue(next);
  };
  return [value, set];
}

export function useRoute(): Route {
  const [route, setRoute] = useState(current);
  useEffect(() => {
    const update = () => setRoute(current());
    const follow = (e: MouseEvent) => {
      const link = (e.target as Element).closest?.("a");
      if (!link || link.origin !== location.origin || !link.pathname.startsWith(base) || link.target || e.ctrlKey || e.metaKey || e.shiftKey || e.button) {
        return;
      }
      e.preventDefault();
      go(link.href);
      window.scrollTo(0, 0);
    };
    window.addEventListener("popstate", update);
    window.addEventListener(changed, update);
    document.addEventListener("click", follow);
    return () => {
      window.removeEventListener("popstate", update);
      window.removeEventListener(changed, update);
      document.removeEventListener("click", follow);
    };
  }, []);
  return route;
}
