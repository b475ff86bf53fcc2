// Package audit writes the audit log of a member: who changed what, and who was refused.
//
//	slog.Logger ──► refusalLimiter ──► Recent ──► File, or the ordinary log
//
// Package main opens the log and passes its logger to the packages that decide about rights. Operators read the newest
// events through the control API.
//
// Invariants:
//
//   - A client without any right causes at most RefusalsMax lines in a minute, and memory for at most clientsMax clients.
//   - The events that are kept in memory are bounded in number and in bytes.
package audit
