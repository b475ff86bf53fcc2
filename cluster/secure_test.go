package cluster

import (
	"context"
	"crypto/tls"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/peeklock/peeklock/cluster/peer"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition"
	"github.com/peeklock/peeklock/test/kit"
)

// A configuration that would let anybody in, or nobody, is refused, and no key is in the words.
func TestSecureConfig(t *testing.T) {
	t.Parallel()
	ours := kit.NewAuthority(t)
	valid := Default()
	valid.Dir, valid.Logger, valid.PeerTLS = "x", testLogger(), ours.MemberTLSConfig(t)
	valid.GossipKeys = [][]byte{make([]byte, 16), make([]byte, 24), make([]byte, 32)}
	if err := valid.Validate(); err != nil {
		t.Fatal(err)
	}
	secret := "this is a secret!" // 17 bytes
	for word, change := range map[string]func(*Config){
		"names no authority":       func(c *Config) { c.PeerTLS.RootCAs = nil },
		"has no certificate":       func(c *Config) { c.PeerTLS.GetClientCertificate = nil },
		"gossip key 2 has 17":      func(c *Config) { c.GossipKeys = [][]byte{make([]byte, 16), []byte(secret)} },
		"9 gossip keys: at most 8": func(c *Config) { c.GossipKeys = make([][]byte, gossipKeysMax+1) },
	} {
		config := valid
		config.PeerTLS = valid.PeerTLS.Clone()
		change(&config)
		if err := config.Validate(); err == nil || !strings.Contains(err.Error(), word) || strings.Contains(err.Error(), secret) {
			t.Errorf("%s: %v", word, err)
		}
	}
	one := valid // a certificate that does not change
	one.PeerTLS = &tls.Config{RootCAs: ours.Pool, Certificates: []tls.Certificate{*ours.Issue(t, nil)}}
	if err := one.Validate(); err != nil {
		t.Error(err)
	}
}

// BenchmarkForwardStream measures commands of 1 KiB that one member forwards to another,
// 256 outstanding, with a replica that answers at once.
func BenchmarkForwardStream(b *testing.B) {
	ours := kit.NewAuthority(b)
	for _, c := range []struct {
		name string
		tls  func() *tls.Config
	}{{"plain", func() *tls.Config { return nil }}, {"tls", func() *tls.Config { return ours.MemberTLSConfig(b) }}} {
		b.Run(c.name, func(b *testing.B) {
			group := &fakeGroup{answer: func([]byte) partition.Answer { return partition.Answer{Outcome: partition.Done} }}
			group.forget = true
			listener, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				b.Fatal(err)
			}
			config := peer.Config{
				Self: "B", Listener: listener, DialTimeout: waitMax, TLS: c.tls(), Logger: testLogger(),
				Cluster: func() string { return "" },
				Address: func(fsm.MemberID) (string, error) { return listener.Addr().String(), nil },
				Forward: func(from fsm.MemberID, conn net.Conn) {
					servePeer(context.Background(), fakeHost{group}, testLogger(), from, conn)
				},
			}
			server := peer.New(&config)
			server.Start()
			b.Cleanup(server.Close)
			config.Self, config.TLS = "A", c.tls()
			dialer := peer.New(&config)
			f := newPeerClient(testLogger(), time.Minute, func(ctx context.Context, to fsm.MemberID) (net.Conn, error) {
				return dialer.Dial(ctx, peer.ForwardStream, to, 0)
			})
			b.Cleanup(f.close)
			const outstanding = 256
			got := make(answers, outstanding)
			command := fsm.AppendCommand(nil, fsm.Header{Incarnation: 1, Serial: 1}, fsm.SendMessages{Entity: 1, Messages: []fsm.Message{{Payload: make([]byte, 1024)}}})
			conn := f.connTo("B")
			b.SetBytes(int64(len(command)))
			b.ReportAllocs()
			b.ResetTimer()
			for i := range b.N {
				if i >= outstanding {
					if a := <-got; a.answer.Outcome != partition.Done {
						b.Fatalf("outcome %d", a.answer.Outcome)
					}
				}
				conn.submit(1, command, got, uint64(i))
			}
			for range min(b.N, outstanding) {
				<-got
			}
		})
	}
}
