// An authorization server (oidc-provider), and an MCP server that accepts its tokens only. Both on one loopback port.
//
// Run as `node provider.mjs PATH-OF-OIDC-PROVIDER`. It prints its port. POST /control changes what it does; GET /control
// returns what it has counted. Whoever opens the page of the authorization server agrees at once, unless told otherwise.
import { EventEmitter, once } from "node:events";
import { createServer } from "node:http";
import { pathToFileURL } from "node:url";

const { Provider } = await import(pathToFileURL(process.argv[2]).href);

const control = {}, counts = {}, callers = new Set(), outdated = new Set(), called = new EventEmitter();
function reset() {
  Object.assign(control, { ttl: 3600, refuse: false, hang: false, down: 0, slow: 0, quote: false, busy: 0, over: false, rotate: true, refreshable: true, post_only: false, scope: "files:read", needs: {}, challenge: null, protected: {}, metadata: {}, redirect: null });
  Object.assign(counts, { pages: 0, exchanges: 0, registrations: 0, revoked: 0, grants: {}, refused: 0, calls: 0, refused401: 0, posts: [] });
  callers.clear();
}
reset();
const tools = [
  { name: "whoami", inputSchema: { type: "object" } },
  { name: "write", inputSchema: { type: "object" } },
  { name: "echo", inputSchema: { type: "object" } },
];

const http = createServer();
await new Promise((done) => http.listen(0, "127.0.0.1", done));
const issuer = `http://127.0.0.1:${http.address().port}`;
const resource = `${issuer}/mcp`;

const secret = { client_secret: "a secret of a registered client", redirect_uris: [], response_types: [] };
const provider = new Provider(issuer, {
  clients: [
    { client_id: "robot", grant_types: ["client_credentials"], ...secret },
    { client_id: "post", grant_types: ["client_credentials"], token_endpoint_auth_method: "client_secret_post", ...secret },
    {
      client_id: "confidential", application_type: "native", client_secret: secret.client_secret,
      redirect_uris: ["http://127.0.0.1/callback"], grant_types: ["authorization_code", "refresh_token"],
    },
    {
      client_id: "registered", application_type: "native", token_endpoint_auth_method: "none",
      redirect_uris: ["http://127.0.0.1/callback"], grant_types: ["authorization_code", "refresh_token"],
    },
  ],
  cookies: { keys: ["of the tests"] },
  features: {
    devInteractions: { enabled: false },
    registration: { enabled: true },
    revocation: { enabled: true },
    clientCredentials: { enabled: true },
    resourceIndicators: {
      enabled: true,
      defaultResource: () => resource,
      useGrantedResource: () => true,
      getResourceServerInfo: () => ({ scope: "files:read files:write", accessTokenTTL: control.ttl, accessTokenFormat: "opaque" }),
    },
  },
  clientDefaults: { application_type: "native" },
  pkce: { required: () => true },
  issueRefreshToken: async (ctx, client) => control.refreshable && client.grantTypeAllowed("refresh_token"),
  rotateRefreshToken: () => control.rotate,
  interactions: { url: (ctx, interaction) => `/interaction/${interaction.uid}` },
  findAccount: (ctx, id) => ({ accountId: id, claims: () => ({ sub: id }) }),
  scopes: ["openid", "offline_access", "files:read", "files:write"],
  ttl: { AccessToken: () => control.ttl, ClientCredentials: () => control.ttl, RefreshToken: 86400, Grant: 86400, Session: 86400, Interaction: 3600 },
  renderError: (ctx, out) => { ctx.body = out; },
});
provider.on("registration_create.success", (ctx, client) => { counts.registrations++; counts.secret = client.clientSecret; });
provider.on("grant.success", (ctx) => {
  const type = ctx.oidc.params.grant_type;
  counts.grants[type] = (counts.grants[type] ?? 0) + 1;
});
provider.on("grant.revoked", () => counts.revoked++);
provider.on("grant.error", () => counts.refused++);
const oidc = provider.callback();

async function agree(req, res) {
  counts.pages++;
  if (control.hang) return res.end("a page that waits for a person");
  const { prompt, params, session, grantId } = await provider.interactionDetails(req, res);
  if (control.refuse) {
    const refusal = { error: "access_denied", error_description: "The person said no." };
    return provider.interactionFinished(req, res, refusal, { mergeWithLastSubmission: false });
  }
  if (prompt.name === "login") return provider.interactionFinished(req, res, { login: { accountId: "ada" } });
  counts.pages--;
  const grant = new provider.Grant({ accountId: session.accountId, clientId: params.client_id });
  grant.addOIDCScope(`openid offline_access ${params.scope ?? ""}`);
  grant.addResourceScope(params.resource ?? resource, params.scope ?? "files:read");
  return provider.interactionFinished(req, res, { consent: { grantId: await grant.save() } }, { mergeWithLastSubmission: true });
}

function body(req) {
  return new Promise((done) => { let text = ""; req.on("data", (each) => (text += each)); req.on("end", () => done(text)); });
}

async function find(value) {
  const kinds = [provider.RefreshToken, provider.AccessToken, provider.ClientCredentials];
  return (await Promise.all(kinds.map((kind) => kind.find(value)))).find(Boolean);
}

function json(res, status, value, headers = {}) {
  res.writeHead(status, { "content-type": "application/json", ...headers });
  res.end(value === undefined ? "" : JSON.stringify(value));
}

