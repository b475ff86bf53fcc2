package writebehind

import (
	"errors"
	"fmt"
	"math/bits"
	"strings"

	"github.com/peeklock/peeklock/test/model"
)

// The sizes of a state. The bounds of a Model are within them.
const (
	Replicas   = 3
	EntriesMax = 6

	quorum = Replicas/2 + 1
)

// replica is one replica of the group. Entries have the term as their only content: with their index it identifies them.
type replica struct {
	term    uint8
	leads   bool
	length  uint8             // of the log that raft sees
	log     [EntriesMax]uint8 // terms, 0 behind the end
	disk    uint8             // bit i: entry i+1 is on disk
	claimed uint8             // bit i: the group takes entry i+1 for stored; disk, and what it has failed to write without noticing
	commit  uint8             // index that raft takes for committed
	applied uint8
	match   [Replicas]uint8 // of a leader: what the followers have confirmed
}

// State is a state of the group.
type State struct {
	replicas  [Replicas]replica
	chosen    [EntriesMax]uint8 // terms of the entries that a state machine has applied first
	commands  uint8
	faults    uint8
	crashes   uint8
	conflicts bool // two state machines have applied different entries
}

// Guards are what makes up for the leader that counts itself too early.
type Guards struct {
	ApplyAwaitsDisk  bool // a state machine applies an entry when it is on the disk of its replica
	LimitsCommit     bool // a leader sends no commit index beyond what is on its disk
	FollowerAwaits   bool // a former leader answers nothing about entries that are not on its disk
	FirstEntryStored bool // the entry with which a leadership begins is on disk before raft goes on
	ReopensOnFailure bool // after a failed write, raft is reopened on what is on disk
}

// AllGuards has every guard.
func AllGuards() Guards {
	return Guards{ApplyAwaitsDisk: true, LimitsCommit: true, FollowerAwaits: true, FirstEntryStored: true, ReopensOnFailure: true}
}

// Model is the group with bounds.
type Model struct {
	Guards

	Terms, Entries uint8
	Commands       uint8 // besides the entries with which leaderships begin
	Faults         uint8 // writes that fail
	Crashes        uint8 // losses of power
}

// The kinds of actions.
const (
	elect = iota
	propose
	write
	writeFails
	crash
	replicate
	commit
	apply
)

func action(kind, replica, detail int) model.Action {
	return model.Action(kind | replica<<4 | detail<<8)
}

// Describe implements model.Model.
func (Model) Describe(a model.Action) string {
	who, detail := 'A'+rune(a>>4&15), int(a>>8)
	switch a & 15 {
	case elect:
		var voters strings.Builder
		for v := range Replicas {
			if detail>>v&1 == 1 {
				voters.WriteRune('A' + rune(v))
			}
		}
		return fmt.Sprintf("%c is elected by %s in term %d", who, voters.String(), detail>>Replicas)
	case propose:
		return fmt.Sprintf("%c appends a command", who)
	case write:
		return fmt.Sprintf("%c has written entry %d", who, detail)
	case writeFails:
		return fmt.Sprintf("%c fails to write entry %d", who, detail)
	case crash:
		return fmt.Sprintf("%c loses power", who)
	case replicate:
		return fmt.Sprintf("%c sends an entry or its commit index to %c", who, 'A'+rune(detail))
	case commit:
		return fmt.Sprintf("%c commits up to %d", who, detail)
	}
	return fmt.Sprintf("%c applies %d", who, detail)
}

// Initial implements model.Model: all replicas have stored and applied the first entry.
func (Model) Initial() []State {
	var s State
	s.chosen[0] = 1
	for i := range s.replicas {
		r := &s.replicas[i]
		r.term, r.length, r.disk, r.claimed, r.commit, r.applied = 1, 1, 1, 1, 1, 1
		r.log[0] = 1
	}
	return []State{s}
}

// Check implements model.Model.
func (Model) Check(s *State) error {
	if s.conflicts {
		return errors.New("two replicas have applied different entries at one index")
	}
	return nil
}

// Next implements model.Model.
func (m Model) Next(s *State, emit func(model.Action, *State)) {
	for i := range s.replicas {
		r := &s.replicas[i]
		m.elections(s, i, emit)
		m.writes(s, i, emit)
		m.applies(s, i, emit)
		if s.crashes < m.Crashes {
			after := *s
			after.crashes++
			after.replicas[i].reopen()
			emit(action(crash, i, 0), &after)
		}
		if !r.leads {
			continue
		}
		if s.commands < m.Commands && r.length < m.Entries {
			after := *s
			after.commands++
			after.replicas[i].append(r.term)
			emit(action(propose, i, 0), &after)
		}
		m.replications(s, i, emit)
		m.commits(s, i, emit)
	}
}

// stored returns how many entries from the first on a set has without a hole.
func stored(set uint8) uint8 { return uint8(bits.TrailingZeros8(^set)) }

func (r *replica) append(term uint8) {
	r.log[r.length] = term
	r.length++
}

// sync brings all entries to the disk.
func (r *replica) sync() {
	r.disk = 1<<r.length - 1
	r.claimed = r.disk
}

