package fsm

import "encoding/binary"

// The fewest bytes that a part of a Transact takes: two of them without anything in them.
const (
	transactionSettleBytesMin   = 3 // address, count
	transactionSendBytesMin     = 2 // entity, count
	transactionTransferBytesMin = 5 // via, partition, entity, name, count
)

func appendTransact(dst []byte, c Transact) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(c.Settles)))
	for _, s := range c.Settles {
		dst = appendSettleMessages(dst, s)
	}
	dst = binary.AppendUvarint(dst, uint64(len(c.Sends)))
	for _, s := range c.Sends {
		dst = appendSendMessages(dst, s)
	}
	dst = binary.AppendUvarint(dst, uint64(len(c.Transfers)))
	for _, t := range c.Transfers {
		dst = binary.AppendUvarint(dst, uint64(t.Via))
		dst = appendString(appendDestination(dst, t.To), t.Name)
		dst = appendMessages(dst, t.Messages)
	}
	return dst
}

// transaction reads a Transact as it lies in the bytes.
func (r *reader) transaction() transaction {
	var c transaction
	for range r.count(transactionSettleBytesMin) {
		c.settles = append(c.settles, r.settleMessages(nil))
	}
	for range r.count(transactionSendBytesMin) {
		var s transactionSend
		s.entity, s.messages = r.sends(nil)
		c.sends = append(c.sends, s)
	}
	for range r.count(transactionTransferBytesMin) {
		p := transactionTransfer{via: EntityID(r.uvarint()), to: r.destination(), name: r.bytes()}
		p.messages = r.messages(nil)
		c.transfers = append(c.transfers, p)
	}
	return c
}

func (r *reader) transact() Transact {
	t := r.transaction()
	c := Transact{Settles: t.settles}
	for i := range t.sends {
		c.Sends = append(c.Sends, SendMessages{Entity: t.sends[i].entity, Messages: messagesOf(t.sends[i].messages)})
	}
	for i := range t.transfers {
		p := &t.transfers[i]
		c.Transfers = append(c.Transfers, TransferOut{Via: p.via, To: p.to, Name: string(p.name), Messages: messagesOf(p.messages)})
	}
	return c
}

// checkTransact is [Check] of a Transact.
func checkTransact(c *Transact) Code {
	n, worst := 0, OK
	note := func(messages int, code Code) {
		n += messages
		if worst == OK {
			worst = code
		}
	}
	for _, s := range c.Settles {
		note(len(s.Settlements), checkSettle(s))
		for i := range s.Settlements {
			note(0, codeIf(s.Settlements[i].Verb != Release))
		}
	}
	for _, s := range c.Sends {
		note(len(s.Messages), checkSend(s))
	}
	for _, t := range c.Transfers {
		note(len(t.Messages), checkSend(SendMessages{Entity: t.Via, Messages: t.Messages}))
		note(0, codeIf(validTransferOut(t.Via, t.To, len(t.Name), len(t.Messages))))
		for i := range t.Messages {
			note(0, codeIf(t.Messages[i].EnqueueAt == 0))
		}
	}
	if !within(n, transactionOperationsMax) {
		return InvalidArgument
	}
	return worst
}
