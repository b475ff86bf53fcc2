// A stand-in for an identity provider, on loopback: authorization code flow with PKCE, and JWTs with real signatures.
import { createHash, generateKeyPairSync, randomUUID, sign } from "node:crypto";
import { once } from "node:events";
import { createServer } from "node:http";

export const audience = "https://servicebus.azure.net";
export const clientID = "console";

const base64url = (value) => Buffer.from(JSON.stringify(value)).toString("base64url");

/** issuer starts a provider. Tests change its field gives, which says what it does and what its tokens have. */
export async function issuer() {
  const { privateKey, publicKey } = generateKeyPairSync("rsa", { modulusLength: 2048 });
  const codes = new Map(); // what was asked for, by code
  const server = createServer(async (request, response) => {
    const at = new URL(request.url, self.url);
    const json = (status, value) => response.writeHead(status, { "content-type": "application/json", "access-control-allow-origin": "*" }).end(JSON.stringify(value));
    switch (at.pathname) {
      case "/.well-known/openid-configuration":
        return json(200, { issuer: self.url, authorization_endpoint: `${self.url}/authorize`, token_endpoint: self.gives.tokenEndpoint, jwks_uri: `${self.url}/keys`, code_challenge_methods_supported: ["S256"], id_token_signing_alg_values_supported: ["RS256"] });
      case "/keys":
        return json(200, { keys: [{ ...publicKey.export({ format: "jwk" }), kid: "test", use: "sig", alg: "RS256" }] });
      case "/authorize": {
        const asked = Object.fromEntries(at.searchParams);
        self.asked.push(asked);
        const code = randomUUID();
        codes.set(code, asked);
        const to = new URL(asked.redirect_uri);
        to.search = new URLSearchParams({ state: self.gives.state ?? asked.state, ...(self.gives.error ? { error: self.gives.error } : { code }) });
        return response.writeHead(302, { location: to.href }).end();
      }
      case "/token": {
        let body = "";
        for await (const part of request) {
          body += part;
        }
        const form = Object.fromEntries(new URLSearchParams(body));
        self.grants.push(form.grant_type);
        const asked = codes.get(form.code ?? form.refresh_token);
        const challenge = createHash("sha256").update(form.code_verifier ?? "").digest("base64url");
        const fits = form.grant_type === "refresh_token" || (challenge === asked?.code_challenge && asked.code_challenge_method === "S256" && form.redirect_uri === asked.redirect_uri);
        if (!asked || !fits || form.client_id !== clientID || asked.client_id !== clientID) {
          return json(400, { error: "invalid_grant", error_description: "unknown code, or another client" });
        }
        codes.delete(form.code); // valid once
        return json(200, self.tokens(asked, codes));
      }
    }
    response.writeHead(404).end();
  });
  await once(server.listen(0, "127.0.0.1"), "listening");
  const port = server.address().port;
  const jwt = (claims) => {
    const text = `${base64url({ alg: "RS256", kid: "test", typ: "JWT" })}.${base64url(claims)}`;
    return `${text}.${sign("sha256", Buffer.from(text), privateKey).toString("base64url")}`;
  };
  const self = {
    url: `http://127.0.0.1:${port}`,
    tokenOrigin: `http://localhost:${port}`, // another one than that of the issuer
    asked: [],
    grants: [],
    /** reset makes the provider one that lets an operator in for an hour. */
    reset() {
      self.asked.length = self.grants.length = 0;
      self.gives = { tokenEndpoint: `${self.tokenOrigin}/token`, roles: ["peeklock.operator"], seconds: 3600, audience };
    },
    tokens(asked, refreshes) {
      const { roles, seconds, expiresIn = seconds, audience: aud, nonce, refresh, opaque, name = "ada@example.com" } = self.gives;
      const now = Math.floor(Date.now() / 1000);
      const claims = { iss: self.url, sub: "u-1", iat: now, nbf: now, exp: now + seconds, roles };
      const token = refresh ? randomUUID() : undefined;
      refreshes.set(token, asked);
      return {
        token_type: "Bearer",
        access_token: opaque ? "opaque" : jwt({ ...claims, aud }),
        id_token: jwt({ ...claims, aud: opaque ? [clientID, aud] : clientID, azp: clientID, nonce: nonce ?? asked.nonce, preferred_username: name }),
        expires_in: expiresIn,
        refresh_token: token,
      };
    },
    async close() {
      server.closeAllConnections();
      server.close();
      await once(server, "close");
    },
  };
  self.reset();
  return self;
}
