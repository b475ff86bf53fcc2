// Sign-in at the identity provider that the settings oidc_* name: authorization code flow with PKCE, as a public client. Tokens
// stay in the memory of this tab. What a sign-in needs when the provider leads back is in the tab's session storage until then.
import * as oauth from "oauth4webapi";

const settings = document.querySelector<HTMLMetaElement>("meta[name=peeklock-oidc]")?.dataset;
const issuer = settings && new URL(settings.issuer!);
const client: oauth.Client = { client_id: settings?.clientId ?? "" };
const redirectURI = `${location.origin}/console`;

/** provider is the host of the identity provider; "" if there is none. */
export const provider = issuer?.host ?? "";

/** Pending is a sign-in that has led to the provider. */
interface Pending {
  state: string;
  nonce: string;
  verifier: string;
  view: string; // path and query to return to
}

const pendingName = "peeklock-sign-in";

interface Tokens {
  bearer: string; // the access token if it is a JWT, else the ID token
  refresh?: string;
  renewAt: number; // milliseconds since 1970, as until
  until: number;
  who: string;
}

let tokens: Tokens | null = null;
let renewal: Promise<void> | undefined;

const providerTimeMax = 10_000; // milliseconds, for one answer of the provider
const renewEarly = 60_000; // milliseconds before the end of a token, or a quarter of its time if that is less
const renewAgain = 10_000; // milliseconds after a failure

export const hasTokens = () => tokens !== null;
export const bearerName = () => tokens?.who ?? "";
export const forgetTokens = () => void (tokens = null);

const options = () => ({ signal: AbortSignal.timeout(providerTimeMax), [oauth.allowInsecureRequests]: issuer!.protocol === "http:" });

/** explain says what failed at the provider and what to do. */
function explain(e: unknown): string {
  if (e instanceof oauth.AuthorizationResponseError || e instanceof oauth.ResponseBodyError) {
    const mend =
      e.error === "access_denied"
        ? "Sign in as somebody who may use Peeklock, or ask who administers the identity provider."
        : `Sign in again. If that does not help, the client ${client.client_id} must be a public one there with PKCE and the redirect URI ${redirectURI}, and oidc_scopes must be scopes that it may ask for.`;
    return `${provider} refused the sign-in: ${[e.error, e.error_description].filter(Boolean).join(": ")}. ${mend}`;
  }
  if (e instanceof oauth.OperationProcessingError || e instanceof oauth.UnsupportedOperationError) {
    return `The answer of ${provider} is not valid: ${e.message}. Sign in again. If that does not help, check oidc_issuer, which must be written as the identity provider writes it, and the clock of this computer.`;
  }
  if (e instanceof TypeError || e instanceof DOMException) {
    return `This page gets no answer from ${provider}. Check that it runs, that this computer reaches it, and that it allows requests from ${location.origin} (CORS).`;
  }
  return (e as Error).message;
}

async function discover(): Promise<oauth.AuthorizationServer> {
  const server = await oauth.processDiscoveryResponse(issuer!, await oauth.discoveryRequest(issuer!, options()));
  if (!server.authorization_endpoint || !server.token_endpoint) {
    throw new Error(`${provider} names no endpoint for authorization or for tokens: it does not offer the authorization code flow. Check oidc_issuer.`);
  }
  const origin = new URL(server.token_endpoint).origin;
  if (!settings!.origins!.split(" ").some((o) => new URL(o).origin === origin)) {
    throw new Error(`${provider} has its token endpoint at ${origin}, which this page may not call: give the members the setting oidc_token_origin: ${origin}`);
  }
  return server;
}

/** begin leads to the identity provider. It returns if a person comes back without signing in. */
export async function begin(): Promise<void> {
  try {
    const server = await discover();
    const pending: Pending = {
      state: oauth.generateRandomState(),
      nonce: oauth.generateRandomNonce(),
      verifier: oauth.generateRandomCodeVerifier(),
      view: location.pathname + location.search,
    };
    const to = new URL(server.authorization_endpoint!);
    for (const [name, value] of Object.entries({
      client_id: client.client_id,
      redirect_uri: redirectURI,
      response_type: "code",
      scope: settings!.scopes!,
      state: pending.state,
      nonce: pending.nonce,
      code_challenge: await oauth.calculatePKCECodeChallenge(pending.verifier),
      code_challenge_method: "S256",
    })) {
      to.searchParams.set(name, value);
    }
    sessionStorage.setItem(pendingName, JSON.stringify(pending));
    location.assign(to);
  } catch (e) {
    throw new Error(explain(e));
  }
  await new Promise((resolve) => window.addEventListener("pageshow", resolve, { once: true }));
  sessionStorage.removeItem(pendingName);
}

