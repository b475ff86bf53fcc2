package amqp

import (
	"context"
	"io"
	"log/slog"
	"net"
	"runtime"
	"runtime/debug"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/peeklock/peeklock/amqp/login"
	"github.com/peeklock/peeklock/amqp/wire"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/test/kit"
)

// idleConnections is the number of connections that the benchmark opens if file descriptors allow it: both
// ends of each belong to this process.
const idleConnections = 10_000

// The memory of idle connections: heap and stacks of the gateway for each, without both sockets and the
// client's end.
func BenchmarkIdleConnections(b *testing.B) {
	for name, act := range map[string]func(p *peer){
		"anonymous": func(p *peer) { p.open(login.MechanismAnonymous, "") },
		"plain":     func(p *peer) { p.open(login.MechanismPlain, "\x00"+ruleName+"\x00"+ruleKey) },
		"receiver": func(p *peer) {
			p.login()
			p.receiver(0, "orders")
			p.credit(0, 0, 10)
		},
		"after work": func(p *peer) { // large frames in and out, and then two heartbeats
			p.login()
			p.sender(0, "orders")
			for id := range uint32(4) {
				p.transfer(0, id, encodedMessage(p, make([]byte, 60<<10)))
				p.accepted()
			}
			p.send(nil)
			p.send(nil, &wire.Flow{Echo: true}) // the earlier frames were read when this is answered
			expect[*wire.Flow](p)
		},
	} {
		b.Run(name, func(b *testing.B) {
			n := affordable(b)
			for b.Loop() {
				heap, stack := measureIdle(b, n, act)
				b.ReportMetric(heap+stack, "B/conn")
				b.ReportMetric(stack, "stackB/conn")
				b.ReportMetric(float64(n), "conns")
			}
		})
	}
}

// waitingBroker is a broker that never delivers anything.
type waitingBroker struct{ noopBroker }

func (*waitingBroker) Receiver(fsm.EntityRef, bool) Receiver { return &waitingReceiver{} }

// waitingReceiver is the source of a link that never gets a message.
type waitingReceiver struct {
	mu   sync.Mutex
	done func(fsm.Code, []fsm.Delivery)
}

func (w *waitingReceiver) Lock(_, _ int, _ time.Duration, done func(fsm.Code, []fsm.Delivery)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.done = done
}

func (w *waitingReceiver) Cancel() {
	w.mu.Lock()
	done := w.done
	w.done = nil
	w.mu.Unlock()
	if done != nil {
		done(fsm.Timeout, nil)
	}
}

func (w *waitingReceiver) Close() { w.Cancel() }

// affordable returns how many connections of two descriptors each the process may open.
func affordable(b *testing.B) int {
	b.Helper()
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		b.Fatal(err)
	}
	return min(kit.Size(idleConnections), (int(limit.Cur)-200)/2)
}

// measureIdle opens n connections, runs act on each, and returns the bytes that the gateway holds for one.
func measureIdle(b *testing.B, n int, act func(*peer)) (heap, stack float64) {
	b.Helper()
	config := DefaultConfig()
	config.Broker, config.Authorizer, config.ConnectionsMax = &waitingBroker{}, fakeAuthorizer{Grant{Rights: fsm.Manage}}, n
	config.ConnectionsPerPeerMax, config.Logger = 0, slog.New(slog.NewTextHandler(io.Discard, nil)) //nolint:sloglint // what a real one keeps for each connection counts
	s, err := Open(b.Context(), config)
	if err != nil {
		b.Fatal(err)
	}
	clients, servers := sockets(b, n)
	heapBefore, stackBefore := inUse()
	var group sync.WaitGroup
	for w := range 64 {
		group.Go(func() {
			for i := w; i < n; i += 64 {
				s.start(context.Background(), servers[i])
				p := &peer{TB: b, net: clients[i], reader: wire.NewReader(clients[i], 1<<20)}
				act(p)
				_ = clients[i].SetDeadline(time.Time{})
			}
		})
	}
	group.Wait()
	heapAfter, stackAfter := inUse()
	if got := s.Connections(); got != n {
		b.Fatalf("%d connections, want %d", got, n)
	}
	for _, c := range clients {
		_ = c.Close()
	}
	if err := s.Close(b.Context()); err != nil {
		b.Fatal(err)
	}
	return (heapAfter - heapBefore) / float64(n), (stackAfter - stackBefore) / float64(n)
}

// sockets returns both ends of n TCP connections.
func sockets(b *testing.B, n int) (clients, servers []net.Conn) {
	b.Helper()
	l, err := new(net.ListenConfig).Listen(b.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	for range n {
		c, err := new(net.Dialer).DialContext(b.Context(), "tcp", l.Addr().String())
		if err != nil {
			b.Fatal(err)
		}
		s, err := l.Accept()
		if err != nil {
			b.Fatal(err)
		}
		clients, servers = append(clients, c), append(servers, s)
	}
	return clients, servers
}

// inUse returns heap and stacks in bytes, without garbage.
func inUse() (heap, stack float64) {
	var m runtime.MemStats
	for range 3 { // pools need two, and stacks shrink during one
		debug.FreeOSMemory()
	}
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc), float64(m.StackInuse)
}

// open sends everything up to open with a mechanism, and reads the answers.
func (p *peer) open(mechanism wire.Symbol, response string) {
	p.Helper()
	b := []byte(headerSASL)
	b = wire.AppendFrame(b, wire.FrameSASL, 0, &wire.SASLInit{Mechanism: mechanism, InitialResponse: []byte(response)})
	b = append(b, headerAMQP...)
	b = wire.AppendFrame(b, wire.FrameAMQP, 0, &wire.Open{ContainerID: "idle"})
	p.write(b)
	p.header(headerSASL)
	expect[*wire.SASLMechanisms](p)
	if o := expect[*wire.SASLOutcome](p); o.Code != 0 {
		p.Fatalf("outcome %d", o.Code)
	}
	p.header(headerAMQP)
	expect[*wire.Open](p)
}
