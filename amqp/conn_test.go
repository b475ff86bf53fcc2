package amqp

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/peeklock/peeklock/amqp/wire"
	"github.com/peeklock/peeklock/fsm"
)

func sendOne(at fsm.EntityRef, m fsm.Message) fsm.Command {
	return fsm.SendMessages{Entity: at.ID, Messages: []fsm.Message{m}}
}

func TestSASLMechanisms(t *testing.T) {
	t.Parallel()
	good := "\x00" + ruleName + "\x00" + ruleKey
	for _, c := range []struct {
		mechanism wire.Symbol
		Response  string
		code      uint8
	}{
		{"MSSBCBS", "", 0},
		{"ANONYMOUS", "anonymous", 0},
		{"EXTERNAL", "", 0},
		{"PLAIN", good, 0},
		{"PLAIN", good + "x", 1},
		{"PLAIN", "nonsense", 1},
		{"SCRAM-SHA-1", "", 1},
	} {
		t.Run(fmt.Sprintf("%s %d", c.mechanism, c.code), func(t *testing.T) {
			t.Parallel()
			_, p := piped(t, newFakeBroker())
			p.write([]byte(headerSASL))
			p.header(headerSASL)
			offer := expect[*wire.SASLMechanisms](p).Mechanisms
			if fmt.Sprint(offer) != "[MSSBCBS PLAIN ANONYMOUS EXTERNAL]" {
				t.Errorf("offered %v", offer)
			}
			p.write(wire.AppendFrame(nil, wire.FrameSASL, 0, &wire.SASLInit{Mechanism: c.mechanism, InitialResponse: []byte(c.Response)}))
			if o := expect[*wire.SASLOutcome](p); o.Code != c.code {
				t.Fatalf("outcome %d, want %d", o.Code, c.code)
			}
			if c.code != 0 {
				p.gone()
				return
			}
			p.write([]byte(headerAMQP))
			p.header(headerAMQP)
		})
	}
}

// A connection without SASL authenticates on $cbs: JS does so if its connection string contains only a
// signature.
func TestWithoutSASLTokenComesFirst(t *testing.T) {
	t.Parallel()
	_, p := piped(t, newFakeBroker("orders"))
	p.write([]byte(headerAMQP))
	p.header(headerAMQP)
	p.send(&wire.Open{ContainerID: "js"}, &wire.Begin{IncomingWindow: 10})
	open := expect[*wire.Open](p)
	if *open.MaxFrameSize != frameBytesMax || *open.ChannelMax != channelMax || *open.IdleTimeOut != 240000 || len(open.Properties) != 2 {
		t.Errorf("open %+v", open)
	}
	expect[*wire.Begin](p)
	attach := &wire.Attach{Name: "s", Handle: 3, Role: wire.RoleSender, Source: &wire.Source{}, Target: &wire.Target{Address: "orders"}}
	p.send(attach)
	if a := expect[*wire.Attach](p); a.Target != nil {
		t.Fatal("attached without a token")
	}
	if d := expect[*wire.Detach](p); !d.Closed || d.Error.Condition != wire.ConditionUnauthorizedAccess {
		t.Fatalf("detach %+v", d)
	}
	p.putToken("amqp://host:5672/Orders", 202)
	p.send(attach)
	if a := expect[*wire.Attach](p); a.Target == nil {
		t.Fatalf("refused: %v", expect[*wire.Detach](p).Error)
	}
}

func TestUnknownHeaderIsAnsweredWithOurs(t *testing.T) {
	t.Parallel()
	for _, header := range []string{"GET / HT", "AMQP\x02\x01\x00\x00", "AMQP\x00\x00\x09\x01"} {
		_, p := piped(t, newFakeBroker())
		p.write([]byte(header))
		p.header(headerAMQP)
		p.gone()
	}
}

