package amqp

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/peeklock/peeklock/amqp/management"
	"github.com/peeklock/peeklock/amqp/wire"
)

// requestMessage encodes a request to a node.
func requestMessage(properties wire.Properties, arguments wire.Map, body any) []byte {
	b := wire.AppendProperties(nil, &properties)
	b = wire.AppendMap(wire.AppendSectionDescriptor(b, wire.SectionApplicationProperties), arguments)
	return wire.AppendValue(wire.AppendSectionDescriptor(b, wire.SectionValue), body)
}

// nodeResponse is a decoded response.
type nodeResponse struct {
	correlation any
	properties  wire.Map
	body        any
}

// response reads a transfer that contains a response.
func (p *peer) response() nodeResponse {
	p.Helper()
	t := expect[*wire.Transfer](p)
	r, err := parseRequest(nil, t.Payload)
	if err != nil {
		p.Fatal(err)
	}
	properties, err := wire.DecodeProperties(sectionOf(p, r, t.Payload))
	if err != nil {
		p.Fatal(err)
	}
	return nodeResponse{properties.CorrelationID, r.arguments, r.Body}
}

func sectionOf(p *peer, _ *request, b []byte) []byte {
	p.Helper()
	kind, value, _, _, err := wire.NextSection(b)
	if err != nil || kind != wire.SectionProperties {
		p.Fatalf("response begins with %v, %v", kind, err)
	}
	return append([]byte(nil), value...)
}

// putToken puts a token as Python does: no reply-to, a ulong message-id that starts at 0, links to $cbs in
// both directions. It detaches the links again.
func (p *peer) putToken(audience string, status int32) {
	p.Helper()
	p.sender(100, "$cbs")
	p.receiver(101, "$cbs")
	p.credit(101, 0, 300)
	p.transfer(100, 0, requestMessage(wire.Properties{MessageID: uint64(0)}, wire.Map{
		{Key: "operation", Value: "put-token"}, {Key: "type", Value: "jwt"}, {Key: "name", Value: audience},
	}, "SharedAccessSignature sr=x&sig=y&se=1&skn="+ruleName))
	p.accepted()
	r := p.response()
	if r.correlation != uint64(0) {
		p.Errorf("correlation %T %v, want ulong 0", r.correlation, r.correlation)
	}
	if got := r.properties.Get("status-code"); got != status {
		p.Errorf("status-code %T %v, want int %d", got, got, status)
	}
	p.send(&wire.Detach{Handle: 100, Closed: true}, &wire.Detach{Handle: 101, Closed: true})
	expect[*wire.Detach](p)
	expect[*wire.Detach](p)
}

func TestPutTokenIsAnsweredWithAStatus(t *testing.T) {
	t.Parallel()
	p := loggedIn(t, newFakeBroker("orders"))
	p.putToken("amqps://host/orders/$management", 202)
	for name, c := range map[string]struct {
		arguments wire.Map
		token     any
		status    int32
		condition wire.Symbol
	}{
		"wrong key": {wire.Map{{Key: "operation", Value: "put-token"}, {Key: "type", Value: "servicebus.windows.net:sastoken"}, {Key: "name", Value: "sb://h/q"}}, "nonsense", 401, wire.ConditionUnauthorizedAccess},
		"no token":  {wire.Map{{Key: "operation", Value: "put-token"}, {Key: "name", Value: "sb://h/q"}}, nil, 400, wire.ConditionArgumentError},
		"operation": {wire.Map{{Key: "operation", Value: "dance"}}, nil, 501, wire.ConditionNotImplemented},
	} {
		p.sender(0, "$cbs")
		p.receiver(1, "$cbs")
		p.credit(1, 0, 1)
		p.transfer(0, 0, requestMessage(wire.Properties{MessageID: wire.UUID{1, 2}}, c.arguments, c.token))
		p.accepted()
		r := p.response()
		if diff := cmp.Diff(any(wire.UUID{1, 2}), r.correlation); diff != "" {
			t.Errorf("%s: correlation %s", name, diff)
		}
		if got := r.properties.Get("status-code"); got != c.status {
			t.Errorf("%s: status %v", name, got)
		}
		if got := r.properties.Get("error-condition"); got != c.condition {
			t.Errorf("%s: condition %T %v, want symbol %s", name, got, got, c.condition)
		}
		p.send(&wire.Detach{Handle: 0, Closed: true}, &wire.Detach{Handle: 1, Closed: true})
		expect[*wire.Detach](p)
		expect[*wire.Detach](p)
	}
}

// Replies are sent on the link with the target address of the reply-to, otherwise on the link of that name;
// the session of the request takes precedence.
func TestReplyGoesToTheLinkOfItsReplyTo(t *testing.T) {
	t.Parallel()
	ask := func(replyTo any) []byte {
		return requestMessage(wire.Properties{MessageID: "m", ReplyTo: replyTo}, wire.Map{{Key: "operation", Value: "x"}}, nil)
	}
	attach := func(handle uint32, name string, target *wire.Target) *wire.Attach {
		return &wire.Attach{Name: name, Handle: handle, Role: wire.RoleReceiver, Source: &wire.Source{Address: "orders/$management"}, Target: target}
	}
	p := loggedIn(t, newFakeBroker("orders"))
	p.sendOn(1, &wire.Begin{IncomingWindow: 100})
	expect[*wire.Begin](p)
	p.sender(0, "Orders/$Management")
	for channel := range uint16(2) {
		for i, a := range []*wire.Attach{
			attach(1, fmt3("by-name-", channel), &wire.Target{}),
			attach(2, fmt3("other-", channel), &wire.Target{Address: "by-target"}),
			attach(3, fmt3("third-", channel), &wire.Target{Address: fmt3("only-in-", channel)}),
		} {
			credit, handle := uint32(10), uint32(i+1)
			p.sendOn(channel, a)
			expect[*wire.Attach](p)
			p.sendOn(channel, &wire.Flow{IncomingWindow: 100, Handle: &handle, LinkCredit: &credit})
		}
	}
	for i, c := range []struct {
		replyTo any
		channel uint16
		handle  uint32
	}{
		{"by-name-0", 0, 1}, {"by-name-1", 1, 1}, {"by-target", 0, 2}, {"only-in-0", 0, 3}, {"only-in-1", 1, 3},
	} {
		p.transfer(0, uint32(i), ask(c.replyTo))
		p.accepted()
		f := p.next()
		if tr, ok := f.Body.(*wire.Transfer); !ok || f.Channel != c.channel || tr.Handle != c.handle {
			t.Errorf("reply-to %v: %T on channel %d: %+v", c.replyTo, f.Body, f.Channel, f.Body)
		}
	}
}

