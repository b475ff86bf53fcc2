import { useState } from "preact/hooks";
import { type AccessRule, call } from "./api";
import { Copy, useLoad } from "./ui";

const queue = "orders";

/** programs send one message with the official client of a language. */
const programs: Record<string, { install: string; text: (connection: string) => string }> = {
  ".NET": {
    install: "dotnet add package Azure.Messaging.ServiceBus",
    text: (c) => `await using var client = new ServiceBusClient("${c}");
await client.CreateSender("${queue}").SendMessageAsync(new ServiceBusMessage("hello"));`,
  },
  Java: {
    install: "com.azure:azure-messaging-servicebus",
    text: (c) => `var sender = new ServiceBusClientBuilder().connectionString("${c}")
    .sender().queueName("${queue}").buildClient();
sender.sendMessage(new ServiceBusMessage("hello"));`,
  },
  JavaScript: {
    install: "npm install @azure/service-bus",
    text: (c) => `const client = new ServiceBusClient("${c}");
await client.createSender("${queue}").sendMessages({ body: "hello" });`,
  },
  Python: {
    install: "pip install azure-servicebus",
    text: (c) => `with ServiceBusClient.from_connection_string("${c}") as client:
    with client.get_queue_sender("${queue}") as sender:
        sender.send_messages(ServiceBusMessage("hello"))`,
  },
  Go: {
    install: "go get github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus",
    text: (c) => `client, err := azservicebus.NewClientFromConnectionString("${c}", nil)
sender, err := client.NewSender("${queue}", nil)
err = sender.SendMessage(ctx, &azservicebus.Message{Body: []byte("hello")}, nil)`,
  },
  curl: {
    install: "Without a key in development; with one, sign the request: docs/getting-started/curl.md",
    text: () => `curl ${location.origin}/${queue}/messages -d hello`,
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

/** Welcome is shown while there is nothing else to show. */
export function Welcome() {
  return (
    <>
      <p>There are no queues and topics yet. Create one under “Queues and topics”, or let an application do it. Then send a message:</p>
      <Programs />
    </>
  );
}

function Programs() {
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
        {program.text("CONNECTION_STRING")}
      </pre>
    </section>
  );
}
