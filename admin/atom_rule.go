package admin

import (
	"net/http"

	"github.com/peeklock/peeklock/admin/atom"
	"github.com/peeklock/peeklock/admin/entity"
	"github.com/peeklock/peeklock/fsm"
)

// atomGetRule is GET /{topic}/Subscriptions/{name}/Rules/{rule}.
func (s *serviceAPI) atomGetRule(w http.ResponseWriter, r *http.Request, t atom.Target) error {
	return s.replyRule(w, r, http.StatusOK, t)
}

// replyRule answers with a rule as the state machine stores it.
func (s *serviceAPI) replyRule(w http.ResponseWriter, r *http.Request, status int, t atom.Target) error {
	if err := entity.CheckName(fsm.SubscriptionEntity, t.Name); err != nil {
		return err
	}
	subscription, _, err := s.namespace(r).Entity(r.Context(), fsm.SubscriptionEntity, t.Name)
	if err != nil {
		return withEntityName(t.Name, err)
	}
	rule, err := s.findRule(r, t.Name, t.Rule)
	if err != nil {
		return err
	}
	writeDocument(w, status, atom.EntryType, atom.RuleDocument(atomOrigin(r), subscription, &rule))
	return nil
}

// atomPutRule is PUT .../Rules/{rule}, which adds a rule, and with If-Match replaces it. The Go
// client omits the name of the default rule in the path.
func (s *serviceAPI) atomPutRule(w http.ResponseWriter, r *http.Request, t atom.Target) error {
	if err := entity.CheckName(fsm.SubscriptionEntity, t.Name); err != nil {
		return err
	}
	description, err := atom.ReadDescription(r.Body)
	if err != nil {
		return err
	}
	rule, err := description.Rule(t.Rule)
	if err != nil {
		return err
	}
	t.Rule, contextOf(r).rule = rule.Name, rule.Name
	replace := r.Header.Get("If-Match") != ""
	if err := s.namespace(r).PutRule(r.Context(), t.Name, rule, replace); err != nil {
		return withRuleName(t.Name, rule.Name, err)
	}
	if replace {
		return s.replyRule(w, r, http.StatusOK, t)
	}
	return s.replyRule(w, r, http.StatusCreated, t)
}

// atomDeleteRule is DELETE .../Rules/{rule}.
func (s *serviceAPI) atomDeleteRule(w http.ResponseWriter, r *http.Request, t atom.Target) error {
	if err := entity.CheckName(fsm.SubscriptionEntity, t.Name); err != nil {
		return err
	}
	if err := s.namespace(r).DropRule(r.Context(), t.Name, t.Rule); err != nil {
		return withRuleName(t.Name, t.Rule, err)
	}
	w.WriteHeader(http.StatusOK)
	return nil
}
