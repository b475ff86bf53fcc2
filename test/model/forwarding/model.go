package forwarding

import (
	"errors"
	"fmt"

	"github.com/peeklock/peeklock/test/model"
)

// The sizes of a state. The bounds of a Model are within them.
const (
	MessagesMax = 5 // that are sent to the source, in both clusters together
	copiesMax   = 3 // transfers that are on their way
	epochsMax   = 6

	arrivalsMax = 3 // that are counted
)

// batch is a batch of one message. The zero value is none.
type batch struct {
	epoch, serial uint8
	number        uint8 // sequence number of the message at the source
	message       uint8 // which message that is, from 1 on; two messages have one number if a restore has lost the first one
}

// source is the state of the partition of the source.
type source struct {
	epoch    uint8
	serial   uint8 // of the last batch
	inFlight batch
	next     uint8              // sequence number of the next message that is sent to it
	held     [MessagesMax]uint8 // messages, in order; 0 behind the end. The first one is that of the batch in flight
}

// destination is the state of the partition of the destination.
type destination struct {
	last    batch              // of the source
	former  uint8              // bit i: epoch i was one before that of last
	arrived [MessagesMax]uint8 // by message: how often it was stored
}

// answer is an answer to a transfer that a forwarder has not reported. Zero: none.
type answer struct {
	of    batch
	stale bool
}

// State is a state of both partitions, of the forwarders and of the backup.
type State struct {
	source      source
	destination destination
	underway    [copiesMax]batch  // transfers, in no order
	answers     [copiesMax]answer // that were not reported

	sourceCopy      source
	destinationCopy destination
	copied          [2]bool // the source, the destination
	restored        bool
	sent            uint8             // messages
	epochs          uint8             // that were drawn
	crossed         [MessagesMax]bool // the destination was copied behind the message, and the source before it left, or the reverse
	lost            uint8             // message that the source has deleted although it did not arrive
}

// Guards are what makes forwarding exact.
type Guards struct {
	RemembersLast      bool // the destination answers a repeated batch from memory
	RestoreBeginsEpoch bool // a restored source begins an epoch, because its serials and sequence numbers repeat
	RemembersFormer    bool // the destination refuses batches of former epochs of the source
	RenewalNamesEpoch  bool // the command that begins an epoch for a refused batch names the epoch in which it was refused
	RenewalNamesSerial bool // and the serial of the batch
	ReportNamesSerial  bool // the report of an answer names the serial of the batch
}

// AllGuards has every guard.
func AllGuards() Guards {
	return Guards{
		RemembersLast: true, RestoreBeginsEpoch: true, RemembersFormer: true, RenewalNamesEpoch: true, RenewalNamesSerial: true,
		ReportNamesSerial: true,
	}
}

// Model is the forwarding with bounds.
type Model struct {
	Guards

	Messages uint8 // that are sent, at most MessagesMax
	Copies   int   // transfers and answers on their way at once, at most copiesMax
	Restores bool  // one backup and restore
}

// The kinds of actions.
const (
	send = iota
	take
	transfer
	arrive
	report
	copySource
	copyDestination
	restore
	forget
)

// Describe implements model.Model.
func (Model) Describe(a model.Action) string {
	detail := int(a >> 4)
	switch a & 15 {
	case send:
		return fmt.Sprintf("message %d is sent to the source", detail)
	case take:
		return fmt.Sprintf("message %d is taken as a batch", detail)
	case transfer:
		return fmt.Sprintf("a forwarder transfers the batch of message %d", detail)
	case arrive:
		return fmt.Sprintf("the batch of message %d arrives", detail)
	case report:
		return fmt.Sprintf("a forwarder reports the answer to the batch of message %d", detail)
	case copySource:
		return "the source is copied"
	case copyDestination:
		return "the destination is copied"
	case restore:
		return "all is lost and restored"
	}
	return fmt.Sprintf("the answer to the batch of message %d is lost", detail)
}

// Initial implements model.Model.
func (Model) Initial() []State {
	return []State{{source: source{epoch: 1, next: 1}, epochs: 1}}
}

// Check implements model.Model.
func (m Model) Check(s *State) error {
	if s.lost != 0 {
		return fmt.Errorf("message %d is lost: the source has deleted it, and it has not arrived", s.lost)
	}
	for i, n := range s.destination.arrived {
		switch {
		case n > 1 && !s.crossed[i]:
			return fmt.Errorf("message %d has arrived twice", i+1)
		case n > 2:
			return errors.New("a message that crossed between the copies has arrived three times")
		}
	}
	return nil
}

