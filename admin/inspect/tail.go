package inspect

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/peeklock/peeklock/admin/api"
	"github.com/peeklock/peeklock/fsm"
)

// Cursor is the place of a tail: the next number of each shard, in their order. An entity that is not partitioned has one. nil is
// the end.
type Cursor []fsm.SequenceNumber

// ParseCursor reads the text of a Cursor; "" is nil. Errors wrap InvalidArgument.
func ParseCursor(text string) (Cursor, error) {
	if text == "" {
		return nil, nil
	}
	parts := strings.Split(text, ",")
	if len(parts) > fsm.ShardsMax {
		return nil, fmt.Errorf("%w: a cursor has at most %d numbers", fsm.InvalidArgument, fsm.ShardsMax)
	}
	c := make(Cursor, len(parts))
	for i, part := range parts {
		n, err := strconv.ParseUint(part, 10, 63)
		if err != nil {
			return nil, fmt.Errorf("%w: a cursor is what the answer before gave as cursor, not %.40q", fsm.InvalidArgument, text)
		}
		c[i] = fsm.SequenceNumber(n)
	}
	return c, nil
}

// String returns the text of the cursor.
func (c Cursor) String() string {
	parts := make([]string, len(c))
	for i, n := range c {
		parts[i] = strconv.FormatUint(uint64(n), 10)
	}
	return strings.Join(parts, ",")
}

// Tail returns the messages of a selection behind a cursor, and the cursor behind them; it changes nothing. From nil it returns no
// message and the end. most and bodyMax are those of Peek. Only the main queue has an order of arrival: dead letters keep their
// numbers. Errors are those of Peek.
func (f *Finder) Tail(ctx context.Context, at Place, selection *api.Selection, after Cursor, most, bodyMax int) (api.TailPage, error) {
	s, release, err := f.open(ctx, at, selection)
	if err != nil {
		return api.TailPage{}, err
	}
	defer release()
	shards := max(1, len(s.at.Shards))
	switch {
	case s.at.Sub != fsm.MainQueue:
		return api.TailPage{}, fmt.Errorf("%w: dead letters keep their sequence numbers, so no number is the newest: peek at them", fsm.InvalidArgument)
	case len(s.matcher.numbers) > 0:
		return api.TailPage{}, fmt.Errorf("%w: a tail takes no sequence numbers: peek at them", fsm.InvalidArgument)
	case len(after) > shards:
		return api.TailPage{}, fmt.Errorf("%w: the cursor has %d numbers and '%s' has %d shards: begin without a cursor", fsm.InvalidArgument, len(after), at.Name, shards)
	}
	page := api.TailPage{Messages: []api.Message{}}
	visit := &pageVisit{at: &s.at, bodyMax: bodyMax, to: &page.Messages}
	s.most, s.visit = most, visit.visit
	next := make(Cursor, shards)
	for shard := range shards {
		part, first := s.at, fsm.SequenceNumber(shard)<<fsm.ShardShift
		if shards > 1 {
			part.Shards = part.Shards[:shard+1] // a peek goes on with the shards behind: there are none
		}
		if shard >= len(after) {
			if next[shard], err = f.end(ctx, part, first); err != nil {
				return page, err
			}
			continue
		}
		s.next = max(first, after[shard])
		if err := s.pages(ctx, s.peek(part)); err != nil {
			return page, err
		}
		next[shard] = s.next
	}
	page.Cursor, page.Looked, page.More = next.String(), s.looked, s.full()
	return page, nil
}

// end returns the number behind the last message of an entity, or of the last of its shards, whose numbers begin with first. It peeks at single
// messages: about twice as many as the number of bits of the last sequence number.
func (f *Finder) end(ctx context.Context, at fsm.EntityRef, first fsm.SequenceNumber) (fsm.SequenceNumber, error) {
	// A message with a number of low or more is known until one is sought in vain; none has a number of high or more.
	low, high := first, first+1<<fsm.ShardShift
	for step := fsm.SequenceNumber(1); low < high; {
		sought := min(low+step, high) - 1
		found, err := f.broker.Peek(ctx, at, sought, 1, 1)
		switch {
		case err != nil:
			return 0, err //nolint:wrapcheck // admin names the entity
		case len(found) > 0:
			low = found[0].Lock.Sequence + 1
			step = min(2*step, (high-low)/2+1)
		default:
			high = sought
			step = (high-low)/2 + 1
		}
	}
	return low, nil
}
