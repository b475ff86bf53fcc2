// Package bench measures the product as its users meet it: real processes, real clients.
// Everything here is a benchmark; nothing asserts a speed.
//
//	go test -run '^$' -bench . -benchtime 1x ./test/bench
//
// They take minutes, so -short leaves them out.
package bench
