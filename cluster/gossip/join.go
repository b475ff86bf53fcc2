package gossip

import (
	"context"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"time"
)

// rejoinLoop contacts the names to join, and the last known addresses of members, while members
// are missing: names may resolve later, and two halves of a cluster that consider each other dead
// do not rejoin by themselves. It contacts the names to join every rejoinIntervalsMax intervals in any case: processes
// that started while they could not reach the others know only each other and miss nobody.
func (g *Membership) rejoinLoop(interval time.Duration) {
	pause := time.Duration(0)
	var contacted time.Time
	for {
		changed := g.changed.Wait()
		isDue := time.Since(contacted) >= rejoinIntervalsMax*interval
		if isDue {
			contacted = time.Now()
		}
		g.contact(g.addressesToContact(isDue))
		pause = min(max(2*pause, interval), rejoinIntervalsMax*interval)
		timer := time.NewTimer(pause)
		select {
		case <-g.stop:
			timer.Stop()
			return
		case <-changed:
			pause = 0
			timer.Reset(interval)
			select {
			case <-g.stop:
				timer.Stop()
				return
			case <-timer.C:
			}
		case <-timer.C:
		}
	}
}

// unreachedLoop contacts the names to join that were not reached. Processes that start while a part of them cannot reach the others
// miss nobody, and soon meet all of them when they can.
func (g *Membership) unreachedLoop(interval time.Duration) {
	ticker := time.NewTicker(unreachedIntervals * interval)
	defer ticker.Stop()
	for {
		select {
		case <-g.stop:
			return
		case <-ticker.C:
		}
		g.mu.Lock()
		names := slices.Collect(maps.Keys(g.unreached))
		g.mu.Unlock()
		g.contact(names)
	}
}

// contact exchanges states with the members at some addresses, contactsMax at once, until Close is called.
func (g *Membership) contact(addresses []string) {
	slots := make(chan struct{}, contactsMax)
	var contacts sync.WaitGroup
	defer contacts.Wait()
	for _, address := range addresses {
		select {
		case <-g.stop:
			return
		case slots <- struct{}{}:
		}
		contacts.Go(func() {
			g.contactOne(address)
			<-slots
		})
	}
}

// contactOne exchanges states with the members at an address or name.
func (g *Membership) contactOne(address string) {
	all, err := g.resolve(address)
	n := 0
	if err == nil {
		n, err = g.list.Join(all)
	}
	if slices.Contains(g.join, address) { // otherwise it is the last known address of a member that is missing, which has been logged
		g.mu.Lock()
		if delete(g.unreached, address); n == 0 || n < len(all) {
			g.unreached[address] = true
		}
		g.mu.Unlock()
		if err != nil {
			g.warnJoin(address, err)
		}
	}
	if n == 0 && err != nil {
		logGossip(g.log, &g.refusals, "join", err.Error())
	}
}

// resolve returns an ip:port for each address of a host:port. Join would report a name as reached if one of its addresses was.
func (g *Membership) resolve(address string) ([]string, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("join: %w", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), g.resolveMax)
	defer cancel()
	all, err := net.DefaultResolver.LookupHost(ctx, host)
	if err != nil {
		return nil, fmt.Errorf("join: %w", err)
	}
	for i := range all {
		all[i] = net.JoinHostPort(all[i], port)
	}
	return all, nil
}

// warnJoin logs that an address to join cannot be reached or resolved, once in joinWarnEvery.
func (g *Membership) warnJoin(address string, cause error) {
	now := time.Now()
	g.mu.Lock()
	isDue := now.Sub(g.joinWarnedAt[address]) >= joinWarnEvery
	if isDue {
		g.joinWarnedAt[address] = now
	}
	g.mu.Unlock()
	if isDue {
		g.log.Warn("failed to reach a member of the setting join, will retry", "address", address, "error", strings.Join(strings.Fields(cause.Error()), " "))
	}
}

// addressesToContact returns the addresses of missing members, and the names to join if a member is missing, this one
// is alone, or always is set.
func (g *Membership) addressesToContact(always bool) []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	alone := true
	var names []string
	for _, m := range g.members {
		switch {
		case m.Member == g.self.Member:
		case m.Alive:
			alone = false
		case !m.Leaving:
			names = append(names, m.address)
		}
	}
	if always || alone || len(names) > 0 {
		names = append(names, g.join...)
	}
	return names
}
