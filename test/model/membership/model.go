package membership

import (
	"errors"
	"fmt"
	"math/bits"
	"strings"

	"github.com/peeklock/peeklock/test/model"
)

// The sizes of a state. The bounds of a Model are within them.
const (
	MembersMax = 5
	EntriesMax = 6
)

// Config is a configuration: the name of the voter of each member, 2 bits each, 0 for none.
type Config uint16

func (c Config) name(member int) uint8 { return uint8(c>>(2*member)) & 3 }

func (c Config) with(member int, name uint8) Config {
	return c&^(3<<(2*member)) | Config(name)<<(2*member)
}

func (c Config) voters() int { return bits.OnesCount16(uint16((c | c>>1) & 0x5555)) }

func (c Config) quorum() int { return c.voters()/2 + 1 }

// entry is an entry of a log. Its index and term identify it.
type entry struct {
	term   uint8  // 0 for no entry
	config Config // 0 for a command
}

// replica is the replica of a member.
type replica struct {
	name, term uint8
	vote       uint8 // 1 and the member, 0 for none
	leads      bool
	length     uint8 // of the log
	commit     uint8
	log        [EntriesMax]entry
	latest     Config // that raft uses
	latestAt   uint8  // its index, which is beyond the log if no log has it
	committed  Config // that raft takes for committed
	match      [MembersMax]uint8
}

// State is a state of the group.
type State struct {
	replicas  [MembersMax]replica
	chosen    [EntriesMax]entry // that a replica has taken for committed first
	faults    uint8
	renames   uint8
	restarts  uint8
	conflicts bool // two replicas have taken different entries for committed
}

// Model is the group with bounds.
type Model struct {
	Members, Voters int // the voters are the first ones
	Terms, Entries  uint8
	Faults          uint8 // appends that fail
	Renames         uint8 // replicas that are replaced
	Restarts        uint8
	// ForgetsUnstored: a leader that could not store a configuration reopens its raft instance on what the log has. Without it
	// raft goes on with the configuration.
	ForgetsUnstored bool
	// NamesReplicas: a request names the replica that it is for. Without it the replica of the member answers, whatever its name.
	NamesReplicas bool
}

// The kinds of actions.
const (
	elect = iota
	replicate
	replicateFails
	commit
	change
	changeFails
	restart
	rename
)

func action(kind, replica, detail int) model.Action {
	return model.Action(kind | replica<<4 | detail<<8)
}

// Describe implements model.Model.
func (Model) Describe(a model.Action) string {
	who, detail := 'A'+rune(a>>4&15), int(a>>8)
	switch a & 15 {
	case elect:
		return fmt.Sprintf("%c is elected by %s in term %d", who, memberSet(detail), detail>>MembersMax)
	case replicate:
		return fmt.Sprintf("%c sends an entry or its commit index to %c", who, 'A'+rune(detail))
	case replicateFails:
		return fmt.Sprintf("%c sends an entry to %c, which deletes a suffix and cannot store it", who, 'A'+rune(detail))
	case commit:
		return fmt.Sprintf("%c commits up to %d", who, detail)
	case change:
		return fmt.Sprintf("%c changes the voters to %s", who, Config(detail))
	case changeFails:
		return fmt.Sprintf("%c cannot store the voters %s", who, Config(detail))
	case restart:
		return fmt.Sprintf("%c restarts", who)
	}
	return fmt.Sprintf("%c gets an empty replica under a new name", who)
}

func memberSet(set int) string {
	var names strings.Builder
	for m := range MembersMax {
		if set>>m&1 == 1 {
			names.WriteRune('A' + rune(m))
		}
	}
	return names.String()
}

// String returns the voters, such as A1 B1.
func (c Config) String() string {
	var names []string
	for m := range MembersMax {
		if n := c.name(m); n != 0 {
			names = append(names, fmt.Sprintf("%c%d", 'A'+rune(m), n))
		}
	}
	return strings.Join(names, " ")
}

// Initial implements model.Model: the first entry, which all voters have, is the configuration.
func (m Model) Initial() []State {
	var s State
	var first Config
	for i := range m.Voters {
		first = first.with(i, 1)
	}
	s.chosen[0] = entry{term: 1, config: first}
	for i := range m.Members {
		r := &s.replicas[i]
		r.name = 1
		if i < m.Voters {
			r.term, r.length, r.commit, r.latest, r.latestAt, r.committed = 1, 1, 1, first, 1, first
			r.log[0] = s.chosen[0]
		}
	}
	return []State{s}
}

