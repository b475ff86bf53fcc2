package admin

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"path"
	"strings"
	"sync"
	"time"

	"github.com/peeklock/peeklock/admin/api"
	"github.com/peeklock/peeklock/admin/entity"
	"github.com/peeklock/peeklock/admin/input"
	"github.com/peeklock/peeklock/admin/inspect"
	"github.com/peeklock/peeklock/admin/openapi"
	"github.com/peeklock/peeklock/admin/operation"
	"github.com/peeklock/peeklock/amqp/jsonmessage"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/topology"
)

// controlAPI serves the control API: entities, messages, rules, access rules and namespaces, and the operations of
// operators.
type controlAPI struct{ *core }

// route is a row of the table of the control API: an operation and the function that serves it.
type route struct {
	operation.Operation
	change string // for the audit log; "": the route changes nothing
	kind   string // of the changed object, for the audit log
	serve  handler
}

// Bounds of answers, in bytes of JSON, in which each byte of a text may take six.
const (
	entityAnswerBytes     = 16 << 10  // of an entity or a namespace
	ruleAnswerBytes       = 192 << 10 // of a rule
	sessionAnswerBytes    = 4 << 10   // of a session
	connectionAnswerBytes = 32 << 10  // of a connection with its links; a page has at most 2 MiB of names
	ratesAnswerBytes      = 4 << 10   // of the rates of an entity without samples
	seriesAnswerBytes     = 512 << 10 // of the samples of an hour
	auditAnswerBytes      = 32 << 10  // of an audit event
	accessAnswerBytes     = 128 << 10 // of the access rules of an entity or a namespace
	stateAnswerBytes      = 512 << 10 // of a session state; those of entities with larger messages are counted when they are known
	ruleTestBytesMax      = 8 << 20   // of a rule test
	statusBytesMax        = 4 << 20   // of what concerns all members and partitions

	descriptionBytesMax = 512 << 10 // of the description of the API
)

// page returns an operation that lists entries: its price and its answer grow with the page, and its price with what is skipped.
func page(o operation.Operation, skip, most operation.Parameter, entryBytes int) operation.Operation {
	o.Work = func(query url.Values) int {
		return most.Of(query)/entriesPerUnit + min(skip.Of(query), skippedMax)/skippedPerUnit
	}
	o.Answers = func(query url.Values) int { return operation.SmallAnswerBytes + most.Of(query)*entryBytes }
	return o
}

// always returns a price or a bound that does not depend on the request.
func always(n int) func(url.Values) int { return func(url.Values) int { return n } }

// routes returns the table of the control API. Names of entities may contain slashes, so they end the path.
func (s *controlAPI) routes() []route {
	all := s.entityRoutes()
	all = append(all, s.messageRoutes()...)
	all = append(all, s.trafficRoutes()...)
	all = append(all, s.accessRoutes()...)
	operator := operatorAPI{s.core, make(chan struct{}, backupsMax)}
	return append(all, operator.routes()...)
}

