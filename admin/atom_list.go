package admin

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/peeklock/peeklock/admin/atom"
	"github.com/peeklock/peeklock/admin/entity"
	"github.com/peeklock/peeklock/admin/input"
	"github.com/peeklock/peeklock/fsm"
)

// Limits of a page. Go and .NET take a page that is shorter than they asked for as the last one, so no page is cut: a page
// that would be too large is refused.
const (
	atomPageNormal   = 100
	atomPageMax      = 1000
	atomSkipMax      = 1 << 24         // entries
	atomFeedBytesMax = 8 * 1024 * 1024 // 1000 queues of 8 KiB; only long rules and access rules can exceed it
	atomFilteredMax  = 100_000         // entities that a request with $filter reads
)

// readPage parses $skip and $top, and of a list of entities $filter. Another parameter that begins with $ is refused,
// because it would look as if it had an effect; all others (enrich) are ignored.
func readPage(r *http.Request, isFiltered bool) (atom.Page, error) {
	p := atom.Page{Top: atomPageNormal}
	position := 1
	for part := range strings.SplitSeq(r.URL.RawQuery, "&") {
		at := position
		position += len(part) + 1
		rawKey, rawValue, _ := strings.Cut(part, "=")
		key, err := url.QueryUnescape(rawKey)
		if err != nil {
			continue
		}
		value, err := url.QueryUnescape(rawValue)
		switch name := strings.TrimLeft(strings.ToLower(key), "?"); { // Go writes a stray ? before the first one
		case !strings.HasPrefix(name, "$"):
			continue
		case err != nil:
			err = fmt.Errorf("%w: query, position %d: %w", fsm.InvalidArgument, at, err)
		case name == "$skip":
			p.Skip, err = input.NumberIn(name, value, 0, 0, atomSkipMax)
		case name == "$top":
			p.Top, err = input.NumberIn(name, value, atomPageNormal, 1, atomPageMax)
		case name == "$filter" && isFiltered:
			p.Filter, err = atom.ParseFilter(value)
		default:
			err = fmt.Errorf("%w: query, position %d: the list has no parameter %.40q", fsm.InvalidArgument, at, key)
		}
		if err != nil {
			return p, err
		}
	}
	return p, nil
}

// atomListEntities is GET /$Resources/Queues, /$Resources/Topics and /{topic}/Subscriptions,
// always with counts:
// clients list runtime properties by the same request.
func (s *serviceAPI) atomListEntities(w http.ResponseWriter, r *http.Request, t atom.Target) error {
	page, err := readPage(r, true)
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
	entities, counts, err := s.entitiesOf(r, t, page)
	if err != nil {
		return withEntityName(t.Name, err)
	}
	more := len(entities) > page.Top
	entities = entities[:min(page.Top, len(entities))]
	o, err := s.entityOrigin(r, entities...)
	if err != nil {
		return err
	}
	x := atom.NewFeed(o, path, title, page, more)
	for i := range entities {
		x.AddEntity(entities[i], counts[i])
		if x.Len() > atomFeedBytesMax {
			break // refused below
		}
	}
	return s.replyFeed(w, x)
}

// entitiesOf lists the entities of a page, and the one behind it if there is one, with the counts of the page.
func (s *serviceAPI) entitiesOf(r *http.Request, t atom.Target, page atom.Page) ([]fsm.Entity, []fsm.Counts, error) {
	var found []fsm.Entity
	var counts []fsm.Counts
	after, skip, most := "", page.Skip, page.Top+1
	for read := 0; len(found) < most; {
		limit := min(skip+most-len(found), pageEntitiesMax)
		if page.Filter != nil {
			limit = pageEntitiesMax
		}
		if err := chargePage(r, limit); err != nil {
			return nil, nil, err
		}
		list, err := s.namespace(r).Entities(r.Context(), t.Kind, t.Name, after, limit)
		if err != nil {
			return nil, nil, err
		}
		isLast := len(list) < limit
		if !isLast {
			after = list[limit-1].Name
		}
		read += len(list)
		if page.Filter != nil && read > atomFilteredMax {
			return nil, nil, fmt.Errorf("%w: a list with $filter reads at most %d entities, and more precede the end of the page: list without $filter", fsm.QuotaExceeded, atomFilteredMax)
		}
		list, known, err := s.filterEntities(r, list, page.Filter)
		if err != nil {
			return nil, nil, err
		}
		passed := min(skip, len(list))
		skip -= passed
		found = append(found, list[passed:]...)
		if known != nil {
			counts = append(counts, known[passed:]...)
		}
		if isLast {
			break
		}
	}
	found = found[:min(most, len(found))]
	if shown := found[:min(page.Top, len(found))]; len(counts) == 0 && len(shown) > 0 {
		var err error
		if counts, err = s.namespace(r).Counts(r.Context(), shown); err != nil {
			return nil, nil, err
		}
	}
	return found, counts, nil
}

// filterEntities returns the entities that a filter selects, and their counts where the filter reads them.
func (s *serviceAPI) filterEntities(r *http.Request, list []fsm.Entity, f *atom.Filter) ([]fsm.Entity, []fsm.Counts, error) {
	if f == nil || len(list) == 0 {
		return list, nil, nil
	}
	if !f.NeedsCounts() {
		return slices.DeleteFunc(list, func(e fsm.Entity) bool { return !f.Matches(e, fsm.Counts{}) }), nil, nil
	}
	all, err := s.namespace(r).Counts(r.Context(), list)
	if err != nil {
		return nil, nil, err
	}
	var selected []fsm.Entity
	var counts []fsm.Counts
	for i := range list {
		if f.Matches(list[i], all[i]) {
			selected, counts = append(selected, list[i]), append(counts, all[i])
		}
	}
	return selected, counts, nil
}

// atomListRules is GET /{topic}/Subscriptions/{name}/Rules.
func (s *serviceAPI) atomListRules(w http.ResponseWriter, r *http.Request, t atom.Target) error {
	page, err := readPage(r, false)
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
		if err := chargePage(r, limit); err != nil {
			return err
		}
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
