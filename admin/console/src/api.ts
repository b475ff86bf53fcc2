// Requests to the API of the member that served this page. The console has no API of its own: docs/cli.md and docs/index.md
// describe the routes below /v1, and docs/service-bus-protocol.md the requests about messages.
import { bearer, bearerName, end, forgetTokens, hasTokens } from "./oidc";

/** Problem is the body of every answer other than 2xx. */
interface Problem {
  code: string;
  message: string;
  trackingId: string;
}

/** Refusal is an answer other than 2xx, or the failure to get one (status 0). */
export class Refusal extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    message: string,
    readonly trackingId = "",
  ) {
    super(message);
  }
}

/** Key is what a person signs in with. It stays in the memory of this tab. */
export interface Key {
  name: string;
  secret: string;
  entity: string; // "" for a key of a namespace or of the cluster
}

const tokenSeconds = 3600;
const renewSeconds = 300; // before the end of a token

let key: Key | null = null;
let token = { text: "", until: 0 };

/** namespace is that of all requests; "" is the one that the host selects. */
export const session = { namespace: "" };

export function signIn(with_: Key | null) {
  key = with_;
  token = { text: "", until: 0 };
  forgetTokens();
}

export const isSignedIn = () => key !== null || hasTokens();

/** signedInAs is a name to show, which can be empty. */
export function signedInAs(): string {
  return key?.name ?? bearerName();
}

/** readOnly is true if the setting `console` is read-only: the page then offers no changes. The server's checks do not depend on it. */
export const readOnly =
  document.querySelector<HTMLMetaElement>("meta[name=peeklock-console]")?.content === "read-only";

async function authorization(): Promise<string> {
  try {
    const jwt = await bearer();
    if (jwt) {
      return `Bearer ${jwt}`;
    }
  } catch (e) {
    throw new Refusal(401, "ExpiredToken", (e as Error).message);
  }
  const now = Date.now() / 1000;
  if (key && now > token.until - renewSeconds) {
    const until = Math.floor(now) + tokenSeconds;
    const resource = encodeURIComponent(`${location.origin}/${key.entity}`.toLowerCase());
    const bytes = new TextEncoder();
    const secret = await crypto.subtle.importKey("raw", bytes.encode(key.secret), { name: "HMAC", hash: "SHA-256" }, false, ["sign"]);
    const signed = new Uint8Array(await crypto.subtle.sign("HMAC", secret, bytes.encode(`${resource}\n${until}`)));
    const signature = encodeURIComponent(btoa(String.fromCharCode(...signed)));
    token = {
      text: `SharedAccessSignature sr=${resource}&sig=${signature}&se=${until}&skn=${encodeURIComponent(key.name)}`,
      until,
    };
  }
  return key ? token.text : "";
}

/**
 * identity names the sign-in of this tab and the namespace for other tabs of the browser: it is made with the key, and does not tell it. Tabs that signed in otherwise
 * than with a key have names of their own.
 */
export async function identity(): Promise<string> {
  if (!key) {
    return hasTokens() ? crypto.randomUUID() : `/${session.namespace}`;
  }
  const bytes = new TextEncoder();
  const secret = await crypto.subtle.importKey("raw", bytes.encode(key.secret), { name: "HMAC", hash: "SHA-256" }, false, ["sign"]);
  const signed = new Uint8Array(await crypto.subtle.sign("HMAC", secret, bytes.encode(JSON.stringify(["tabs", key.name, key.entity, session.namespace]))));
  return btoa(String.fromCharCode(...signed));
}

/** request sends one request and returns the answer, or throws a Refusal. */
export async function request(method: string, path: string, headers: Record<string, string> = {}, body?: BodyInit, signal?: AbortSignal): Promise<Response> {
  const signed = await authorization();
  if (signed) {
    headers = { ...headers, Authorization: signed };
  }
  let response: Response;
  try {
    response = await fetch(path, { method, headers, body, signal, credentials: "omit", cache: "no-store" });
  } catch (e) {
    if (signal?.aborted) {
      throw e;
    }
    throw new Refusal(0, "Unreachable", "The member does not answer. Open the console at another member.");
  }
  if (!response.ok) {
    const text = await response.text();
    let problem: Partial<Problem> = {};
    try {
      problem = JSON.parse(text) as Problem;
    } catch {
      problem = { message: text.replace(/<[^>]*>/g, " ").trim() };
    }
    if (response.status === 401 && hasTokens() && problem.message?.includes("ExpiredToken")) {
      problem.message = end(problem.message);
    }
    throw new Refusal(response.status, problem.code ?? String(response.status), problem.message || response.statusText, problem.trackingId);
  }
  return response;
}