// entityRoutes returns the routes about entities and rules.
func (s *controlAPI) entityRoutes() []route {
	const rule = "rule"
	skip, after := operation.Number("skip", "rules to skip: next of the page before", 0, 0, math.MaxInt32), operation.Text("after", "next of the page before")
	mostRules := operation.Number("max", "rules of the page", pageRulesNormal, 1, pageRulesMax)
	most := operation.Number("max", "entities of the page", pageEntitiesNormal, 1, pageEntitiesMax)
	replace := operation.Flag("replace", "replace the rule of that name, which must exist")
	routes := []route{
		{page(operation.Operation{
			Name: "getRules", Pattern: "GET /v1/rules/{name...}", Right: operation.ReadEntity, Query: []operation.Parameter{skip, mostRules, operation.Text("name", "show this rule alone, as a rule and not as a page")},
			Answer: api.RulePage{}, One: entity.Rule{}, Summary: "Lists the rules of a subscription in the order of their creation, or shows one.",
		}, skip, mostRules, ruleAnswerBytes), "", "", s.getRules},
		{operation.Operation{
			Name: "putRule", Pattern: "PUT /v1/rules/{name...}", Right: operation.ManageEntity, Query: []operation.Parameter{operation.Needed("name", "of the rule"), replace}, Answers: always(ruleAnswerBytes),
			Body: entity.Rule{}, Answer: entity.Rule{}, Statuses: []int{http.StatusCreated, http.StatusOK}, Summary: "Adds a rule to a subscription, or replaces one.",
		}, "create", rule, s.putRule},
		{operation.Operation{
			Name: "deleteRule", Pattern: "DELETE /v1/rules/{name...}", Right: operation.ManageEntity, Query: []operation.Parameter{operation.Needed("name", "of the rule")},
			Summary: "Deletes a rule of a subscription.",
		}, "delete", rule, s.deleteRule},
		{operation.Operation{
			Name: "testRules", Pattern: "POST /v1/rule-test/{name...}", Right: operation.ManageEntity, Answers: always(ruleTestBytesMax),
			Body: jsonmessage.Message{}, Answer: api.RuleTest{}, Summary: "Tells which subscriptions of a topic would get a message, which is not sent.",
		}, "", "", s.testRules},
	}
	for _, of := range []struct {
		noun, one     string
		kind          fsm.EntityKind
		body          any
		answer, pages any
	}{
		{"queues", "Queue", fsm.QueueEntity, entity.Settings{}, api.Queue{}, api.QueuePage{}},
		{"topics", "Topic", fsm.TopicEntity, entity.Settings{}, api.Topic{}, api.TopicPage{}},
		{"subscriptions", "Subscription", fsm.SubscriptionEntity, api.SubscriptionRequest{}, api.Subscription{}, api.SubscriptionPage{}},
	} {
		all, one, kind := " /v1/"+of.noun, " /v1/"+of.noun+"/{name...}", of.kind.String()
		listing, query, scope := operation.ReadNamespace, []operation.Parameter{after, most, operation.Flag("counts", "with the numbers of their messages"), operation.Flag("available", "leave out the numbers of entities whose partition has no leader, instead of waiting for it")}, "the namespace"
		if of.kind == fsm.SubscriptionEntity {
			listing, query, scope = operation.ReadEntity, append(query, operation.Needed("topic", "of the subscriptions")), "a topic"
		}
		routes = append(routes,
			route{page(operation.Operation{
				Name: "list" + of.one + "s", Pattern: "GET" + all, Right: listing, Query: query, Answer: of.pages,
				Summary: "Lists the " + of.noun + " of " + scope + " by name.",
			}, operation.Parameter{}, most, entityAnswerBytes), "", "", s.list(of.kind)},
			route{operation.Operation{
				Name: "get" + of.one, Pattern: "GET" + one, Right: operation.ReadEntity, Answer: of.answer,
				Summary: "Shows a " + kind + " with the numbers of its messages.",
			}, "", "", s.show(of.kind)},
			route{operation.Operation{
				Name: "create" + of.one, Pattern: "PUT" + one, Right: operation.ManageNamespace, Body: of.body, Answer: of.answer, Statuses: []int{http.StatusCreated},
				Summary: "Creates a " + kind + ". Settings that the body omits have their defaults.",
			}, "create", kind, s.create(of.kind)},
			route{operation.Operation{
				Name: "update" + of.one, Pattern: "PATCH" + one, Right: operation.ManageEntity, Body: entity.Settings{}, Answer: of.answer,
				Summary: "Changes the settings of a " + kind + ". Settings that the body omits stay.",
			}, "update", kind, s.update(of.kind)},
			route{operation.Operation{
				Name: "delete" + of.one, Pattern: "DELETE" + one, Right: operation.ManageEntity,
				Summary: "Deletes a " + kind + " with its messages.",
			}, "delete", kind, s.remove(of.kind)},
		)
	}
	return routes
}

