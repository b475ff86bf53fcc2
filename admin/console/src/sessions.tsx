import { useState } from "preact/hooks";
import { call, path, readOnly, type SessionRow } from "./api";
import { useHolders } from "./clients";
import { bytes, Confirm, Dialog, Form, number, Table, time, useLoad, Waiting } from "./ui";

const every = 2000; // milliseconds

/** Sessions lists the sessions of a queue or subscription. */
export function Sessions({ name }: { name: string }) {
  const loaded = useLoad((signal) => call<{ sessions: SessionRow[]; next?: number }>("GET", `/v1/sessions/${path(name)}?max=1000`, undefined, signal), [name], every);
  const [open, setOpen] = useState<SessionRow>();
  const [releasing, setReleasing] = useState<string>();
  const holders = useHolders(name);
  return (
    <>
      <Waiting of={loaded} />
      {loaded.data && (
        <Table
          name="Sessions"
          rows={loaded.data.sessions}
          id={(s) => s.id}
          empty={<p>No session has messages or a state.</p>}
          columns={[
            { title: "Session", value: (s) => s.id, show: (s) => s.id || <i>empty id</i> },
            { title: "Messages", value: (s) => s.messages, numeric: true },
            { title: "Ready", value: (s) => s.ready, numeric: true },
            { title: "Locked until", value: (s) => s.lockedUntil ?? "", show: (s) => time(s.lockedUntil) || "not locked" },
            { title: "Holder", value: (s) => holders.get(s.id) ?? "" },
            { title: "State", value: (s) => s.stateBytes, numeric: true, show: (s) => (s.stateUpdatedAt ? bytes(s.stateBytes) : "none") },
            { title: "State of", value: (s) => s.stateUpdatedAt ?? "", show: (s) => time(s.stateUpdatedAt) },
            {
              title: "Change",
              value: () => "",
              show: (s) => (
                <span class="buttons">
                  <button aria-label={`State of session ${s.id}`} onClick={() => setOpen(s)}>
                    State
                  </button>
                  {!readOnly && s.lockedUntil && (
                    <button aria-label={`Release session ${s.id}`} onClick={() => setReleasing(s.id)}>
                      Release
                    </button>
                  )}
                </span>
              ),
            },
          ]}
        />
      )}
      {loaded.data?.next !== undefined && <p class="quiet">The first {number(loaded.data.sessions.length)} sessions are shown.</p>}
      {open && (
        <State
          name={name}
          id={open.id}
          onClose={() => setOpen(undefined)}
          onDone={() => {
            setOpen(undefined);
            loaded.reload();
          }}
        />
      )}
      {releasing !== undefined && (
        <Confirm
          title={`Release session ${releasing}`}
          text="Its receiver loses the lock, and the messages that it has received are delivered again to the next one."
          label="Release"
          action={() => call("POST", `/v1/release/${path(name)}?${new URLSearchParams({ session: releasing })}`)}
          onClose={() => setReleasing(undefined)}
          onDone={() => {
            setReleasing(undefined);
            loaded.reload();
          }}
        />
      )}
    </>
  );
}

/** base64Of returns the bytes of a text in base64, as the API has them. */
const base64Of = (text: string) => btoa(String.fromCharCode(...new TextEncoder().encode(text)));

/** textOf returns a state as text, or undefined if its bytes are not UTF-8. */
function textOf(base64: string): string | undefined {
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(Uint8Array.from(atob(base64), (c) => c.charCodeAt(0)));
  } catch {
    return undefined;
  }
}

/** State shows the state of a session, and changes it. */
function State({ name, id, onClose, onDone }: { name: string; id: string; onClose: () => void; onDone: () => void }) {
  const route = `/v1/session-state/${path(name)}?${new URLSearchParams({ session: id })}`;
  const loaded = useLoad((signal) => call<{ set: boolean; state?: string }>("GET", route, undefined, signal), [route]);
  const [draft, setDraft] = useState<string>();
  const old = loaded.data && textOf(loaded.data.state ?? "");
  return (
    <Dialog title={`State of session ${id}`} onClose={onClose}>
      <Waiting of={loaded} />
      {loaded.data && old === undefined && <p>The state is not text: peeklock session state {name} writes its bytes.</p>}
      {loaded.data && (
        <Form label="Set the state" disabled={readOnly || draft === undefined} action={() => call("PUT", route, { state: base64Of(draft ?? "") })} onCancel={onClose} onDone={onDone}>
          <label class="field">
            <span>State</span>
            <textarea rows={8} value={draft ?? old ?? ""} readOnly={readOnly} onInput={(e) => setDraft(e.currentTarget.value)} spellcheck={false} />
          </label>
        </Form>
      )}
      {!readOnly && loaded.data?.set && <Form label="Clear the state" danger action={() => call("DELETE", route)} onDone={onDone} />}
    </Dialog>
  );
}
