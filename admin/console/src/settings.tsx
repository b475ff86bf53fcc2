import type { Kind, Settings } from "./api";
import { Check, Field } from "./ui";

/** Draft holds the settings as they are typed. */
export type Draft = Partial<Record<keyof Settings, string | boolean>>;

interface Setting {
  name: keyof Settings;
  label: string;
  type: "text" | "number" | "check";
  kinds: Kind[];
  fixed?: boolean; // can be chosen at creation only
}

const all: Kind[] = ["queues", "topics", "subscriptions"];
const receiving: Kind[] = ["queues", "subscriptions"];
const sending: Kind[] = ["queues", "topics"];

const settings: Setting[] = [
  { name: "lockDuration", label: "Lock duration", type: "text", kinds: receiving },
  { name: "maxDeliveryCount", label: "Maximum delivery count", type: "number", kinds: receiving },
  { name: "defaultMessageTimeToLive", label: "Time to live of messages", type: "text", kinds: all },
  { name: "deadLetteringOnMessageExpiration", label: "Expired messages become dead letters", type: "check", kinds: receiving },
  { name: "forwardTo", label: "Forward messages to", type: "text", kinds: receiving },
  { name: "forwardDeadLetteredMessagesTo", label: "Forward dead letters to", type: "text", kinds: receiving },
  { name: "deadLetterTimeToLive", label: "Time to live of dead letters", type: "text", kinds: receiving },
  { name: "retryDelay", label: "Delay after a failed delivery", type: "text", kinds: receiving },
  { name: "retryDelayMax", label: "Longest delay after failed deliveries", type: "text", kinds: receiving },
  { name: "autoDeleteOnIdle", label: "Delete when unused for", type: "text", kinds: all },
  { name: "maxMessageBytes", label: "Maximum message size in bytes", type: "number", kinds: sending },
  { name: "maxSizeInMegabytes", label: "Maximum size in MiB", type: "number", kinds: sending },
  { name: "userMetadata", label: "Metadata", type: "text", kinds: all },
  { name: "deadLetteringOnFilterEvaluationExceptions", label: "Messages whose rules fail become dead letters", type: "check", kinds: ["subscriptions"] },
  { name: "requiresSession", label: "Sessions", type: "check", kinds: receiving, fixed: true },
  { name: "requiresDuplicateDetection", label: "Duplicate detection", type: "check", kinds: sending, fixed: true },
  { name: "duplicateDetectionHistoryTimeWindow", label: "Window of duplicate detection", type: "text", kinds: sending },
  { name: "enablePartitioning", label: "Spread over several partitions", type: "check", kinds: sending, fixed: true },
];

/** draftOf returns the settings of an entity as they are typed. */
export function draftOf(kind: Kind, of: Settings): Draft {
  const draft: Draft = {};
  for (const s of settings) {
    const value = of[s.name];
    if (s.kinds.includes(kind) && !s.fixed && value !== undefined) {
      draft[s.name] = typeof value === "number" ? String(value) : value;
    }
  }
  return draft;
}

/** settingsOf returns what is sent: the fields of a draft, with numbers as numbers; those that equal old are left out. */
export function settingsOf(draft: Draft, old: Draft = {}): Settings {
  const sent: Record<string, unknown> = {};
  for (const s of settings) {
    const value = draft[s.name];
    if (value === undefined || value === old[s.name] || (value === "" && old[s.name] === undefined)) {
      continue;
    }
    sent[s.name] = s.type === "number" ? Number(value) : value;
  }
  return sent as Settings;
}

export function SettingsFields({ kind, draft, onChange, creating }: { kind: Kind; draft: Draft; onChange: (draft: Draft) => void; creating?: boolean }) {
  const set = (name: keyof Settings, value: string | boolean) => onChange({ ...draft, [name]: value });
  return (
    <div class="grid">
      {settings
        .filter((s) => s.kinds.includes(kind) && (creating || !s.fixed))
        .map((s) =>
          s.type === "check" ? (
            <Check key={s.name} label={s.label} value={draft[s.name] === true} onValue={(v) => set(s.name, v)} />
          ) : (
            <Field key={s.name} label={s.label} type={s.type} min={s.type === "number" ? 0 : undefined} value={(draft[s.name] as string) ?? ""} onValue={(v) => set(s.name, v)} spellcheck={false} />
          ),
        )}
    </div>
  );
}
