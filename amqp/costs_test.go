package amqp

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/peeklock/peeklock/amqp/address"
	"github.com/peeklock/peeklock/amqp/budget"
	"github.com/peeklock/peeklock/amqp/login"
	"github.com/peeklock/peeklock/amqp/management"
	"github.com/peeklock/peeklock/amqp/wire"
	"github.com/peeklock/peeklock/fsm"
)

// manyProcessors makes only the limit of each connection take effect.
func manyProcessors(c *Config) { c.Processors = 1000 }

// about fails unless something took a time, within a tenth of it.
func about(t *testing.T, what string, took, want time.Duration) {
	t.Helper()
	if took < want*9/10 || took > want*11/10 {
		t.Errorf("%s took %v, want about %v", what, took, want)
	}
}

// A connection that detaches links and attaches them again is slowed down; links that it keeps are not.
func TestRepeatedAttachesAreLimited(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := loggedIn(t, newFakeBroker("orders"), manyProcessors)
		const links, seconds = 2500, 2
		const perAttach = attachCost + 2*frameCost // with its detach
		begin := time.Now()
		for handle := range uint32(links) {
			p.receiver(handle, "orders")
		}
		if d := time.Since(begin); d > 0 {
			t.Errorf("the links that a connection keeps took %v", d)
		}
		for range (workBurst + seconds*workPerSecond - links*frameCost) / perAttach {
			p.send(&wire.Detach{Handle: 0, Closed: true})
			expect[*wire.Detach](p)
			p.receiver(0, "orders")
		}
		about(t, "attaching links again", time.Since(begin), seconds*time.Second)
	})
}

// A connection that sends flows or begins sessions without end is slowed down.
func TestFramesWithoutDeliveriesAreLimited(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		units  int
		frames func(p *peer, n uint32)
	}{
		"flows that request a response": {frameCost, func(p *peer, _ uint32) {
			p.credit(0, 0, 10, func(f *wire.Flow) { f.Echo = true })
			expect[*wire.Flow](p)
		}},
		"receiving from an empty queue": {frameCost + emptyLockCost, func(p *peer, n uint32) {
			p.credit(1, n, 1, func(f *wire.Flow) { f.Drain = true })
			expect[*wire.Flow](p)
		}},
		"durable subscriptions": {temporaryCost + findCost + attachCost + 2*frameCost, func(p *peer, n uint32) { // with their detach
			p.consumer(2, "events", subscriber(fmt.Sprint(n), true))
			p.send(&wire.Detach{Handle: 2})
			p.untilDetach()
		}},
		"sessions": {beginCost + 2*frameCost, func(p *peer, _ uint32) { // with its end
			p.sendOn(7, &wire.Begin{IncomingWindow: 10, OutgoingWindow: 10})
			expect[*wire.Begin](p)
			p.sendOn(7, &wire.End{})
			expect[*wire.End](p)
		}},
		"dispositions of nothing": {frameCost, func(p *peer, _ uint32) {
			p.send(&wire.Disposition{Role: wire.RoleReceiver, First: 7, Settled: true, State: &wire.Accepted{}})
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s, p := piped(t, newFakeBroker("orders").topic("events"), manyProcessors)
				p.login().receiver(0, "orders")
				p.receiver(1, "orders")
				owe(onlyConn(t, s), 0)
				const seconds = 2
				start := time.Now()
				for n := range uint32(seconds * workPerSecond / c.units) {
					c.frames(p, n)
				}
				about(t, name, time.Since(start), seconds*time.Second)
			})
		})
	}
}

// Sends in transactions cost what their bytes do: they are answered at once, so credit does not limit them.
func TestSendsInTransactionsAreLimited(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, p := piped(t, newFakeBroker("orders"), manyProcessors)
		p.login().coordinator(coordinatorHandle)
		p.sender(0, "orders")
		owe(onlyConn(t, s), 0)
		const units, perTransaction, seconds = 6, 90, 2
		payload := encodedMessage(t, make([]byte, (units-1)*transactedUnitBytes))
		start := time.Now()
		for range seconds * workPerSecond / units / perTransaction {
			txn := p.declare(0)
			for range perTransaction {
				p.transfer(0, 1, payload, in(txn))
				for settled := false; !settled; _, settled = p.next().Body.(*wire.Disposition) {
				}
			}
			p.rollback(2, txn)
		}
		about(t, "sends in transactions", time.Since(start), seconds*time.Second)
	})
}

