// Package doctor has the command that examines a cluster and reports its conditions, those of package admin/condition.
//
// It asks only what other clients may ask: the control API and /metrics.
package doctor
