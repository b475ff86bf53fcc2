package judge

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/test/history"
)

// at is a moment of the planted histories, in seconds.
func at(seconds int) time.Time { return time.Unix(1_000_000_000+int64(seconds), 0) }

// judged returns what a judge finds in a history.
func judged(s *Stream, events ...history.Event) string {
	var found []string
	for _, e := range events {
		s.Add(e)
	}
	s.Judge(func(format string, arguments ...any) { found = append(found, fmt.Sprintf(format, arguments...)) }, true, nil)
	return strings.Join(found, "\n")
}

// sentAndDelivered is the history of one message that nothing is wrong with, up to its delivery.
func sentAndDelivered(id, source string) []history.Event {
	return []history.Event{
		{Kind: history.SendBegun, ID: id, Client: "s", At: at(0)},
		{Kind: history.SendAccepted, ID: id, Client: "s", At: at(1)},
		{Kind: history.Delivered, ID: id, Entity: source, Client: "r1", At: at(2), Sequence: 7, LockedUntil: at(12)},
	}
}

func TestJudgeFindsPlantedBugs(t *testing.T) {
	t.Parallel()
	always := func(e Expectation) func(*Sent, string) Expectation {
		return func(*Sent, string) Expectation { return e }
	}
	one := []Source{{}}
	m := sentAndDelivered("m/1", "")
	received := history.Event{Kind: history.ReceivedAndDeleted, ID: "m/1", Client: "r1", At: at(2), Sequence: 7}
	for name, c := range map[string]struct {
		stream *Stream
		events []history.Event
		want   string // a part of the finding; "": there is none
	}{
		"correct":                       {&Stream{From: one}, m, ""},
		"lost":                          {&Stream{From: one}, m[:2], "lost"},
		"need not arrive":               {&Stream{From: one, Expect: always(May)}, m[:2], ""},
		"must not arrive":               {&Stream{From: one, Expect: always(Never)}, m, "phantom"},
		"did not arrive and must not":   {&Stream{From: one, Expect: always(Never)}, m[:2], ""},
		"copy that nobody expects":      {&Stream{From: []Source{{Name: "a"}}}, append(sentAndDelivered("m/1", "a"), sentAndDelivered("m/1", "b")[2]), "unexpected copy"},
		"purged":                        {&Stream{From: one, Expect: always(May), Purges: &Purges{all: []Purge{{Ended: at(3), Removed: 1}}}}, m[:2], ""},
		"gone before it was purged":     {&Stream{From: one, Expect: always(May), Purges: &Purges{all: []Purge{{Ended: at(-1), Removed: 1}}}}, m[:2], "neither received nor purged"},
		"gone and not purged":           {&Stream{From: one, Expect: always(May), Purges: &Purges{all: []Purge{{Ended: at(3)}}}}, m[:2], "1 messages are missing"},
		"more purged than there were":   {&Stream{From: one, Expect: always(May), Purges: &Purges{all: []Purge{{Ended: at(3), Removed: 2}}}}, m[:2], "2 messages were purged"},
		"taken once":                    {&Stream{From: one, Takes: new(Takes)}, append(m[:2:2], received), ""},
		"taken twice":                   {&Stream{From: one, Takes: new(Takes)}, append(m[:2:2], received, received), "delivered after its completion"},
		"taken by nobody":               {&Stream{From: one, Takes: new(Takes)}, m[:2], "lost"},
		"taken without an answer":       {&Stream{From: one, Takes: &Takes{unanswered: []take{{until: at(1), most: 1}}}}, m[:2], ""},
		"taken before it was sent":      {&Stream{From: one, Takes: &Takes{unanswered: []take{{until: at(-1), most: 1}}}}, m[:2], "lost"},
		"purged with an unknown answer": {&Stream{From: one, Expect: always(May), Purges: &Purges{all: []Purge{{Ended: at(3), Unknown: true}}}}, m[:2], ""},
	} {
		switch found := judged(c.stream, c.events...); {
		case c.want == "" && found != "":
			t.Errorf("%s: found %s", name, found)
		case !strings.Contains(found, c.want):
			t.Errorf("%s: found %q, want %q", name, found, c.want)
		}
	}
}

func TestRulesThatChangeAreExpectedEitherWay(t *testing.T) {
	t.Parallel()
	r := &Rules{all: []*Rule{{colour: 3, addBegun: at(10), added: at(11), dropBegun: at(20), goneAt: at(21)}}}
	for _, c := range []struct {
		begun, ended int // of the send
		want         Expectation
	}{{5, 6, Never}, {9, 10, May}, {10, 12, May}, {12, 13, Must}, {19, 20, May}, {20, 22, May}, {22, 23, Never}} {
		m := &Sent{Begun: at(c.begun), Ended: at(c.ended), IsAccepted: true}
		if got := r.Expect(m, 3); got != c.want {
			t.Errorf("sent from %d to %d: %v, want %v", c.begun, c.ended, got, c.want)
		}
	}
	unknown := &Sent{Begun: at(5)}
	if got := r.Expect(unknown, 3); got != May {
		t.Errorf("sent at an unknown time: %v", got)
	}
	if got := r.Expect(&Sent{Begun: at(12), Ended: at(13), IsAccepted: true}, 4); got != Never {
		t.Errorf("another colour: %v", got)
	}
}