// messageRoutes returns the routes about messages and sessions.
func (s *controlAPI) messageRoutes() []route {
	const messages, session = "messages", "session"
	named := []operation.Parameter{operation.Needed("session", "its id")}
	skip, mostSessions := operation.Number("skip", "sessions to skip: next of the page before", 0, 0, math.MaxInt32), operation.Number("max", "sessions of the page", pageSessionsNormal, 1, pageSessionsMax)
	change := func(name, path, summary, word string, body any, serve handler) route {
		return route{operation.Operation{
			Name: name, Pattern: "POST /v1/" + path + "/{name...}", Right: operation.ManageEntity, Work: always(changeWork), Body: body, Answer: api.MessagesChanged{}, Summary: summary,
		}, word, messages, serve}
	}
	return []route{
		{operation.Operation{
			Name: "peekMessages", Pattern: "GET /v1/messages/{name...}", Right: operation.ListenEntity, Query: peekParameters(), Work: always(peekWork), Answers: peekAnswerBytes,
			Answer: api.MessagePage{}, Summary: "Shows messages of a queue or subscription that meet all conditions, without locking them.",
		}, "", "", s.peek},
		{operation.Operation{
			Name: "tailMessages", Pattern: "GET /v1/tail/{name...}", Right: operation.ListenEntity, Query: tailParameters(), Work: always(peekWork), Answers: peekAnswerBytes,
			Answer: api.TailPage{}, Summary: "Shows the messages of a queue or subscription behind a cursor, without locking them.",
		}, "", "", s.tail},
		{operation.Operation{
			Name: "purgeMessages", Pattern: "POST /v1/purge/{name...}", Right: operation.ManageEntity, Work: always(purgeMessagesMax / messagesPerUnit), Body: api.PurgeRequest{}, Answer: api.Affected{},
			Summary: "Deletes ready messages, oldest first. A count of 0 means that no more are left.",
		}, "purge", messages, s.purge},
		change("redriveMessages", "redrive", "Moves dead letters back, or sends them changed to their entity or to another one.", "redrive", api.RedriveRequest{}, s.redrive),
		change("deleteMessages", "delete", "Deletes ready, deferred and scheduled messages.", "delete", api.MessageChange{}, s.change(inspect.Delete)),
		change("cancelMessages", "cancel", "Cancels scheduled messages.", "cancel", api.MessageChange{}, s.change(inspect.Cancel)),
		change("undeferMessages", "undefer", "Makes deferred messages ready again.", "undefer", api.MessageChange{}, s.change(inspect.Undefer)),
		{page(operation.Operation{
			Name: "listSessions", Pattern: "GET /v1/sessions/{name...}", Right: operation.ReadEntity, Query: []operation.Parameter{skip, mostSessions}, Answer: api.SessionPage{},
			Summary: "Lists the sessions that have messages or a state.",
		}, skip, mostSessions, sessionAnswerBytes), "", "", s.getSessions},
		{operation.Operation{
			Name: "getSessionState", Pattern: "GET /v1/session-state/{name...}", Right: operation.ListenEntity, Query: named, Answers: always(stateAnswerBytes), Answer: api.SessionState{},
			Summary: "Shows the state of a session.",
		}, "", "", s.onSession(s.getSessionState)},
		{operation.Operation{
			Name: "putSessionState", Pattern: "PUT /v1/session-state/{name...}", Right: operation.ManageEntity, Query: named, Body: api.SessionStateRequest{},
			Summary: "Sets the state of a session, also while a receiver holds the session.",
		}, "set state", session, s.onSession(s.putSessionState)},
		{operation.Operation{
			Name: "deleteSessionState", Pattern: "DELETE /v1/session-state/{name...}", Right: operation.ManageEntity, Query: named,
			Summary: "Clears the state of a session, also while a receiver holds the session.",
		}, "clear state", session, s.onSession(s.deleteSessionState)},
		{operation.Operation{
			Name: "releaseSession", Pattern: "POST /v1/release/{name...}", Right: operation.ManageEntity, Query: named, Answer: api.SessionReleased{},
			Summary: "Ends the lock of the receiver that holds a session.",
		}, "release", session, s.onSession(s.releaseSession)},
	}
}

