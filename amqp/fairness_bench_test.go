package amqp

import (
	"io"
	"slices"
	"testing"
	"time"

	"github.com/peeklock/peeklock/amqp/wire"
)

// BenchmarkSendBesideDetachStorm measures consecutive sends while ten connections attach and detach links as
// fast as the gateway reads them: the percentiles are the waiting times of honest clients.
func BenchmarkSendBesideDetachStorm(b *testing.B) {
	n := &noopBroker{}
	_, address := gateway(b, n)
	var storm []byte
	for i := range uint32(50) {
		storm = wire.AppendFrame(storm, wire.FrameAMQP, 0, &wire.Attach{
			Name: "link", Handle: i, Role: wire.RoleReceiver, Source: &wire.Source{Address: "orders"}, Target: &wire.Target{},
		})
		storm = wire.AppendFrame(storm, wire.FrameAMQP, 0, &wire.Detach{Handle: i, Closed: true})
	}
	for range 10 {
		p := rawAt(b, address)
		go func() { _, _ = io.Copy(io.Discard, p.net) }()
		go func() {
			for {
				if _, err := p.net.Write(storm); err != nil {
					return
				}
			}
		}()
	}
	p := rawAt(b, address)
	p.sender(0, "orders")
	message := encodedMessage(b, make([]byte, 1024))
	waits := make([]time.Duration, 0, b.N)
	for id := uint32(0); b.Loop(); id++ {
		began := time.Now()
		p.write(wire.AppendTransfer(nil, 0, &wire.Transfer{DeliveryID: &id, DeliveryTag: []byte{1}, MessageFormat: new(uint32)}, message))
		for {
			if _, ok := p.next().Body.(*wire.Disposition); ok {
				break
			}
		}
		waits = append(waits, time.Since(began))
	}
	slices.Sort(waits)
	b.ReportMetric(float64(waits[len(waits)/2].Microseconds())/1000, "p50-ms")
	b.ReportMetric(float64(waits[len(waits)*99/100].Microseconds())/1000, "p99-ms")
}
