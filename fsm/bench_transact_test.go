package fsm_test

import (
	"testing"

	"github.com/peeklock/peeklock/fsm"
)

// BenchmarkTransact measures what a transaction costs that completes a message and sends
// another one, with the lock before it, over a backlog of 100,000: beside, the same in two commands.
func BenchmarkTransact(b *testing.B) {
	for _, whole := range []bool{true, false} {
		b.Run(map[bool]string{true: "as one", false: "apart"}[whole], func(b *testing.B) {
			b.ReportAllocs()
			m := newBench()
			m.fill(100_000)
			send, at := sendOf(1), fsm.Address{Entity: 1}
			for b.Loop() {
				lock := m.apply(fsm.LockMessages{Address: at, Max: 1}).Deliveries[0].Lock
				settle := settleIn(at, fsm.Complete, lock)
				if whole {
					m.apply(fsm.Transact{Settles: []fsm.SettleMessages{settle}, Sends: []fsm.SendMessages{send}})
					continue
				}
				m.apply(settle)
				m.apply(send)
			}
		})
	}
}

// BenchmarkTransactMost measures the largest transaction: 50 messages are completed and 50 sent.
func BenchmarkTransactMost(b *testing.B) {
	b.ReportAllocs()
	m := newBench()
	m.fill(100_000)
	send, at := sendOf(50), fsm.Address{Entity: 1}
	for b.Loop() {
		c := fsm.SettleMessages{Address: at}
		for _, d := range m.apply(fsm.LockMessages{Address: at, Max: 50, MaxBytes: 1 << 30}).Deliveries {
			c.Settlements = append(c.Settlements, fsm.Settlement{Lock: d.Lock, Verb: fsm.Complete})
		}
		m.apply(fsm.Transact{Settles: []fsm.SettleMessages{c}, Sends: []fsm.SendMessages{send}})
	}
}
