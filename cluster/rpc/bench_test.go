package rpc

import (
	"context"
	"crypto/tls"
	"net"
	"testing"
	"time"

	"github.com/peeklock/peeklock/cluster/peer"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition"
	"github.com/peeklock/peeklock/test/fakegroup"
	"github.com/peeklock/peeklock/test/kit"
)

// BenchmarkForwardStream measures commands of 1 KiB that one member forwards to another,
// 256 outstanding, with a replica that answers immediately.
func BenchmarkForwardStream(b *testing.B) {
	ours := kit.NewAuthority(b)
	for _, c := range []struct {
		name string
		tls  func() *tls.Config
	}{{"plain", func() *tls.Config { return nil }}, {"tls", func() *tls.Config { return ours.MemberTLSConfig(b) }}} {
		b.Run(c.name, func(b *testing.B) {
			group := &fakegroup.Group{Answer: func([]byte) partition.Answer { return partition.Answer{Outcome: partition.Done} }}
			group.Forget = true
			listener, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				b.Fatal(err)
			}
			config := peer.Config{
				Self: "B", Listener: listener, DialTimeout: waitMax, TLS: c.tls(), Logger: testLogger(),
				Cluster: func() string { return "" },
				Address: func(fsm.MemberID) (string, error) { return listener.Addr().String(), nil },
				Forward: func(from fsm.MemberID, conn net.Conn) {
					Serve(context.Background(), fakeHost{group}, testLogger(), from, conn)
				},
			}
			server := peer.New(&config)
			server.Start()
			b.Cleanup(server.Close)
			config.Self, config.TLS = "A", c.tls()
			dialer := peer.New(&config)
			f := NewClient(testLogger(), time.Minute, func(ctx context.Context, to fsm.MemberID) (net.Conn, error) {
				return dialer.Dial(ctx, peer.ForwardStream, to, 0)
			})
			b.Cleanup(f.Close)
			const outstanding = 256
			got := make(answers, outstanding)
			command := fsm.AppendCommand(nil, fsm.Header{Incarnation: 1, Serial: 1}, fsm.SendMessages{Entity: 1, Messages: []fsm.Message{{Payload: make([]byte, 1024)}}})
			conn := f.Conn("B")
			b.SetBytes(int64(len(command)))
			b.ReportAllocs()
			b.ResetTimer()
			for i := range b.N {
				if i >= outstanding {
					if a := <-got; a.answer.Outcome != partition.Done {
						b.Fatalf("outcome %d", a.answer.Outcome)
					}
				}
				conn.Submit(1, command, got, uint64(i))
			}
			for range min(b.N, outstanding) {
				<-got
			}
		})
	}
}
