// Package doctor has the command that examines a cluster and reports its conditions, those of package admin/condition.
//
//	doctor.go   the command: asks for the status and the metrics of every member
//	examine.go  finds conditions in the answers; without input and output
//
// It asks only what other clients may ask: the control API and /metrics.
package doctor
