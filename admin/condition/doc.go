// Package condition lists the conditions of a cluster that a person should know of: their names, how severe they are, what they
// mean, and how to mend them.
//
// "peeklock doctor" reports them, and the alerts of deploy/alerts have the same names after "Peeklock". The list is closed: a
// name stays, and scripts may depend on it. docs/operations.md has it as a table.
//
// It also finds those that a status of the cluster and the metrics of a member show, for "peeklock doctor" and for GET /v1/conditions. It imports
// the description of clusters (topology) and does no I/O. Its functions are safe for concurrent use.
package condition