// trafficRoutes returns the routes about addresses, connections and rates, and the one that describes all.
func (s *controlAPI) trafficRoutes() []route {
	after := operation.Text("after", "next of the page before")
	mostConnections := operation.Number("max", "connections of the page", connectionsNormal, 1, topology.ConnectionsMax)
	mostRates := operation.Number("max", "entities of the answer", ratesNormal, 1, ratesMax)
	document := sync.OnceValues(s.document)
	return []route{
		{operation.Operation{
			Name: "getDescription", Pattern: "GET /v1/openapi.json", Right: operation.AnyKey, Answers: always(descriptionBytesMax), Answer: json.RawMessage{},
			Summary: "Describes this API as an OpenAPI 3.1 document.",
		}, "", "", func(w http.ResponseWriter, r *http.Request) error { return s.describe(w, r, document) }},
		{operation.Operation{
			Name: "listEndpoints", Pattern: "GET /v1/endpoints", Right: operation.AnyKey, Query: []operation.Parameter{operation.Text("entity", "of the key, where it is valid for one entity only")}, Answers: always(statusBytesMax),
			Answer: api.Endpoints{}, Summary: "Lists the addresses of the members for clients.",
		}, "", "", s.endpoints},
		{page(operation.Operation{
			Name: "listConnections", Pattern: "GET /v1/connections", Right: operation.ManageNamespace, Query: []operation.Parameter{after, mostConnections}, Answer: topology.ConnectionPage{},
			Summary: "Lists the AMQP connections of clients at all members with their links. An operator sees those of all namespaces.",
		}, operation.Parameter{}, mostConnections, connectionAnswerBytes), "", "", s.listConnections},
		{operation.Operation{
			Name: "listRates", Pattern: "GET /v1/rates", Right: operation.ReadNamespace, Query: []operation.Parameter{mostRates, operation.Flag("total", "with the total of the namespace and its last hour")},
			Work: always(ratesMax / entriesPerUnit), Answers: func(query url.Values) int { return seriesAnswerBytes + mostRates.Of(query)*ratesAnswerBytes }, Answer: api.Rates{},
			Summary: "Lists the busiest entities of a namespace with their messages per second.",
		}, "", "", s.listRates},
		{operation.Operation{
			Name: "getRates", Pattern: "GET /v1/rates/{name...}", Right: operation.ReadEntity, Answers: always(seriesAnswerBytes), Answer: api.Rates{},
			Summary: "Shows the messages per second of an entity in the last hour.",
		}, "", "", s.showRates},
		{operation.Operation{
			Name: "streamEvents", Pattern: "GET /v1/events", Right: operation.ReadNamespace, Query: []operation.Parameter{
				operation.Text("entities", fmt.Sprintf("names of the entities of which each line has a row, separated by commas, at most %d", streamRowsMax)),
				operation.Number("max", "lines after which the stream ends; 0: it goes on", 0, 0, streamLinesMax),
			},
			Answers: func(query url.Values) int {
				return seriesAnswerBytes + statusBytesMax + (1+strings.Count(query.Get("entities"), ","))*ratesAnswerBytes
			}, Answer: api.Event{}, Streams: true,
			Summary: fmt.Sprintf("Streams a snapshot of the namespace each second, a line of JSON each, until the credential ends. At most %d streams of a member, and %d of one address.", streamsMax, streamsPerAddressMax),
		}, "", "", s.events},
		{operation.Operation{
			Name: "closeConnection", Pattern: "DELETE /v1/connections/{name}", Right: operation.ManageNamespace,
			Summary: "Closes a connection. Its client connects again.",
		}, "close", "connection", s.closeConnection},
	}
}