/** inNamespace adds the namespace of the session to the path of a request. */
export function inNamespace(path: string): string {
  return session.namespace ? `${path}${path.includes("?") ? "&" : "?"}namespace=${encodeURIComponent(session.namespace)}` : path;
}

/** call sends a request to the control API and returns its JSON. */
export async function call<T>(method: string, path: string, body?: unknown, signal?: AbortSignal): Promise<T> {
  const headers: Record<string, string> = { Accept: "application/json" };
  if (body !== undefined) {
    headers["Content-Type"] = "application/json";
  }
  const response = await request(method, inNamespace(path), headers, body === undefined ? undefined : JSON.stringify(body), signal);
  const text = await response.text();
  return (text ? JSON.parse(text) : undefined) as T;
}

/** path writes the name of an entity or rule into a URL: the slashes in it stay. */
export function path(name: string): string {
  return name.split("/").map(encodeURIComponent).join("/");
}

// The parts of admin/api and topology that the pages show.

export interface Counts {
  active: number;
  locked: number;
  deferred: number;
  scheduled: number;
  deadLetter: number;
  bytes: number;
  transfer: number;
  transferDeadLetter: number;
}

export interface Settings {
  lockDuration?: string;
  maxDeliveryCount?: number;
  maxMessageBytes?: number;
  defaultMessageTimeToLive?: string;
  deadLetteringOnMessageExpiration?: boolean;
  requiresDuplicateDetection?: boolean;
  duplicateDetectionHistoryTimeWindow?: string;
  autoDeleteOnIdle?: string;
  maxSizeInMegabytes?: number;
  status?: string;
  userMetadata?: string;
  deadLetteringOnFilterEvaluationExceptions?: boolean;
  forwardTo?: string;
  forwardDeadLetteredMessagesTo?: string;
  requiresSession?: boolean;
  enablePartitioning?: boolean;
  deadLetterTimeToLive?: string;
  retryDelay?: string;
  retryDelayMax?: string;
}

export interface Entity extends Settings {
  name: string;
  partition: number;
  createdAt: string;
  updatedAt: string;
  counts?: Counts & { subscriptions?: number };
  topicName?: string;
  subscriptionName?: string;
}

/** Sample is what happened to messages in a few seconds, and how many were stored at the end. */
export interface Sample {
  incoming: number;
  outgoing: number;
  completed: number;
  abandoned: number;
  deadLettered: number;
  active: number;
  deadLetter: number;
}

/** EntityRates are messages per second, averaged over the last minute, and the samples of the last hour, oldest first. */
export interface EntityRates {
  name: string;
  kind: string; // queue, topic or subscription
  incoming: number;
  outgoing: number;
  completed: number;
  deadLettered: number;
  consumers: number;
  samples?: Sample[];
}

export interface RatesPage {
  entities: EntityRates[];
  total?: EntityRates;
  everySeconds: number;
}

export type Kind = "queues" | "topics" | "subscriptions";

export interface Rule {
  name?: string;
  filter: { kind: string; expression?: string; conditions?: Record<string, unknown> };
  action?: { expression?: string };
}

/** Message is a message that was peeked at. Values of AMQP types that JSON lacks are objects such as {"int": 7}. */
export interface Message {
  sequenceNumber: number;
  state: string;
  locked?: boolean;
  lockedUntil?: string;
  holder?: string; // id of the connection that holds the lock, in a list of locked messages alone
  deliveryCount: number;
  enqueuedAt?: string;
  expiresAt?: string;
  scheduledFor?: string;
  deadLetterSource?: string;
  deadLetterReason?: string;
  deadLetterErrorDescription?: string;
  bodyBytes: number;
  messageId?: unknown;
  correlationId?: unknown;
  subject?: string;
  sessionId?: string;
  replyToSessionId?: string;
  contentType?: string;
  to?: unknown;
  replyTo?: unknown;
  durable?: boolean;
  priority?: number;
  ttlMilliseconds?: number;
  userId?: string;
  contentEncoding?: string;
  groupSequence?: number;
  creationTime?: string;
  absoluteExpiryTime?: string;
  properties?: Record<string, unknown>;
  annotations?: Record<string, unknown>;
  deliveryAnnotations?: Record<string, unknown>;
  footer?: Record<string, unknown>;
  data?: string[];
  body?: string;
  bodyBase64?: string;
  value?: unknown;
  sequence?: unknown;
  bodyCut?: boolean;
}

