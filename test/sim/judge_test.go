package sim

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
func judged(s *stream, events ...history.Event) string {
	var found []string
	for _, e := range events {
		s.Add(e)
	}
	s.judge(func(format string, arguments ...any) { found = append(found, fmt.Sprintf(format, arguments...)) }, true, nil)
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
	always := func(e expectation) func(*sentMessage, string) expectation {
		return func(*sentMessage, string) expectation { return e }
	}
	one := []source{{}}
	m := sentAndDelivered("m/1", "")
	received := history.Event{Kind: history.ReceivedAndDeleted, ID: "m/1", Client: "r1", At: at(2), Sequence: 7}
	for name, c := range map[string]struct {
		stream *stream
		events []history.Event
		want   string // a part of the finding; "": there is none
	}{
		"correct":                       {&stream{from: one}, m, ""},
		"lost":                          {&stream{from: one}, m[:2], "lost"},
		"need not arrive":               {&stream{from: one, expect: always(may)}, m[:2], ""},
		"must not arrive":               {&stream{from: one, expect: always(never)}, m, "phantom"},
		"did not arrive and must not":   {&stream{from: one, expect: always(never)}, m[:2], ""},
		"copy that nobody expects":      {&stream{from: []source{{name: "a"}}}, append(sentAndDelivered("m/1", "a"), sentAndDelivered("m/1", "b")[2]), "unexpected copy"},
		"purged":                        {&stream{from: one, expect: always(may), purges: []purge{{ended: at(3), removed: 1}}}, m[:2], ""},
		"gone before it was purged":     {&stream{from: one, expect: always(may), purges: []purge{{ended: at(-1), removed: 1}}}, m[:2], "neither received nor purged"},
		"gone and not purged":           {&stream{from: one, expect: always(may), purges: []purge{{ended: at(3)}}}, m[:2], "1 messages are missing"},
		"more purged than there were":   {&stream{from: one, expect: always(may), purges: []purge{{ended: at(3), removed: 2}}}, m[:2], "2 messages were purged"},
		"taken once":                    {&stream{from: one, takes: true}, append(m[:2:2], received), ""},
		"taken twice":                   {&stream{from: one, takes: true}, append(m[:2:2], received, received), "delivered after its completion"},
		"taken by nobody":               {&stream{from: one, takes: true}, m[:2], "lost"},
		"taken without an answer":       {&stream{from: one, takes: true, unanswered: []take{{until: at(1), most: 1}}}, m[:2], ""},
		"taken before it was sent":      {&stream{from: one, takes: true, unanswered: []take{{until: at(-1), most: 1}}}, m[:2], "lost"},
		"purged with an unknown answer": {&stream{from: one, expect: always(may), purges: []purge{{ended: at(3), unknown: true}}}, m[:2], ""},
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
	s := &stream{rules: []*ruleLife{{colour: 3, addBegun: at(10), added: at(11), dropBegun: at(20), goneAt: at(21)}}}
	for _, c := range []struct {
		begun, ended int // of the send
		want         expectation
	}{{5, 6, never}, {9, 10, may}, {10, 12, may}, {12, 13, must}, {19, 20, may}, {20, 22, may}, {22, 23, never}} {
		m := &sentMessage{id: "ruled/3", begun: at(c.begun), ended: at(c.ended), isAccepted: true}
		if got := s.expectByRules(m, "changing"); got != c.want {
			t.Errorf("sent from %d to %d: %v, want %v", c.begun, c.ended, got, c.want)
		}
	}
	unknown := &sentMessage{id: "ruled/3", begun: at(5)}
	if got := s.expectByRules(unknown, "changing"); got != may {
		t.Errorf("sent at an unknown time: %v", got)
	}
	if got := s.expectByRules(&sentMessage{id: "ruled/4", begun: at(12), ended: at(13), isAccepted: true}, "changing"); got != never {
		t.Errorf("another colour: %v", got)
	}
}

func TestSessionStateOnlyRises(t *testing.T) {
	t.Parallel()
	j := newSessionJudge()
	if next := j.checkState("s", 0, nil); next != 1 {
		t.Fatalf("first number %d", next)
	}
	j.stateSet("s", 1)
	j.checkState("s", 1, []byte("1"))
	j.checkState("s", 1, []byte("2")) // begun, not confirmed
	if len(j.found) > 0 {
		t.Errorf("found %v", j.found)
	}
	j.checkState("s", 1, nil)
	j.checkState("s", 1, []byte("9"))
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
		next       holder
		isTakeOver bool
		late       bool // the former holder asks for something afterwards
		want       string
	}{
		"taken over":                   {holder{client: "b", token: token}, true, false, ""},
		"taken over, and still held":   {holder{client: "b", token: token}, true, true, "a renewal of a"},
		"taken over by another token":  {holder{client: "b", token: fsm.SessionToken{2}}, true, false, "b accepted it"},
		"accepted with the same token": {holder{client: "b", token: token}, false, false, "b accepted it"},
		"accepted":                     {holder{client: "b"}, false, false, "b accepted it"},
		"accepted by itself, late":     {holder{client: "a", token: token}, true, true, ""},
	} {
		j, now := newSessionJudge(), time.Now()
		j.accepted("s", holder{client: "a", token: token, until: now.Add(time.Hour)}, now, false)
		j.performed("a renewal", "s", "a", now)
		if got := j.claim("s"); got != token || j.claim("s") != (fsm.SessionToken{}) {
			t.Errorf("%s: token %v, which only one client may claim", name, got)
		}
		j.accepted("s", c.next, now, c.isTakeOver)
		if c.late {
			j.performed("a renewal", "s", "a", now.Add(time.Hour))
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
		if found := checkOrder(events, &sessionJudge{takeOvers: c.takeOvers}); len(found) != c.want {
			t.Errorf("%s: found %v, want %d", name, found, c.want)
		}
	}
	j := newSessionJudge()
	j.accepted("1", holder{client: "a"}, at(3), false)
	j.asks("1", "a")
	j.answered("1", "a")
	if j.accepted("1", holder{client: "b"}, at(4), true); len(j.takeOvers) != 0 {
		t.Errorf("the former holder knows its messages: %v", j.takeOvers)
	}
	j.asks("1", "b")
	if j.accepted("1", holder{client: "c"}, at(5), true); len(j.takeOvers) != 1 {
		t.Errorf("the former holder waits: %v", j.takeOvers)
	}
}

// TestExpiredMessageIsReceivedOnlyWhileClocksDisagree: without a time that a quorum confirms, wall time may lag behind.
func TestExpiredMessageIsReceivedOnlyWhileClocksDisagree(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for _, agree := range []bool{true, false} {
		s := &stream{lives: map[string]time.Duration{"": time.Second}, clocksAgree: func() bool { return agree }}
		s.served = period{now.Add(-time.Minute), now}
		s.checkLife(&fsm.Delivery{Enqueued: fsm.Instant(now.Add(-time.Minute).UnixMilli())}, false, now)
		if agree != (len(s.found) == 1) {
			t.Errorf("clocks agree: %v; findings: %v", agree, s.found)
		}
	}
}
