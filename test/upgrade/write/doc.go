// Command write writes the overlay of the next release to a folder and prints its path, for scripts:
//
//	go build -overlay "$(go run ./test/upgrade/write FOLDER)" ./cmd/peeklock
package main
