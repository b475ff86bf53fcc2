import "uplot/dist/uPlot.min.css";
import "./style.css";
import { render } from "preact";
import { useEffect, useState } from "preact/hooks";
import { Access } from "./access";
import { Audit } from "./audit";
import { call, isSignedIn, type Namespace, readOnly, Refusal, session, signedInAs, signIn } from "./api";
import { Connections } from "./clients";
import { Cluster } from "./cluster";
import { Connect } from "./connect";
import { Entities } from "./entities";
import { EntityPage, TopicPage } from "./entity";
import { begin, finish, provider, signedOut } from "./oidc";
import { Overview } from "./overview";
import { go, urlOf, useRoute } from "./route";
import { forgetCounts } from "./stale";
import { Field, forget, Form } from "./ui";

const pages = [
  { page: "overview", title: "Overview" },
  { page: "entities", title: "Queues and topics" },
  { page: "connections", title: "Connections" },
  { page: "cluster", title: "Cluster" },
  { page: "access", title: "Access" },
  { page: "audit", title: "Audit" },
  { page: "connect", title: "Connect" },
];

/** Access that the caller has, as the server answers. */
interface Caller {
  operator: boolean; // of the cluster
  manager: boolean; // of the namespace
}

async function may(path: string): Promise<boolean> {
  try {
    await call("GET", path);
    return true;
  } catch (e) {
    if (e instanceof Refusal && (e.status === 401 || e.status === 403)) {
      return false;
    }
    throw e;
  }
}

async function probe(): Promise<Caller | "sign in"> {
  const [operator, manager] = await Promise.all([may("/v1/members"), may("/v1/queues?max=1")]);
  return operator || manager || isSignedIn() ? { operator, manager } : "sign in";
}

/** check asks the member whether it accepts who signed in, and forgets what it refuses. What may be done, each page shows. */
async function check(entity = "") {
  try {
    await call("GET", entity ? `/v1/rules/${entity}` : "/v1/endpoints");
  } catch (e) {
    if (e instanceof Refusal && e.status !== 401) {
      return;
    }
    signIn(null);
    throw e;
  }
}

function SignIn({ onDone, notice }: { onDone: () => void; notice: string }) {
  const [name, setName] = useState("RootManageSharedAccessKey");
  const [secret, setSecret] = useState("");
  const [entity, setEntity] = useState("");
  const action = async () => {
    signIn({ name: name.trim(), secret: secret.trim(), entity: entity.trim() });
    await check(entity.trim());
  };
  if (!window.isSecureContext) {
    return (
      <main class="sign-in">
        <h1>Peeklock</h1>
        <p class="failed" role="alert">
          This page signs requests with your key, and browsers allow that only over HTTPS or on localhost. Open it with https://, or give the members certificates: settings tls_cert and tls_key.
        </p>
      </main>
    );
  }
  return (
    <main class="sign-in">
      <h1>Peeklock</h1>
      {notice && (
        <p class="failed" role="alert">
          {notice}
        </p>
      )}
      {provider && <Form action={begin} label={`Sign in at ${provider}`} onDone={() => undefined} />}
      <p>{provider ? "Or sign" : "Sign"} in with the name and the key of a rule. The key stays in the memory of this tab: it is neither sent nor stored.</p>
      <Form action={action} label="Sign in" onDone={onDone}>
        <Field label="Name of the rule" value={name} onValue={setName} autocomplete="username" required spellcheck={false} />
        <Field label="Key" value={secret} onValue={setSecret} type="password" autocomplete="off" required />
        <Field label="Queue or topic" value={entity} onValue={setEntity} hint="Only for the key of a single queue or topic" spellcheck={false} />
      </Form>
    </main>
  );
}

