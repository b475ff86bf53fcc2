package sim

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/peeklock/peeklock/cluster/confirm"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/test/sim/judge"
	"github.com/peeklock/peeklock/test/sim/simplan"
)

const (
	renamedQueue = "renamed"
	revokedRule  = "leaver"
	changeWithin = 20 * time.Second
	askFor       = 8 * time.Second // after the restart
	askEvery     = 20 * time.Millisecond
)

// names are what an operator has changed in the catalog, and was told that it is done.
type names struct {
	host      string // of the new namespace
	queue     fsm.EntityID
	namespace fsm.NamespaceID
}

// renameAndKill makes a queue again under its name, revokes a key and creates a namespace, kills all members, or only that of the fault if its
// amount is 1, and asks them for all three when they have started. The former queue, the key, and the default
// namespace for the host are findings, unless the member could not reach the leader of the catalog for as long as it waits for it.
func (w *world) renameAndKill(f simplan.Fault) {
	select {
	case w.naming <- struct{}{}:
		defer func() { <-w.naming }()
	default:
		return // another one is under way, and would see what this one changes
	}
	was := w.cluster()
	changed, err := w.changeNames(f)
	if err != nil {
		w.log.Info("names were not changed", "error", err)
		return
	}
	members := w.members
	if f.Amount == 1 {
		members = members[f.Member : f.Member+1]
	}
	for _, m := range members {
		m.kill(false)
	}
	sleep(f.Length)
	var asked sync.WaitGroup
	for _, m := range members {
		go m.ensureRunning()
		asked.Go(func() { w.askForNames(m, changed, was) })
	}
	asked.Wait()
}

// changeNames makes the changes at one member.
func (w *world) changeNames(f simplan.Fault) (changed names, err error) {
	p := w.anyOther(nil)
	if p == nil {
		return changed, errNoMember
	}
	ctx, cancel := context.WithTimeout(context.Background(), changeWithin)
	defer cancel()
	router := p.Node.Router()
	space := router.In(fsm.DefaultNamespace)
	rules := []fsm.AccessRule{{Name: revokedRule, Primary: "secret", Rights: fsm.Send}}
	if err := space.SetAccess(ctx, "", 0, rules); err != nil {
		return changed, err
	}
	if err := space.DeleteEntity(ctx, fsm.QueueEntity, renamedQueue); err != nil && !errors.Is(err, fsm.EntityNotFound) {
		return changed, err
	}
	queue, err := space.CreateEntity(ctx, fsm.QueueEntity, renamedQueue, fsm.DefaultSettings(), nil, nil)
	if err != nil {
		return changed, err
	}
	if err := space.SetAccess(ctx, "", 0, nil); err != nil {
		return changed, err
	}
	name := fmt.Sprintf("shop-%d", f.At.Milliseconds())
	namespace, err := router.CreateNamespace(ctx, name, fsm.NamespaceSettings{}, nil)
	return names{host: name + ".example.com", queue: queue.ID, namespace: namespace.ID}, err
}

// askForNames asks a member again and again.
func (w *world) askForNames(m *member, want names, was *judge.Restoration) {
	for end := time.Now().Add(askFor); time.Now().Before(end); sleep(askEvery) {
		p := m.running()
		if p == nil {
			continue
		}
		ctx, cancel := context.WithTimeout(context.Background(), changeWithin)
		router := p.Node.Router()
		at, err := router.In(fsm.DefaultNamespace).Resolve(ctx, renamedQueue)
		isConfirmed := time.Since(p.begun) < confirm.StartWaitMax // otherwise it has waited in vain, and reads what it has
		namespace, hostErr := router.NamespaceByHost(ctx, want.host)
		isRevoked := true
		if router.AwaitConfirmed(ctx) {
			_, shared := router.Access(fsm.DefaultNamespace, "")
			isRevoked = len(shared) == 0
		}
		cancel()
		if p.HasEnded() || w.cluster() != was {
			continue
		}
		if isConfirmed && (err == nil && at.ID != want.queue || errors.Is(err, fsm.EntityNotFound)) {
			w.find("member %d, started at %v, resolved a name at %v to entity %d, %v; it is %d", m.number, p.begun, time.Now(), at.ID, err, want.queue)
		}
		if hostErr == nil && namespace != want.namespace {
			w.find("member %d selected namespace %d by the host of namespace %d", m.number, namespace, want.namespace)
		}
		if !isRevoked {
			w.find("member %d believed a key that was revoked before it started", m.number)
		}
		if isConfirmed && err == nil && hostErr == nil {
			w.happened(simplan.Rename)
		}
	}
}