// Next implements model.Model.
func (m Model) Next(s *State, emit func(model.Action, *State)) {
	do := func(kind int, detail uint8, change func(*State)) {
		after := *s
		change(&after)
		emit(model.Action(kind)|model.Action(detail)<<4, &after)
	}
	if s.sent < m.Messages && s.source.length() < MessagesMax {
		do(send, s.sent+1, func(s *State) {
			s.sent++
			s.source.held[s.source.length()] = s.sent
		})
	}
	if s.source.inFlight == (batch{}) && s.source.held[0] != 0 {
		do(take, s.source.held[0], func(s *State) {
			x := &s.source
			x.serial++
			x.inFlight = batch{x.epoch, x.serial, x.next, x.held[0]}
			x.next++
		})
	}
	if b := s.source.inFlight; b != (batch{}) {
		if i := freeBatch(s.underway[:m.Copies]); i >= 0 {
			do(transfer, b.message, func(s *State) { s.underway[i] = b; s.sort() })
		}
	}
	for i, b := range s.underway {
		if b != (batch{}) && (i == 0 || b != s.underway[i-1]) {
			m.arrivals(s, i, do)
		}
	}
	for i, a := range s.answers {
		if a != (answer{}) && (i == 0 || a != s.answers[i-1]) {
			do(report, a.of.message, func(s *State) { m.report(s, i) })
			do(forget, a.of.message, func(s *State) { s.answers[i] = answer{}; s.sort() })
		}
	}
	m.backups(s, do)
}

func (x *source) length() int {
	n := 0
	for n < MessagesMax && x.held[n] != 0 {
		n++
	}
	return n
}

func freeBatch(of []batch) int {
	for i := range of {
		if of[i] == (batch{}) {
			return i
		}
	}
	return -1
}

// sort puts the transfers and answers on their way in one order: which one is in which place does not matter.
func (s *State) sort() {
	for i := range s.underway {
		for j := range i {
			if less(s.underway[j], s.underway[i]) {
				s.underway[i], s.underway[j] = s.underway[j], s.underway[i]
			}
			if a, b := s.answers[j], s.answers[i]; less(a.of, b.of) || a.of == b.of && !a.stale && b.stale {
				s.answers[i], s.answers[j] = a, b
			}
		}
	}
}

func less(a, b batch) bool {
	switch {
	case a.epoch != b.epoch:
		return a.epoch < b.epoch
	case a.serial != b.serial:
		return a.serial < b.serial
	}
	return a.message < b.message
}

// arrivals emits the arrival of a transfer. Its answer is lost if as many as the network can hold are in flight.
func (m Model) arrivals(s *State, i int, do func(int, uint8, func(*State))) {
	b := s.underway[i]
	do(arrive, b.message, func(s *State) {
		s.underway[i] = batch{}
		stale := m.accept(&s.destination, b)
		for j := range s.answers[:m.Copies] {
			if s.answers[j] == (answer{}) {
				s.answers[j] = answer{b, stale}
				break
			}
		}
		s.sort()
	})
}

// accept stores the message of a batch, unless the destination has it. It reports whether the batch is refused as stale.
func (m Model) accept(d *destination, b batch) (stale bool) {
	last := d.last
	switch {
	case last == (batch{}):
	case b.epoch != last.epoch:
		if m.RemembersFormer && d.former>>b.epoch&1 == 1 {
			return true
		}
		d.former |= 1 << last.epoch
	case b.serial == last.serial && m.RemembersLast:
		return b.number != last.number
	case b.serial < last.serial:
		return m.RemembersLast
	}
	d.last = b
	d.arrived[b.message-1] = min(arrivalsMax, d.arrived[b.message-1]+1)
	return false
}

// report tells the source an answer.
func (m Model) report(s *State, i int) {
	a, x := s.answers[i], &s.source
	s.answers[i] = answer{}
	s.sort()
	if x.inFlight == (batch{}) {
		return
	}
	isSame := x.inFlight.serial == a.of.serial
	if a.stale {
		if m.RenewalNamesEpoch && x.inFlight.epoch != a.of.epoch || m.RenewalNamesSerial && !isSame || s.epochs == epochsMax {
			return
		}
		s.epochs++
		x.epoch, x.inFlight.epoch = s.epochs, s.epochs
		return
	}
	if m.ReportNamesSerial && !isSame {
		return
	}
	done := x.inFlight.message
	copy(x.held[:], x.held[1:])
	x.held[MessagesMax-1] = 0
	x.inFlight = batch{}
	if s.destination.arrived[done-1] == 0 {
		s.lost = done
	}
}

// backups emits the copies of both partitions, and the restore.
func (m Model) backups(s *State, do func(int, uint8, func(*State))) {
	if !m.Restores || s.restored {
		return
	}
	if !s.copied[0] {
		do(copySource, 0, func(s *State) { s.sourceCopy, s.copied[0] = s.source, true })
	}
	if !s.copied[1] {
		do(copyDestination, 0, func(s *State) { s.destinationCopy, s.copied[1] = s.destination, true })
	}
	if s.copied == [2]bool{true, true} {
		do(restore, 0, func(s *State) { m.restore(s) })
	}
}

func (m Model) restore(s *State) {
	s.restored = true
	s.source, s.destination = s.sourceCopy, s.destinationCopy
	s.sourceCopy, s.destinationCopy = source{}, destination{}
	s.underway, s.answers = [copiesMax]batch{}, [copiesMax]answer{}
	for i := range s.crossed[:s.sent] {
		held := false
		for _, message := range s.source.held {
			held = held || message == uint8(i+1)
		}
		// A batch in flight that the destination has as its last one arrived before the copies: it is answered from memory.
		isLast := s.source.inFlight != (batch{}) && s.source.inFlight == s.destination.last
		s.crossed[i] = held == (s.destination.arrived[i] > 0) && (!isLast || s.source.inFlight.message != uint8(i+1))
	}
	if m.RestoreBeginsEpoch {
		s.epochs++
		s.source.epoch = s.epochs
	}
}