// Check implements model.Model.
func (Model) Check(s *State) error {
	if s.conflicts {
		return errors.New("split brain: two replicas have committed different entries")
	}
	for i := range s.replicas {
		for j := range i {
			if a, b := &s.replicas[i], &s.replicas[j]; a.leads && b.leads && a.term == b.term {
				return errors.New("two leaders in one term")
			}
		}
	}
	return nil
}

// Next implements model.Model.
func (m Model) Next(s *State, emit func(model.Action, *State)) {
	for i := range m.Members {
		r := &s.replicas[i]
		m.elections(s, i, emit)
		if r.leads {
			m.replications(s, i, emit)
			m.commits(s, i, emit)
			m.changes(s, i, emit)
			m.renamings(s, i, emit)
		}
		if s.restarts < m.Restarts && r.length > 0 {
			after := *s
			after.restarts++
			after.replicas[i].reopen()
			emit(action(restart, i, 0), &after)
		}
	}
}

// reaches reports whether a request for a voter of a configuration reaches the replica of a member.
func (m Model) reaches(s *State, c Config, member int) bool {
	name := c.name(member)
	return name != 0 && (!m.NamesReplicas || name == s.replicas[member].name)
}

// lastTerm returns the term of the last entry.
func (r *replica) lastTerm() uint8 {
	if r.length == 0 {
		return 0
	}
	return r.log[r.length-1].term
}

// elections emits the elections of a candidate by each smallest quorum: in its next term, and in the first one that no replica knows, in
// which it is a candidate after elections that it has lost.
func (m Model) elections(s *State, i int, emit func(model.Action, *State)) {
	next, unknown := s.replicas[i].term+1, uint8(0)
	for v := range m.Members {
		unknown = max(unknown, s.replicas[v].term+1)
	}
	m.electIn(s, i, next, emit)
	if unknown > next {
		m.electIn(s, i, unknown, emit)
	}
}

// electIn emits the elections of a candidate in a term. A leader begins with an entry of its term; one that hears from no quorum steps
// down and becomes a candidate.
func (m Model) electIn(s *State, i int, term uint8, emit func(model.Action, *State)) {
	r := &s.replicas[i]
	if term > m.Terms || r.length >= m.Entries || r.latest.name(i) != r.name {
		return
	}
	willing := 0
	for v := range m.Members {
		o := &s.replicas[v]
		isNewer := o.lastTerm() > r.lastTerm() || o.lastTerm() == r.lastTerm() && o.length > r.length
		if v == i || m.reaches(s, r.latest, v) && o.term < term && !isNewer {
			willing |= 1 << v
		}
	}
	for set := range 1 << m.Members {
		if set&^willing != 0 || set>>i&1 == 0 || bits.OnesCount(uint(set)) != r.latest.quorum() {
			continue
		}
		after := *s
		for v := range m.Members {
			if set>>v&1 == 1 {
				after.replicas[v].follow(term)
				after.replicas[v].vote = uint8(i) + 1
			}
		}
		leader := &after.replicas[i]
		leader.leads, leader.match = true, [MembersMax]uint8{}
		leader.append(entry{term: term})
		emit(action(elect, i, set|int(term)<<MembersMax), &after)
	}
}

// follow makes a replica a follower in a term.
func (r *replica) follow(term uint8) {
	if r.term < term {
		r.term, r.vote = term, 0
	}
	r.leads, r.match = false, [MembersMax]uint8{}
}

func (r *replica) append(e entry) {
	r.log[r.length] = e
	r.length++
	if e.config != 0 {
		r.latest, r.latestAt = e.config, r.length
	}
}

// truncate deletes the entries behind an index. Raft then goes back to the committed configuration if the latest one was deleted.
func (r *replica) truncate(length uint8) {
	for at := length; at < r.length; at++ {
		r.log[at] = entry{}
	}
	r.length = length
	if r.latestAt > length {
		r.latest, r.latestAt = r.committed, 0
	}
}

