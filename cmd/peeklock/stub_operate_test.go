package main

import (
	"encoding/json"
	"net/http"
	"sync"

	"github.com/peeklock/peeklock/admin/api"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/topology"
)

// operateStub answers requests for members and partitions as a member does: long operations complete at the second
// request.
type operateStub struct {
	mu    sync.Mutex
	asked map[string]int
	moves []topology.Move
}

func (s *operateStub) routes(mux *http.ServeMux) {
	s.asked = map[string]int{}
	for pattern, serve := range map[string]http.HandlerFunc{
		"GET /v1/members": s.members, "PATCH /v1/members/{name}": s.set, "POST /v1/members/{name}/{verb}": s.change,
		"POST /v1/partitions": s.grow, "POST /v1/partitions/{name}/{verb}": s.partition,
		"GET /v1/moves": s.listMoves, "GET /v1/rebalance": s.plan, "POST /v1/rebalance": s.rebalance,
		"GET /v1/verify/{name}": s.verify, "GET /v1/backup/{name}": s.backup,
	} {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.asked[r.Method+" "+r.URL.Path]++
			serve(w, r)
		})
	}
}

// again reports whether the same request was sent before.
func (s *operateStub) again(r *http.Request) bool { return s.asked[r.Method+" "+r.URL.Path] > 1 }

func (s *operateStub) members(w http.ResponseWriter, _ *http.Request) {
	answer(w, 200, api.Members{Members: []api.Member{
		{Member: topology.Member{ID: "g", Name: "gone", State: "unknown", Drained: true}, Weight: 10, Removed: true},
		{Member: topology.Member{ID: "m1", Name: "one", State: "alive", Leads: 1, Holds: 2}, Zone: "z1", Weight: 20},
		{Member: topology.Member{ID: "m3", Name: "twin", State: "alive"}, Weight: 10},
		{Member: topology.Member{ID: "m4", Name: "twin", State: "alive"}, Weight: 10},
		{Member: topology.Member{ID: "m2", Name: "two", State: "dead", Holds: 2, Drained: true}, Weight: 10},
	}})
}

func (s *operateStub) set(w http.ResponseWriter, r *http.Request) {
	var change api.MemberChange
	if json.NewDecoder(r.Body).Decode(&change) != nil || change.Zone == nil {
		answer(w, 400, api.Problem{Code: "InvalidArgument", Message: "weight: 1 to 100", TrackingID: "t"})
		return
	}
	answer(w, 200, api.Member{Member: topology.Member{Name: r.PathValue("name")}, Zone: *change.Zone})
}

func (s *operateStub) change(w http.ResponseWriter, r *http.Request) {
	switch name := r.PathValue("name"); {
	case name == "none":
		answer(w, 404, api.Problem{Code: "EntityNotFound", Message: `no member is called "none"`, TrackingID: "t"})
	case s.again(r):
		w.WriteHeader(204)
	case name == "two":
		answer(w, 503, api.Problem{Code: "ServerBusy", Message: "no leader", TrackingID: "t"})
	default:
		answer(w, 504, api.Problem{Code: "Timeout", Message: "partitions [1 2] are still to be moved", TrackingID: "t"})
	}
}

func (s *operateStub) grow(w http.ResponseWriter, r *http.Request) {
	var asked api.GrowRequest
	_ = json.NewDecoder(r.Body).Decode(&asked)
	answer(w, 200, api.GrowResult{Partitions: 1 + asked.Add})
}

// partition returns a paused move for partition 7, and for others a move that ends after two requests.
func (s *operateStub) partition(w http.ResponseWriter, r *http.Request) {
	if r.PathValue("verb") == "move" {
		state, id := "catching up", fsm.PartitionID(1)
		if r.PathValue("name") == "7" {
			state, id = "paused", 7
		}
		s.moves = []topology.Move{{Partition: id, From: []fsm.MemberID{"m1"}, To: []fsm.MemberID{"m2", "g"}, State: state, Copied: 512 << 10, Bytes: 2 << 20}}
		s.asked["GET /v1/moves"] = 0
	}
	w.WriteHeader(204)
}

func (s *operateStub) listMoves(w http.ResponseWriter, r *http.Request) {
	answer(w, 200, api.Moves{Moves: append([]topology.Move{}, s.moves...)})
	if len(s.moves) > 0 && s.moves[0].State != "paused" && s.asked["GET /v1/moves"] >= 2 {
		s.moves = nil
	}
}

func (s *operateStub) plan(w http.ResponseWriter, _ *http.Request) {
	answer(w, 200, api.Plan{Moves: []topology.PlannedMove{
		{Partition: 0, From: []fsm.MemberID{"m2", "m1"}, To: []fsm.MemberID{"m1", "m2"}, LeaderOnly: true}, // the stub's leader of 0 is m1
		{Partition: 5, From: []fsm.MemberID{"m1"}, To: []fsm.MemberID{"m2"}, Bytes: 3 << 30},
	}})
}

func (s *operateStub) rebalance(w http.ResponseWriter, r *http.Request) {
	var asked api.Plan
	if json.NewDecoder(r.Body).Decode(&asked) != nil || len(asked.Moves) != 2 {
		answer(w, 400, api.Problem{Code: "InvalidArgument", Message: "not what was planned", TrackingID: "t"})
		return
	}
	answer(w, 202, asked)
}

func (s *operateStub) verify(w http.ResponseWriter, r *http.Request) {
	if r.PathValue("name") == "0" {
		answer(w, 200, topology.Verification{Index: 40, Equal: true, Replicas: []topology.VerifiedReplica{{Member: "m1", Digest: "aa"}, {Member: "m2", Digest: "aa"}}})
		return
	}
	answer(w, 200, topology.Verification{Partition: 1, Index: 41, Replicas: []topology.VerifiedReplica{{Member: "m1", Digest: "aa"}, {Member: "m2", Error: "no stream"}}})
}

func (s *operateStub) backup(w http.ResponseWriter, _ *http.Request) {
	_, _ = w.Write([]byte("PKBK, but no more"))
}
