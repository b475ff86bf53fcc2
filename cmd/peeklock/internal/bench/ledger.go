package bench

import (
	"encoding/binary"
	"math/bits"
	"sync"
	"sync/atomic"
)

// messageHeader begins every body: it identifies the message and says when it was sent.
//
//	0  "PLB1"
//	4  run      uint64, drawn at random
//	12 sender   uint32, from 0
//	16 counter  uint64, from 0
//	24 sent     int64, nanoseconds since 1970
const (
	headerBytes = 32
	headerMagic = "PLB1"
)

type messageHeader struct {
	run     uint64
	sender  uint32
	counter uint64
	sent    int64
}

func (s messageHeader) put(body []byte) {
	copy(body, headerMagic)
	binary.BigEndian.PutUint64(body[4:], s.run)
	binary.BigEndian.PutUint32(body[12:], s.sender)
	binary.BigEndian.PutUint64(body[16:], s.counter)
	binary.BigEndian.PutUint64(body[24:], uint64(s.sent))
}

func readHeader(body []byte) (messageHeader, bool) {
	if len(body) < headerBytes || string(body[:4]) != headerMagic {
		return messageHeader{}, false
	}
	return messageHeader{
		run:     binary.BigEndian.Uint64(body[4:]),
		sender:  binary.BigEndian.Uint32(body[12:]),
		counter: binary.BigEndian.Uint64(body[16:]),
		sent:    int64(binary.BigEndian.Uint64(body[24:])),
	}, true
}

const (
	chunkBits   = 64 * 1024 // counters in one chunk: 8 KiB
	chunksMax   = 4096
	countersMax = chunkBits * chunksMax // messages of one sender in one run: 268 million
)

// bitmap is a set of counters that many goroutines write concurrently. It takes one bit per counter up to the
// highest, in chunks that are allocated on demand.
type bitmap struct {
	chunks [chunksMax]atomic.Pointer[chunk]
}

type chunk [chunkBits / 64]atomic.Uint64

// set adds the counter, which must be below countersMax, and reports whether it was in the set before.
func (b *bitmap) set(counter uint64) bool {
	slot := &b.chunks[counter/chunkBits]
	c := slot.Load()
	if c == nil {
		slot.CompareAndSwap(nil, new(chunk))
		c = slot.Load()
	}
	bit := uint64(1) << (counter % 64)
	return c[counter%chunkBits/64].Or(bit)&bit != 0
}

func (b *bitmap) has(counter uint64) bool {
	return b.word(counter/64)&(1<<(counter%64)) != 0
}

func (b *bitmap) word(i uint64) uint64 {
	c := b.chunks[i*64/chunkBits].Load()
	if c == nil {
		return 0
	}
	return c[i%(chunkBits/64)].Load()
}

// senderTrack holds the states of the messages of one sender.
type senderTrack struct {
	attempted          atomic.Uint64 // lower counters may have been sent
	confirmed, refused bitmap
	copies             []copyState // one element, or one for each subscription that gets all messages
}

// copyState holds the states of one copy of each message.
type copyState struct{ received, settled bitmap }

// trackKey identifies a sender of a run, which need not be this run.
type trackKey struct {
	run    uint64
	sender uint32
}

// deliveryLedger compares every received message with what was sent.
//
//	lost        confirmed and never received
//	duplicated  received again after its completion was confirmed (or received twice with receive-and-delete)
//	unexpected  received and never sent, or refused when it was sent
//	redelivered received again before its completion was confirmed: allowed, a lock ended
//	foreign     not of this run
type deliveryLedger struct {
	run     uint64
	copies  int            // of each message
	tracks  []*senderTrack // of this run, by sender
	foreign bool           // also follow other runs, because this run does not send

	mu     sync.Mutex
	others map[trackKey]*senderTrack
}

// othersMax limits how many senders of earlier runs a receiving run follows, over all copies.
const othersMax = 1024

func newDeliveryLedger(run uint64, senders, copies int, foreign bool) *deliveryLedger {
	l := &deliveryLedger{run: run, copies: copies, tracks: make([]*senderTrack, senders), foreign: foreign, others: make(map[trackKey]*senderTrack)}
	for i := range l.tracks {
		l.tracks[i] = l.newTrack()
	}
	return l
}

func (l *deliveryLedger) newTrack() *senderTrack {
	return &senderTrack{copies: make([]copyState, l.copies)}
}

// trackOf returns the track of a message, or nil if the ledger does not follow its sender.
func (l *deliveryLedger) trackOf(s messageHeader) *senderTrack {
	if s.counter >= countersMax {
		return nil
	}
	if s.run == l.run {
		if int(s.sender) < len(l.tracks) {
			return l.tracks[s.sender]
		}
		return nil
	}
	if !l.foreign {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	key := trackKey{s.run, s.sender}
	t := l.others[key]
	if t == nil && len(l.others) < max(1, othersMax/l.copies) {
		t = l.newTrack()
		t.attempted.Store(countersMax)
		l.others[key] = t
	}
	return t
}

// verdict classifies a delivery.
type verdict uint8

const (
	firstDelivery verdict = iota
	redelivered
	duplicated
	unexpected
	foreign
)

// recordDelivery records a delivery of one copy of a message and classifies it. With receiveAndDelete, the
// delivery also settles the message.
func (l *deliveryLedger) recordDelivery(s messageHeader, copyIndex int, receiveAndDelete bool) (verdict, *copyState) {
	t := l.trackOf(s)
	if t == nil {
		if s.run == l.run {
			return unexpected, nil
		}
		return foreign, nil
	}
	f := &t.copies[copyIndex]
	// Read settled before setting received: a settlement follows its own delivery, so a bit that is set here
	// belongs to an earlier delivery.
	settled := f.settled.has(s.counter)
	again := f.received.set(s.counter)
	if receiveAndDelete {
		f.settled.set(s.counter)
	}
	switch {
	case s.counter >= t.attempted.Load() || t.refused.has(s.counter):
		return unexpected, f
	case settled:
		return duplicated, f
	case again:
		return redelivered, f
	}
	return firstDelivery, f
}

// lost returns the number of confirmed copies that were not received.
func (l *deliveryLedger) lost() uint64 {
	var n uint64
	for _, t := range l.tracks {
		for i := range words(t.attempted.Load()) {
			confirmed := t.confirmed.word(i)
			for c := range t.copies {
				n += uint64(bits.OnesCount64(confirmed &^ t.copies[c].received.word(i)))
			}
		}
	}
	return n
}

// words returns the number of 64-bit words that hold this many counters.
func words(counters uint64) uint64 { return (min(counters, countersMax) + 63) / 64 }
