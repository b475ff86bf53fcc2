package admin

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/peeklock/peeklock/admin/connection"
	"github.com/peeklock/peeklock/amqp/account"
	"github.com/peeklock/peeklock/amqp/work"
	"github.com/peeklock/peeklock/fsm"
)

// slot is one of the slots for requests in flight, and what the owner of the request holds and pays for it. It belongs to the
// goroutine of its request.
type slot struct {
	slots     chan struct{}
	held      bool
	account   *account.Account // nil: nobody's, until the caller is known, or an operator's
	taken     bool             // account.HTTPRequests
	bodyBytes int64            // of account.HTTPBytes
	reserved  int64            // the same, for an answer that has not begun
	due       int              // units for the next request of the owner
	work      *work.SharedAccount
}

// acquireSlot acquires a slot without waiting; it returns false if none is free.
func acquireSlot(slots chan struct{}) (*slot, bool) {
	select {
	case slots <- struct{}{}:
		return &slot{slots: slots, held: true}, true
	default:
		return nil, false
	}
}

// assign makes the request one of an owner, which must not hold more than its share of the slots. Errors wrap fsm.ServerBusy.
func (s *slot) assign(a *account.Account, paid *work.SharedAccount) error {
	if s.account != nil {
		a.Close()
		paid.Close()
		return nil
	}
	s.account, s.work = a, paid
	if s.held && !s.takeShare() {
		return fmt.Errorf("%w: %s", fsm.ServerBusy, a.Refusal(account.HTTPRequests))
	}
	return nil
}

func (s *slot) takeShare() bool {
	s.taken = s.account.Take(account.HTTPRequests, 1)
	return s.taken
}

// pay waits until the owner may request work of so many units. Meanwhile the request holds no slot.
func (s *slot) pay(ctx context.Context, units int) error {
	s.release()
	s.work.Wait(ctx, nil, units)
	if ctx.Err() != nil {
		return fmt.Errorf("%w: requests of this key ask for more work than a member does for one key: ask less often, or for shorter lists", fsm.ServerBusy)
	}
	return s.reacquire(ctx)
}

// release frees the slot. It may be called several times.
func (s *slot) release() {
	if s.taken {
		s.taken = false
		s.account.Release(account.HTTPRequests, 1)
	}
	if s.held {
		s.held = false
		<-s.slots
	}
}

// reacquire waits for a slot if the request has released its own. Errors wrap fsm.ServerBusy.
func (s *slot) reacquire(ctx context.Context) error {
	if s.held {
		return nil
	}
	select {
	case s.slots <- struct{}{}:
		s.held = true
	case <-ctx.Done():
		return fmt.Errorf("%w: %d requests are in flight: try again", fsm.ServerBusy, cap(s.slots))
	}
	if s.account != nil && !s.takeShare() {
		s.release()
		return fmt.Errorf("%w: %s", fsm.ServerBusy, s.account.Refusal(account.HTTPRequests))
	}
	return nil
}

// reserve counts the bytes of an answer that is still to be built, and waits for a while until the owner may hold them. An answer
// counts with an eighth of the capacity at most, until it is known: few are so long, and the next owner must find something free.
// Errors wrap fsm.ServerBusy.
func (s *slot) reserve(ctx context.Context, bytes int64) error {
	bytes = min(bytes, s.account.Capacity(account.HTTPBytes)/reservedPart)
	if s.account.Take(account.HTTPBytes, bytes) {
		s.reserved = bytes
		return nil
	}
	s.release()
	if !s.account.Wait(ctx, account.HTTPBytes, bytes, answerShareWithin) {
		return fmt.Errorf("%w: %s", fsm.ServerBusy, s.account.Refusal(account.HTTPBytes))
	}
	s.reserved = bytes
	return s.reacquire(ctx)
}

// exchange counts so many bytes of an answer in place of those that were reserved; false if the owner must not hold them.
func (s *slot) exchange(bytes int64) bool {
	reserved := s.reserved
	s.reserved = 0
	if bytes <= reserved {
		s.account.Release(account.HTTPBytes, reserved-bytes)
		return true
	}
	s.account.Release(account.HTTPBytes, reserved)
	return s.account.Take(account.HTTPBytes, bytes)
}

