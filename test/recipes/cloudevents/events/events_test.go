// Package events sends and receives CloudEvents over AMQP, in binary and in structured mode.
package events

import (
	"context"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/Azure/go-amqp"
	protocol "github.com/cloudevents/sdk-go/protocol/amqp/v2"
	"github.com/cloudevents/sdk-go/v2/binding"
	"github.com/cloudevents/sdk-go/v2/event"
)

const within = time.Minute

// put creates an entity or a rule over the control API.
func put(t *testing.T, path, body string) {
	t.Helper()
	control(t, http.MethodPut, path, body)
}

// remove deletes an entity or a rule over the control API.
func remove(t *testing.T, path string) {
	t.Helper()
	control(t, http.MethodDelete, path, "")
}

func control(t *testing.T, method, path, body string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, os.Getenv("ADMIN")+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if response.StatusCode/100 != 2 {
		t.Fatalf("%s %s: status %d, want 2xx", method, path, response.StatusCode)
	}
}

func session(t *testing.T, server string) (*amqp.Client, *amqp.Session) {
	t.Helper()
	client, err := amqp.Dial(os.Getenv(server), amqp.ConnSASLPlain(os.Getenv("KEY_NAME"), os.Getenv("KEY")))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	s, err := client.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	return client, s
}

func sender(t *testing.T, address string) *protocol.Protocol {
	t.Helper()
	client, s := session(t, "SENDING")
	p, err := protocol.NewSenderProtocolFromClient(client, s, address)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func receiver(t *testing.T, address string) *protocol.Protocol {
	t.Helper()
	client, s := session(t, "RECEIVING")
	p, err := protocol.NewReceiverProtocolFromClient(client, s, address)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func order(id, kind string) event.Event {
	e := event.New()
	e.SetID(id)
	e.SetType(kind)
	e.SetSource("/shop")
	e.SetSubject("coffee")
	e.SetTime(time.Date(2026, 11, 27, 8, 30, 0, 0, time.UTC))
	e.SetExtension("size", int32(7))
	if err := e.SetData("application/json", map[string]any{"cups": 1}); err != nil {
		panic(err)
	}
	return e
}

// next receives an event and settles it.
func next(t *testing.T, p *protocol.Protocol, settlement error) event.Event {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	m, err := p.Receive(ctx)
	if err != nil {
		t.Fatal(err)
	}
	e, err := binding.ToEvent(ctx, m)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Finish(settlement); err != nil {
		t.Fatal(err)
	}
	return *e
}

func TestEventsArriveInBothModes(t *testing.T) {
	for name, mode := range map[string]func(context.Context) context.Context{
		"binary": binding.WithForceBinary, "structured": binding.WithForceStructured,
	} {
		t.Run(name, func(t *testing.T) {
			put(t, "/v1/queues/"+name, "{}")
			sent := order("1", "order.placed")
			if err := sender(t, name).Send(mode(t.Context()), binding.ToMessage(&sent)); err != nil {
				t.Fatal(err)
			}
			if got := next(t, receiver(t, name), nil); got.String() != sent.String() {
				t.Errorf("got %s\nwant %s", got, sent)
			}
		})
	}
}

// The attributes of an event in binary mode are application properties, which rules of subscriptions read.
func TestRulesSelectEventsByTheirType(t *testing.T) {
	put(t, "/v1/topics/events", "{}")
	put(t, "/v1/subscriptions/events/Subscriptions/cancelled", "{}")
	put(t, "/v1/rules/events/Subscriptions/cancelled?name=type", `{"filter":{"kind":"sql","expression":"[cloudEvents:type] = 'order.cancelled'"}}`)
	remove(t, "/v1/rules/events/Subscriptions/cancelled?name=$Default")
	s := sender(t, "events")
	for _, e := range []event.Event{order("1", "order.placed"), order("2", "order.cancelled")} {
		if err := s.Send(binding.WithForceBinary(t.Context()), binding.ToMessage(&e)); err != nil {
			t.Fatal(err)
		}
	}
	if got := next(t, receiver(t, "events/Subscriptions/cancelled"), nil); got.ID() != "2" {
		t.Errorf("got %s, want the event 2 alone", got)
	}
}
