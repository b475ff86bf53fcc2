# One word for each habit. `make` alone lists them.

LINTER := v2.15.0 # golangci-lint; the same in .ci/run
GOBIN  := $(shell go env GOPATH)/bin
EACH   ?= 30s

.PHONY: help check test race lint fuzz bench storm dev golden conformance fault

help: ## list the words
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "%-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

check: ## everything a change must pass, as CI runs it
	bash .ci/run

test: ## all tests
	go test ./...

race: ## all tests but the long ones, with the race detector
	go test -race -short ./...

lint: ## vet and the linters of .golangci.yml
	go vet ./...
	@test "$$($(GOBIN)/golangci-lint version --short 2>/dev/null)" = "$(patsubst v%,%,$(strip $(LINTER)))" || \
		go install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(strip $(LINTER))
	$(GOBIN)/golangci-lint run ./...

fuzz: ## every fuzz target, EACH=30s long
	bash .ci/fuzz $(EACH)

bench: ## the micro-benchmarks of every room, ready for benchstat
	go test -short -run '^$$' -bench . -benchmem -count 10 ./...

storm: ## 200,000 messages expire at once beside steady senders, in three processes
	go test -count=1 -run '^$$' -bench ExpiryStorm -benchtime 1x ./test/bench

dev: ## three members in one process, on loopback
	go run ./cmd/peeklock dev

golden: ## write the golden files anew; read the diff before you commit it
	go test ./fsm/... -rewrite

conformance: ## the client suites against three members
	go test -count=1 -v ./test/conformance/...

fault: ## three processes, a leader killed and paused under load
	go test -count=1 -v ./test/fault/...
