package queue

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/image"
)

// A numberList is a sorted set, whatever is added and removed.
func TestNumberListAgreesWithASlice(t *testing.T) {
	t.Parallel()
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 1))
		var l numberList
		var want []fsm.SequenceNumber
		for range 2000 {
			n := fsm.SequenceNumber(1 + r.IntN(300))
			i, found := slices.BinarySearch(want, n)
			switch {
			case found && r.IntN(3) > 0:
				if !l.remove(n) {
					t.Fatalf("seed %d: %d is not there", seed, n)
				}
				want = slices.Delete(want, i, i+1)
			case !found && r.IntN(4) > 0:
				l.add(n)
				want = slices.Insert(want, i, n)
			case !found:
				if l.remove(n) {
					t.Fatalf("seed %d: %d was there", seed, n)
				}
			case len(want) > 0:
				l.remove(want[0])
				want = want[1:]
			}
			if !slices.Equal(l.live(), want) {
				t.Fatalf("seed %d: %v, want %v", seed, l.live(), want)
			}
			if got, most := cap(l.list), 16*len(want)+8*numbersKept; got > most {
				t.Fatalf("seed %d: room for %d numbers with %d in it", seed, got, len(want))
			}
		}
	}
}

// A message that is locked at the front of a long list and returned moves those before it, and not
// the long rest: the rest stays where it is in memory.
func TestNumberListMovesTheShorterSide(t *testing.T) {
	t.Parallel()
	var l numberList
	for n := fsm.SequenceNumber(1); n <= 1000; n++ {
		l.add(n)
	}
	for n := fsm.SequenceNumber(1); n <= 20; n++ {
		l.remove(n)
	}
	last := &l.list[len(l.list)-1]
	for n := fsm.SequenceNumber(1); n <= 20; n++ {
		l.add(n)
	}
	l.remove(5)
	l.add(5)
	l.remove(2)
	if end := len(l.list) - 1; last != &l.list[end] || *last != 1000 || l.count() != 999 {
		t.Errorf("the end of %d numbers was moved", l.count())
	}
}

// The table finds the oldest unlocked session, assigns the lowest slot, and removes empty sessions;
// a shared page does not change.
func TestSessionTableAgreesWithAMap(t *testing.T) {
	t.Parallel()
	for seed := range uint64(30) {
		r := rand.New(rand.NewPCG(seed, 2))
		type model struct {
			ready []fsm.SequenceNumber
			epoch uint64
			state bool
		}
		now := image.Generation(1)
		s := newSessionTable(now)
		want := map[string]*model{}
		number, epoch := fsm.SequenceNumber(0), uint64(0)
		for range 3000 {
			id := fmt.Sprint("s", r.IntN(40))
			slot, ok := s.findOrAdd(id, now)
			if !ok {
				t.Fatal("no room")
			}
			m := want[id]
			if m == nil {
				m = &model{}
				want[id] = m
			}
			line := &s.messages[slot]
			switch r.IntN(6) {
			case 0, 1:
				number++
				line.ready.add(number)
				line.all.add(number)
				m.ready = append(m.ready, number)
			case 2:
				if len(m.ready) > 0 {
					line.ready.remove(m.ready[0])
					line.all.remove(m.ready[0])
					m.ready = m.ready[1:]
				}
			case 3:
				epoch++
				s.write(slot, now).epoch, m.epoch = epoch, epoch
			case 4:
				s.write(slot, now).epoch, m.epoch = 0, 0
			case 5:
				m.state = !m.state
				s.write(slot, now).updated = 0
				if m.state {
					s.write(slot, now).updated = 1
				}
			}
			s.update(slot, now)
			if len(m.ready) == 0 && m.epoch == 0 && !m.state {
				delete(want, id)
			}
			if r.IntN(50) == 0 {
				now++
			}
			oldest, count := "", 0
			for id, m := range want {
				if m.epoch != 0 || len(m.ready) == 0 {
					continue
				}
				count++
				if oldest == "" || m.ready[0] < want[oldest].ready[0] {
					oldest = id
				}
			}
			got := ""
			if slot, found := s.oldestAvailable(); found {
				got = s.at(slot).id
			}
			if got != oldest || s.available != count || s.count != len(want) {
				t.Fatalf("seed %d: next %q of %d available, %d in all; want %q of %d, %d", seed, got, s.available, s.count, oldest, count, len(want))
			}
			if int(s.top) > 41 || len(s.heap) > 2*s.available+availableSlack+1 {
				t.Fatalf("seed %d: %d slots and %d candidates", seed, s.top, len(s.heap))
			}
		}
	}
}

// What an image shares is not written.
func TestSessionPagesAreCopiedOnWrite(t *testing.T) {
	t.Parallel()
	s := newSessionTable(1)
	slot, _ := s.findOrAdd("a", 1)
	s.write(slot, 1).epoch = 1
	shared := s.pages
	s.write(slot, 2).epoch = 2
	if shared[0].slots[slot].epoch != 1 || s.at(slot).epoch != 2 {
		t.Errorf("image has epoch %d and machine %d, want 1 and 2", shared[0].slots[slot].epoch, s.at(slot).epoch)
	}
}
