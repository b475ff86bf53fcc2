package admin

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/peeklock/peeklock/admin/api"
	"github.com/peeklock/peeklock/admin/condition"
	"github.com/peeklock/peeklock/admin/entity"
	"github.com/peeklock/peeklock/admin/input"
	"github.com/peeklock/peeklock/admin/inspect"
	"github.com/peeklock/peeklock/fsm"
)

// Limits of requests about entities.
const (
	pageEntitiesMax    = 1000
	pageEntitiesNormal = 100
	purgeMessagesMax   = 4000 // of one request
)

// handler serves one route; its error becomes a Problem.
type handler func(http.ResponseWriter, *http.Request) error

// count sets the counts of entities; onlyAvailable leaves out those of entities with a partition that nobody serves.
func (s *controlAPI) count(r *http.Request, entities []fsm.Entity, counts []*fsm.Counts, onlyAvailable bool) error {
	unserved := map[fsm.PartitionID]bool{}
	if onlyAvailable {
		st, err := s.config.Control.Status(r.Context())
		if err != nil {
			return err
		}
		for _, u := range condition.UnservedPartitions(st) {
			unserved[u.Partition] = true
		}
	}
	var asked []fsm.Entity
	var places []int
	for i := range entities {
		e := &entities[i]
		if !unserved[e.Partition] && !slices.ContainsFunc(e.Shards, func(one fsm.Shard) bool { return unserved[one.Partition] }) {
			asked, places = append(asked, *e), append(places, i)
		}
	}
	if len(asked) == 0 {
		return nil
	}
	known, err := s.namespace(r).Counts(r.Context(), asked)
	if err != nil {
		return err
	}
	for i := range known {
		counts[places[i]] = &known[i]
	}
	return nil
}

// list is GET /v1/queues?after=&max=&counts=true and the like; for subscriptions, topic= names the topic.
func (s *controlAPI) list(kind fsm.EntityKind) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		limit, err := input.Number(r, "max", pageEntitiesNormal, 1, pageEntitiesMax)
		if err != nil {
			return err
		}
		withCounts, err := input.Bool(r, "counts")
		if err != nil {
			return err
		}
		onlyAvailable, err := input.Bool(r, "available")
		if err != nil {
			return err
		}
		topic := ""
		if kind == fsm.SubscriptionEntity {
			if topic, err = s.topicOf(r); err != nil {
				return err
			}
		}
		entities, err := s.namespace(r).Entities(r.Context(), kind, topic, r.URL.Query().Get("after"), limit)
		if err != nil {
			return withEntityName(topic, err)
		}
		next := ""
		if len(entities) == limit {
			next = entities[limit-1].Name
		}
		counts := make([]*fsm.Counts, len(entities))
		if withCounts && len(entities) > 0 {
			if err := s.count(r, entities, counts, onlyAvailable); err != nil {
				return err
			}
		}
		s.writeJSON(w, r, http.StatusOK, api.PageOf(kind, entities, counts, next))
		return nil
	}
}

// topicOf returns the topic whose subscriptions are to be listed. A topic that does not exist is an error: an empty list
// would look as if it existed.
func (s *controlAPI) topicOf(r *http.Request) (string, error) {
	topic := r.URL.Query().Get("topic")
	if topic == "" {
		return "", fmt.Errorf("%w: name the topic of the subscriptions with ?topic=", fsm.InvalidArgument)
	}
	if err := entity.CheckName(fsm.TopicEntity, topic); err != nil {
		return "", err
	}
	found, _, err := s.namespace(r).Entity(r.Context(), fsm.TopicEntity, topic)
	if err != nil {
		return "", withEntityName(topic, err)
	}
	return found.Name, nil
}

// show is GET /v1/queues/{name} and the like, always with counts.
func (s *controlAPI) show(kind fsm.EntityKind) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		name, err := input.Name(kind, r)
		if err != nil {
			return err
		}
		found, counts, err := s.namespace(r).Entity(r.Context(), kind, name)
		if err != nil {
			return withEntityName(name, err)
		}
		s.writeJSON(w, r, http.StatusOK, api.Describe(found, &counts))
		return nil
	}
}