// A client whose sends are refused for lack of memory is read later.
func TestSendsRefusedForMemoryAreLimited(t *testing.T) {
	t.Parallel()
	s, p := piped(t, newFakeBroker("orders"), littleMemory, manyProcessors)
	p.login()
	p.sender(0, "orders")
	c := onlyConn(t, s)
	p.unfinished(p.holders(10, 40), 960<<10, func() bool { return levelOf(c) == budget.Busy })
	small := encodedMessage(t, []byte("a"))
	p.transfer(0, 0, small)
	p.refused(0, wire.RoleReceiver, wire.ConditionServerBusy)
	owe(c, 0)
	const refusals = 20
	start := time.Now()
	for id := range uint32(refusals) {
		p.transfer(0, 1+id, small)
		p.refused(1+id, wire.RoleReceiver, wire.ConditionServerBusy)
	}
	if d, least := time.Since(start), (refusals-2)*memoryRefusalCost*time.Second/workPerSecond; d < least {
		t.Errorf("%d refusals took %v, want at least %v", refusals, d, least)
	}
}

// A client that connects again has no second burst.
func TestReconnectingClientHasNoSecondBurst(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, p := piped(t, newFakeBroker("orders"), manyProcessors)
		p.requester()
		owe(onlyConn(t, s), 0)
		p.managed(0, management.RenewOperation, lockTokens(1)) // pays it
		_ = p.net.Close()
		<-p.ended
		q := connect(t, s).login()
		q.receiver(0, "orders")
		const seconds = 2
		start := time.Now()
		for range seconds * workPerSecond {
			q.credit(0, 0, 10, func(f *wire.Flow) { f.Echo = true })
			expect[*wire.Flow](q)
		}
		about(t, "what the client requests after it has connected again", time.Since(start), seconds*time.Second)
	})
}

// However many frames deliveries need, their clients do not wait.
func TestFramesOfDeliveriesDoNotWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, p := piped(t, newFakeBroker("orders"), manyProcessors)
		p.login().sender(0, "orders")
		owe(onlyConn(t, s), 10*time.Minute) // which the first charge would wait for
		payload := encodedMessage(t, []byte("a"))
		start := time.Now()
		for id := range uint32(10 * frameUnitsPerCharge) {
			p.transfer(0, id, payload)
			for settled := false; !settled; _, settled = p.next().Body.(*wire.Disposition) {
			}
			for range framesPerDelivery {
				p.send(&wire.Disposition{Role: wire.RoleReceiver, First: id, Settled: true, State: &wire.Accepted{}})
			}
		}
		if d := time.Since(start); d > 0 {
			t.Errorf("sends with their frames took %v", d)
		}
	})
}

// requester logs in and attaches links for requests to the management node of "orders", 0 and 1, and to $cbs, 2 and 3.
func (p *peer) requester() *peer {
	p.Helper()
	p.login()
	p.requestLinks(0, "orders/$management")
	p.requestLinks(2, address.CBS)
	return p
}

// requestLinks attaches a link for requests to a node, and one on the next handle for the responses.
func (p *peer) requestLinks(handle uint32, node string) {
	p.Helper()
	p.sender(handle, node)
	p.receiver(handle+1, node)
	p.credit(handle+1, 0, 1<<31-1)
}

// answered makes a request and waits for its response, which it returns.
func (p *peer) answered(handle, id uint32, arguments wire.Map, body any) nodeResponse {
	p.Helper()
	p.transfer(handle, id, requestMessage(wire.Properties{MessageID: uint64(id)}, arguments, body), settled)
	for {
		if t, ok := p.next().Body.(*wire.Transfer); ok {
			r, err := parseRequest(nil, t.Payload)
			if err != nil {
				p.Fatal(err)
			}
			return nodeResponse{properties: r.arguments, body: r.Body}
		}
	}
}

// managed makes a request to the management node.
func (p *peer) managed(id uint32, operation string, body wire.Map) nodeResponse {
	p.Helper()
	return p.answered(0, id, wire.Map{{Key: "operation", Value: operation}}, body)
}

// lockTokens is the body of a request that names n locks.
func lockTokens(n int) wire.Map {
	return wire.Map{{Key: "lock-tokens", Value: wire.Array{Values: make([]wire.UUID, n)}}}
}