func TestSessionStateOnlyRises(t *testing.T) {
	t.Parallel()
	j := newSessions()
	if next := j.CheckState("s", 0, nil); next != 1 {
		t.Fatalf("first number %d", next)
	}
	j.StateSet("s", 1)
	j.CheckState("s", 1, []byte("1"))
	j.CheckState("s", 1, []byte("2")) // begun, not confirmed
	if len(j.found) > 0 {
		t.Errorf("found %v", j.found)
	}
	j.CheckState("s", 1, nil)
	j.CheckState("s", 1, []byte("9"))
	if len(j.found) != 2 {
		t.Errorf("found %v, want a lost and an unknown state", j.found)
	}
}

// TestSessionHasOneHolder: a lock that is held ends early only by a take-over with its token, and then its former holder
// may do nothing under it.
func TestSessionHasOneHolder(t *testing.T) {
	t.Parallel()
	token := fsm.SessionToken{1}
	for name, c := range map[string]struct {
		next       Holder
		isTakeOver bool
		late       bool // the former holder asks for something afterwards
		want       string
	}{
		"taken over":                   {Holder{Client: "b", Token: token}, true, false, ""},
		"taken over, and still held":   {Holder{Client: "b", Token: token}, true, true, "a renewal of a"},
		"taken over by another token":  {Holder{Client: "b", Token: fsm.SessionToken{2}}, true, false, "b accepted it"},
		"accepted with the same token": {Holder{Client: "b", Token: token}, false, false, "b accepted it"},
		"accepted":                     {Holder{Client: "b"}, false, false, "b accepted it"},
		"accepted by itself, late":     {Holder{Client: "a", Token: token}, true, true, ""},
	} {
		j, now := newSessions(), time.Now()
		j.Accepted("s", Holder{Client: "a", Token: token, Until: now.Add(time.Hour)}, now, false)
		j.Performed("a renewal", "s", "a", now)
		if got := j.Claim("s"); got != token || j.Claim("s") != (fsm.SessionToken{}) {
			t.Errorf("%s: token %v, which only one client may claim", name, got)
		}
		j.Accepted("s", c.next, now, c.isTakeOver)
		if c.late {
			j.Performed("a renewal", "s", "a", now.Add(time.Hour))
		}
		if found := strings.Join(j.found, ", "); !strings.Contains(found, c.want) || (c.want == "") != (found == "") {
			t.Errorf("%s: found %q, want %q", name, found, c.want)
		}
	}
}

// TestOrderInASessionIsThatOfItsHolder: only messages that a former holder of a session may have are overtaken.
func TestOrderInASessionIsThatOfItsHolder(t *testing.T) {
	t.Parallel()
	send := func(id string, begun int) []history.Event {
		return []history.Event{{Kind: history.SendBegun, ID: id, At: at(begun)}, {Kind: history.SendAccepted, ID: id, At: at(begun)}}
	}
	events := append(send("m/1/1", 1), send("m/1/2", 2)...)
	events = append(events, history.Event{Kind: history.Delivered, ID: "m/1/2", At: at(8)}, history.Event{Kind: history.Delivered, ID: "m/1/1", At: at(9)})
	for name, c := range map[string]struct {
		takeOvers []takeOver
		want      int
	}{
		"nothing was taken over":  {nil, 1},
		"taken over":              {[]takeOver{{"1", at(5), at(6)}}, 0},
		"taken over afterwards":   {[]takeOver{{"1", at(10), at(11)}}, 1},
		"taken over before":       {[]takeOver{{"1", at(-1), at(0)}}, 1},
		"another one, taken over": {[]takeOver{{"2", at(5), at(6)}}, 1},
	} {
		if found := checkOrder(events, &Sessions{takeOvers: c.takeOvers}); len(found) != c.want {
			t.Errorf("%s: found %v, want %d", name, found, c.want)
		}
	}
	j := newSessions()
	j.Accepted("1", Holder{Client: "a"}, at(3), false)
	j.Asks("1", "a")
	j.Answered("1", "a")
	if j.Accepted("1", Holder{Client: "b"}, at(4), true); len(j.takeOvers) != 0 {
		t.Errorf("the former holder knows its messages: %v", j.takeOvers)
	}
	j.Asks("1", "b")
	if j.Accepted("1", Holder{Client: "c"}, at(5), true); len(j.takeOvers) != 1 {
		t.Errorf("the former holder waits: %v", j.takeOvers)
	}
}

// TestExpiredMessageIsReceivedOnlyWhileClocksDisagree: without a time that a quorum confirms, wall time may lag behind.
func TestExpiredMessageIsReceivedOnlyWhileClocksDisagree(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for _, agree := range []bool{true, false} {
		s := &Stream{Lives: NewLives(), Clocks: &Clocks{Agree: func() bool { return agree }}}
		s.Lives.Set("m", time.Second)
		s.Lives.served = period{now.Add(-time.Minute), now}
		s.CheckLife("m", fsm.Instant(now.Add(-time.Minute).UnixMilli()), false, now)
		if agree != (len(s.found) == 1) {
			t.Errorf("clocks agree: %v; findings: %v", agree, s.found)
		}
	}
}
