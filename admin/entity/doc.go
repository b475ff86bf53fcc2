// Package entity is the model of queues, topics and subscriptions that both administration APIs, the command
// line and the configuration of the emulator share: settings, rules, values, names and access rules, in the
// form of the control API, with their checks.
//
// Callers are admin, admin/atom, admin/emulator and cmd/peeklock. The package knows neither HTTP nor ATOM, and it
// reads and writes no entity: it turns what a client gives into what the state machine stores (fsm.EntitySettings,
// fsm.Rule, fsm.AccessRule), and back.
//
// Invariants:
//
//   - Each check exists once, so no API can create what another one cannot show. The state machine checks again.
//   - Errors wrap fsm.InvalidArgument or fsm.QuotaExceeded, say how to correct the input, and hold no key.
//   - Marshalling and unmarshalling keep value and type.
//   - The JSON is stable: fields are added, never renamed or removed.
//
// All functions are safe for concurrent use.
package entity
