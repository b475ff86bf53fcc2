// Package shovel moves messages between RabbitMQ 4 and three members with RabbitMQ's shovel, both ways, while a member is killed.
package shovel

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/Azure/go-amqp"

	"github.com/peeklock/peeklock/test/harness"
	"github.com/peeklock/peeklock/test/kit"
)

const (
	messages = 10_000
	prefetch = 100
	within   = 4 * time.Minute
)

func TestMain(m *testing.M) { harness.Main(m) }

// Every message arrives although the member that the shovel uses is killed half way. At most the messages that the shovel had
// in hand arrive twice.
func TestShovelMovesMessagesBothWays(t *testing.T) {
	rabbit := os.Getenv("SHOVEL_RABBITMQ")
	if rabbit == "" {
		t.Skip("RabbitMQ is left out: `bash run` in this folder installs it and runs its shovel")
	}
	cluster := harness.Start(t, harness.Options{Members: 3})
	for _, queue := range []string{"arriving", "leaving"} {
		cluster.CreateQueue(t, queue, harness.Settings{})
	}
	ours := func(address string) string {
		return "amqp://" + harness.KeyName + ":" + url.QueryEscape(harness.Key) + "@" + address
	}
	theirs := "amqp://guest:guest@" + rabbit

	t.Run("from RabbitMQ", func(t *testing.T) {
		member := cluster.StartKillable(t)
		send(t, theirs, "/queues/out")
		shovel(t, "from", map[string]any{
			"src-protocol": "amqp091", "src-uri": theirs, "src-queue": "out", "src-prefetch-count": prefetch,
			"dest-protocol": "amqp10", "dest-uri": ours(member.Address), "dest-address": "arriving",
		})
		receive(t, ours(cluster.Members[1].AMQP), "arriving", func() { member.Kill(cluster) })
	})
	t.Run("to RabbitMQ", func(t *testing.T) {
		member := cluster.StartKillable(t)
		send(t, ours(cluster.Members[2].AMQP), "leaving")
		shovel(t, "to", map[string]any{
			"src-protocol": "amqp10", "src-uri": ours(member.Address), "src-address": "leaving", "src-prefetch-count": prefetch,
			"dest-protocol": "amqp091", "dest-uri": theirs, "dest-queue": "back",
		})
		receive(t, theirs, "/queues/back", func() { member.Kill(cluster) })
		cluster.WaitCounts(t, "leaving", harness.Counts{})
	})
}

// shovel starts a shovel, which connects again a second after a failure.
func shovel(t *testing.T, name string, settings map[string]any) {
	t.Helper()
	settings["ack-mode"], settings["reconnect-delay"] = "on-confirm", 1
	text := kit.Must(json.Marshal(settings))(t)
	ctl(t, "set_parameter", "shovel", name, string(text))
	t.Cleanup(func() { ctl(t, "clear_parameter", "shovel", name) })
}

func ctl(t *testing.T, arguments ...string) {
	t.Helper()
	out, err := exec.CommandContext(context.WithoutCancel(t.Context()), "bash", append([]string{"run", "ctl"}, arguments...)...).CombinedOutput()
	if err != nil {
		t.Fatalf("rabbitmqctl %s: %v\n%s", strings.Join(arguments, " "), err, out)
	}
}

func session(ctx context.Context, t *testing.T, address string) *amqp.Session {
	t.Helper()
	conn := kit.Must(amqp.Dial(ctx, address, nil))(t)
	t.Cleanup(func() { _ = conn.Close() })
	s := kit.Must(conn.NewSession(ctx, nil))(t)
	return s
}

// send sends the messages, and waits for all answers.
func send(t *testing.T, address, target string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	sender := kit.Must(session(ctx, t, address).NewSender(ctx, target, nil))(t)
	var receipts []amqp.SendReceipt
	for i := range messages {
		id := fmt.Sprint(i)
		receipt, err := sender.SendWithReceipt(ctx, &amqp.Message{Data: [][]byte{[]byte(id)}, Properties: &amqp.MessageProperties{MessageID: id}, Header: &amqp.MessageHeader{Durable: true}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		receipts = append(receipts, receipt)
	}
	for _, receipt := range receipts {
		if state, err := receipt.Wait(ctx); err != nil {
			t.Fatal(err)
		} else if _, accepted := state.(*amqp.StateAccepted); !accepted {
			t.Fatalf("a message was answered with %v, want accepted", state)
		}
	}
}

// receive receives until every message has arrived, and calls halfWay once half of them have.
func receive(t *testing.T, address, source string, halfWay func()) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	receiver := kit.Must(session(ctx, t, address).NewReceiver(ctx, source, &amqp.ReceiverOptions{Credit: 500}))(t)
	times := map[string]int{}
	for total := 1; len(times) < messages; total++ {
		m, err := receiver.Receive(ctx, nil)
		if err != nil {
			t.Fatalf("%d of %d messages have arrived: %v", len(times), messages, err)
		}
		kit.OK(t, receiver.AcceptMessage(ctx, m))
		times[string(m.GetData())]++
		if total == messages/2 {
			halfWay()
		}
	}
	again := 0
	for _, n := range times {
		again += n - 1
	}
	t.Logf("%d messages, %d of them again", messages, again)
	if again > prefetch {
		t.Errorf("%d messages arrived again, want at most %d", again, prefetch)
	}
}
