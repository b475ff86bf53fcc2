package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	goamqp "github.com/Azure/go-amqp"

	"github.com/peeklock/peeklock/admin/auth"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/test/kit"
)

// fakeNamespaces is a namespaceStore in memory.
type fakeNamespaces struct {
	mu    sync.Mutex
	last  fsm.NamespaceID
	names map[string]fsm.NamespaceID
}

func (*fakeNamespaces) configured(context.Context, string) (fsm.NamespaceID, error) { return 0, nil }

func (s *fakeNamespaces) create(_ context.Context, name string) (fsm.NamespaceID, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if id := s.names[name]; id != 0 {
		return id, nil
	}
	s.last++
	s.names[name] = s.last
	return s.last, nil
}

func (s *fakeNamespaces) remove(_ context.Context, name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.names, name)
	return nil
}

func (s *fakeNamespaces) exists(id fsm.NamespaceID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, known := range s.names {
		if known == id {
			return true
		}
	}
	return false
}

func (s *fakeNamespaces) list(context.Context) ([]string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var names []string
	for name := range s.names {
		names = append(names, name)
	}
	return names, nil
}

func (s *fakeNamespaces) has(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.names[name] != 0
}

// A namespace of a key name is removed 10 minutes after its last use, and a connection that stays uses it. Namespaces of kept
// data are removed as well. The next use creates a new one.
func TestNamespaceOfAKeyNameIsRemovedAfterItsLastUse(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		left, used, idle := keyNamespaceName("left"), keyNamespaceName("used"), keyNamespaceName("idle")
		store := &fakeNamespaces{names: map[string]fsm.NamespaceID{left: 100}}
		k := newKeyNamespaces(store, slog.New(slog.DiscardHandler))
		go k.run(ctx)
		_, inUse, err := k.open(ctx, "used")
		if err != nil {
			t.Fatal(err)
		}
		first, alive, err := k.open(ctx, "idle")
		if err != nil {
			t.Fatal(err)
		}
		for range 9 {
			<-time.After(time.Minute)
			if !inUse() {
				t.Fatal("a namespace in use was removed")
			}
		}
		if !store.has(idle) || !store.has(left) {
			t.Error("removed after 9 minutes")
		}
		for range 2 {
			<-time.After(time.Minute)
			if !inUse() {
				t.Fatal("a namespace in use was removed")
			}
		}
		if store.has(idle) || store.has(left) || !store.has(used) || alive() {
			t.Errorf("after 11 minutes: idle %v, left %v, used %v, want only the used one", store.has(idle), store.has(left), store.has(used))
		}
		if again, _, err := k.open(ctx, "idle"); err != nil || again == first {
			t.Errorf("opened again: %d, %v, want a new one", again, err)
		}
		_ = store.remove(ctx, idle) // as a reset does
		if _, alive, err := k.open(ctx, "idle"); err != nil || !alive() {
			t.Error("after a reset:", err)
		}
	})
}

func TestKeyNamesHaveAtMost900Namespaces(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		k := newKeyNamespaces(&fakeNamespaces{names: make(map[string]fsm.NamespaceID)}, slog.New(slog.DiscardHandler))
		go k.run(ctx)
		for i := range 900 {
			if _, _, err := k.open(ctx, fmt.Sprint("test ", i)); err != nil {
				t.Fatal(i, err)
			}
		}
		if _, _, err := k.open(ctx, "one more"); !errors.Is(err, fsm.ServerBusy) {
			t.Errorf("the 901st: %v, want ServerBusy", err)
		}
		if _, _, err := k.open(ctx, "test 7"); err != nil {
			t.Error("one that exists:", err)
		}
		<-time.After(keyNamespaceUnused + keyNamespaceSweep)
		if _, _, err := k.open(ctx, "one more"); err != nil {
			t.Error("after the others are unused:", err)
		}
	})
}

// Key names are any text; the names of their namespaces are valid and differ.
func TestKeyNamesHaveValidNamespaceNames(t *testing.T) {
	t.Parallel()
	seen := make(map[string]string)
	for _, name := range []string{"a", "A", "a b", "a-b", "Übung", strings.Repeat("long", 64), "-", "test/1"} {
		namespace := keyNamespaceName(name)
		if !fsm.ValidNamespaceName(namespace) || len(namespace) > 50 || seen[namespace] != "" {
			t.Errorf("the namespace of %q is %q, also that of %q", name, namespace, seen[namespace])
		}
		seen[namespace] = name
	}
}