// Protocol faults close the connection, or end the session, with the correct condition.
func TestProtocolErrorsCloseTheConnection(t *testing.T) {
	t.Parallel()
	frame := func(b ...byte) func(*peer) { return func(p *peer) { p.write(b) } }
	for name, c := range map[string]struct {
		act  func(p *peer)
		want wire.Symbol
	}{
		"size below header": {frame(0, 0, 0, 4, 2, 0, 0, 0), wire.ConditionFramingError},
		"size above limit":  {frame(0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0), wire.ConditionFramingError},
		"garbage body":      {frame(0, 0, 0, 12, 2, 0, 0, 0, 1, 2, 3, 4), wire.ConditionDecodeError},
		"sasl frame":        {func(p *peer) { p.write(wire.AppendFrame(nil, wire.FrameSASL, 0, &wire.SASLInit{Mechanism: "PLAIN"})) }, wire.ConditionFramingError},
		"second open":       {func(p *peer) { p.send(&wire.Open{}) }, wire.ConditionNotAllowed},
		"second begin":      {func(p *peer) { p.send(&wire.Begin{}) }, wire.ConditionNotAllowed},
		"channel too high":  {func(p *peer) { p.sendOn(channelMax+1, &wire.Begin{}) }, wire.ConditionFramingError},
		"no such channel":   {func(p *peer) { p.sendOn(7, &wire.Flow{}) }, wire.ConditionNotAllowed},
		"end of nothing":    {func(p *peer) { p.sendOn(7, &wire.End{}) }, wire.ConditionNotAllowed},
		"handle too high":   {func(p *peer) { p.send(&wire.Attach{Handle: handleMax + 1}) }, wire.ConditionFramingError},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := loggedIn(t, newFakeBroker("orders"))
			c.act(p)
			closed := expect[*wire.Close](p)
			if closed.Error == nil || closed.Error.Condition != c.want {
				t.Errorf("closed with %+v, want %s", closed.Error, c.want)
			}
			_ = p.net.Close()
			<-p.ended
		})
	}
}

func TestProtocolErrorsEndTheSession(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		act  func(p *peer)
		want wire.Symbol
	}{
		"transfer without link": {func(p *peer) { p.transfer(9, 0, nil) }, wire.ConditionUnattachedHandle},
		"transfer to us as receiver": {func(p *peer) {
			p.receiver(1, "orders")
			p.transfer(1, 0, nil)
		}, wire.ConditionErrantLink},
		"handle in use": {func(p *peer) {
			p.sender(1, "orders")
			p.send(&wire.Attach{Name: "x", Handle: 1, Target: &wire.Target{Address: "orders"}})
		}, wire.ConditionHandleInUse},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := loggedIn(t, newFakeBroker("orders"))
			c.act(p)
			if e := expect[*wire.End](p); e.Error == nil || e.Error.Condition != c.want {
				t.Errorf("ended with %+v, want %s", e.Error, c.want)
			}
			p.send(&wire.Flow{}) // it crossed our end: ignored
			p.send(&wire.End{}, &wire.Begin{})
			expect[*wire.Begin](p)
		})
	}
}

// Python sends detaches after its end.
func TestFramesAfterEndAreIgnored(t *testing.T) {
	t.Parallel()
	p := loggedIn(t, newFakeBroker("orders"))
	p.sender(0, "orders")
	p.send(&wire.End{})
	expect[*wire.End](p)
	p.send(&wire.Detach{Handle: 0}, &wire.Flow{}, dispose(0, 0, true, nil))
	p.transfer(0, 0, nil)
	p.send(&wire.Begin{IncomingWindow: 1})
	expect[*wire.Begin](p)
	p.sender(0, "orders")
}