// accessRoutes returns the routes about namespaces and keys.
func (s *controlAPI) accessRoutes() []route {
	const accessRule, namespace = "access_rule", "namespace"
	after, most := operation.Text("after", "next of the page before"), operation.Number("max", "namespaces of the page", pageEntitiesNormal, 1, pageEntitiesMax)
	routes := []route{
		{page(operation.Operation{
			Name: "listNamespaces", Pattern: "GET /v1/namespaces", Right: operation.OperatorOnly, Query: []operation.Parameter{after, most}, Answer: api.NamespacePage{},
			Summary: "Lists the namespaces by name.",
		}, operation.Parameter{}, most, entityAnswerBytes), "", "", s.listNamespaces},
		{operation.Operation{
			Name: "getNamespace", Pattern: "GET /v1/namespaces/{name}", Right: operation.OperatorOnly, Answer: api.Namespace{},
			Summary: "Shows a namespace and what it stores.",
		}, "", "", s.showNamespace},
		{operation.Operation{
			Name: "createNamespace", Pattern: "PUT /v1/namespaces/{name}", Right: operation.OperatorOnly, Body: api.NamespaceRequest{}, Answers: always(accessAnswerBytes + entityAnswerBytes), Answer: api.Namespace{}, Statuses: []int{http.StatusCreated},
			Summary: "Creates a namespace. The answer is the only one about namespaces that has its keys.",
		}, "create", namespace, s.createNamespace},
		{operation.Operation{
			Name: "updateNamespace", Pattern: "PATCH /v1/namespaces/{name}", Right: operation.OperatorOnly, Body: api.NamespaceSettings{}, Answer: api.Namespace{},
			Summary: "Changes the settings of a namespace. Settings that the body omits stay.",
		}, "update", namespace, s.updateNamespace},
		{operation.Operation{
			Name: "deleteNamespace", Pattern: "DELETE /v1/namespaces/{name}", Right: operation.OperatorOnly,
			Summary: "Deletes a namespace, which must be empty.",
		}, "delete", namespace, s.deleteNamespace},
	}
	for _, of := range []struct {
		suffix, path, text string
		right              operation.Right
	}{{"", "", "the namespace", operation.ManageNamespace}, {"OfEntity", "/{name...}", "a queue or topic", operation.ManageEntity}} {
		rule, replace := operation.Needed("rule", "its name"), operation.Flag("replace", "change the rule of that name, which must exist; keys that the body omits stay")
		routes = append(routes,
			route{operation.Operation{
				Name: "getAccess" + of.suffix, Pattern: "GET /v1/access" + of.path, Right: of.right, Query: []operation.Parameter{operation.Text("rule", "show this rule alone, as a rule and not as a page")}, Answers: always(accessAnswerBytes),
				Answer: api.AccessPage{}, One: api.AccessRule{}, Summary: "Lists the access rules of " + of.text + " with their keys, or shows one.",
			}, "", "", s.getAccess},
			route{operation.Operation{
				Name: "putAccess" + of.suffix, Pattern: "PUT /v1/access" + of.path, Right: of.right, Query: []operation.Parameter{rule, replace},
				Body: entity.AccessRuleRequest{}, Answer: api.AccessRule{}, Statuses: []int{http.StatusCreated, http.StatusOK}, Summary: "Adds an access rule to " + of.text + ", or changes one.",
			}, "create", accessRule, s.putAccess},
			route{operation.Operation{
				Name: "deleteAccess" + of.suffix, Pattern: "DELETE /v1/access" + of.path, Right: of.right, Query: []operation.Parameter{rule},
				Summary: "Deletes an access rule of " + of.text + ". Its credentials are invalid within ten seconds.",
			}, "delete", accessRule, s.deleteAccess},
			route{operation.Operation{
				Name: "regenerateKey" + of.suffix, Pattern: "POST /v1/regenerate" + of.path, Right: of.right,
				Body: api.RegenerateRequest{}, Answer: api.AccessRule{}, Summary: "Replaces a key of an access rule of " + of.text + " by a new random one.",
			}, "regenerate", accessRule, s.regenerate},
		)
	}
	return routes
}

// document describes the table as an OpenAPI document.
func (s *controlAPI) document() ([]byte, error) {
	routes := s.routes()
	operations := make([]operation.Operation, len(routes))
	for i := range routes {
		operations[i] = routes[i].Operation
	}
	return openapi.Document(operations)
}

