package conformance

import (
	"os"
	"strings"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"github.com/peeklock/peeklock/test/harness"
)

// emulator is the connection string of README.md, in which only the port is exchanged.
const emulator = "Endpoint=sb://localhost:5672;SharedAccessKeyName=RootManageSharedAccessKey;SharedAccessKey=SAS_KEY_VALUE;UseDevelopmentEmulator=true"

// The lines of README.md, run against `dev` as README.md has them started.
func TestReadmeClient(t *testing.T) {
	t.Parallel()
	dev := harness.StartDev(t)
	ctx := t.Context()
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	dev.CreateQueue(t, "orders", harness.Settings{})
	_, port, _ := strings.Cut(dev.Members[0].AMQP, ":")

	client, err := azservicebus.NewClientFromConnectionString(strings.Replace(emulator, "5672", port, 1), nil)
	check(err)
	// README.md from here
	sender, err := client.NewSender("orders", nil)
	check(err)
	check(sender.SendMessage(ctx, &azservicebus.Message{Body: []byte("one coffee")}, nil))
	receiver, err := client.NewReceiverForQueue("orders", nil)
	check(err)
	messages, err := receiver.ReceiveMessages(ctx, 1, nil)
	check(err)
	check(receiver.CompleteMessage(ctx, messages[0], nil))
	// to here
	if string(messages[0].Body) != "one coffee" {
		t.Errorf("received %q", messages[0].Body)
	}
	dev.WaitCounts(t, "orders", harness.Counts{})
	check(client.Close(ctx))

	source, err := os.ReadFile("readme_test.go")
	check(err)
	readme, err := os.ReadFile("../../../README.md")
	check(err)
	_, lines, _ := strings.Cut(string(source), "// README.md from here\n")
	lines, _, _ = strings.Cut(lines, "\t// to here")
	for _, want := range []string{strings.ReplaceAll(lines, "\n\t", "\n")[1:], emulator} {
		if !strings.Contains(string(readme), want) {
			t.Errorf("README.md does not have what this test runs:\n%s", want)
		}
	}
}
