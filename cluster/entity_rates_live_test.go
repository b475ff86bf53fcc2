package cluster

import (
	"testing"
	"time"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/topology"
)

// Every member knows the rates of an entity, and the hour survives the loss of its leader. Other namespaces do not see them. The totals
// do not fall when another member leads.
func TestRatesSurviveTheLeader(t *testing.T) {
	inBubble(t, ratesSurviveTheLeader)
}

// consuming is a gateway that is asked for its consumers alone.
type consuming struct {
	Clients

	list []topology.Consumers
}

func (c consuming) Consumers() []topology.Consumers { return c.list }

func ratesSurviveTheLeader(t *testing.T) {
	const minutes, seconds = 1, 60
	c := newBubbleCluster(t, 3, 1)
	c.startAll()
	at := c.make(fsm.QueueEntity, "Orders", nil)
	for i, node := range c.nodes {
		node.ServeClients(consuming{list: []topology.Consumers{
			{Namespace: fsm.DefaultNamespace, Name: "Orders", Links: i}, {Namespace: fsm.DefaultNamespace + 2, Name: "Orders", Links: 9},
		}})
	}
	rates := func(node *Node, namespace fsm.NamespaceID, name string) []topology.EntityRates {
		return node.Operator().Rates(t.Context(), topology.RatesQuery{Namespace: namespace, Name: name})
	}
	for range minutes * seconds {
		if code := sendCode(c.any(), at, fsm.Message{Payload: []byte("x")}, fsm.Message{Payload: []byte("y")}); code != fsm.OK {
			t.Fatalf("send: %v", code)
		}
		<-time.After(time.Second)
	}
	for i, node := range c.nodes {
		got := rates(node, fsm.DefaultNamespace, "")
		if len(got) != 1 || got[0].Name != "Orders" || got[0].Kind != "queue" || got[0].Incoming < 1.9 || got[0].Incoming > 2.1 || got[0].Samples != nil || got[0].Consumers != 0+1+2 {
			t.Errorf("member %d says %+v, want 2 incoming messages a second and 3 consumers of Orders", i, got)
		}
		if got := rates(node, fsm.DefaultNamespace+1, ""); len(got) != 0 {
			t.Errorf("member %d shows %+v in another namespace, want nothing", i, got)
		}
	}
	if got := c.any().Operator().Rates(t.Context(), topology.RatesQuery{Namespace: fsm.DefaultNamespace, Total: true}); len(got) != 2 || got[0].Name != "" || got[0].Rates != got[1].Rates || got[0].Samples == nil {
		t.Errorf("the total and the queue are %+v, want equal rates", got)
	}
	leader := c.leader(at.Partition)
	incoming := func(i int) uint64 {
		for _, e := range c.nodes[i].Stats(10).Entities {
			if e.Name == "Orders" {
				return e.Totals[0].Incoming
			}
		}
		return 0
	}
	before := incoming(leader)
	c.kill(leader)
	next := c.leader(at.Partition)
	<-time.After(topology.RatesEvery * time.Second)
	got := rates(c.nodes[next], fsm.DefaultNamespace, "orders")
	if len(got) != 1 || len(got[0].Samples) < minutes*seconds/topology.RatesEvery-2 {
		t.Fatalf("after the loss of the leader: %+v, want the samples of %d minute", got, minutes)
	}
	if after := incoming(next); before != 2*minutes*seconds || after != before {
		t.Errorf("the totals were %d and are %d, want %d", before, after, 2*minutes*seconds)
	}
}
