package journal_test

import (
	"bytes"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/peeklock/peeklock/partition/disk"
	"github.com/peeklock/peeklock/partition/journal"
)

// A part of the journal is lost, and with it entries of groups that nobody knows. No group opens, however often the journal is
// opened, until it is forgotten; then it may have entries again. Nothing is freed before that, and what was lost is freed after it.
func TestLostPartStopsItsGroupsUntilTheyAreForgotten(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]func(segments []string, content map[string][]byte){
		"head of a batch":   func(s []string, content map[string][]byte) { content[s[1]][sectorBytes+40] ^= 1 },
		"head of a record":  func(s []string, content map[string][]byte) { content[s[1]][sectorBytes+64+20] ^= 1 },
		"first segment":     func(s []string, content map[string][]byte) { delete(content, s[0]) },
		"segment":           func(s []string, content map[string][]byte) { delete(content, s[1]) },
		"newest segment":    func(s []string, content map[string][]byte) { delete(content, s[len(s)-1]) },
		"truncated segment": func(s []string, content map[string][]byte) { content[s[1]] = content[s[1]][:sectorBytes] },
		"undecided end": func(s []string, content map[string][]byte) {
			newest := content[s[len(s)-1]]
			end := len(bytes.TrimRight(newest, "\x00"))
			clear(newest[(end-1)/sectorBytes*sectorBytes:]) // the mark, so that the last batch is undecided
			newest[len(bytes.TrimRight(newest, "\x00"))/sectorBytes*sectorBytes+40] ^= 1
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { loseAndForget(t, lose) })
		})
	}
}

func loseAndForget(t *testing.T, lose func(segments []string, content map[string][]byte)) {
	_, files := newDisk(t, 1)
	catalog := &values{set: map[string][]byte{}}
	j := mustOpen(t, files, catalog)
	const entries = 3 * segmentBytes / sectorBytes / 2
	for i := range uint64(entries) {
		must(t, j.Append([]journal.Entry{{Group: 1, Index: i + 1}}), j.Append([]journal.Entry{{Group: 2, Index: i + 1}}))
	}
	<-time.After(200 * time.Millisecond)
	synctest.Wait()
	content := map[string][]byte{}
	var segments []string
	names, err := files.ReadDir(folder)
	must(t, err)
	for _, n := range names {
		path := folder + "/" + n.Name()
		if content[path], err = files.ReadFile(path); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(content[path], make([]byte, len(content[path]))) { // the next one is prepared
			segments = append(segments, path)
		}
	}
	must(t, j.Close())
	if len(segments) < 3 {
		t.Fatalf("%d segments", len(segments))
	}
	lose(segments, content)
	damaged := diskOf(t, content)

	for range 2 {
		j = mustOpen(t, damaged, catalog)
		if err := j.Lost(); !errors.Is(err, disk.ErrDamaged) {
			t.Fatal(err)
		}
		for _, group := range []uint32{1, 2, 3} {
			if err := j.Damage(group); !errors.Is(err, disk.ErrDamaged) {
				t.Errorf("group %d: %v", group, err)
			}
		}
		must(t, j.Close())
	}
	j = mustOpen(t, damaged, catalog)
	must(t, j.Forget(1), j.Append([]journal.Entry{{Group: 1, Index: 500}}), j.Close())
	for range 2 {
		j = mustOpen(t, damaged, catalog)
		if err := j.Damage(1); err != nil || j.Ranges()[1] != (journal.Range{First: 500, Last: 500}) {
			t.Errorf("%v, %+v", err, j.Ranges())
		}
		if j.Damage(2) == nil || j.Damage(3) == nil {
			t.Error("a group opens that was not forgotten")
		}
		must(t, j.Close())
	}
	j = mustOpen(t, damaged, catalog)
	must(t, j.Forget(2), j.Forget(3), j.Append([]journal.Entry{{Group: 3, Index: 7}}))
	j.Accept()
	for i := range uint64(4 * entries) { // so much that the oldest segments are freed
		must(t, j.Append([]journal.Entry{{Group: 1, Index: 501 + i}}), j.DeleteRange(1, 500+i, 500+i))
		synctest.Wait()
	}
	must(t, j.Close())
	j = mustOpen(t, damaged, catalog)
	if err := errors.Join(j.Lost(), j.Damage(1), j.Damage(2), j.Damage(3)); err != nil {
		t.Error(err)
	}
	if got := j.Ranges(); got[1] != (journal.Range{First: 500 + 4*entries, Last: 500 + 4*entries}) || got[3] != (journal.Range{First: 7, Last: 7}) || len(got) != 2 {
		t.Errorf("%+v", got)
	}
	must(t, j.Close())
}

// An entry in the oldest segment is damaged when it is to be copied: its group is damaged, and nothing else. The segment is freed when
// the group has given up the entry.
func TestDamagedEntryIsNotCopied(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, files := newDisk(t, 1)
		catalog := &values{set: map[string][]byte{}}
		j := mustOpen(t, files, catalog)
		must(t, j.Append([]journal.Entry{{Group: 1, Index: 1, Data: []byte("one")}, {Group: 3, Index: 1}}))
		path := folder + "/00000001.seg"
		content, err := files.ReadFile(path)
		must(t, err)
		at := bytes.Index(content, []byte("one"))
		segment, err := disk.OpenWritable(files, path)
		must(t, err)
		_, err = segment.WriteAt([]byte("x"), int64(at))
		must(t, err, segment.Close())
		size := j.Bytes()
		write := func(from uint64) {
			for i := range uint64(8 * segmentBytes / sectorBytes) {
				must(t, j.Append([]journal.Entry{{Group: 2, Index: from + i}}))
				if index := from + i; index > 1 {
					must(t, j.DeleteRange(2, index-1, index-1))
				}
				synctest.Wait()
			}
		}
		write(1)
		if err := j.Damage(1); !errors.Is(err, disk.ErrDamaged) {
			t.Errorf("%v", err)
		}
		must(t, j.Damage(2), j.Damage(3), j.DeleteRange(1, 1, 1))
		write(8*segmentBytes/sectorBytes + 1)
		if now := j.Bytes(); now > 8*size {
			t.Errorf("%d bytes are not freed", now)
		}
		must(t, j.Damage(1), j.Close())
		j = mustOpen(t, files, catalog)
		must(t, j.Damage(1), j.Damage(2), j.Damage(3), j.Lost(), j.Close())
	})
}