// Arbitrary input ends the connection, not the process.
func TestHostileBytesEndOnlyTheConnection(t *testing.T) {
	t.Parallel()
	for seed := range uint64(200) {
		s, p := piped(t, newFakeBroker("orders"))
		p.login()
		random := rand.New(rand.NewPCG(seed, 1))
		b := wire.AppendFrame(nil, wire.FrameAMQP, 0, &wire.Attach{Name: "a", Source: &wire.Source{Address: "orders"}, Target: &wire.Target{Address: "orders"}})
		b = wire.AppendFrame(b, wire.FrameAMQP, 0, &wire.Flow{Handle: new(uint32), LinkCredit: new(uint32)})
		b = wire.AppendFrame(b, wire.FrameAMQP, 0, &wire.Disposition{Role: true, Last: new(uint32), State: &wire.Accepted{}})
		for range 1 + random.IntN(8) {
			b[random.IntN(len(b))] = byte(random.Uint32())
		}
		go func() { _, _ = p.net.Write(b); _ = p.net.Close() }()
		_, _ = bytes.NewBuffer(nil).ReadFrom(p.net)
		<-p.ended
		if n := s.Connections(); n != 0 {
			t.Fatalf("seed %d: %d connections left", seed, n)
		}
	}
}

func TestHeartbeatsAreSentInHalfTheIdleTime(t *testing.T) {
	t.Parallel()
	for idle, want := range map[uint32]time.Duration{0: heartbeatMax, 60000: heartbeatMax, 8000: 4 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			_, p := piped(t, newFakeBroker("orders"))
			p.login(func(o *wire.Open, _ *wire.Begin) { o.IdleTimeOut = &idle })
			p.sender(0, "orders")
			for range 3 {
				before := time.Now()
				if f := p.next(); f.Body != nil {
					t.Fatalf("%T instead of a heartbeat", f.Body)
				}
				if d := time.Since(before); d > want || d < want/2 {
					t.Errorf("heartbeat after %v, want %v", d, want)
				}
			}
		})
	}
}

func TestSilentPeerIsClosed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := loggedIn(t, newFakeBroker("orders"))
		p.sender(0, "orders")
		before := time.Now()
		c := expect[*wire.Close](p)
		if d := time.Since(before); c.Error.Condition != wire.ConditionConnectionForced || d < idleTimeOut || d > idleTimeOut+heartbeatMax {
			t.Errorf("closed after %v with %+v", d, c.Error)
		}
		p.gone()
	})
}

func TestUnopenedConnectionIsClosed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, p := piped(t, newFakeBroker())
		before := time.Now()
		p.gone()
		if d := time.Since(before); d < openWithin || d > openWithin+time.Second {
			t.Errorf("closed after %v", d)
		}
	})
}

func TestUnauthenticatedConnectionIsClosed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, p := piped(t, newFakeBroker())
		p.write([]byte(headerAMQP))
		p.header(headerAMQP)
		p.send(&wire.Open{})
		expect[*wire.Open](p)
		before := time.Now()
		c := expect[*wire.Close](p)
		if d := time.Since(before); c.Error.Condition != wire.ConditionConnectionForced || d < authenticateWithin || d > authenticateWithin+time.Second {
			t.Errorf("closed after %v with %+v", d, c.Error)
		}
	})
}

func TestTokenExpiryDetachesLinks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, p := piped(t, newFakeBroker("orders"), func(c *Config) {
			c.Authorizer = fakeAuthorizer{Grant{Rights: fsm.Manage, Expires: time.Now().Add(time.Hour)}}
		})
		p.login()
		p.sender(0, "orders")
		go func() { // send heartbeats
			for range 60 {
				time.Sleep(time.Minute) //nolint:forbidigo // of the bubble's clock
				p.send(nil)
			}
		}()
		before := time.Now()
		d := expect[*wire.Detach](p)
		if e := time.Since(before); d.Error.Condition != wire.ConditionUnauthorizedAccess || !d.Closed || e < 59*time.Minute || e > 61*time.Minute {
			t.Errorf("detached after %v with %+v", e, d.Error)
		}
		p.transfer(0, 0, encodedMessage(t, []byte("late"))) // it crossed our detach: ignored
		p.send(&wire.Detach{Handle: 0, Closed: true})
		p.send(&wire.Flow{Echo: true})
		expect[*wire.Flow](p)
		time.Sleep(time.Minute) //nolint:forbidigo // lets the goroutine end
	})
}

