package admin

import (
	"bytes"
	"context"
	"fmt"
	"io"

	"github.com/peeklock/peeklock/fsm"
)

// slot is one of the slots for requests in flight. It belongs to the goroutine of its request.
type slot struct {
	slots chan struct{}
	held  bool
}

// acquireSlot acquires a slot without waiting; it returns false if none is free.
func acquireSlot(slots chan struct{}) (*slot, bool) {
	select {
	case slots <- struct{}{}:
		return &slot{slots, true}, true
	default:
		return nil, false
	}
}

// release frees the slot. It may be called several times.
func (s *slot) release() {
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
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%w: %d requests are in flight: try again", fsm.ServerBusy, cap(s.slots))
	}
}

// bufferedBody is the body of a request. It is read completely before the first Read returns. Meanwhile the
// request holds no slot, so a client that sends slowly does not block others.
type bufferedBody struct {
	io.ReadCloser
	ctx    context.Context //nolint:containedctx // of the request, as the body is
	slot   *slot
	buffer *bytes.Reader // nil until the body was read
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
