import { useState } from "preact/hooks";
import { type AccessRule, call } from "./api";
import { Copy, useLoad } from "./ui";

/** programs send one message to a queue or topic with the official client of a language. */
const programs: Record<string, { install: string; text: (connection: string, queue: string) => string }> = {
  ".NET": {
    install: "dotnet add package Azure.Messaging.ServiceBus",
    text: (c, queue) => `await using var client = new ServiceBusClient("${c}");
await client.CreateSender("${queue}").SendMessageAsync(new ServiceBusMessage("hello"));`,
  },
  Java: {
    install: "com.azure:azure-messaging-servicebus",
    text: (c, queue) => `var sender = new ServiceBusClientBuilder().connectionString("${c}")
    .sender().queueName("${queue}").buildClient();
sender.sendMessage(new ServiceBusMessage("hello"));`,
  },
  JavaScript: {
    install: "npm install @azure/service-bus",
    text: (c, queue) => `const client = new ServiceBusClient("${c}");
await client.createSender("${queue}").sendMessages({ body: "hello" });`,
  },
  Python: {
    install: "pip install azure-servicebus",
    text: (c, queue) => `with ServiceBusClient.from_connection_string("${c}") as client:
    with client.get_queue_sender("${queue}") as sender:
        sender.send_messages(ServiceBusMessage("hello"))`,
  },
  Go: {
    install: "go get github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus",
    text: (c, queue) => `client, err := azservicebus.NewClientFromConnectionString("${c}", nil)
sender, err := client.NewSender("${queue}", nil)
err = sender.SendMessage(ctx, &azservicebus.Message{Body: []byte("hello")}, nil)`,
  },
  curl: {
    install: "Without a key in development; with one, sign the request: docs/getting-started/curl.md",
    text: (_, queue) => `curl ${location.origin}/${queue}/messages -d hello`,
  },
};

/** Connect shows how applications connect to this cluster. */
export function Connect() {
  return (
    <>
      <h1>Connect</h1>
      <Programs />
    </>
  );
}

/** HowToConnect is shown where nothing has come to a queue or topic yet. */
export const HowToConnect = ({ to, text }: { to?: string; text: string }) => (
  <>
    <p>{text}</p>
    <Programs to={to} />
  </>
);

/** Welcome is shown while there is nothing else to show. */
export function Welcome() {
  return (
    <>
      <p>There are no queues and topics yet. Create one under “Queues and topics”, or let an application do it. Then send a message:</p>
      <Programs />
    </>
  );
}

/** Programs shows how to send a message with the address of this cluster, in six languages. */
function Programs({ to = "orders" }: { to?: string }) {
  const [language, setLanguage] = useState(".NET");
  const rules = useLoad((signal) => call<{ rules: AccessRule[] | null }>("GET", "/v1/access", undefined, signal), []);
  const known = rules.data?.rules?.find((r) => r.primaryConnectionString && r.rights.includes("Send"))?.primaryConnectionString;
  const flag = location.protocol === "http:" ? ";UseDevelopmentEmulator=true" : "";
  const connection = known ?? `Endpoint=sb://${location.host};SharedAccessKeyName=RootManageSharedAccessKey;SharedAccessKey=YOUR_KEY${flag}`;
  const program = programs[language]!;
  return (
    <section>
      <p>
        Connection string: <code class="long">{known ? connection.replace(/SharedAccessKey=[^;]*/, "SharedAccessKey=…") : connection}</code> <Copy text={connection} label="Copy" />
      </p>
      <div class="tabs" role="group" aria-label="Languages">
        {Object.keys(programs).map((l) => (
          <button key={l} aria-pressed={l === language} onClick={() => setLanguage(l)}>
            {l}
          </button>
        ))}
      </div>
      <p class="quiet">{program.install}</p>
      <pre tabIndex={0} aria-label={`Program in ${language}`}>
        {program.text("CONNECTION_STRING", to)}
      </pre>
    </section>
  );
}
