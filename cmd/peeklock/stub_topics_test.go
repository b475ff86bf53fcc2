package main

import (
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/peeklock/peeklock/admin/api"
	"github.com/peeklock/peeklock/admin/entity"
)

// topicStub answers requests for topics, subscriptions and rules as a member does.
type topicStub struct {
	mu            sync.Mutex
	topics        map[string]api.Topic
	subscriptions map[string]api.Subscription
	rules         map[string][]entity.Rule
}

func (s *topicStub) routes(mux *http.ServeMux) {
	s.topics, s.subscriptions, s.rules = map[string]api.Topic{}, map[string]api.Subscription{}, map[string][]entity.Rule{}
	for pattern, serve := range map[string]func(w http.ResponseWriter, r *http.Request, name string){
		"GET /v1/topics": s.listTopics, "GET /v1/topics/{name...}": s.showTopic,
		"PUT /v1/topics/{name...}": s.putTopic, "PATCH /v1/topics/{name...}": s.putTopic, "DELETE /v1/topics/{name...}": s.delete,
		"GET /v1/subscriptions": s.listSubscriptions, "GET /v1/subscriptions/{name...}": s.showSubscription,
		"PUT /v1/subscriptions/{name...}": s.putSubscription, "PATCH /v1/subscriptions/{name...}": s.putSubscription,
		"DELETE /v1/subscriptions/{name...}": s.delete,
		"GET /v1/rules/{name...}":            s.getRules, "PUT /v1/rules/{name...}": s.putRule, "DELETE /v1/rules/{name...}": s.deleteRule,
	} {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			s.mu.Lock()
			defer s.mu.Unlock()
			serve(w, r, r.PathValue("name"))
		})
	}
}

func missing(w http.ResponseWriter, what string) {
	answer(w, 404, api.Problem{Code: what + "NotFound", Message: strings.ToLower(what) + " not found", TrackingID: "t"})
}

// putTopic returns what was sent to it.
func (s *topicStub) putTopic(w http.ResponseWriter, r *http.Request, name string) {
	t := api.Topic{Name: name, Partition: 3, Version: 1}
	_ = json.NewDecoder(r.Body).Decode(&t.Settings)
	s.topics[name] = t
	answer(w, 200, t)
}

func (s *topicStub) showTopic(w http.ResponseWriter, _ *http.Request, name string) {
	t, ok := s.topics[name]
	if !ok {
		missing(w, "Entity")
		return
	}
	t.Counts = &api.TopicCounts{Subscriptions: uint64(len(s.subscriptions)), Bytes: 2048}
	answer(w, 200, t)
}

func (s *topicStub) delete(w http.ResponseWriter, _ *http.Request, name string) {
	delete(s.topics, name)
	delete(s.subscriptions, name)
	w.WriteHeader(204)
}

// walks reports whether the client reads all pages. Each page then has one entry, which tests the paging.
func walks(r *http.Request) bool { return r.URL.Query().Get("max") == "1000" }

func (s *topicStub) listTopics(w http.ResponseWriter, r *http.Request, _ string) {
	page := api.TopicPage{}
	for _, name := range slices.Sorted(maps.Keys(s.topics)) {
		if name > r.URL.Query().Get("after") {
			page.Topics = append(page.Topics, s.topics[name])
			if walks(r) {
				page.Next = name
				break
			}
		}
	}
	answer(w, 200, page)
}

func (s *topicStub) putSubscription(w http.ResponseWriter, r *http.Request, name string) {
	sub := api.Subscription{Name: name, Partition: 3, Version: 1}
	var asked api.SubscriptionRequest
	if err := json.NewDecoder(r.Body).Decode(&asked); err != nil {
		answer(w, 400, api.Problem{Code: "InvalidArgument", Message: err.Error(), TrackingID: "t"})
		return
	}
	sub.Settings = asked.Settings
	s.subscriptions[name] = sub
	if asked.DefaultRule != nil {
		asked.DefaultRule.Name = "$Default"
		s.rules[name] = []entity.Rule{*asked.DefaultRule}
	}
	answer(w, 200, sub)
}

func (s *topicStub) showSubscription(w http.ResponseWriter, _ *http.Request, name string) {
	sub, ok := s.subscriptions[name]
	if !ok {
		missing(w, "Entity")
		return
	}
	sub.Counts = &api.Counts{Active: 3, Transfer: 2, TransferDeadLetter: 1}
	answer(w, 200, sub)
}

func (s *topicStub) listSubscriptions(w http.ResponseWriter, r *http.Request, _ string) {
	page := api.SubscriptionPage{}
	for _, name := range slices.Sorted(maps.Keys(s.subscriptions)) {
		if strings.HasPrefix(name, r.URL.Query().Get("topic")+"/") && name > r.URL.Query().Get("after") {
			page.Subscriptions = append(page.Subscriptions, s.subscriptions[name])
			if walks(r) {
				page.Next = name
				break
			}
		}
	}
	answer(w, 200, page)
}

func (s *topicStub) getRules(w http.ResponseWriter, r *http.Request, name string) {
	query := r.URL.Query()
	skip, _ := strconv.Atoi(query.Get("skip"))
	page := api.RulePage{}
	for i, rule := range s.rules[name] {
		switch {
		case rule.Name == query.Get("name"):
			answer(w, 200, rule)
			return
		case i == skip:
			page.Rules, page.Next = []entity.Rule{rule}, skip+1
		}
	}
	if query.Has("name") {
		missing(w, "Rule")
		return
	}
	answer(w, 200, page)
}

func (s *topicStub) putRule(w http.ResponseWriter, r *http.Request, name string) {
	rule := entity.Rule{}
	if err := json.NewDecoder(r.Body).Decode(&rule); err != nil {
		answer(w, 400, api.Problem{Code: "InvalidArgument", Message: err.Error(), TrackingID: "t"})
		return
	}
	rule.Name = r.URL.Query().Get("name")
	at := slices.IndexFunc(s.rules[name], func(r entity.Rule) bool { return r.Name == rule.Name })
	switch replace := r.URL.Query().Get("replace") == "true"; {
	case replace && at < 0:
		missing(w, "Rule")
		return
	case replace:
		s.rules[name][at] = rule
	default:
		s.rules[name] = append(s.rules[name], rule)
	}
	answer(w, 201, rule)
}

func (s *topicStub) deleteRule(w http.ResponseWriter, r *http.Request, name string) {
	before := len(s.rules[name])
	s.rules[name] = slices.DeleteFunc(s.rules[name], func(rule entity.Rule) bool { return rule.Name == r.URL.Query().Get("name") })
	if len(s.rules[name]) == before {
		missing(w, "Rule")
		return
	}
	w.WriteHeader(204)
}