// Tests that share an emulator have the entities of its file for themselves, each by a key name of its own.
func TestKeyNamesIsolateTests(t *testing.T) {
	t.Parallel()
	c := newDataClient(t)
	ctx := t.Context()
	as := func(name, secret string) []string {
		return []string{"Authorization", auth.Sign(c.e.Admin+"/", name, secret, time.Now().Add(time.Hour))}
	}
	// Over AMQP with a token, over HTTP, and over AMQP with a password.
	if err := sendAndReceive(t, connectionString(c.e.AMQP, "test one", auth.DevKey), "orders"); err != nil {
		t.Error(err)
	}
	c.do(201, "POST", "/orders/messages", "of one", as("test one", auth.DevKey)...)
	c.do(201, "POST", "/orders/messages", "of two", as("test two", auth.DevKey)...)
	c.do(201, "POST", "/orders/messages", "of all", as(auth.DevKeyName, "any")...)
	conn := kit.Must(goamqp.Dial(ctx, "amqp://"+c.e.AMQP, &goamqp.ConnOptions{SASLType: goamqp.SASLTypePlain("test two", auth.DevKey)}))(t)
	defer func() { _ = conn.Close() }()
	session := kit.Must(conn.NewSession(ctx, nil))(t)
	receiver := kit.Must(session.NewReceiver(ctx, "orders", nil))(t)
	if got, err := receiver.Receive(ctx, nil); err != nil || string(got.GetData()) != "of two" {
		t.Errorf("received %v, %v, want the message of two", got, err)
	}
	for name, want := range map[string]string{"test one": "of one", auth.DevKeyName: "of all"} {
		if _, body := c.do(200, "DELETE", "/orders/messages/head", "", as(name, auth.DevKey)...); body != want {
			t.Errorf("%s received %q, want %q", name, body, want)
		}
	}
	// Administration, in both of its forms.
	c.do(201, "PUT", "/own", `<entry xmlns="http://www.w3.org/2005/Atom"><content type="application/xml"><QueueDescription xmlns="http://schemas.microsoft.com/netservices/2010/10/servicebus/connect"/></content></entry>`,
		append(as("test one", auth.DevKey), "Content-Type", "application/atom+xml")...)
	c.do(200, "GET", "/v1/queues/own", "", as("test one", auth.DevKey)...)
	for _, name := range []string{"test two", auth.DevKeyName} {
		c.do(404, "GET", "/v1/queues/own", "", as(name, auth.DevKey)...)
	}
	// Refused: another secret, what concerns the whole emulator, and everything with --require-key.
	for _, name := range []string{"test one", "test three"} {
		c.do(401, "POST", "/orders/messages", "x", as(name, "wrong")...)
		if err := sendAndReceive(t, connectionString(c.e.AMQP, name, "wrong"), "orders"); err == nil {
			t.Errorf("%s with a wrong secret was accepted", name)
		}
	}
	c.do(401, "POST", "/reset", "", as("test one", auth.DevKey)...)
	c.do(200, "POST", "/reset", "")
	c.do(204, "DELETE", "/orders/messages/head?timeout=0", "", as("test two", auth.DevKey)...)
	strict := newDataClient(t, "--require-key")
	strict.do(http.StatusUnauthorized, "POST", "/orders/messages", "x", "Authorization", auth.Sign(strict.e.Admin+"/", "test one", auth.DevKey, time.Now().Add(time.Hour)))
}

// A further namespace of the file is reached by its name as the name of the key, since its host name does not resolve everywhere.
func TestNamespacesOfTheFileAreReachedByKeyName(t *testing.T) {
	t.Parallel()
	e := startEmulator(t, []string{"PEEKLOCK_CONFIG_JSON=" + secondConfig}, jsonReady, "-o", "json")
	shop := e.Config.Namespaces[1].ConnectionString
	if want := connectionString(e.AMQP, "shop", auth.DevKey); shop != want {
		t.Fatalf("connection string %s, want %s", shop, want)
	}
	say(t, e.devMember, 0, "message", "send", "orders", "of shop", "--namespace", "shop")
	client := kit.Must(azservicebus.NewClientFromConnectionString(shop, nil))(t)
	defer func() { _ = client.Close(context.Background()) }()
	receiver := kit.Must(client.NewReceiverForQueue("orders", nil))(t)
	if got, err := receiver.ReceiveMessages(t.Context(), 1, nil); err != nil || len(got) != 1 || string(got[0].Body) != "of shop" {
		t.Errorf("received %d messages, %v, want that of shop", len(got), err)
	}
	wants(t, say(t, e.devMember, 0, "namespace", "list"), "default", "shop")
}