// finish releases everything after a request whose answer had so many bytes, and charges them to the next request of the owner.
func (s *slot) finish(answered int) {
	s.release()
	s.account.Release(account.HTTPBytes, s.bodyBytes+s.reserved)
	ctx, cancel := context.WithCancel(context.Background())
	cancel() // it does not wait
	s.work.Wait(ctx, nil, s.due+answered/answerUnitBytes)
	s.work.Close()
	s.account.Close()
}

// bufferedBody is the body of a request. It is read completely before the first Read returns. Meanwhile the
// request holds no slot, so a client that sends slowly does not block others.
type bufferedBody struct {
	io.ReadCloser
	ctx    context.Context //nolint:containedctx // of the request, as the body is
	slot   *slot
	length int64         // as the client says, -1 if it does not
	buffer *bytes.Reader // nil until the body was read
}

func (b *bufferedBody) Read(p []byte) (int, error) {
	if b.buffer == nil {
		length := b.length
		if length < 0 || length > bodyBytesMax {
			length = bodyBytesMax
		}
		if !b.slot.account.Take(account.HTTPBytes, length) {
			return 0, fmt.Errorf("%w: %s", fsm.ServerBusy, b.slot.account.Refusal(account.HTTPBytes))
		}
		b.slot.bodyBytes += length
		b.slot.release()
		whole, err := io.ReadAll(b.ReadCloser)
		if err == nil {
			err = b.slot.reacquire(b.ctx)
		}
		if err != nil {
			return 0, err
		}
		b.slot.due += len(whole) / bodyUnitBytes
		b.buffer = bytes.NewReader(whole)
	}
	return b.buffer.Read(p) //nolint:wrapcheck // io.EOF
}

// answerWriter writes the answer of a request. When the answer begins, the request gives up its slot, and its connection may
// be closed for a new one as an idle one may: a client that does not read blocks nobody. The bytes count for the owner until
// they are written; an owner that holds too many gets ServerBusy in place of the answer.
type answerWriter struct {
	http.ResponseWriter
	core    *core
	slot    *slot
	request *http.Request
	status  int // 0: none was given yet
	begun   bool
	refused bool // what is written is dropped
	streams bool // the handler sets the write deadline
	bytes   int
}

// WriteHeader implements http.ResponseWriter. It is sent with the first bytes.
func (a *answerWriter) WriteHeader(status int) {
	if a.status == 0 {
		a.status = status
	}
}

// Write implements http.ResponseWriter.
func (a *answerWriter) Write(b []byte) (int, error) {
	held := int64(len(b))
	switch {
	case a.refused:
		return len(b), nil
	case a.begun:
		a.slot.account.Add(account.HTTPBytes, held)
	case a.slot.exchange(held):
		a.begin()
	default:
		a.refused, a.begun = true, true
		a.slot.release()
		a.deadline(0)
		a.core.writeProblem(a.ResponseWriter, a.request, fmt.Errorf("%w: %s", fsm.ServerBusy, a.slot.account.Refusal(account.HTTPBytes)))
		return len(b), nil
	}
	defer a.slot.account.Release(account.HTTPBytes, held)
	a.deadline(len(b))
	a.bytes += len(b)
	return a.ResponseWriter.Write(b) //nolint:wrapcheck // as http.ResponseWriter
}

// Unwrap is for http.ResponseController.
func (a *answerWriter) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// begin sends the status.
func (a *answerWriter) begin() {
	a.begun = true
	a.slot.release()
	connection.Answering(a.request)
	if a.status != 0 {
		a.ResponseWriter.WriteHeader(a.status)
	}
}

// deadline gives the client time to read so many bytes.
func (a *answerWriter) deadline(bytes int) {
	if a.streams {
		return
	}
	within := answerWriteMax + time.Duration(bytes/answerBytesPerSecondMin)*time.Second
	// A test recorder has no deadline.
	if err := http.NewResponseController(a.ResponseWriter).SetWriteDeadline(time.Now().Add(within)); err != nil && !errors.Is(err, http.ErrNotSupported) {
		a.refused = true // the connection has ended
	}
}

// end sends an answer without bytes after the handler has returned.
func (a *answerWriter) end() {
	if !a.begun {
		a.deadline(0)
		a.begin()
	}
}
