package dataplane

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/peeklock/peeklock/admin/auth"
	"github.com/peeklock/peeklock/amqp/account"
	"github.com/peeklock/peeklock/amqp/message"
	"github.com/peeklock/peeklock/amqp/wire"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/test/kit"
)

// generous is a broker that has a message of the largest size for every request.
type generous struct{ payload []byte }

func (generous) Namespace(context.Context, string) (fsm.NamespaceID, error) { return 1, nil }
func (generous) Resolve(context.Context, fsm.NamespaceID, string) (fsm.EntityRef, error) {
	return fsm.EntityRef{Entity: fsm.Entity{Name: "q", Kind: fsm.QueueEntity, Settings: fsm.EntitySettings{MaxMessageBytes: messageMax}}}, nil
}
func (generous) Send(_ fsm.EntityRef, _ []fsm.Message, done func(fsm.Code)) { done(fsm.OK) }
func (b generous) Receiver(fsm.EntityRef, bool) Receiver                    { return b }
func (generous) Settle(_ fsm.EntityRef, s []fsm.Settlement, done func([]fsm.Code)) {
	done(make([]fsm.Code, len(s)))
}

func (generous) Renew(_ fsm.EntityRef, locks []fsm.LockID, done func([]fsm.Code, []fsm.Instant)) {
	done(make([]fsm.Code, len(locks)), make([]fsm.Instant, len(locks)))
}

func (b generous) deliveries() []fsm.Delivery {
	return []fsm.Delivery{{Lock: fsm.LockID{Sequence: 7, Epoch: 1}, Payload: b.payload}}
}

func (b generous) Peek(context.Context, fsm.EntityRef, fsm.SequenceNumber, int, int) ([]fsm.Delivery, error) {
	return b.deliveries(), nil
}
func (generous) LockToken(fsm.EntityRef, fsm.LockID) fsm.LockToken { return fsm.LockToken{} }
func (generous) ParseLockToken(fsm.EntityRef, fsm.LockToken) (fsm.LockID, bool) {
	return fsm.LockID{Sequence: 7, Epoch: 1}, true
}

func (b generous) Lock(_, _ int, _ time.Duration, done func(fsm.Code, []fsm.Delivery)) {
	done(fsm.OK, b.deliveries())
}
func (generous) Cancel() {}
func (generous) Close()  {}

// anyToken is an authority that accepts every token.
type anyToken struct{}

func (anyToken) TokenFor(context.Context, auth.Client, string, string, ...auth.Target) (auth.Grant, error) {
	return auth.Grant{Name: "app", Rights: fsm.Manage}, nil
}

// messageMax is the largest message of the queue, in bytes.
const messageMax = 1 << 20

// copiesMax is how many bytes a request may allocate for each byte of its message, and requestBytesMax how many besides.
const (
	copiesMax       = 12 // a body is read into a buffer that grows
	requestBytesMax = 32 << 10
)

// Every operation with the largest message succeeds, allocates a bounded multiple of its bytes, and leaves nothing behind and
// nothing counted. A row without a maximal request fails.
//
//nolint:paralleltest // it measures what the process allocates
func TestOperationsWithTheLargestMessage(t *testing.T) {
	var buffer []byte
	stored, err := message.ParseWithID(&buffer, wire.AppendBinary(wire.AppendSectionDescriptor(nil, wire.SectionData), make([]byte, messageMax-1000)))
	if err != nil {
		t.Fatal(err)
	}
	accounts := account.New(account.For(1 << 30))
	s := New(Config{Broker: generous{stored.Payload}, Authority: anyToken{}, Logger: slog.New(slog.DiscardHandler), Accounts: accounts})
	lock := "/q/messages/7/" + sampleToken
	requests := map[string]struct{ path, body string }{
		"send": {"/q/messages", strings.Repeat("x", messageMax-1000)}, "peekLock": {"/q/messages/head", ""}, "receiveAndDelete": {"/q/messages/head", ""},
		"renew": {lock, ""}, "unlock": {lock, ""}, "complete": {lock, ""},
	}
	for _, to := range table {
		request, ok := requests[to.Name]
		if !ok {
			t.Errorf("%s has no maximal request: add one", to.Name)
			continue
		}
		var status, answered int
		each, retained := kit.Allocation(4, func() {
			r := httptest.NewRequest(to.Method(), request.path, strings.NewReader(request.body))
			answer := &counted{header: make(http.Header), status: http.StatusOK}
			s.Serve(answer, r, Caller{Token: "t", Spelling: func(name string) string { return name }})
			status, answered = answer.status, answer.bytes
		})
		if !slices.Contains(to.Succeeds(), status) {
			t.Errorf("%s is answered with %d", to.Name, status)
		}
		bytes := len(request.body) + answered
		t.Logf("%-17s %8d bytes, %9d allocated", to.Name, bytes, each)
		if each > requestBytesMax+copiesMax*bytes {
			t.Errorf("%s allocates %d bytes for a message of %d", to.Name, each, bytes)
		}
		if answered > to.AnswerBytesMax(nil) {
			t.Errorf("%s: an answer of %d bytes, bound is %d", to.Name, answered, to.AnswerBytesMax(nil))
		}
		if held := accounts.Used(account.HTTPBytes) + accounts.Used(account.HTTPMessages) + accounts.Used(account.HTTPPolls); held != 0 || retained > 64<<10 || len(s.requests)+len(s.polls) != 0 {
			t.Errorf("%s leaves %d bytes behind and counts %d", to.Name, retained, held)
		}
	}
}

// counted is an answer of which only the number of bytes is kept.
type counted struct {
	header        http.Header
	status, bytes int
}

func (c *counted) Header() http.Header         { return c.header }
func (c *counted) WriteHeader(status int)      { c.status = status }
func (c *counted) Write(b []byte) (int, error) { c.bytes += len(b); return len(b), nil }
