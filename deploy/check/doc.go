// Package check holds the tests of what lies in deploy: the chart is linted, rendered with several sets
// of values and compared with golden files, and every manifest must decode strictly into the types of
// the Kubernetes API. The dashboard and the alert rules may name only metrics of docs/metrics.md and labels that these
// have, and every alert has its entry in RUNBOOK.md. Run it with `go test ./...` in this folder; -update writes the golden files anew.
package check
