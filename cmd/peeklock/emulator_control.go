package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/peeklock/peeklock/admin/emulator"
	"github.com/peeklock/peeklock/admin/entity"
	"github.com/peeklock/peeklock/fsm"
)

const (
	entitiesPage = 100
	clockMax     = 100 * 365 * 24 * time.Hour // that a clock is moved in total
)

// movedClock is a clock that tests move forward. Both clocks of the member follow it; tokens, connections and timeouts of
// requests keep the real time.
type movedClock struct {
	start time.Time
	ahead atomic.Int64 // nanoseconds
}

func (c *movedClock) now() time.Time { return time.Now().Add(time.Duration(c.ahead.Load())) }

func (c *movedClock) monotonic() time.Duration {
	return time.Since(c.start) + time.Duration(c.ahead.Load())
}

// clockAdvanced is the answer of POST /clock/advance.
type clockAdvanced struct {
	Now time.Time `json:"now"` // of the member
}

// advance is POST /clock/advance?by=DURATION.
func (c *movedClock) advance(r *http.Request) (any, error) {
	by, err := entity.ParseDuration(r.URL.Query().Get("by"))
	if err != nil || by <= 0 || by > clockMax-time.Duration(c.ahead.Load()) {
		return nil, fmt.Errorf("%w: by must be the duration by which the clock advances, such as 90m", fsm.InvalidArgument)
	}
	c.ahead.Add(int64(by))
	return clockAdvanced{c.now().UTC()}, nil
}

// operations are the operations that the emulator has beyond other members. A clock of kept data is not moved: the next start
// would have it behind its messages.
func (o *emulatorOptions) operations(m *member, listed *emulatorConfig, clock *movedClock) map[string]func(*http.Request) (any, error) {
	all := map[string]func(*http.Request) (any, error){
		"POST /reset": func(r *http.Request) (any, error) { return listed.reset(r.Context(), m) },
	}
	if o.temporary {
		all["POST /clock/advance"] = clock.advance
	}
	return all
}

// reset deletes all entities, namespaces and keys, and creates what the file lists.
func (e *emulatorConfig) reset(ctx context.Context, m *member) (emulator.Report, error) {
	all := control{m.node.Router(), m.node.Operator()}
	for after := ""; ; {
		spaces, err := all.Namespaces(ctx, after, entitiesPage)
		if err != nil || len(spaces) == 0 {
			if err != nil {
				return emulator.Report{}, err
			}
			break
		}
		for i := range spaces {
			after = spaces[i].Name
			if err := all.empty(ctx, spaces[i]); err != nil {
				return emulator.Report{}, err
			}
		}
	}
	return e.file.Apply(ctx, emulatorControl{all})
}

// empty deletes the entities and keys of a namespace, and the namespace unless it is the default one.
func (c control) empty(ctx context.Context, namespace fsm.Namespace) error {
	view := c.In(namespace.ID)
	for _, kind := range []fsm.EntityKind{fsm.QueueEntity, fsm.TopicEntity} {
		for {
			entities, err := view.Entities(ctx, kind, "", "", entitiesPage)
			if err != nil {
				return err
			}
			for i := range entities {
				if err := view.DeleteEntity(ctx, kind, entities[i].Name); err != nil && !errors.Is(err, fsm.EntityNotFound) {
					return err
				}
			}
			if len(entities) < entitiesPage {
				break
			}
		}
	}
	if namespace.ID != fsm.DefaultNamespace {
		return c.DeleteNamespace(ctx, namespace.Name)
	}
	return view.SetAccess(ctx, "", 0, nil)
}
