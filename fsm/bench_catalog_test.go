package fsm_test

import (
	"fmt"
	"testing"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/catalog"
)

// fullCatalog has n queues in 10 namespaces, as many as one is.
func fullCatalog(tb testing.TB, n int) (c *catalog.Machine, apply func(fsm.Command) fsm.Result) {
	tb.Helper()
	c, env := catalog.New(), fsm.Env{Now: 1_700_000_000_000}
	apply = func(cmd fsm.Command) fsm.Result {
		env.Index++
		env.Now++
		res := c.Apply(oneTime(env), fsm.AppendCommand(nil, fsm.Header{Incarnation: 7, Serial: env.Index, Low: env.Index}, cmd))
		if res.Code != fsm.OK {
			tb.Fatalf("%T: %v", cmd, res.Code)
		}
		return res
	}
	apply(fsm.FoundCluster{ClusterID: "c", Partitions: []fsm.Partition{{ID: 1, Replicas: []fsm.Replica{{Member: "m", Number: 1}}}}})
	for i := range 9 {
		apply(fsm.CreateNamespace{Name: fmt.Sprintf("team-%d", i), Settings: fsm.NamespaceSettings{Hosts: []string{fmt.Sprintf("h%d.example.com", i)}}})
	}
	for i := range n {
		apply(queueIn(fsm.NamespaceID(1+i%10), fmt.Sprintf("queue-%07d", i*7919%1_000_003)))
	}
	return c, apply
}

// queueIn is the command that makes a plain queue.
func queueIn(namespace fsm.NamespaceID, name string) fsm.CreateEntity {
	return fsm.CreateEntity{Namespace: namespace, Name: name, Partition: 1, Settings: fsm.DefaultSettings()}
}

// BenchmarkCatalogChange measures a change among 100,000 entities after an image: each step in the
// life of an entity.
func BenchmarkCatalogChange(b *testing.B) {
	c, apply := fullCatalog(b, 99_999)
	settings := fsm.DefaultSettings()
	settings.MaxDeliveryCount = 7
	var id fsm.EntityID
	life := []func() fsm.Command{
		func() fsm.Command { return queueIn(1, "queue-05") },
		func() fsm.Command { return fsm.UpdateEntity{Entity: id, Settings: settings} },
		func() fsm.Command {
			return fsm.SetAccess{Namespace: 1, Entity: id, Rules: []fsm.AccessRule{{Name: "a", Primary: "p", Rights: fsm.Send}}}
		},
		func() fsm.Command { return fsm.DeleteEntity{Entity: id} },
		func() fsm.Command { return fsm.ForgetEntity{Entity: id} },
	}
	for measured, name := range []string{"create", "update", "access", "delete", "forget"} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				for i, step := range life {
					b.StopTimer()
					command, image := step(), c.Image()
					if i == measured {
						b.StartTimer()
					}
					if res := apply(command); i == 0 {
						id = res.Entity
					}
					_ = image
				}
				b.StartTimer()
			}
		})
	}
}

// BenchmarkNamespaceByHost measures a look-up that every connection and request makes.
func BenchmarkNamespaceByHost(b *testing.B) {
	c, _ := fullCatalog(b, 0)
	for b.Loop() {
		c.NamespaceByHost("Team-5.ServiceBus.example.com:5671")
	}
}

// BenchmarkAccess measures a look-up that every token makes.
func BenchmarkAccess(b *testing.B) {
	c, _ := fullCatalog(b, 50_000)
	for b.Loop() {
		c.Access(1, "Queue-0007919")
	}
}