// reopen starts raft on what the log has.
func (r *replica) reopen() {
	r.leads, r.match = false, [MembersMax]uint8{}
	r.latest, r.latestAt, r.committed = 0, 0, 0
	for at := range r.length {
		if c := r.log[at].config; c != 0 {
			r.latest, r.latestAt = c, at+1
			if at < r.commit {
				r.committed = c
			}
		}
	}
}

// commitTo advances the commit index of a replica and records what it takes for committed.
func (s *State) commitTo(i int, index uint8) {
	r := &s.replicas[i]
	for at := r.commit; at < index; at++ {
		if s.chosen[at] == (entry{}) {
			s.chosen[at] = r.log[at]
		}
		if s.chosen[at] != r.log[at] {
			s.conflicts = true
		}
	}
	r.commit = max(r.commit, index)
	if r.latestAt <= r.commit {
		r.committed = r.latest
	}
}

// replications emits the replication of the next entry, or of the commit index, to each voter. A follower that has deleted a suffix
// and cannot store what follows is reopened.
func (m Model) replications(s *State, i int, emit func(model.Action, *State)) {
	leader := &s.replicas[i]
	for v := range m.Members {
		if v == i || !m.reaches(s, leader.latest, v) || s.replicas[v].term > leader.term {
			continue
		}
		after := *s
		f := &after.replicas[v]
		f.follow(leader.term)
		same := uint8(0)
		for same < min(f.length, leader.length) && f.log[same] == leader.log[same] {
			same++
		}
		if same < leader.length {
			if same < f.length {
				if f.commit > same {
					after.conflicts = true
				}
				f.truncate(same)
				if s.faults < m.Faults {
					failed := after
					failed.faults++
					failed.replicas[v].reopen()
					emit(action(replicateFails, i, v), &failed)
				}
			}
			f.append(leader.log[same])
			same++
		}
		after.replicas[i].match[v] = max(after.replicas[i].match[v], same)
		after.commitTo(v, min(leader.commit, same))
		emit(action(replicate, i, v), &after)
	}
}

// commits emits the commit of each entry of the leader's term that a quorum of its latest configuration has confirmed to it.
func (m Model) commits(s *State, i int, emit func(model.Action, *State)) {
	r := &s.replicas[i]
	for index := r.length; index > r.commit; index-- {
		if r.log[index-1].term != r.term {
			return
		}
		stored := 0
		for v := range m.Members {
			if r.latest.name(v) != 0 && (v == i || r.match[v] >= index) {
				stored++
			}
		}
		if stored < r.latest.quorum() {
			continue
		}
		after := *s
		after.commitTo(i, index)
		emit(action(commit, i, int(index)), &after)
	}
}

// changes emits the changes by one voter. Raft permits one when the latest configuration and an entry of the leader's term are
// committed.
func (m Model) changes(s *State, i int, emit func(model.Action, *State)) {
	r := &s.replicas[i]
	if r.latestAt > r.commit || r.commit == 0 || r.log[r.commit-1].term != r.term || r.length >= m.Entries {
		return
	}
	for v := range m.Members {
		if v == i {
			continue
		}
		next := r.latest.with(v, 0)
		if r.latest.name(v) == 0 {
			next = r.latest.with(v, s.replicas[v].name)
		}
		after := *s
		after.replicas[i].append(entry{term: r.term, config: next})
		emit(action(change, i, int(next)), &after)
		if s.faults >= m.Faults {
			continue
		}
		failed := *s
		failed.faults++
		f := &failed.replicas[i]
		f.follow(r.term)
		if m.ForgetsUnstored {
			f.reopen()
		} else {
			f.latest, f.latestAt = next, r.length+1
		}
		emit(action(changeFails, i, int(next)), &failed)
	}
}

// renamings emits the replacement of a replica that the committed configuration of a leader is without.
func (m Model) renamings(s *State, i int, emit func(model.Action, *State)) {
	r := &s.replicas[i]
	if s.renames >= m.Renames || r.latestAt > r.commit {
		return
	}
	for v := range m.Members {
		old := &s.replicas[v]
		if v == i || r.committed.name(v) != 0 || old.length == 0 || old.name == 3 {
			continue
		}
		after := *s
		after.renames++
		after.replicas[v] = replica{name: old.name + 1}
		emit(action(rename, v, 0), &after)
	}
}
