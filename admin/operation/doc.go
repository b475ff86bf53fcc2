// Package operation has the columns of the tables of operations over HTTP: the control API and the administration API of the
// service (package admin), and the interface for messages (package admin/dataplane). Each table routes the requests of its
// interface, so an operation cannot exist without a right, a price and the bound of its answer; tests measure every row at its
// limits, and admin/openapi describes the control API from it.
//
// The package imports nothing of ours and does nothing by itself. An Operation is never changed, so it is safe for concurrent use.
package operation