// create is PUT /v1/queues/{name} and the like; without a body all settings have their defaults.
func (s *controlAPI) create(kind fsm.EntityKind) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		name, err := input.Name(kind, r)
		if err != nil {
			return err
		}
		asked, rule, err := input.DecodeCreation(kind, r)
		if err != nil {
			return err
		}
		limits, err := s.namespaceLimits(r)
		if err != nil {
			return err
		}
		settings, err := asked.ApplyTo(kind, limits.Clamp(entity.DefaultSettings(kind)), limits)
		if err == nil {
			err = s.permitNewForwarding(r, asked, fsm.EntitySettings{})
		}
		if err != nil {
			return err
		}
		found, err := s.namespace(r).CreateEntity(r.Context(), kind, name, settings, rule, nil)
		if err != nil {
			return withNewEntityName(kind, name, err)
		}
		s.writeJSON(w, r, http.StatusCreated, api.Describe(found, nil))
		return nil
	}
}

// update is PATCH /v1/queues/{name} and the like: settings that the body omits stay. Of two changes at the same time one
// may be lost, since the last write wins.
func (s *controlAPI) update(kind fsm.EntityKind) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		name, err := input.Name(kind, r)
		if err != nil {
			return err
		}
		asked, err := input.DecodeSettings(kind, r)
		if err != nil {
			return err
		}
		limits, err := s.namespaceLimits(r)
		if err != nil {
			return err
		}
		found, _, err := s.namespace(r).Entity(r.Context(), kind, name)
		if err != nil {
			return withEntityName(name, err)
		}
		settings, err := asked.ApplyTo(kind, found.Settings.WithDefaults(), limits)
		if err == nil {
			err = s.permitNewForwarding(r, asked, found.Settings)
		}
		if err != nil {
			return err
		}
		if found, err = s.namespace(r).UpdateEntity(r.Context(), kind, name, settings); err != nil {
			return withEntityName(name, err)
		}
		s.writeJSON(w, r, http.StatusOK, api.Describe(found, nil))
		return nil
	}
}

// remove is DELETE /v1/queues/{name} and the like. It deletes the messages, too, and with a topic its subscriptions.
func (s *controlAPI) remove(kind fsm.EntityKind) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		name, err := input.Name(kind, r)
		if err != nil {
			return err
		}
		if err := s.namespace(r).DeleteEntity(r.Context(), kind, name); err != nil {
			return withEntityName(name, err)
		}
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
}

// purge is POST /v1/purge/{queue or subscription}: it removes ready messages, oldest first. A count of 0
// means that no more are left, a count below max does not: expired messages are not counted.
func (s *controlAPI) purge(w http.ResponseWriter, r *http.Request) error {
	name, err := input.MessageEntityName(r)
	if err != nil {
		return err
	}
	asked := api.PurgeRequest{Max: purgeMessagesMax}
	if err := input.Decode(r, &asked, "subQueue, before and max"); err != nil {
		return err
	}
	sub, err := inspect.SubQueue(asked.SubQueue)
	if err != nil {
		return err
	}
	if asked.Max < 1 || asked.Max > purgeMessagesMax {
		return fmt.Errorf("%w: max is 1 to %d, not %d", fsm.InvalidArgument, purgeMessagesMax, asked.Max)
	}
	var before time.Time
	if asked.Before != nil {
		before = *asked.Before
	}
	count, err := s.namespace(r).PurgeEntity(r.Context(), name, sub, before, asked.Max)
	if err != nil {
		return withEntityName(name, err)
	}
	s.writeJSON(w, r, http.StatusOK, api.Affected{Count: count})
	return nil
}

// withEntityName gives the two errors about existence the texts that official clients match.
func withEntityName(name string, err error) error {
	switch {
	case errors.Is(err, fsm.EntityNotFound):
		return fmt.Errorf("%w: The messaging entity '%s' could not be found.", fsm.EntityNotFound, name) //nolint:staticcheck,revive // a sentence that clients match
	case errors.Is(err, fsm.EntityExists):
		return fmt.Errorf("%w: '%s'", fsm.EntityExists, name)
	}
	return err
}

// withNewEntityName is withEntityName for an entity that is being created: when the topic of a subscription does not
// exist, the error names the topic.
func withNewEntityName(kind fsm.EntityKind, name string, err error) error {
	if topic, _, ok := fsm.SplitSubscriptionPath(name); ok && kind == fsm.SubscriptionEntity && errors.Is(err, fsm.EntityNotFound) {
		name = topic
	}
	return withEntityName(name, err)
}
