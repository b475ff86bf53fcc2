// Package admin serves HTTP: the control API for operators, the command line and scripts (JSON, under /v1), the
// administration API of the service, which the official administration clients use (ATOM, all other paths), health and
// metrics.
//
//	client ── HTTP ──> Server ── guard ── admit ─┬─ controlAPI, operatorAPI (JSON) ─┬─ Control ──> the cluster
//	                     │                  │    └─ serviceAPI (ATOM) ──────────────┘
//	                     │                  └ namespace of the request; access of its caller: the control socket, or a key
//	                     └ limits: connections, requests, bytes, time
//
// The APIs are types over a small core, which has what they share: access, limits, the audit log and the answers.
//
//	core.go slot.go guard.go                      the core: configuration, limits, credentials
//	admit.go context.go audit.go                  access to a namespace; the audit log
//	problem.go dialect.go                         answers and errors of both APIs
//	routes.go entity.go rule.go session.go        controlAPI
//	access.go namespace.go                        controlAPI: keys and namespaces
//	operate.go cluster.go backup.go               operatorAPI
//	atom*.go                                      serviceAPI
//	health.go                                     health and metrics
//
// cmd/peeklock opens a [Server]. The package knows the cluster only through [Control], and credentials only through
// [Authority]; it maps each fsm.Code in an error to an HTTP status by one table (problem.go). Package admin/entity has the
// model of entities, admin/atom the documents of the service's API, admin/console the web console, admin/connection the connections of a listener,
// admin/input what requests say.
//
// Invariants:
//
//   - Every answer other than 2xx has an [api.Problem], or for administration clients an Error element, with a tracking id
//     that is also in the log.
//   - Both APIs read and write the same entities with the same checks (entity.Settings, entity.Rule): neither can
//     create what the other cannot show.
//   - A request reaches one namespace, and in it what its key is valid for: see the tables of routes.
//   - The audit log has one line for every change. No log and no error holds a key.
//   - The memory that clients can occupy is bounded by constants: see the limits in core.go.
//   - The JSON of package api is stable: fields are added, never renamed or removed.
package admin
