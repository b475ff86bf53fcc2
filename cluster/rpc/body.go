package rpc

import (
	"fmt"
	"time"

	"github.com/peeklock/peeklock/cluster/clocks"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/fields"
	"github.com/peeklock/peeklock/partition"
)

// The fields at the beginning of the bodies of frames.

// requestHead precedes the command of a submission or a lock.
type requestHead struct {
	partition fsm.PartitionID
	wait      uint32 // ms, of a lock
}

func (h *requestHead) fields(x *fields.Codec, kind frameKind) {
	fields.Uint32(x, &h.partition)
	if kind == frameLock {
		fields.Uint32(x, &h.wait)
	}
}

// answerHead precedes the result in an answer whose outcome is Done, and in a refusal with a code, except a final one with
// ServerBusy. It is all of other answers.
type answerHead struct {
	outcome partition.Outcome
	final   bool
	leader  fsm.MemberID // of a refusal, if it is known
}

func (h *answerHead) fields(x *fields.Codec) {
	fields.Uint8(x, &h.outcome)
	fields.Bool(x, &h.final)
	fields.Text(x, &h.leader)
}

// pongHead is all of a pong: the clocks of the member that sends it, in milliseconds since 1970.
type pongHead struct {
	clock, steady int64 // steady is 0 before it has begun
	confirmed     uint64
}

func newPongHead(r clocks.Reading) pongHead {
	h := pongHead{clock: r.Clock.UnixMilli(), confirmed: r.Confirmed}
	if !r.Steady.IsZero() {
		h.steady = max(1, r.Steady.UnixMilli())
	}
	return h
}

func (h *pongHead) fields(x *fields.Codec) {
	fields.Int64(x, &h.clock)
	fields.Int64(x, &h.steady)
	fields.Uint64(x, &h.confirmed)
}

func (h *pongHead) reading() clocks.Reading {
	r := clocks.Reading{Clock: time.UnixMilli(h.clock), Confirmed: h.confirmed}
	if h.steady != 0 {
		r.Steady = time.UnixMilli(h.steady)
	}
	return r
}

// Reply is the result of a query; err is set when no reply came.
type Reply struct {
	Status ReplyStatus
	Code   fsm.Code
	Body   []byte
	err    error
}

// fields of a reply, which precede its body.
func (r *Reply) fields(x *fields.Codec) {
	fields.Uint8(x, &r.Status)
	fields.Uint8(x, &r.Code)
}

// malformed returns an error for bytes that do not decode, nil if there is none.
func malformed(err error) error {
	if err != nil {
		return fmt.Errorf("%w: %w", ErrFrame, err)
	}
	return nil
}