/** finish ends a sign-in if the identity provider led to this page, and calls show with the view where it began. */
export async function finish(show: (view: string) => void): Promise<boolean> {
  const stored = sessionStorage.getItem(pendingName);
  sessionStorage.removeItem(pendingName);
  const answer = new URLSearchParams(location.search);
  if (!issuer || !answer.has("state") || !(answer.has("code") || answer.has("error"))) {
    return false;
  }
  const pending = stored ? (JSON.parse(stored) as Pending) : undefined;
  show(pending?.view ?? "/console");
  if (!pending || answer.get("state") !== pending.state) {
    throw new Error(`This answer of ${provider} does not belong to a sign-in that began in this tab, so it was not used. Sign in again.`);
  }
  try {
    const server = await discover();
    const code = oauth.validateAuthResponse(server, client, answer, pending.state);
    const response = await oauth.authorizationCodeGrantRequest(server, client, oauth.None(), code, redirectURI, pending.verifier, options());
    keep(await oauth.processAuthorizationCodeResponse(server, client, response, { expectedNonce: pending.nonce, requireIdToken: true }));
  } catch (e) {
    throw new Error(explain(e));
  }
  return true;
}

const isSigned = (token?: string) => token?.split(".").length === 3;

/** claimsOf reads the claims of a JWT; the member verifies it. */
function claimsOf(token: string): Record<string, unknown> {
  const text = atob(token.split(".")[1]!.replaceAll("-", "+").replaceAll("_", "/"));
  return JSON.parse(new TextDecoder().decode(Uint8Array.from(text, (c) => c.charCodeAt(0))));
}

function keep(result: oauth.TokenEndpointResponse) {
  const bearer = isSigned(result.access_token) ? result.access_token : result.id_token;
  if (!bearer) {
    throw new Error(`${provider} gave no token that members can verify: neither a JWT as access token nor an ID token. Check oidc_scopes.`);
  }
  const id = oauth.getValidatedIdTokenClaims(result);
  const now = Date.now();
  const life = bearer === result.access_token && result.expires_in !== undefined ? result.expires_in * 1000 : Number(claimsOf(bearer).exp) * 1000 - now;
  tokens = {
    bearer,
    refresh: result.refresh_token ?? tokens?.refresh,
    renewAt: now + life - Math.min(renewEarly, life / 4),
    until: now + life,
    who: id ? String(id.preferred_username || id.email || id.name || id.sub) : (tokens?.who ?? ""),
  };
}

async function renew(of: Tokens) {
  try {
    const server = await discover();
    const response = await oauth.refreshTokenGrantRequest(server, client, oauth.None(), of.refresh!, options());
    const result = await oauth.processRefreshTokenResponse(server, client, response);
    if (tokens === of) {
      keep(result);
    }
  } catch (e) {
    of.renewAt = Date.now() + renewAgain;
    if (e instanceof oauth.ResponseBodyError) {
      of.refresh = undefined; // it is over
    }
  }
}

/** signedOut is the event of a sign-in that is over; its detail is the reason. */
export const signedOut = "peeklock-signed-out";

/** end forgets the tokens and returns what to do. */
export function end(reason: string): string {
  const text = `${reason} Sign in again.`;
  forgetTokens();
  window.dispatchEvent(new CustomEvent(signedOut, { detail: text }));
  return text;
}

/** bearer returns the token for a request, "" without a sign-in at the provider. It renews the token, if the provider gave what that takes. */
export async function bearer(): Promise<string> {
  const now = Date.now();
  if (tokens?.refresh && now > tokens.renewAt) {
    await (renewal ??= renew(tokens).finally(() => (renewal = undefined)));
  }
  if (tokens && now > tokens.until) {
    throw new Error(end("Your sign-in has expired."));
  }
  return tokens?.bearer ?? "";
}
