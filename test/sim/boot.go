package sim

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/peeklock/peeklock/cluster/datadir"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/test/sim/load"
)

const (
	bootLength   = 5 * time.Second // for which calls of new members are counted
	pledgesEvery = time.Millisecond
)

// bootOnly starts the members, which bootstrap a cluster, and checks what they have promised each other meanwhile.
func (w *world) bootOnly(ctx context.Context) error {
	watched, endWatch := context.WithCancel(ctx)
	defer endWatch()
	go w.watchPledges(watched)
	w.calls.start()
	for _, m := range w.members {
		m.ensureRunning() //nolint:contextcheck // the process outlives it
	}
	sleep(bootLength)
	w.calls.stop()
	sleep(repairAfter)
	for w.awaitReady(ctx) != nil {
		if ctx.Err() != nil {
			return fmt.Errorf("%w: the members are not ready", load.ErrStuck)
		}
		sleep(startRetry)
	}
	var clusters []string
	for _, m := range w.members {
		if id := m.durableIdentity().Cluster; !slices.Contains(clusters, id) {
			clusters = append(clusters, id)
		}
	}
	if len(clusters) != 1 || clusters[0] == "" {
		return fmt.Errorf("the members have the clusters %q", clusters)
	}
	return nil
}

// durableIdentity reads member.json as a loss of power would leave it; the zero identity without one.
func (m *member) durableIdentity() (id datadir.Identity) {
	_ = json.Unmarshal(m.store().Durable(filepath.Join(dataFolder, "member.json")), &id)
	return id
}

// watchPledges reports a cluster whose initial members do not all remember that they have pledged to bootstrap it.
func (w *world) watchPledges(ctx context.Context) {
	ticker := time.NewTicker(pledgesEvery)
	defer ticker.Stop()
	found := make(map[fsm.MemberID]bool)
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		identities := make(map[fsm.MemberID]datadir.Identity)
		for _, m := range w.members {
			id := m.durableIdentity()
			identities[id.Member] = id
		}
		for _, founder := range identities {
			if !founder.Bootstrapping {
				continue
			}
			for _, name := range founder.Pledge {
				id, known := identities[name]
				if known && id.Cluster == "" && !slices.Equal(id.Pledge, founder.Pledge) && !found[name] {
					found[name] = true
					w.find("member %s has no pledge on disk, and member %s bootstraps a cluster with it", name, founder.Member)
				}
			}
		}
	}
}