// sequences is the body of a request that names n messages by their sequence numbers.
func sequences(n int) wire.Map {
	return wire.Map{{Key: "sequence-numbers", Value: wire.Array{Values: make([]int64, n)}}}
}

// What clients request at most waits less than a second: lock renewals of thousands of messages one by one, the tokens of all
// audiences, a batch delete of a quarter of a million messages.
func TestLargestUsualRequestsHardlyWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, p := piped(t, newFakeBroker("orders"), func(c *Config) { c.Processors = 2 })
		p.requester()
		took := func(what string, n uint32, do func(i uint32)) {
			begin := time.Now()
			for i := range n {
				do(i)
			}
			if d := time.Since(begin); d > time.Second {
				t.Errorf("%s waited for %v", what, d)
			}
			<-time.After(10 * time.Second)
		}
		took("renewals", 2000, func(i uint32) { p.managed(i, management.RenewOperation, lockTokens(1)) })
		token := wire.Map{{Key: "operation", Value: putTokenOperation}, {Key: "type", Value: "jwt"}, {Key: "name", Value: "sb://h/orders"}}
		took("tokens", login.AudiencesMax, func(i uint32) {
			p.answered(2, 10_000+i, token, "SharedAccessSignature sr=x&sig=y&se=1&skn="+ruleName)
		})
		took("batch deletes", 60, func(i uint32) {
			p.managed(2000+i, management.BatchDeleteOperation, wire.Map{{Key: management.MessageCountKey, Value: int32(management.PurgeMessagesMax)}})
		})
	})
}

// A connection may request work at a rate; then it is read later. Nothing is refused.
func TestRequestsOfAConnectionAreLimited(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, p := piped(t, newFakeBroker("orders"), manyProcessors)
		p.requester()
		const locks = 3000
		const cost = requestCost + locks/management.ItemsPerUnit + 2*16*locks/requestUnitBytes // tokens of 16 bytes, decoded too
		const seconds = 3
		begin := time.Now()
		id := uint32(0)
		for ; id < workBurst/cost; id++ {
			p.managed(id, management.RenewOperation, lockTokens(locks))
		}
		if d := time.Since(begin); d > 0 {
			t.Errorf("the burst took %v", d)
		}
		for ; id < (workBurst+seconds*workPerSecond)/cost; id++ {
			if r := p.managed(id, management.RenewOperation, lockTokens(locks)); r.properties.Get("statusCode") == int32(503) {
				t.Fatal("a request was refused")
			}
		}
		about(t, "what exceeds the burst", time.Since(begin), seconds*time.Second)
	})
}

// withOthers has others make requests at the same time. It returns how long a small request of p waited, a second after
// they began, and how long all of theirs took.
func (p *peer) withOthers(others []func()) (waited, took time.Duration) {
	p.Helper()
	begin := time.Now()
	var all sync.WaitGroup
	for _, requests := range others {
		all.Go(requests)
	}
	<-time.After(time.Second)
	asked := time.Now()
	p.managed(0, management.RenewOperation, lockTokens(1))
	waited = time.Since(asked)
	all.Wait()
	return waited, time.Since(begin)
}

// All connections together have a limit that depends on the processors, and those that request most wait.
func TestRequestsOfAllConnectionsAreLimited(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const greedy, locks, seconds = 4, 3000, 4
		const cost = requestCost + locks/management.ItemsPerUnit + 2*16*locks/requestUnitBytes // tokens of 16 bytes, decoded too
		s, p := piped(t, newFakeBroker("orders"), func(c *Config) { c.Processors = 1 })
		p.requester()
		var others []func()
		for range greedy {
			q := connect(t, s).requester()
			others = append(others, func() {
				for id := range uint32((seconds*workBurstsPerSecond + 1) * workPerSecondPerProcessor / workBurstsPerSecond / cost / greedy) {
					q.managed(id, management.RenewOperation, lockTokens(locks))
				}
			})
		}
		waited, took := p.withOthers(others)
		if waited > 2*cost*time.Second/workPerSecondPerProcessor {
			t.Errorf("a connection that requests little waited %v", waited)
		}
		about(t, "the requests of all connections", took, seconds*time.Second)
	})
}

