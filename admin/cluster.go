package admin

import (
	"cmp"
	"net/http"
	"slices"

	"github.com/peeklock/peeklock/admin/api"
	"github.com/peeklock/peeklock/admin/condition"
	"github.com/peeklock/peeklock/admin/input"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/topology"
)

// status is GET /v1/status: the state of the cluster as this member sees it.
func (s *operatorAPI) status(w http.ResponseWriter, r *http.Request) error {
	st, err := s.config.Control.Status(r.Context())
	if err != nil {
		return err
	}
	s.writeJSON(w, r, http.StatusOK, st)
	return nil
}

// conditions is GET /v1/conditions: those of the cluster as this member sees it, and its own.
func (s *operatorAPI) conditions(w http.ResponseWriter, r *http.Request) error {
	st, err := s.config.Control.Status(r.Context())
	if err != nil {
		return err
	}
	found := append(condition.Findings{}, condition.OfStatus(st)...)
	if s.config.Examine != nil {
		found = append(found, s.config.Examine()...)
	}
	s.writeJSON(w, r, http.StatusOK, api.Conditions{Conditions: condition.Sort(found)})
	return nil
}

// endpoints is GET /v1/endpoints: the addresses of the members for clients. Any key is sufficient; a caller with a key of
// an entity names the entity with entity=.
func (s *controlAPI) endpoints(w http.ResponseWriter, r *http.Request) error {
	st, err := s.config.Control.Status(r.Context())
	if err != nil {
		return err
	}
	list := api.Endpoints{RequireTLS: s.config.RequireTLS, Members: make([]api.Endpoint, 0, len(st.Members))}
	for _, m := range st.Members {
		if m.AMQP == "" && m.HTTP == "" {
			continue // gossip has not seen it since this member started
		}
		list.Members = append(list.Members, api.Endpoint{Name: m.Name, State: m.State, AMQP: m.AMQP, HTTP: m.HTTP})
	}
	alive := func(e api.Endpoint) int {
		if e.State == topology.Alive {
			return 0
		}
		return 1
	}
	slices.SortFunc(list.Members, func(a, b api.Endpoint) int {
		return cmp.Or(cmp.Compare(alive(a), alive(b)), cmp.Compare(a.Name, b.Name))
	})
	s.writeJSON(w, r, http.StatusOK, list)
	return nil
}

// connectionsNormal is how many connections a page has without a wish.
const connectionsNormal = 100

// connectionNamespace returns the namespace whose connections a request is about: that of the request, or 0, all, for an
// operator who names none.
func connectionNamespace(r *http.Request) fsm.NamespaceID {
	if v := contextOf(r); !v.operator || v.namesNamespace {
		return v.namespace
	}
	return 0
}

// listConnections is GET /v1/connections?after=&max=: the AMQP connections of all members.
func (s *controlAPI) listConnections(w http.ResponseWriter, r *http.Request) error {
	most, err := input.Number(r, "max", connectionsNormal, 1, topology.ConnectionsMax)
	if err != nil {
		return err
	}
	page, err := s.config.Control.Connections(r.Context(), connectionNamespace(r), r.URL.Query().Get("after"), most)
	if err != nil {
		return err
	}
	for i := range page.Connections {
		c := &page.Connections[i]
		c.Namespace = s.config.Control.NamespaceName(c.NamespaceID)
	}
	s.writeJSON(w, r, http.StatusOK, page)
	return nil
}

// closeConnection is DELETE /v1/connections/{id}: its client is told to connect again.
func (s *controlAPI) closeConnection(w http.ResponseWriter, r *http.Request) error {
	if err := s.config.Control.CloseConnection(r.Context(), connectionNamespace(r), r.PathValue("name")); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// ratesNormal and ratesMax are the numbers of entities of one answer.
const (
	ratesNormal = 100
	ratesMax    = 1000
)

// listRates is GET /v1/rates?max=&total=true: the current rates of the busiest entities of the namespace, busiest first. The total has
// the samples of the last hour.
func (s *controlAPI) listRates(w http.ResponseWriter, r *http.Request) error {
	limit, err := input.Number(r, "max", ratesNormal, 1, ratesMax)
	if err != nil {
		return err
	}
	withTotal, err := input.Bool(r, "total")
	if err != nil {
		return err
	}
	answer := ratesOf(s.config.Control.Rates(r.Context(), topology.RatesQuery{Namespace: contextOf(r).namespace, Total: withTotal}), limit)
	s.writeJSON(w, r, http.StatusOK, answer)
	return nil
}

// showRates is GET /v1/rates/{name}: the rates of one entity, with the samples of the last hour. An entity without messages in that hour
// has no samples.
func (s *controlAPI) showRates(w http.ResponseWriter, r *http.Request) error {
	name, err := input.MessageEntityName(r)
	if err != nil {
		return err
	}
	list := s.config.Control.Rates(r.Context(), topology.RatesQuery{Namespace: contextOf(r).namespace, Name: name})
	s.writeJSON(w, r, http.StatusOK, api.Rates{Entities: append([]topology.EntityRates{}, list...), EverySeconds: topology.RatesEvery})
	return nil
}