func (r *replica) truncate(length uint8) {
	for at := length; at < r.length; at++ {
		r.log[at] = 0
	}
	r.length = length
	r.disk &= 1<<length - 1
	r.claimed &= 1<<length - 1
}

// reopen starts raft on what is on disk. The state machine keeps a snapshot of what it has applied.
func (r *replica) reopen() {
	r.leads, r.match = false, [Replicas]uint8{}
	r.truncate(min(r.length, stored(r.disk)))
	r.claimed = r.disk
	r.applied = min(r.applied, r.length)
	r.commit = r.applied
}

// elections emits the elections of a candidate by each smallest quorum: in its next term, and in the first one that no replica knows, in
// which it is a candidate after elections that it has lost.
func (m Model) elections(s *State, i int, emit func(model.Action, *State)) {
	next, unknown := s.replicas[i].term+1, uint8(0)
	for v := range s.replicas {
		unknown = max(unknown, s.replicas[v].term+1)
	}
	m.electIn(s, i, next, emit)
	if unknown > next {
		m.electIn(s, i, unknown, emit)
	}
}

// electIn emits the elections of a candidate in a term. A leader begins with an entry of its term.
func (m Model) electIn(s *State, i int, term uint8, emit func(model.Action, *State)) {
	r := &s.replicas[i]
	if term > m.Terms || r.length >= m.Entries { // a leader that hears from no quorum steps down and becomes a candidate
		return
	}
	for v := range Replicas {
		o := &s.replicas[v]
		lastOther, last := o.log[o.length-1], r.log[r.length-1]
		if v == i || o.term >= term || lastOther > last || lastOther == last && o.length > r.length {
			continue
		}
		after := *s
		after.replicas[v].follow(term)
		leader := &after.replicas[i]
		leader.follow(term)
		leader.leads = true
		leader.append(term)
		if m.FirstEntryStored {
			leader.sync() // writes are made in their order
		}
		emit(action(elect, i, 1<<i|1<<v|int(term)<<Replicas), &after)
	}
}

func (r *replica) follow(term uint8) {
	r.term = max(r.term, term)
	r.leads, r.match = false, [Replicas]uint8{}
}

// writes emits the end of the next write behind raft, with and without an error.
func (m Model) writes(s *State, i int, emit func(model.Action, *State)) {
	r := &s.replicas[i]
	next := stored(r.claimed)
	if next >= r.length {
		return
	}
	after := *s
	after.replicas[i].disk |= 1 << next
	after.replicas[i].claimed |= 1 << next
	emit(action(write, i, int(next)+1), &after)
	if s.faults >= m.Faults {
		return
	}
	failed := *s
	failed.faults++
	if m.ReopensOnFailure {
		failed.replicas[i].reopen()
	} else {
		failed.replicas[i].claimed |= 1 << next
	}
	emit(action(writeFails, i, int(next)+1), &failed)
}

// applies emits that a state machine applies the next committed entry.
func (m Model) applies(s *State, i int, emit func(model.Action, *State)) {
	r := &s.replicas[i]
	if r.applied >= r.commit || m.ApplyAwaitsDisk && stored(r.claimed) <= r.applied {
		return
	}
	after := *s
	at := r.applied
	after.replicas[i].applied++
	if after.chosen[at] == 0 {
		after.chosen[at] = r.log[at]
	}
	after.conflicts = after.chosen[at] != r.log[at]
	emit(action(apply, i, int(at)+1), &after)
}

// replications emits the replication of the next entry, or of the commit index, to each follower.
func (m Model) replications(s *State, i int, emit func(model.Action, *State)) {
	leader := &s.replicas[i]
	told := leader.commit
	if m.LimitsCommit {
		told = min(told, stored(leader.claimed))
	}
	for v := range Replicas {
		f := &s.replicas[v]
		if v == i || f.term > leader.term || m.FollowerAwaits && stored(f.claimed) < f.length {
			continue
		}
		after := *s
		f = &after.replicas[v]
		f.follow(leader.term)
		same := uint8(0)
		for same < min(f.length, leader.length) && f.log[same] == leader.log[same] {
			same++
		}
		if same < leader.length {
			if same < f.applied {
				after.conflicts = true // it deletes what it has applied
			}
			f.truncate(same)
			f.append(leader.log[same])
			f.disk |= 1 << same
			f.claimed |= 1 << same
			same++
		}
		after.replicas[i].match[v] = max(leader.match[v], same)
		f.commit = max(f.commit, min(told, same))
		emit(action(replicate, i, v), &after)
	}
}

// commits emits the commit of the newest entry of the leader's term that a quorum has, as raft counts: the leader has all of its entries.
func (m Model) commits(s *State, i int, emit func(model.Action, *State)) {
	r := &s.replicas[i]
	for index := r.length; index > r.commit && r.log[index-1] == r.term; index-- {
		count := 1
		for v := range Replicas {
			if v != i && r.match[v] >= index {
				count++
			}
		}
		if count >= quorum {
			after := *s
			after.replicas[i].commit = index
			emit(action(commit, i, int(index)), &after)
			return
		}
	}
}