// A waiting request does not keep a connection from being closed, and its silence is not the peer's.
func TestWaitingRequestEndsWithItsConnection(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, p := piped(t, newFakeBroker("orders"), manyProcessors)
		p.requester()
		owe(onlyConn(t, s), 2*idleTimeOut)
		p.managed(0, management.RenewOperation, lockTokens(1))
		ask(p, 1, management.RenewOperation, lockTokens(1))
		begin := time.Now()
		p.idle(idleTimeOut * 3 / 2)
		go func() { _ = s.Close(t.Context()) }()
		expect[*wire.Close](p)
		p.send(&wire.Close{})
		<-p.ended
		about(t, "the connection", time.Since(begin), idleTimeOut*3/2)
	})
}

// Every operation has a cost that follows from what it names; responses are charged when they are sent, peeks in advance.
func TestCosts(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		operation string
		body      any
		cost      int
	}{
		{putTokenOperation, login.SharedAccessPrefix + "sr=x", requestCost + putTokenCost},
		{putTokenOperation, "eyJ.x.y", requestCost + putJWTCost},
		{"no-such-operation", nil, requestCost},
		{management.RenewOperation, lockTokens(1), requestCost},
		{management.RenewOperation, lockTokens(management.TokensMax), requestCost + 256},
		{management.RenewOperation, lockTokens(2 * management.TokensMax), requestCost + 256},
		{management.DispositionOperation, wire.Map{{Key: "lock-tokens", Value: make([]any, 32)}}, requestCost + 2},
		{management.CancelOperation, sequences(160), requestCost + 10},
		{management.DeferredOperation, sequences(1), requestCost + management.FetchCost},
		{management.DeferredOperation, sequences(management.TokensMax), requestCost + 64*management.FetchCost},
		{management.BatchDeleteOperation, wire.Map{{Key: management.MessageCountKey, Value: int32(1 << 30)}}, requestCost + 250},
		{management.BatchDeleteOperation, wire.Map{{Key: management.MessageCountKey, Value: int32(-1)}}, requestCost},
		{management.DispositionOperation, wire.Map{{Key: "lock-tokens", Value: make([]any, 4096)}, {Key: "deadletter-reason", Value: strings.Repeat("r", 4096)}}, requestCost + 256 + 4*4096},
		{management.ListSessionsOperation, wire.Map{{Key: "skip", Value: int32(1 << 20)}, {Key: "top", Value: int32(1)}}, requestCost + 10 + 1048},
		{management.EnumerateRulesOperation, wire.Map{{Key: "skip", Value: int32(100_000)}}, requestCost + 10 + 100},
	} {
		if got := priceOf(&request{Request: management.Request{Body: c.body}}, c.operation, true); got.Work != c.cost {
			t.Errorf("%s costs %d units, want %d", c.operation, got.Work, c.cost)
		}
		if got := priceOf(&request{Request: management.Request{Body: c.body}}, c.operation, false); got != (management.Price{Work: requestCost}) {
			t.Errorf("%s costs %+v when it is refused, want %d", c.operation, got, requestCost)
		}
	}
}

// The largest peek is charged in advance, and what it did not return is given back.
func TestPeeksAreChargedForTheirResponses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newFakeBroker("orders")
		s, p := piped(t, h, manyProcessors)
		p.requester()
		peek := wire.Map{{Key: "from-sequence-number", Value: int64(0)}, {Key: "message-count", Value: int32(management.PeekMessagesMax)}}
		begin := time.Now()
		for i := range uint32(1000) {
			p.managed(i, management.PeekOperation, peek)
		}
		if d := time.Since(begin); d > 0 {
			t.Errorf("1,000 peeks of an empty queue took %v", d)
		}
		c := onlyConn(t, s)
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.costs.bytes > 0 || c.costs.bytes < -2*management.PeekBytesMax {
			t.Errorf("%d bytes are not charged", c.costs.bytes)
		}
	})
}

// A request that is refused is not charged for the operation that it names, here the one that costs most.
func TestRefusedRequestsAreNotChargedForTheirOperation(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		handle    uint32
		anonymous bool
		grant     Grant
		entity    string
	}{
		"operation of another node": {handle: 2, anonymous: true, entity: "orders"},
		"right is missing":          {grant: Grant{Rights: fsm.Send}, entity: "orders"},
		"entity without messages":   {grant: Grant{Rights: 7}, entity: "topic"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				_, p := piped(t, newFakeBroker("orders").topic("topic", "sub"), manyProcessors, func(config *Config) { config.Authorizer = fakeAuthorizer{c.grant} })
				node := c.entity + "/$management"
				if c.anonymous {
					p.unknown()
					node = address.CBS
				} else {
					p.login()
				}
				p.requestLinks(c.handle, node)
				begin := time.Now()
				for i := range uint32(500) {
					p.answered(c.handle, i, wire.Map{{Key: "operation", Value: management.DeferredOperation}}, sequences(640))
				}
				if d := time.Since(begin); d > 0 {
					t.Errorf("500 refused requests took %v", d)
				}
			})
		})
	}
}

