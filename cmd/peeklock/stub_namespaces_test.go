package main

import (
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/peeklock/peeklock/admin/api"
	"github.com/peeklock/peeklock/admin/entity"
)

// namespaceStub answers requests for namespaces and keys as a member does, and has a stub for the entities of each
// namespace.
type namespaceStub struct {
	mu     sync.Mutex
	spaces map[string]api.Namespace
	inside map[string]http.Handler
	keys   map[string][]api.AccessRule // by namespace and path
}

func newNamespaceStub() http.Handler {
	s := &namespaceStub{spaces: map[string]api.Namespace{"default": {Name: "default"}}, inside: map[string]http.Handler{"default": newStub()}, keys: map[string][]api.AccessRule{}}
	mux := http.NewServeMux()
	for pattern, serve := range map[string]func(w http.ResponseWriter, r *http.Request, name string){
		"GET /v1/namespaces": s.list, "GET /v1/namespaces/{name}": s.show, "PUT /v1/namespaces/{name}": s.put, "PATCH /v1/namespaces/{name}": s.put,
		"DELETE /v1/namespaces/{name}": s.delete,
		"GET /v1/access":               s.getKeys, "GET /v1/access/{name...}": s.getKeys,
		"PUT /v1/access": s.putKey, "PUT /v1/access/{name...}": s.putKey,
		"DELETE /v1/access": s.deleteKey, "DELETE /v1/access/{name...}": s.deleteKey,
		"POST /v1/regenerate": s.regenerate, "POST /v1/regenerate/{name...}": s.regenerate,
		"/": s.enter,
	} {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			s.mu.Lock()
			defer s.mu.Unlock()
			if space := r.URL.Query().Get("namespace"); space != "" && s.inside[space] == nil {
				answer(w, 404, api.Problem{Code: "EntityNotFound", Message: "there is no namespace '" + space + "'", TrackingID: "t"})
				return
			}
			serve(w, r, r.PathValue("name"))
		})
	}
	return mux
}

func (s *namespaceStub) enter(w http.ResponseWriter, r *http.Request, _ string) {
	space := r.URL.Query().Get("namespace")
	if space == "" {
		space = "default"
	}
	s.inside[space].ServeHTTP(w, r)
}

// list returns one namespace per page for requests that read all pages.
func (s *namespaceStub) list(w http.ResponseWriter, r *http.Request, _ string) {
	page := api.NamespacePage{Namespaces: []api.Namespace{}}
	for _, name := range slices.Sorted(maps.Keys(s.spaces)) {
		if name > r.URL.Query().Get("after") {
			page.Namespaces = append(page.Namespaces, s.spaces[name])
			if walks(r) {
				page.Next = name
				break
			}
		}
	}
	answer(w, 200, page)
}

func (s *namespaceStub) show(w http.ResponseWriter, _ *http.Request, name string) {
	n, ok := s.spaces[name]
	if !ok {
		missing(w, "Entity")
		return
	}
	answer(w, 200, n)
}

// put returns what was sent to it.
func (s *namespaceStub) put(w http.ResponseWriter, r *http.Request, name string) {
	n := api.Namespace{Name: name, Version: 1}
	var asked api.NamespaceRequest
	if err := json.NewDecoder(r.Body).Decode(&asked); err != nil {
		answer(w, 400, api.Problem{Code: "InvalidArgument", Message: err.Error(), TrackingID: "t"})
		return
	}
	n.NamespaceSettings = asked.NamespaceSettings
	s.spaces[name] = n
	if s.inside[name] == nil {
		s.inside[name] = newStub()
		n.AccessRules = []api.AccessRule{{Name: "root", PrimaryKey: "k", PrimaryConnectionString: "Endpoint=sb://" + name + ".localhost;SharedAccessKeyName=root;SharedAccessKey=k"}}
	}
	answer(w, 200, n)
}

func (s *namespaceStub) delete(w http.ResponseWriter, _ *http.Request, name string) {
	delete(s.spaces, name)
	delete(s.inside, name)
	w.WriteHeader(204)
}

func keysOf(r *http.Request, name string) string {
	return r.URL.Query().Get("namespace") + "/" + name
}

func (s *namespaceStub) getKeys(w http.ResponseWriter, r *http.Request, name string) {
	if !r.URL.Query().Has("rule") {
		answer(w, 200, api.AccessPage{Rules: s.keys[keysOf(r, name)]})
		return
	}
	for _, k := range s.keys[keysOf(r, name)] {
		if k.Name == r.URL.Query().Get("rule") {
			answer(w, 200, k)
			return
		}
	}
	missing(w, "Rule")
}

func (s *namespaceStub) putKey(w http.ResponseWriter, r *http.Request, name string) {
	var asked entity.AccessRuleRequest
	if err := json.NewDecoder(r.Body).Decode(&asked); err != nil {
		answer(w, 400, api.Problem{Code: "InvalidArgument", Message: err.Error(), TrackingID: "t"})
		return
	}
	key := api.AccessRule{Name: r.URL.Query().Get("rule"), Rights: asked.Rights, PrimaryKey: "drawn-1", SecondaryKey: "drawn-2"}
	if asked.PrimaryKey != "" {
		key.PrimaryKey = asked.PrimaryKey
	}
	at := slices.IndexFunc(s.keys[keysOf(r, name)], func(k api.AccessRule) bool { return k.Name == key.Name })
	switch replace := r.URL.Query().Get("replace") == "true"; {
	case replace && at < 0:
		missing(w, "Rule")
		return
	case replace:
		s.keys[keysOf(r, name)][at] = key
	default:
		s.keys[keysOf(r, name)] = append(s.keys[keysOf(r, name)], key)
	}
	key.PrimaryConnectionString = "Endpoint=sb://here/;SharedAccessKeyName=" + key.Name + ";SharedAccessKey=" + key.PrimaryKey + strings.TrimSuffix(";EntityPath="+name, ";EntityPath=")
	answer(w, 201, key)
}

func (s *namespaceStub) deleteKey(w http.ResponseWriter, r *http.Request, name string) {
	before := len(s.keys[keysOf(r, name)])
	s.keys[keysOf(r, name)] = slices.DeleteFunc(s.keys[keysOf(r, name)], func(k api.AccessRule) bool { return k.Name == r.URL.Query().Get("rule") })
	if len(s.keys[keysOf(r, name)]) == before {
		missing(w, "Rule")
		return
	}
	w.WriteHeader(204)
}

func (s *namespaceStub) regenerate(w http.ResponseWriter, r *http.Request, name string) {
	var asked api.RegenerateRequest
	if err := json.NewDecoder(r.Body).Decode(&asked); err != nil {
		answer(w, 400, api.Problem{Code: "InvalidArgument", Message: err.Error(), TrackingID: "t"})
		return
	}
	for i := range s.keys[keysOf(r, name)] {
		k := &s.keys[keysOf(r, name)][i]
		if k.Name != asked.Rule {
			continue
		}
		if asked.Which == api.KeyPrimary {
			k.PrimaryKey = "new-1"
		} else {
			k.SecondaryKey = "new-2"
		}
		answer(w, 200, k)
		return
	}
	missing(w, "Rule")
}
