package load

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/test/sim/judge"
)

const (
	idleAfter     = 5 * time.Minute // of the entities that nobody uses, and of the plain queues, which are always used
	idleEarlyMax  = time.Minute     // the clock that counts may gain as much by drifting
	idleWithin    = 12 * time.Minute
	idlePollEvery = 5 * time.Second
)

// deletesItself lets an entity delete itself when it is idle.
func deletesItself(e *fsm.EntitySettings) { e.AutoDeleteOnIdle = fsm.Millis(idleAfter.Milliseconds()) }

// idles adds two queues that nobody uses, one of them partitioned.
func (b *builder) idles() {
	unjudged := &stream{Stream: new(judge.Stream)}
	for _, name := range []string{"idle", "idle-shards"} {
		b.queue(unjudged, name, func(e *fsm.EntitySettings) {
			deletesItself(e)
			e.EnablePartitioning = name == "idle-shards"
		})
	}
	b.unused = unjudged.Entities
}

// WatchIdle waits for the end of the entities that nobody uses: it is a finding if one ends early, or has not ended long after ctx.
// The function that it returns waits for that.
func (l *Load) WatchIdle(ctx context.Context) (wait func(context.Context)) {
	var done sync.WaitGroup
	begun, ending := time.Now(), make(chan context.Context, len(l.unused))
	for _, entity := range l.unused {
		c := l.client("idle")
		done.Go(func() {
			for now := ctx; ; { //nolint:contextcheck // one ends with the load, and the other with the wait
				if l.isGone(now, c, entity.Name) {
					if after := time.Since(begun); after < idleAfter-idleEarlyMax {
						l.cluster.Find("the queue %s has deleted itself after %v", entity.Name, after)
					}
					return
				}
				if c.think(now, idlePollEvery) {
					continue
				}
				if now != ctx {
					l.cluster.Find("the queue %s, which nobody used, is still there", entity.Name)
					return
				}
				now = <-ending
			}
		})
	}
	return func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, idleWithin)
		defer cancel()
		for range l.unused {
			ending <- ctx
		}
		done.Wait()
	}
}

// isGone reports whether a name is certainly of no entity.
func (l *Load) isGone(ctx context.Context, c *client, name string) bool {
	p := c.process(ctx)
	if p == nil {
		return false
	}
	_, err := p.Node.Router().In(fsm.DefaultNamespace).Resolve(ctx, name)
	return errors.Is(err, fsm.EntityNotFound)
}