async function mcp(req, res) {
  const text = await body(req);
  if (req.method !== "POST") return json(res, 405, undefined);
  const token = (req.headers.authorization ?? "").replace(/^Bearer /, "");
  const found = token && ((await provider.AccessToken.find(token)) ?? (await provider.ClientCredentials.find(token)));
  const message = JSON.parse(text);
  if (message.method === "tools/call" && control.busy > 0) { control.busy--; return json(res, 503, {}); }
  const metadata = `resource_metadata="${issuer}/.well-known/oauth-protected-resource/mcp"`;
  if (!found || found.isExpired || found.aud !== resource) {
    counts.refused401++;
    return json(res, 401, { error: "invalid_token", token }, { "www-authenticate": control.challenge ?? `Bearer ${metadata}, scope="${control.scope}", error="invalid_token", error_description="${token}"` });
  }
  const needed = control.needs[message.params?.name];
  if (needed && !(found.scope ?? "").split(" ").includes(needed)) {
    return json(res, 403, { error: "insufficient_scope" }, { "www-authenticate": `Bearer error="insufficient_scope", scope="${needed}", ${metadata}` });
  }
  if (message.id === undefined) return json(res, 202, undefined);
  if (message.method === "tools/call") {
    counts.calls++;
    const who = message.params.arguments?.who;
    if (who && !outdated.has(found.jti)) callers.add(who);
    called.emit("call");
  }
  if (message.params?.name === "hang") return;
  if (message.params?.name === "leak") {
    return json(res, 200, { jsonrpc: "2.0", id: message.id, error: { code: -32000, message: `refused ${token}` } });
  }
  const said = message.params?.name === "echo" && message.params.arguments.text;
  const results = {
    initialize: { protocolVersion: "2025-11-25", capabilities: { tools: {} }, serverInfo: { name: "guarded", version: "1" } },
    "tools/list": { tools },
    "tools/call": { content: [{ type: "text", text: said || (control.over ? "over" : `${found.accountId ?? found.clientId}`) }] },
    ping: {},
  };
  const result = results[message.method];
  if (!result) return json(res, 200, { jsonrpc: "2.0", id: message.id, error: { code: -32601, message: "Method not found" } });
  return json(res, 200, { jsonrpc: "2.0", id: message.id, result });
}

http.on("request", async (req, res) => {
  const path = new URL(req.url, issuer).pathname;
  try {
    if (path === "/control") {
      if (req.method === "POST") {
        const { reset: anew, revoke, expire, due, ...changes } = JSON.parse(await body(req));
        if (anew) reset();
        Object.assign(control, changes);
        if (revoke) {
          await (await find(revoke))?.destroy();
        }
        if (expire) {
          const token = await find(expire);
          if (token) {
            await token.adapter.upsert(token.jti, { ...(await token.adapter.find(token.jti)), exp: 1 }, 3600); // in 1970
            outdated.add(token.jti);
          }
          callers.clear();
        }
        if (due) outdated.add(due); // it is valid, but its callers want to refresh it
      }
      const wanted = new URL(req.url, issuer).searchParams.get("callers");
      const exchanges = new URL(req.url, issuer).searchParams.get("exchanges");
      while (exchanges && counts.exchanges < exchanges) await once(called, "exchange");
      while (wanted && callers.size < wanted) await once(called, "call");
      return json(res, 200, { ...counts, issuer });
    }
    if (path === "/mcp") return await mcp(req, res);
    if (req.method === "POST") counts.posts.push(path);
    if (path === "/.well-known/oauth-protected-resource/mcp") {
      if (control.protected === null) return json(res, 404, {});
      return json(res, 200, { resource, authorization_servers: [issuer], scopes_supported: ["files:read"], ...control.protected });
    }
    if (path === "/.well-known/oauth-authorization-server") {
      if (control.metadata === null) return json(res, 503, {});
      const found = await (await fetch(`${issuer}/.well-known/openid-configuration`)).json();
      const methods = control.post_only ? { token_endpoint_auth_methods_supported: ["client_secret_post"] } : {};
      return json(res, 200, { ...found, ...methods, ...control.metadata });
    }
    if (path.startsWith("/interaction/")) return await agree(req, res);
    if (path === "/token" && control.redirect) { res.writeHead(307, { location: control.redirect }); return res.end(); }
    if (path === "/token" && control.down > 0) { control.down--; return json(res, 503, { error: "temporarily_unavailable" }); }
    if (path === "/token" && control.quote) {
      const form = new URLSearchParams(await body(req));
      const pair = (req.headers.authorization ?? "").replace(/^Basic /, "");
      const bare = pair.replace(/=+$/, ""), secret = decodeURIComponent(Buffer.from(pair, "base64").toString().split(":")[1] ?? "");
      const said = [pair, bare, secret, form.get("code"), form.get("code_verifier")];
      return json(res, 400, { error: "invalid_grant", error_description: said.join(" ") });
    }
    if (path === "/token") { counts.exchanges++; called.emit("exchange"); }
    if (path === "/token" && control.slow) await new Promise((done) => setTimeout(done, control.slow));
    return await oidc(req, res);
  } catch (error) {
    console.error(error);
    if (!res.headersSent) json(res, 500, { error: String(error) });
  }
});
console.log(http.address().port);
