import { useEffect, useState } from "preact/hooks";
import { call, path } from "./api";
import { Dialog, Failed, Field, Form, number } from "./ui";

/** Action is a change of messages, by the name of its route. */
export type Action = "redrive" | "delete" | "cancel" | "undefer";

/** Selection chooses messages: the part of the bodies of these routes that has the conditions. */
export interface Selection {
  subQueue?: string;
  states?: string[];
  session?: string;
  where?: string;
  contains?: string;
  path?: string;
  reason?: string;
  sequences?: number[];
}

interface Changed {
  count: number;
  matched: number;
  looked: number;
  next: number;
  end: boolean;
}

/** sequencesMax is how many sequence numbers one request may have. */
const sequencesMax = 1000;

const words: Record<Action, { label: string; text: string }> = {
  redrive: { label: "Send again", text: "They return to the queue or subscription in which they died, and are delivered again." },
  delete: { label: "Delete", text: "They are lost. Messages that a receiver has locked stay." },
  cancel: { label: "Cancel", text: "They are never delivered, and are lost." },
  undefer: { label: "Return", text: "They are delivered again without being asked for by number." },
};

/** steps runs an action request by request, and reports after each of them; it ends early when goesOn says so. */
async function steps(action: Action, name: string, selection: Selection, dryRun: boolean, goesOn: () => boolean, report: (matched: number, changed: number) => void) {
  const run = (body: object) => call<Changed>("POST", `/v1/${action}/${path(name)}`, body);
  let matched = 0;
  let changed = 0;
  const sequences = selection.sequences;
  for (let i = 0; sequences && i < sequences.length; i += sequencesMax) {
    const answer = await run({ ...selection, sequences: sequences.slice(i, i + sequencesMax) });
    report((matched += answer.matched), (changed += answer.count));
  }
  if (sequences) {
    return;
  }
  const all = !Object.entries(selection).some(([k, v]) => k !== "subQueue" && v !== undefined);
  for (let from = 0, end = false; !end && goesOn(); ) {
    const answer = await run({ ...selection, all, from, dryRun });
    report((matched += answer.matched), (changed += answer.count));
    ({ next: from, end } = answer);
  }
}

/** Change asks before an action on the chosen messages, or on all that meet the conditions, which it counts first. */
export function Change({ action, name, selection, onClose, onDone }: { action: Action; name: string; selection: Selection; onClose: () => void; onDone: (changed: number) => void }) {
  const [found, setFound] = useState(selection.sequences?.length ?? 0);
  const [counting, setCounting] = useState(!selection.sequences);
  const [error, setError] = useState<Error>();
  const [changed, setChanged] = useState(0);
  const [typed, setTyped] = useState("");
  const { label, text } = words[action];
  useEffect(() => {
    if (selection.sequences) {
      return undefined;
    }
    let open = true;
    steps(action, name, selection, true, () => open, setFound)
      .then(() => setCounting(false))
      .catch(setError);
    return () => {
      open = false;
    };
  }, []);
  const named = action !== "undefer" && action !== "redrive";
  let result = 0;
  return (
    <Dialog title={`${label} ${counting ? "the messages that meet the conditions" : number(found)}`} onClose={onClose}>
      <Form
        label={label}
        danger
        disabled={counting || found === 0 || (named && typed !== name)}
        action={() =>
          steps(action, name, selection, false, () => true, (_, count) => {
            result = count;
            setChanged(count);
          })
        }
        onCancel={onClose}
        onDone={() => onDone(result)}
      >
        <p role="status">{counting ? `${number(found)} found so far.` : changed ? `${number(changed)} of ${number(found)} done.` : found === 0 ? "No message meets the conditions." : text}</p>
        <Failed error={error} />
        {named && <Field label={`Type ${name} to confirm`} value={typed} onValue={setTyped} autocomplete="off" spellcheck={false} />}
      </Form>
    </Dialog>
  );
}