// Unauthenticated connections delay only each other.
func TestUnauthenticatedConnectionsDelayNoOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const unauthenticated, requests = 30, 200
		s, p := piped(t, newFakeBroker("orders"), func(c *Config) { c.Processors = 1 })
		p.requester()
		var others []func()
		for range unauthenticated {
			q := connect(t, s).unknown()
			q.requestLinks(2, address.CBS)
			others = append(others, func() {
				for id := range uint32(requests) {
					q.answered(2, id, wire.Map{{Key: "operation", Value: "no-such-operation"}}, nil)
				}
			})
		}
		waited, took := p.withOthers(others)
		if waited > 0 {
			t.Errorf("an authenticated connection waited %v", waited)
		}
		const least = (unauthenticated*requests*requestCost - unauthenticatedWorkPerSecondPerProcessor) * time.Second / unauthenticatedWorkPerSecondPerProcessor
		if took < least {
			t.Errorf("the requests of all took %v, want at least %v", took, least)
		}
	})
}

// owe makes the next requests of the connection wait for a time.
func owe(c *conn, d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.costs.bytes = responseUnitBytes * (workBurst + workPerSecond*int(d/time.Second))
}

// A request that waits counts in the memory of its connection.
func TestWaitingRequestIsCounted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, p := piped(t, newFakeBroker("orders"), manyProcessors)
		p.requester()
		c := onlyConn(t, s)
		owe(c, time.Minute)
		p.managed(0, management.RenewOperation, lockTokens(1))
		before := s.Stats().Memory.Used
		ask(p, 1, management.RenewOperation, wire.Map{{Key: "lock-tokens", Value: make([]any, management.TokensMax)}})
		synctest.Wait()
		if used := s.Stats().Memory.Used - before; used < management.TokensMax*decodedItemBytes {
			t.Errorf("a waiting request counts %d bytes", used)
		}
	})
}

// renewCounter counts renewals.
type renewCounter struct {
	*fakeBroker
	renewals atomic.Int32
}

func (b *renewCounter) Renew(at fsm.EntityRef, ids []fsm.LockID, done func([]fsm.Code, []fsm.Instant)) {
	b.renewals.Add(1)
	b.fakeBroker.Renew(at, ids, done)
}

// When a connection breaks or is closed for another one, its waiting request ends and is not performed.
func TestWaitingRequestEndsWithABrokenConnection(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*Server, *peer){
		"broken": func(_ *Server, p *peer) { _ = p.net.Close() },
		"evicted": func(s *Server, p *peer) {
			c := onlyConn(p.TB.(*testing.T), s)
			s.mu.Lock()
			defer s.mu.Unlock()
			s.evict(c)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := &renewCounter{fakeBroker: newFakeBroker("orders")}
				s, p := piped(t, b, manyProcessors)
				p.requester()
				renew := b.renewal(t)
				owe(onlyConn(t, s), 10*time.Minute)
				p.managed(0, management.RenewOperation, renew)
				ask(p, 1, management.RenewOperation, renew)
				synctest.Wait()
				end(s, p)
				begin := time.Now()
				<-p.ended
				// That a connection is broken shows when a heartbeat is written.
				if d := time.Since(begin); d > heartbeatMax || d > 0 && name == "evicted" {
					t.Errorf("the connection ended after %v", d)
				}
				if n := b.renewals.Load(); n != 1 {
					t.Errorf("%d renewals, want only that of the first request", n)
				}
			})
		})
	}
}

// A peer that the gateway did not read for a time is given the time that it may be silent afterwards.
func TestTimeNotReadIsNotSilence(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, p := piped(t, newFakeBroker("orders"), manyProcessors)
		p.requester()
		owe(onlyConn(t, s), idleTimeOut*3/2)
		p.managed(0, management.RenewOperation, lockTokens(1))
		p.managed(1, management.RenewOperation, lockTokens(1)) // waits
		p.idle(idleTimeOut / 2)
		p.undisturbed()
	})
}
