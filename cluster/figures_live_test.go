package cluster

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/topology"
)

// Every member knows the numbers of messages of a namespace, and those of the named entities, in any case.
func TestFiguresAreThoseOfAllLeaders(t *testing.T) {
	inBubble(t, figuresAreThoseOfAllLeaders)
}

func figuresAreThoseOfAllLeaders(t *testing.T) {
	c := newBubbleCluster(t, 3, 4)
	c.startAll()
	for i, name := range []string{"Orders", "a", "b", "empty"} {
		at := c.make(fsm.QueueEntity, name, nil)
		for range 3 - i {
			if code := sendCode(c.any(), at, fsm.Message{Payload: []byte("x")}); code != fsm.OK {
				t.Fatalf("send: %v", code)
			}
		}
	}
	depths := func(name string, n uint64) topology.EntityFigures {
		return topology.EntityFigures{Name: name, Kind: "queue", Depths: topology.Depths{Active: n}}
	}
	want := topology.Figures{
		Queues: 4, Total: topology.Depths{Active: 6}, Deepest: []topology.EntityFigures{depths("Orders", 3), depths("a", 2), depths("b", 1)},
		Rows: []topology.EntityFigures{depths("Orders", 3), depths("empty", 0)},
	}
	for i, node := range c.nodes {
		got := node.Operator().Figures(t.Context(), topology.FiguresQuery{Namespace: fsm.DefaultNamespace, Rows: []string{"ORDERS", "empty", "unknown"}})
		if got.Total.Bytes == 0 {
			t.Errorf("member %d: the messages have no bytes", i)
		}
		got.Total.Bytes, got.DeadLettered = 0, nil
		for _, list := range [][]topology.EntityFigures{got.Deepest, got.Rows} {
			for j := range list {
				list[j].Bytes = 0
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("member %d (-want +got):\n%s", i, diff)
		}
		if other := node.Operator().Figures(t.Context(), topology.FiguresQuery{Namespace: fsm.DefaultNamespace + 1, Rows: []string{"a"}}); other.Queues != 0 || len(other.Rows) != 0 || other.Total.Active != 0 {
			t.Errorf("member %d shows %+v in another namespace, want nothing", i, other)
		}
	}
}

// The lists of the deepest entities are bounded, and the shards of one entity add up.
func TestDeepest(t *testing.T) {
	t.Parallel()
	var list []topology.EntityFigures
	for i := range uint64(1000) {
		list = appendDeep(list, topology.EntityFigures{Name: string(rune('a' + i%20)), Depths: topology.Depths{Active: i % 20}}, activeOf)
		if len(list) > figuresPage {
			t.Fatalf("the list has %d entities, want at most %d", len(list), figuresPage)
		}
	}
	got := deepest(list, activeOf)
	if len(got) != topology.FiguresDeepestMax || got[0].Name != "t" {
		t.Errorf("got %d entities, the first %+v; want %d, the first t", len(got), got[0], topology.FiguresDeepestMax)
	}
	two := deepest([]topology.EntityFigures{{Name: "q", Depths: topology.Depths{Active: 2}}, {Name: "r", Depths: topology.Depths{Active: 3}}, {Name: "q", Depths: topology.Depths{Active: 2}}}, activeOf)
	if len(two) != 2 || two[0].Name != "q" || two[0].Active != 4 {
		t.Errorf("got %+v, want q with 4 messages first", two)
	}
}