export interface MessagePage {
  messages: Message[] | null;
  looked: number;
  next: number;
  end: boolean;
}

export interface SessionRow {
  id: string;
  messages: number;
  ready: number;
  lockedUntil?: string;
  stateBytes: number;
  stateUpdatedAt?: string;
}

export interface Link {
  name: string;
  entity: string; // the address that the client named
  role: string; // of the client: sender or receiver
  credit: number;
  unsettled: number;
  session?: string; // that the link holds
}

/** Connection is an AMQP connection of a client. */
export interface Connection {
  id: string;
  member: string;
  namespace?: string;
  since: string;
  lastRead: string;
  remote: string;
  tls: boolean;
  keys?: string[];
  container?: string;
  product?: string;
  version?: string;
  sessions: number;
  received: number; // messages from the client since it connected
  delivered: number; // to the client
  memoryBytes: number;
  restricted?: boolean; // memory is short, and it holds more than its fair share
  linkCount: number;
  links: Link[];
}

export interface Member {
  id: string;
  name: string;
  state: string;
  version: string;
  amqp: string;
  http: string;
  leads: number;
  holds: number;
  readOnly: boolean;
  drained: boolean;
  clockOff: boolean;
  zone?: string;
  weight?: number;
  removed?: boolean;
}

export interface Partition {
  id: number;
  leader: string;
  term: number;
  applied: number;
  replicas: string[];
  entities: number;
  messages: number;
  contactNs: number; // since the answering member heard from the leader; 0 without a replica
}

export interface Status {
  clusterId: string;
  members: Member[];
  partitions: Partition[];
  formatLevel: number;
}

/** Storage is the disks of members, and the last backup of each partition that was read through a member since that started. */
export interface Storage {
  members: { id: string; name: string; diskBytes: number; freeBytes: number }[];
  backups: { partition: number; at: string; bytes: number }[];
  unreachable?: string[];
}

/** Condition is something that needs attention, as `peeklock doctor` reports it. */
export interface Condition {
  condition: string;
  severity: string; // critical, warning or info
  subject: string;
  detail?: string;
  mend: string; // commands in it are between backquotes
}

export interface PlannedMove {
  partition: number;
  from: string[];
  to: string[];
  bytes: number;
  leaderOnly: boolean;
}

export interface Move {
  partition: number;
  from: string[];
  to: string[];
  state: string;
  copied: number;
  bytes: number;
}

export interface AccessRule {
  name: string;
  rights: string[];
  primaryKey: string;
  secondaryKey?: string;
  primaryConnectionString?: string;
  secondaryConnectionString?: string;
}

export interface Namespace {
  name: string;
  hosts?: string[];
  maxEntities?: number;
  maxMessages?: number;
  maxBytes?: number;
  maxRules?: number;
  usage?: { queuesAndTopics: number; entities: number; messages: number; rules: number; memoryBytes: number; diskBytes: number };
  createdAt: string;
}

/** entitiesPerPage is the most that the API returns in one answer. */
const entitiesPerPage = 1000;

/** list returns all entities of a kind, page by page. Those of partitions without a leader have no counts. */
export async function list(kind: Kind, topic = "", signal?: AbortSignal): Promise<Entity[]> {
  const all: Entity[] = [];
  let after = "";
  do {
    const query = new URLSearchParams({ counts: "true", available: "true", max: String(entitiesPerPage) });
    if (topic) {
      query.set("topic", topic);
    }
    if (after) {
      query.set("after", after);
    }
    const page = await call<{ next?: string } & Record<Kind, Entity[] | null>>("GET", `/v1/${kind}?${query}`, undefined, signal);
    all.push(...(page[kind] ?? []));
    after = page.next ?? "";
  } while (after);
  return all;
}