// describe is GET /v1/openapi.json.
func (s *controlAPI) describe(w http.ResponseWriter, r *http.Request, document func() ([]byte, error)) error {
	described, err := document()
	if err != nil {
		return fmt.Errorf("describe the API: %w", err)
	}
	s.writeJSON(w, r, http.StatusOK, json.RawMessage(described))
	return nil
}

// serveRoute returns the handler of a route: it checks access, serves, and writes the audit log.
func (s *controlAPI) serveRoute(to *route) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if s.config.SlowAfter > 0 && s.config.Slow != nil {
			defer s.logSlow(r, time.Now())
		}
		name, query := r.PathValue("name"), r.URL.Query()
		entityName := cmp.Or(name, query.Get("topic"), query.Get("entity"))
		r, err := s.admit(r, to.Right, entityName)
		if err == nil {
			if err = to.take(r); err == nil {
				err = to.serve(w, r)
			}
			if to.change != "" {
				s.auditChange(r, to.auditedChange(r, name), err)
			}
		}
		if err != nil {
			s.writeProblem(w, r, err)
		}
	}
}

// take checks the parameters of a request, charges its price, and counts its answer until that is known. Errors wrap
// fsm.InvalidArgument or fsm.ServerBusy.
func (to *route) take(r *http.Request) error {
	if err := input.CheckParameters(r, to.Names()...); err != nil {
		return err
	}
	query := r.URL.Query()
	return expect(r, to.WorkOf(query), to.AnswerBytesMax(query))
}

// logSlow logs a slow request without the names in its path.
func (s *controlAPI) logSlow(r *http.Request, began time.Time) {
	if took := time.Since(began); took >= s.config.SlowAfter && !strings.HasPrefix(r.URL.Path, "/v1/backup/") && r.URL.Path != "/v1/events" {
		s.config.Slow.WarnContext(r.Context(), "slow operation", "operation", "control "+r.Pattern, "took", took, "peer", r.RemoteAddr)
	}
}

// auditedChange returns the description of a request for the audit log.
func (to *route) auditedChange(r *http.Request, name string) auditedChange {
	query := r.URL.Query()
	c := auditedChange{operation: to.change, kind: to.kind, name: name, rule: cmp.Or(query.Get("rule"), query.Get("name"))}
	if c.operation == "create" && query.Has("replace") {
		c.operation = "update"
	}
	return c
}

// handler serves the routes.
func (s *controlAPI) handler() http.Handler {
	mux := http.NewServeMux()
	routes := s.routes()
	for i := range routes {
		mux.HandleFunc(routes[i].Pattern, s.serveRoute(&routes[i]))
	}
	mux.HandleFunc("/", s.routeNotFound(mux))
	return mux
}

// rejectUncleanPaths refuses a path that net/http would clean and redirect: a PUT of a//b would create the
// queue a/b.
func (s *controlAPI) rejectUncleanPaths(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if clean := path.Clean(r.URL.Path); r.URL.Path != clean && r.URL.Path != clean+"/" {
			s.writeProblem(w, r, fmt.Errorf("%w: %s: a name has no empty part, nor . or .. as one", fsm.InvalidArgument, r.URL.Path))
			return
		}
		next.ServeHTTP(w, r)
	})
}

// routeNotFound answers requests that match no pattern. net/http itself would answer with plain text.
func (s *controlAPI) routeNotFound(routes *http.ServeMux) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if _, err := s.admit(r, operation.AnyKey, ""); err != nil {
			s.writeProblem(w, r, err)
			return
		}
		for _, method := range []string{http.MethodGet, http.MethodPut, http.MethodPost, http.MethodPatch} {
			other := r.Clone(r.Context())
			other.Method = method
			if _, pattern := routes.Handler(other); pattern != "/" {
				s.writeProblem(w, r, fmt.Errorf("%w: %s is not possible for %s", fsm.NotAllowed, r.Method, r.URL.Path))
				return
			}
		}
		s.writeProblem(w, r, fmt.Errorf("%w: nothing is at %s: the API is below /v1", fsm.EntityNotFound, r.URL.Path))
	}
}
