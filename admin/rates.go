package admin

import (
	"cmp"
	"net/http"
	"slices"

	"github.com/peeklock/peeklock/admin/api"
	"github.com/peeklock/peeklock/topology"
)

// ratesNormal and ratesMax are the numbers of entities of one answer.
const (
	ratesNormal = 100
	ratesMax    = 1000
)

// listRates is GET /v1/rates?max=&total=true: the current rates of the busiest entities of the namespace, busiest first. The total has
// the samples of the last hour.
func (s *controlAPI) listRates(w http.ResponseWriter, r *http.Request) error {
	limit, err := numberParameter(r, "max", ratesNormal, 1, ratesMax)
	if err != nil {
		return err
	}
	withTotal, err := boolParameter(r, "total")
	if err != nil {
		return err
	}
	answer := api.Rates{EverySeconds: topology.RatesEvery}
	list := s.config.Control.Rates(r.Context(), topology.RatesQuery{Namespace: contextOf(r).namespace, Total: withTotal})
	if withTotal && len(list) > 0 && list[0].Name == "" {
		answer.Total, list = &list[0], list[1:]
	}
	busy := func(e *topology.EntityRates) float64 { return e.Incoming + e.Outgoing }
	slices.SortStableFunc(list, func(a, b topology.EntityRates) int { return cmp.Compare(busy(&b), busy(&a)) })
	answer.Entities = append([]topology.EntityRates{}, list[:min(limit, len(list))]...)
	s.writeJSON(w, r, http.StatusOK, answer)
	return nil
}

// showRates is GET /v1/rates/{name}: the rates of one entity, with the samples of the last hour. An entity without messages in that hour
// has no samples.
func (s *controlAPI) showRates(w http.ResponseWriter, r *http.Request) error {
	name, err := messageEntityName(r)
	if err != nil {
		return err
	}
	list := s.config.Control.Rates(r.Context(), topology.RatesQuery{Namespace: contextOf(r).namespace, Name: name})
	s.writeJSON(w, r, http.StatusOK, api.Rates{Entities: append([]topology.EntityRates{}, list...), EverySeconds: topology.RatesEvery})
	return nil
}
