// Package kubernetes has the commands for hooks and init containers of pods.
//
//	prestop.go  the commands
//	api.go      the part of the API of Kubernetes that they and package declare use
//
// Invariant: a hook that cannot find out whether its pod returns moves nothing, and fails.
package kubernetes
