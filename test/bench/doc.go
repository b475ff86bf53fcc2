// Package bench measures the product from the users' side: with real processes and real clients.
// It contains only benchmarks; no test asserts a speed.
//
//	go test -run '^$' -bench . -benchtime 1x ./test/bench
//
// They take minutes, so -short leaves them out.
package bench
