//go:build level2

package fsm_test

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/peeklock/peeklock/fsm"
)

// These tests build with the overlay of test/upgrade, in which the next level brings SendMessages.Mark.

// TestCommandOfTheNextLevel: it has one encoding, of a kind of its own, and says its level.
func TestCommandOfTheNextLevel(t *testing.T) {
	t.Parallel()
	for mark, level := range map[uint64]uint32{0: 1, 7: fsm.FormatLevel} {
		want := fsm.SendMessages{Entity: 300, Messages: []fsm.Message{{ID: "m", Payload: []byte("p"), Properties: []byte{}}}, Mark: mark}
		b := fsm.AppendCommand(nil, header, want)
		_, got, err := fsm.DecodeCommand(b)
		if diff := cmp.Diff(fsm.Command(want), got); err != nil || diff != "" {
			t.Errorf("with mark %d: %v (-want +got):\n%s", mark, err, diff)
		}
		if _, err := fsm.VerifyCommand(b); err != nil {
			t.Errorf("verify with mark %d: %v", mark, err)
		}
		info, err := fsm.PeekCommand(b)
		if err != nil || info.Entity != 300 || info.Messages != 1 {
			t.Errorf("peek with mark %d: %+v, %v", mark, info, err)
		}
		if got := info.Kind.Level(); got != level || fsm.LevelOf(want) != level {
			t.Errorf("with mark %d the level is %d, encoded %d, want %d", mark, fsm.LevelOf(want), got, level)
		}
	}
	b := fsm.AppendCommand(nil, header, fsm.SendMessages{Entity: 300, Messages: make([]fsm.Message, 1), Mark: 1})
	b[len(b)-1] = 0
	if _, c, err := fsm.DecodeCommand(b); err == nil {
		t.Errorf("mark 0 decodes as %+v, and has another encoding", c)
	}
}

// TestStateOfTheNextLevel: below its level a state machine refuses the command, and its image is that of the level before.
func TestStateOfTheNextLevel(t *testing.T) {
	t.Parallel()
	b := newBetween(t)
	b.put(1, 1, nil)
	b.must(fsm.RaiseLevel{Level: fsm.FormatLevel - 1})
	marked := fsm.SendMessages{Entity: 1, Messages: make([]fsm.Message, 1), Mark: 7}
	if got := b.do(marked); got.Code != fsm.InvalidArgument || b.q.Marks() != 0 {
		t.Errorf("at the level before: %v and marks %d, want %v and 0", got.Code, b.q.Marks(), fsm.InvalidArgument)
	}
	before := len(b.image())
	b.must(fsm.RaiseLevel{Level: fsm.FormatLevel})
	image := b.image()
	if len(image) <= before {
		t.Errorf("the image has %d bytes at the level before and %d at the next, which adds a section", before, len(image))
	}
	b.must(marked)
	b.must(marked)
	restored := b.restored()
	if got := restored.q.Marks(); got != 14 {
		t.Errorf("restored marks %d, want 14", got)
	}
	if restored.q.Digest() != b.q.Digest() || bytes.Equal(restored.image(), image) {
		t.Error("the digest or the image does not show the marks")
	}
}