func TestCloseForcesClients(t *testing.T) {
	t.Parallel()
	s, p := piped(t, newFakeBroker("orders"))
	p.login()
	p.sender(0, "orders")
	go func() {
		if err := s.Close(context.Background()); err != nil {
			t.Error(err)
		}
	}()
	if c := expect[*wire.Close](p); c.Error.Condition != wire.ConditionConnectionForced {
		t.Errorf("closed with %+v", c.Error)
	}
	p.send(&wire.Close{})
	p.gone()
	<-p.ended
}

func TestCloseDoesNotWaitForPeersThatDoNotRead(t *testing.T) {
	t.Parallel()
	s, p := piped(t, newFakeBroker("orders"))
	p.login()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := s.Close(ctx); err == nil {
		t.Error("closed although the peer never answered")
	}
	<-p.ended
}

func TestConnectionsAboveTheMaximumAreRefused(t *testing.T) {
	t.Parallel()
	s, p := piped(t, newFakeBroker("orders"), func(c *Config) { c.ConnectionsMax = 1 })
	p.login()
	connect(t, s).gone()
	p.sender(0, "orders") // the first connection is not affected
}

func TestConfigIsValidated(t *testing.T) {
	t.Parallel()
	good := DefaultConfig()
	good.Broker, good.Authorizer = newFakeBroker(), fakeAuthorizer{}
	if err := good.Validate(); err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func(*Config){
		"broker":      func(c *Config) { c.Broker = nil },
		"authorizer":  func(c *Config) { c.Authorizer = nil },
		"logger":      func(c *Config) { c.Logger = nil },
		"container":   func(c *Config) { c.ContainerID = "" },
		"connections": func(c *Config) { c.ConnectionsMax = 0 },
		"in-flight":   func(c *Config) { c.InFlightBytesMax = 1 },
		"processors":  func(c *Config) { c.Processors = 0 },
	} {
		bad := good
		spoil(&bad)
		if err := bad.Validate(); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A panic of the gateway ends only one connection, with an error for the client.
func TestPanicEndsOneConnection(t *testing.T) {
	t.Parallel()
	s, p := piped(t, panicking{newFakeBroker("orders")})
	other := connect(t, s).login()
	p.login()
	p.sender(0, "orders")
	p.transfer(0, 0, encodedMessage(t, []byte("a")))
	if c := expect[*wire.Close](p); c.Error.Condition != wire.ConditionInternalError {
		t.Errorf("closed with %+v", c.Error)
	}
	p.gone()
	other.sender(0, "orders")
	_ = other.net.Close()
	<-other.ended
}

type panicking struct{ *fakeBroker }

func (panicking) Send(fsm.EntityRef, []fsm.Message, func(fsm.Code)) { panic("a bug") }

// An idle-time-out that would require constant heartbeats is refused with a reason (part 2, 2.4.5).
func TestIdleTimeOutMin(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		ms uint32
		ok bool
	}{{0, true}, {1, false}, {999, false}, {1000, true}} {
		t.Run(fmt.Sprint(c.ms), func(t *testing.T) {
			t.Parallel()
			_, p := piped(t, newFakeBroker("orders"))
			if c.ok {
				p.login(func(o *wire.Open, _ *wire.Begin) { o.IdleTimeOut = &c.ms })
				p.sender(0, "orders")
				return
			}
			p.write([]byte(headerAMQP))
			p.header(headerAMQP)
			p.send(&wire.Open{ContainerID: "test", IdleTimeOut: &c.ms})
			expect[*wire.Open](p)
			e := expect[*wire.Close](p).Error
			if e.Condition != wire.ConditionInvalidField || !strings.Contains(e.Description, "1000 ms or more") {
				t.Errorf("closed with %+v", e)
			}
			p.send(&wire.Close{})
			p.gone()
		})
	}
}
