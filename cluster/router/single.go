package router

import (
	"slices"

	"github.com/peeklock/peeklock/cluster/client"
	"github.com/peeklock/peeklock/cluster/entities"
	"github.com/peeklock/peeklock/cluster/query"
	"github.com/peeklock/peeklock/fsm"
)

// single performs operations on entities that are not partitioned, and on single shards. It implements operations.
type single struct {
	*entities.Manager

	transport client.Transport
	replicas  query.Replicas
}

// send completes an interrupted creation of the entity.
func (s *single) send(at fsm.EntityRef, messages []fsm.Message, done func(fsm.Result)) {
	command := fsm.SendMessages{Entity: at.ID, Messages: messages}
	client := s.Client(at.Partition)
	client.Submit(command, func(result fsm.Result) {
		if result.Code != fsm.EntityNotFound {
			done(result)
			return
		}
		s.Recreate(at.Entity, func(recreated bool) {
			if !recreated {
				done(result)
				return
			}
			client.Submit(command, done)
		})
	})
}

// addedBytesMax is how many bytes of properties and reasons the settlements of one command add, counted for each message, unless a
// single one adds more.
const addedBytesMax = 1 << 20

// settle submits the settlements in as many commands as their bytes need, one after the other: a command has an outcome once for
// all its locks, so a small one could write hundreds of megabytes.
func (s *single) settle(at fsm.EntityRef, settlements []fsm.Settlement, done func([]fsm.Code)) {
	if n := fitting(settlements); n < len(settlements) {
		rest := settlements[n:]
		s.settle(at, settlements[:n], func(codes []fsm.Code) {
			s.settle(at, rest, func(later []fsm.Code) { done(slices.Concat(codes, later)) })
		})
		return
	}
	command := fsm.SettleMessages{Address: at.Address(), Settlements: settlements}
	s.Client(at.Partition).Submit(command, func(result fsm.Result) {
		codes := CodesOf(result, len(settlements))
		if result.Code != fsm.OK || !s.settleRest(at, settlements, codes, done) {
			done(codes)
		}
	})
}

// fitting returns how many of the settlements fit into a command.
func fitting(settlements []fsm.Settlement) int {
	added := 0
	for i := range settlements {
		x := &settlements[i]
		if added += len(x.Properties) + len(x.Reason) + len(x.Description); i > 0 && added > addedBytesMax {
			return i
		}
	}
	return len(settlements)
}

// settleRest submits the settlements again that the entry could not take, and returns false if there are
// none, or if it took none of them: then others fill the entries, and the client tries again later.
func (s *single) settleRest(at fsm.EntityRef, settlements []fsm.Settlement, codes []fsm.Code, done func([]fsm.Code)) bool {
	var rest []fsm.Settlement
	for i, code := range codes {
		if code == fsm.ServerBusy {
			rest = append(rest, settlements[i])
		}
	}
	if len(rest) == 0 || len(rest) == len(settlements) {
		return false
	}
	s.settle(at, rest, func(later []fsm.Code) {
		codes, next := slices.Clone(codes), 0
		for i := range codes {
			if codes[i] == fsm.ServerBusy {
				codes[i] = later[next]
				next++
			}
		}
		done(codes)
	})
	return true
}

func (s *single) renew(at fsm.EntityRef, locks []fsm.LockID, done func([]fsm.Code, []fsm.Instant)) {
	n := len(locks)
	command := fsm.RenewLocks{Address: at.Address(), Locks: locks}
	s.Client(at.Partition).Submit(command, func(result fsm.Result) {
		untils := result.Untils
		if len(untils) != n {
			untils = make([]fsm.Instant, n)
		}
		done(CodesOf(result, n), untils)
	})
}

// CodesOf returns one Code for each of n items: a command that was refused as a whole
// refuses each of them.
func CodesOf(result fsm.Result, n int) []fsm.Code {
	if result.Code == fsm.OK && len(result.Codes) == n {
		return result.Codes
	}
	code := result.Code
	if code == fsm.OK {
		code = fsm.Internal
	}
	codes := make([]fsm.Code, n)
	for i := range codes {
		codes[i] = code
	}
	return codes
}

func (s *single) fetch(at fsm.EntityRef, sequences []fsm.SequenceNumber, receiveAndDelete bool, done func(fsm.Code, []fsm.Delivery)) {
	command := fsm.FetchDeferred{Address: at.Address(), Sequences: sequences, Delete: receiveAndDelete}
	s.Client(at.Partition).Submit(command, func(result fsm.Result) { done(result.Code, result.Deliveries) })
}

func (s *single) fetchReady(at fsm.EntityRef, seen []fsm.LockID, receiveAndDelete bool, done func(fsm.Code, []fsm.Delivery)) {
	command := fsm.FetchReady{Address: at.Address(), Seen: seen, Delete: receiveAndDelete}
	s.Client(at.Partition).Submit(command, func(result fsm.Result) { done(result.Code, result.Deliveries) })
}

func (s *single) cancelScheduled(at fsm.EntityRef, sequences []fsm.SequenceNumber, done func(fsm.Code)) {
	command := fsm.CancelScheduled{Entity: at.ID, Sequences: sequences}
	s.Client(at.Partition).Submit(command, func(result fsm.Result) { done(result.Code) })
}