func fmt3(prefix string, channel uint16) string { return prefix + string(rune('0'+channel)) }

func TestMalformedManagementRequestsAreRefused(t *testing.T) {
	t.Parallel()
	h := newFakeBroker("orders")
	p := loggedIn(t, h)
	p.sender(0, "orders/$management")
	p.receiver(1, "orders/$management")
	p.credit(1, 0, 100)
	for i, c := range []struct {
		operation string
		body      any
		status    int32
		condition any
	}{
		{"com.microsoft:get-session-state", wire.Map{}, 400, wire.ConditionNotAllowed},
		{"com.microsoft:renew-lock", wire.Map{}, 400, wire.ConditionArgumentError},
		{"com.microsoft:renew-lock", "not a map", 400, wire.ConditionArgumentError},
		{"com.microsoft:renew-lock", wire.Map{{Key: "lock-tokens", Value: wire.Array{Values: []wire.UUID{{1}}}}}, 410, wire.ConditionMessageLockLost},
		{"com.microsoft:update-disposition", wire.Map{{Key: "disposition-status", Value: "completed"}, {Key: "lock-tokens", Value: wire.Array{Values: []wire.UUID{{1}}}}}, 410, wire.ConditionMessageLockLost},
		{"com.microsoft:update-disposition", wire.Map{{Key: "disposition-status", Value: "eaten"}}, 400, wire.ConditionArgumentError},
		{"com.microsoft:peek-message", wire.Map{}, 400, wire.ConditionArgumentError},
		{"com.microsoft:peek-message", wire.Map{{Key: "from-sequence-number", Value: int64(0)}, {Key: "message-count", Value: int32(5)}}, 204, nil},
		{"com.microsoft:receive-by-sequence-number", wire.Map{{Key: "sequence-numbers", Value: wire.Array{Values: []int64{5}}}, {Key: "receiver-settle-mode", Value: uint32(1)}}, 404, wire.ConditionMessageNotFound},
		{"com.microsoft:receive-by-sequence-number", wire.Map{{Key: "sequence-numbers", Value: wire.Array{Values: make([]int64, management.TokensMax+1)}}}, 400, wire.ConditionArgumentError},
	} {
		p.transfer(0, uint32(i), requestMessage(wire.Properties{MessageID: "m"}, wire.Map{{Key: "operation", Value: c.operation}}, c.body))
		p.accepted()
		r := p.response()
		if got := r.properties.Get("statusCode"); got != c.status {
			t.Errorf("%s %v: status %T %v, want %d", c.operation, c.body, got, got, c.status)
		}
		if got := r.properties.Get("errorCondition"); got != c.condition {
			t.Errorf("%s: condition %v, want %v", c.operation, got, c.condition)
		}
		if _, ok := r.body.(wire.Map); !ok {
			t.Errorf("%s: body %T", c.operation, r.body)
		}
	}
}

// A peek is limited in messages; it also returns locked and deferred messages.
func TestPeekIsBounded(t *testing.T) {
	t.Parallel()
	h := newFakeBroker("orders")
	h.messages(t, "orders", management.PeekMessagesMax+10)
	p := loggedIn(t, h)
	p.sender(0, "orders/$management")
	p.receiver(1, "orders/$management")
	p.credit(1, 0, 100)
	p.transfer(0, 0, requestMessage(wire.Properties{MessageID: "m"}, wire.Map{{Key: "operation", Value: "com.microsoft:peek-message"}},
		wire.Map{{Key: "from-sequence-number", Value: int64(1)}, {Key: "message-count", Value: int32(100000)}}))
	p.accepted()
	body, _ := p.response().body.(wire.Map)
	messages, _ := body.Get("messages").([]any)
	if len(messages) != management.PeekMessagesMax {
		t.Errorf("%d messages, want %d", len(messages), management.PeekMessagesMax)
	}
}

// If a client grants no credit for responses, its link is detached before they fill the memory of the member.
func TestResponsesWithoutCreditAreBounded(t *testing.T) {
	t.Parallel()
	p := loggedIn(t, newFakeBroker("orders"))
	p.sender(0, "orders/$management")
	p.receiver(1, "orders/$management")
	credit := requestCreditMax
	for i := range uint32(responsesMax + 1) {
		p.transfer(0, i, requestMessage(wire.Properties{MessageID: "m"}, wire.Map{{Key: "operation", Value: "x"}}, nil), func(t *wire.Transfer) { t.Settled = ptr(true) })
		if credit--; credit < requestCreditMax/2 {
			credit = int(*expect[*wire.Flow](p).LinkCredit)
		}
	}
	if d := expect[*wire.Detach](p); d.Handle != 1 || d.Error.Condition != wire.ConditionResourceLimitExceeded {
		t.Errorf("detach %+v", d)
	}
}

func ptr[T any](v T) *T { return &v }
