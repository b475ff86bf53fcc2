package linear

import (
	"fmt"
	"math"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/peeklock/peeklock/test/history"
)

// never is the return of an operation without an answer: it may be performed at any time, or after all others.
const never = math.MaxInt64

// Result is what the search has found.
type Result struct {
	Checked   int      // histories
	Undecided int      // histories that were searched for the whole time
	Found     []string // histories that no order explains, with their operations
}

// messageOp is an operation on a message.
type messageOp struct {
	kind   history.Kind // of the event that ends it; SettleBegun and SendUnknown if the outcome is unknown, lockEnds for the end of a lock
	client string
	lease  int // Delivered and Renewed: number of the lock; lockEnds: of the lock that ends
}

const lockEnds history.Kind = "lock ends"

// messageState is the state of a message. The zero value is absent.
type messageState struct {
	is     history.Kind // SendAccepted: ready; Delivered: locked; Completed: gone
	client string
	lease  int
}

// messageModel is the machine of one message.
func messageModel() porcupine.Model {
	model := porcupine.NondeterministicModel{
		Init: func() []any { return []any{messageState{}} },
		Step: func(state, input, _ any) []any { return stepMessage(state.(messageState), input.(messageOp)) }, //nolint:forcetypeassert // ours
	}
	return model.ToModel()
}

func stepMessage(s messageState, op messageOp) []any {
	ready, gone := messageState{is: history.SendAccepted}, messageState{is: history.Completed}
	isHolder := s.is == history.Delivered && s.client == op.client
	switch op.kind { //nolint:exhaustive // see messageOps
	case history.SendAccepted:
		if s == (messageState{}) {
			return []any{ready}
		}
	case history.SendUnknown:
		if s == (messageState{}) {
			return []any{s, ready}
		}
		return []any{s}
	case history.Delivered:
		if s == ready {
			return []any{messageState{is: history.Delivered, client: op.client, lease: op.lease}}
		}
	case history.Renewed:
		if isHolder {
			return []any{messageState{is: history.Delivered, client: op.client, lease: op.lease}}
		}
	case history.Completed:
		if isHolder {
			return []any{gone}
		}
	case history.Returned:
		if isHolder {
			return []any{ready}
		}
	case history.SettleBegun: // it may have any outcome, or none
		if isHolder {
			return []any{s, ready, gone}
		}
		return []any{s}
	case lockEnds:
		if s.is == history.Delivered && s.lease == op.lease {
			return []any{ready}
		}
		return []any{s}
	}
	return nil
}

// messageOps returns the operations of the events of one message.
func messageOps(events []history.Event) (ops []porcupine.Operation) {
	begun, settles := int64(0), make(map[string]int) // by client: the operation of its settlement without an answer
	holders := make(map[string]int64)                // by client: when it got the message
	ends := -1                                       // the operation that ends the last lock
	lock := func(i int, e *history.Event, from int64) {
		at := e.At.UnixNano()
		if ends >= 0 { // a later lock is known to be held: the end of the one before has happened, or never will
			if ops[ends].Return = at; ops[ends].Call > at {
				ops = append(ops[:ends], ops[ends+1:]...)
				for client, place := range settles {
					if place > ends {
						settles[client] = place - 1
					}
				}
			}
		}
		ops = append(ops, porcupine.Operation{Input: messageOp{e.Kind, e.Client, i}, Call: from, Return: at})
		ends = len(ops)
		ops = append(ops, porcupine.Operation{Input: messageOp{lockEnds, e.Client, i}, Call: e.LockedUntil.UnixNano(), Return: never})
	}
	for i := range events {
		e := &events[i]
		at := e.At.UnixNano()
		switch e.Kind { //nolint:exhaustive // the others are not of a queue
		case history.SendBegun:
			begun = at
			ops = append(ops, porcupine.Operation{Input: messageOp{kind: history.SendUnknown}, Call: at, Return: never})
		case history.SendAccepted:
			ops[0] = porcupine.Operation{Input: messageOp{kind: history.SendAccepted}, Call: begun, Return: at}
		case history.SendRefused:
			ops[0].Input = messageOp{kind: lockEnds, lease: -1} // of no lock: the message was not sent
		case history.Delivered:
			from := begun
			if !e.Asked.IsZero() {
				from = max(from, e.Asked.UnixNano())
			}
			holders[e.Client] = at
			lock(i, e, from)
		case history.Renewed:
			lock(i, e, holders[e.Client])
		case history.SettleBegun:
			settles[e.Client] = len(ops)
			ops = append(ops, porcupine.Operation{Input: messageOp{kind: e.Kind, client: e.Client}, Call: at, Return: never})
		case history.Completed, history.Returned:
			if place, is := settles[e.Client]; is {
				ops[place].Input, ops[place].Return = messageOp{kind: e.Kind, client: e.Client}, at
				delete(settles, e.Client)
			}
		case history.SettleFailed:
			delete(settles, e.Client) // whether it was performed stays unknown
		}
	}
	return ops
}

// Queue checks the history of a queue whose messages are received under locks. Each message is searched for the given time at most.
func Queue(events []history.Event, within time.Duration) (r Result) {
	byID := make(map[string][]history.Event)
	var order []string
	for _, e := range events {
		if len(byID[e.ID]) == 0 {
			order = append(order, e.ID)
		}
		byID[e.ID] = append(byID[e.ID], e)
	}
	model := messageModel()
	for _, id := range order {
		if of := byID[id]; of[0].Kind == history.SendBegun {
			r.check(model, messageOps(of), within, func() string { return (history.Violation{Rule: "no order", ID: id, Events: of}).String() })
		}
	}
	return r
}

// check searches one history.
func (r *Result) check(model porcupine.Model, ops []porcupine.Operation, within time.Duration, describe func() string) {
	r.Checked++
	switch porcupine.CheckOperationsTimeout(model, ops, within) {
	case porcupine.Illegal:
		r.Found = append(r.Found, fmt.Sprintf("not linearizable: %s", describe()))
	case porcupine.Unknown:
		r.Undecided++
	case porcupine.Ok:
	}
}
