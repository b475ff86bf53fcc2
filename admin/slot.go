package admin

import (
	"bytes"
	"context"
	"fmt"
	"io"

	"github.com/peeklock/peeklock/fsm"
)

// slot is one of those for requests under way. It belongs to the goroutine of its request.
type slot struct {
	slots chan struct{}
	held  bool
}

// acquireSlot takes a slot; false when there is none.
func acquireSlot(slots chan struct{}) (*slot, bool) {
	select {
	case slots <- struct{}{}:
		return &slot{slots, true}, true
	default:
		return nil, false
	}
}

// release gives the slot back. It may be called several times.
func (s *slot) release() {
	if s.held {
		s.held = false
		<-s.slots
	}
}

// reacquire waits for a slot when the request has none any more. Errors wrap fsm.ServerBusy.
func (s *slot) reacquire(ctx context.Context) error {
	if s.held {
		return nil
	}
	select {
	case s.slots <- struct{}{}:
		s.held = true
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%w: %d requests are under way", fsm.ServerBusy, cap(s.slots))
	}
}

// bufferedBody is the body of a request, which is read as a whole before any of it is given. Meanwhile the
// request has no slot: a client that sends slowly keeps nobody out.
type bufferedBody struct {
	io.ReadCloser
	ctx    context.Context //nolint:containedctx // of the request, as the body is
	slot   *slot
	buffer *bytes.Reader // nil until then
}

func (b *bufferedBody) Read(p []byte) (int, error) {
	if b.buffer == nil {
		b.slot.release()
		whole, err := io.ReadAll(b.ReadCloser)
		if err == nil {
			err = b.slot.reacquire(b.ctx)
		}
		if err != nil {
			return 0, err
		}
		b.buffer = bytes.NewReader(whole)
	}
	return b.buffer.Read(p) //nolint:wrapcheck // io.EOF
}