function App() {
  const route = useRoute();
  const [caller, setCaller] = useState<Caller | "sign in">();
  const [failure, setFailure] = useState("");
  const [notice, setNotice] = useState("");
  const [namespaces, setNamespaces] = useState<Namespace[]>([]);
  const [namespace, setNamespace] = useState("");
  const start = async () => {
    try {
      if (await finish((view) => go(view, true))) {
        await check();
      }
    } catch (e) {
      leave((e as Error).message);
      return;
    }
    try {
      const found = await probe();
      setCaller(found);
      setFailure("");
      if (found !== "sign in") {
        setNotice("");
      }
      if (found !== "sign in" && found.operator) {
        setNamespaces((await call<{ namespaces: Namespace[] }>("GET", "/v1/namespaces")).namespaces);
      }
    } catch (e) {
      setFailure((e as Error).message);
    }
  };
  const leave = (reason = "") => {
    signIn(null);
    forgetCounts();
    forget();
    session.namespace = "";
    setNamespace("");
    setNamespaces([]);
    setNotice(reason);
    setCaller("sign in");
  };
  useEffect(() => {
    const ended = (e: Event) => leave((e as CustomEvent<string>).detail);
    window.addEventListener(signedOut, ended);
    void start();
    return () => window.removeEventListener(signedOut, ended);
  }, []);
  const title = pages.find((p) => p.page === route.page)?.title ?? route.name;
  useEffect(() => {
    document.title = `${title} - Peeklock`;
  }, [title]);
  if (failure) {
    return (
      <main>
        <p class="failed" role="alert">
          {failure}
        </p>
        <button onClick={start}>Try again</button>
      </main>
    );
  }
  if (!caller) {
    return <p class="quiet">Loading…</p>;
  }
  if (caller === "sign in") {
    return <SignIn onDone={start} notice={notice} />;
  }
  const visible = pages.filter((p) => p.page === "connect" || (p.page === "cluster" || p.page === "audit" ? caller.operator : caller.manager));
  const choose = (name: string) => {
    session.namespace = name;
    setNamespace(name);
  };
  return (
    <>
      <a class="skip" href="#content">
        Skip to the content
      </a>
      <header>
        <a class="brand" href={urlOf("overview")}>
          Peeklock
        </a>
        <nav aria-label="Pages">
          {visible.map((p) => (
            <a key={p.page} href={urlOf(p.page)} aria-current={p.page === route.page ? "page" : undefined}>
              {p.title}
            </a>
          ))}
        </nav>
        <div class="who">
          {namespaces.length > 1 && (
            <select aria-label="Namespace" value={namespace} onChange={(e) => choose(e.currentTarget.value)}>
              <option value="">Namespace of this host</option>
              {namespaces.map((n) => (
                <option key={n.name}>{n.name}</option>
              ))}
            </select>
          )}
          {readOnly && <span class="badge">read-only</span>}
          {isSignedIn() && (
            <button onClick={() => leave()} title={`Signed in as ${signedInAs()}`}>
              Sign out
            </button>
          )}
        </div>
      </header>
      <main id="content" key={`${namespace}/${route.page}/${route.name}`}>
        <Page {...route} operator={caller.operator} />
      </main>
    </>
  );
}

function Page({ page, name, query, operator }: ReturnType<typeof useRoute> & { operator: boolean }) {
  switch (page) {
    case "overview":
      return <Overview operator={operator} />;
    case "entities":
      return <Entities />;
    case "queues":
    case "subscriptions":
      return <EntityPage kind={page} name={name} tab={query.get("tab") ?? "messages"} query={query} />;
    case "topics":
      return <TopicPage name={name} tab={query.get("tab") ?? "subscriptions"} />;
    case "connections":
      return <Connections />;
    case "cluster":
      return <Cluster />;
    case "access":
      return <Access operator={operator} />;
    case "audit":
      return <Audit />;
    case "connect":
      return <Connect />;
  }
  return (
    <>
      <h1>Nothing is here</h1>
      <p>
        <a href={urlOf("overview")}>Go to the overview</a>
      </p>
    </>
  );
}

render(<App />, document.getElementById("app")!);
