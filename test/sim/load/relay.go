package load

import (
	"fmt"
	"slices"

	"github.com/peeklock/peeklock/fsm"
)

// transactionMax is how many messages one transaction moves.
const transactionMax = 4

// tooLarge is a payload with more bytes than a message may have.
var tooLarge = make([]byte, 2*messageMax) //nolint:gochecknoglobals // read only

// moveOn moves messages to all ends of a relay: all are completed and sent to each, or nothing is.
func (l *Load) moveOn(c *client, p *Process, s *stream, deliveries []fsm.Delivery) {
	settle := fsm.SettleAt{At: s.relay.At}
	var messages []fsm.Message
	for i := range deliveries {
		d := &deliveries[i]
		settle.Settlements = append(settle.Settlements, fsm.Settlement{Lock: d.Lock, Verb: fsm.Complete})
		messages = append(messages, fsm.Message{ID: idOf(d.Payload), Payload: d.Payload})
	}
	tx := fsm.Transaction{Settles: []fsm.SettleAt{settle}}
	for i := range s.From {
		tx.Sends = append(tx.Sends, fsm.SendTo{At: s.From[i].At, Via: &s.relay.At, Messages: slices.Clone(messages)})
	}
	if l.isRefused(c, p, s, tx) {
		return
	}
	code, heard := ask(p, func(answer func(fsm.Code)) { p.Node.Router().Transact(tx, answer) })
	switch {
	case heard && code == fsm.OK:
		l.operations.Add(int64(len(deliveries)))
	case heard && code != fsm.MessageLockLost && code != fsm.ServerBusy && code != fsm.Timeout:
		s.Find(fmt.Sprintf("a transaction failed: %v", code))
	}
}

// isRefused sometimes tries a transaction with a message that is too large, which must be refused as a whole. It
// reports whether the fate of the transaction is unknown.
func (l *Load) isRefused(c *client, p *Process, s *stream, tx fsm.Transaction) bool {
	if c.rand.IntN(5) != 0 {
		return false
	}
	large := fsm.SendTo{At: s.relay.At, Messages: []fsm.Message{{ID: "large", Payload: tooLarge}}}
	tx.Sends = append(slices.Clone(tx.Sends), large)
	code, heard := ask(p, func(answer func(fsm.Code)) { p.Node.Router().Transact(tx, answer) })
	switch {
	case !heard:
		return true
	case code == fsm.OK:
		s.Find("a transaction with a message that is too large was performed")
	case code == fsm.MessageTooLarge:
		l.operations.Add(1)
	}
	return false
}
