package admin

import (
	"fmt"
	"net/http"

	"github.com/peeklock/peeklock/admin/atom"
	"github.com/peeklock/peeklock/admin/entity"
	"github.com/peeklock/peeklock/fsm"
)

// Limits of a page. Go and .NET take a page that is shorter than they asked for as the last one, so no page is cut: a page
// that would be too large is refused.
const (
	atomPageNormal   = 100
	atomPageMax      = 1000
	atomSkipMax      = 1 << 24         // entries
	atomFeedBytesMax = 8 * 1024 * 1024 // 1000 queues of 8 KiB; only long rules and access rules can exceed it
)

// readPage parses $skip and $top; it ignores other parameters (enrich).
func readPage(r *http.Request) (atom.Page, error) {
	var p atom.Page
	var err error
	if p.Skip, err = numberParameter(r, "$skip", 0, 0, atomSkipMax); err == nil {
		p.Top, err = numberParameter(r, "$top", atomPageNormal, 1, atomPageMax)
	}
	return p, err
}

// atomListEntities is GET /$Resources/Queues, /$Resources/Topics and /{topic}/Subscriptions,
// always with counts:
// clients list runtime properties by the same request.
func (s *serviceAPI) atomListEntities(w http.ResponseWriter, r *http.Request, t atom.Target) error {
	page, err := readPage(r)
	if err != nil {
		return err
	}
	path, title := atom.ResourcesWord+"/Queues", "Queues"
	switch t.Kind {
	case fsm.QueueEntity:
	case fsm.TopicEntity:
		path, title = atom.ResourcesWord+"/Topics", "Topics"
	case fsm.SubscriptionEntity:
		if err := entity.CheckName(fsm.TopicEntity, t.Name); err != nil {
			return err
		}
		topic, _, err := s.namespace(r).Entity(r.Context(), fsm.TopicEntity, t.Name)
		if err != nil {
			return withEntityName(t.Name, err)
		}
		t.Name = topic.Name
		path, title = topic.Name+"/Subscriptions", "Subscriptions"
	}
	entities, err := s.entitiesFrom(r, t, page.Skip, page.Top+1)
	if err != nil {
		return withEntityName(t.Name, err)
	}
	more := len(entities) > page.Top
	entities = entities[:min(page.Top, len(entities))]
	var counts []fsm.Counts
	if len(entities) > 0 {
		if counts, err = s.namespace(r).Counts(r.Context(), entities); err != nil {
			return err
		}
	}
	o, err := s.entityOrigin(r, entities...)
	if err != nil {
		return err
	}
	x := atom.NewFeed(o, path, title, page, more)
	for i := range entities {
		x.AddEntity(entities[i], counts[i])
	}
	return s.replyFeed(w, x)
}

// entitiesFrom lists entities after the first skip ones. The cluster lists by name, so the skipped ones are read, too, a
// thousand at a time.
func (s *serviceAPI) entitiesFrom(r *http.Request, t atom.Target, skip, most int) ([]fsm.Entity, error) {
	var found []fsm.Entity
	after := ""
	for len(found) < most {
		limit := min(skip+most-len(found), pageEntitiesMax)
		list, err := s.namespace(r).Entities(r.Context(), t.Kind, t.Name, after, limit)
		if err != nil {
			return nil, err
		}
		passed := min(skip, len(list))
		skip -= passed
		found = append(found, list[passed:]...)
		if len(list) < limit {
			break
		}
		after = list[len(list)-1].Name
	}
	return found, nil
}

// atomListRules is GET /{topic}/Subscriptions/{name}/Rules.
func (s *serviceAPI) atomListRules(w http.ResponseWriter, r *http.Request, t atom.Target) error {
	page, err := readPage(r)
	if err == nil {
		err = entity.CheckName(fsm.SubscriptionEntity, t.Name)
	}
	if err != nil {
		return err
	}
	subscription, _, err := s.namespace(r).Entity(r.Context(), fsm.SubscriptionEntity, t.Name)
	if err != nil {
		return withEntityName(t.Name, err)
	}
	var rules []fsm.Rule
	for len(rules) <= page.Top {
		limit := min(page.Top+1-len(rules), pageRulesMax)
		list, err := s.namespace(r).Rules(r.Context(), t.Name, page.Skip+len(rules), limit)
		if err != nil {
			return withEntityName(t.Name, err)
		}
		rules = append(rules, list...)
		if len(list) < limit {
			break
		}
	}
	more := len(rules) > page.Top
	x := atom.NewFeed(atomOrigin(r), subscription.Name+"/"+atom.RulesWord, "Rules", page, more)
	for i := range rules[:min(page.Top, len(rules))] {
		x.AddRule(subscription, &rules[i])
		if x.Len() > atomFeedBytesMax {
			break // refused below
		}
	}
	return s.replyFeed(w, x)
}

func (s *serviceAPI) replyFeed(w http.ResponseWriter, x *atom.Document) error {
	x.Close()
	if x.Len() > atomFeedBytesMax {
		return fmt.Errorf("%w: the list is longer than %d bytes: ask for fewer with $top", fsm.QuotaExceeded, atomFeedBytesMax)
	}
	writeDocument(w, http.StatusOK, atom.FeedType, x)
	return nil
}
