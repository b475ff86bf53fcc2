package load

import (
	"context"

	"github.com/peeklock/peeklock/cluster"
	"github.com/peeklock/peeklock/test/sim/judge"
	"github.com/peeklock/peeklock/test/sim/simnet"
)

// Cluster is what clients use of a cluster. Its functions may be called by many goroutines at once.
type Cluster struct {
	Members int
	Host    *simnet.Host // of the AMQP clients

	// Running returns the process of a member; nil while it is down.
	Running func(member int) *Process
	// Restored returns what distinguishes the cluster before a restore from the one after it.
	Restored func() *judge.Restoration
	// Find records a finding.
	Find func(format string, arguments ...any)
}

// Process is one run of a member, as its clients know it.
type Process struct {
	Member int // number of its host
	Node   *cluster.Node
	// Ended is closed before anything of the process ends: what it answers afterwards reaches no client.
	Ended chan struct{}
	// Serving ends when the process begins to stop in order: then its gateway releases the sessions of its clients.
	Serving context.Context //nolint:containedctx // of the process
}

// HasEnded reports whether the process was killed or stopped.
func (p *Process) HasEnded() bool {
	select {
	case <-p.Ended:
		return true
	default:
		return false
	}
}

// whenItStops calls f when the process begins to stop in order, or has begun, unless cancel is called before that.
func (p *Process) whenItStops(f func()) (cancel func() bool) { return context.AfterFunc(p.Serving, f) }
