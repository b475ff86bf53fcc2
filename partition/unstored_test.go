package partition

import (
	"bytes"
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition/disk"
	"github.com/peeklock/peeklock/partition/raftlog"
	"github.com/peeklock/peeklock/test/kit"
)

// withoutSegments is a file system that creates no segment of the journal while it is short, as without file descriptors.
type withoutSegments struct {
	disk.FS

	short   atomic.Bool
	refused atomic.Int64
}

func (f *withoutSegments) OpenFile(path string, flag int, mode fs.FileMode) (disk.File, error) {
	if f.short.Load() && flag&os.O_CREATE != 0 && filepath.Base(filepath.Dir(path)) == "journal" {
		f.refused.Add(1)
		return nil, &fs.PathError{Op: "open", Path: path, Err: syscall.EMFILE}
	}
	return f.FS.OpenFile(path, flag, mode)
}

// TestJournalWithoutDescriptorsGoesOn is the shortage of TestFormerLeaderGoesOnAfterAShortage in the journal itself: the deletion of the
// suffix fits into the segment, and the entries behind it need another segment, for which there is no file descriptor.
func TestJournalWithoutDescriptorsGoesOn(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		if logKind() != raftlog.Journal {
			t.Skip("the log is not a journal")
		}
		ms := newMembers(t, 3, nil)
		files := make(map[*member]*withoutSegments)
		for _, m := range ms {
			files[m] = &withoutSegments{FS: disk.OS{}}
			m.files = files[m]
		}
		a := startThree(t, ms)
		mustEventually(t, ms, a.next(), send(1, body(1)))
		lm, g := leader(t, ms, 1)
		rest := others(ms, lm)
		files[lm].short.Store(true)
		for range 8 { // most of the first segment of 1 MiB
			mustEventually(t, ms, a.next(), send(1, bytes.Repeat([]byte("x"), 100<<10)))
		}
		transferTo(t, ms, lm)
		before, _ := g.log.LastIndex()
		lm.net.isolate(lm.id, true)
		g.Submit(fsm.AppendCommand(nil, a.next(), send(1, body(9))), func(Answer) {})
		kit.Eventually(t, "it has an entry that no other replica has", func() bool {
			last, _ := g.log.LastIndex()
			return last > before && g.log.Stored() > last
		})
		large := func() { mustEventually(t, rest, a.next(), send(1, bytes.Repeat([]byte("x"), 300<<10))) }
		for range 4 {
			large()
		}
		// The next leader does not know where the logs part: it asks, and then sends all entries from there in one request. The first
		// leader of the two would send its own first entry alone, which still fits.
		first, _ := leader(t, rest, 1)
		transferTo(t, rest, others(rest, first)[0])
		large()
		failed := g.log.FailedAppends()
		lm.net.isolate(lm.id, false)
		kit.Eventually(t, "an append fails", func() bool { return g.log.FailedAppends() > failed })
		files[lm].short.Store(false)
		mustEventually(t, rest, a.next(), send(1, body(3)))
		waitCaughtUp(t, rest, lm)
		sameEverywhere(t, ms)
		if files[lm].refused.Load() == 0 {
			t.Error("the journal asked for no segment during the shortage")
		}
	})
}

// TestChangesDoNotBuildOnAnUnstoredConfiguration checks that a change that could not be stored, and the next one, are not one change:
// with a replica removed and another added, two halves of the network would each have a majority and confirm sends.
func TestChangesDoNotBuildOnAnUnstoredConfiguration(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		var stores shortStores
		ms, a := threeReplicas(t, stores.tune)
		mustEventually(t, ms, a.next(), send(1, body(1)))
		fresh := startEmptyMember(t, ms, "m3")
		kit.OK(t, atLeader(t, ms, func(_ *member, g *Group) error { return g.AddNonvoter(t.Context(), "m3.1", "m3") }))
		lm, g := leader(t, ms, 1)
		rest := others(ms, lm)
		former := g.instance.Load()
		stores.of(lm).short.Store(true)
		err := g.RemoveReplica(t.Context(), string(rest[0].id)+".1")
		stores.of(lm).short.Store(false)
		if err == nil {
			t.Fatal("the replica was removed without space for the configuration")
		}
		kit.Eventually(t, "raft is reopened", func() bool { return g.instance.Load() != former })
		transferTo(t, ms, lm)
		mustEventually(t, ms, a.next(), send(1, body(2)))
		waitCaughtUp(t, ms, fresh)

		for _, one := range []*member{lm, fresh} {
			for _, other := range rest {
				lm.net.cutLink(one.id, other.id)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		if err := g.AddVoter(ctx, "m3.1", "m3"); err == nil {
			t.Error("two of four replicas made a voter of one of them")
		}
		b := &asker{origin: 99}
		mustEventually(t, rest, b.next(), send(1, body(3)))
		for _, m := range []*member{lm, fresh} {
			if answer := ask(t, m.group(1), a.next(), send(1, body(4))); answer.Outcome == Done {
				t.Errorf("%s confirmed a send, and so did the majority without it", m.id)
			}
		}
	})
}
