# One word for each habit. `make` alone lists them.

LINTER := v2.15.0 # golangci-lint; the same in .ci/run
GOBIN  := $(shell go env GOPATH)/bin
EACH   ?= 30s

.PHONY: help check test race lint fuzz bench storm flood topics rebalance dev golden conformance fault rounds soak abuse chart image docs site

help: ## list the words
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "%-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

check: ## everything a change must pass, as CI runs it
	bash .ci/run

test: ## all tests
	go test -timeout 20m ./...

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

flood: ## 10,000 connections that do nothing at one of three members, beside steady senders
	go test -count=1 -run '^$$' -bench Flood -benchtime 1x ./test/bench

topics: ## publish to topics with many subscriptions and filters, in three processes
	go test -count=1 -timeout 30m -run '^$$' -bench Topic -benchtime 1x ./test/bench

rebalance: ## three members become five and three again beside steady senders and receivers
	go test -count=1 -timeout 30m -run '^$$' -bench Rebalance -benchtime 1x ./test/bench

dev: ## three members in one process, on loopback
	go run ./cmd/peeklock dev

golden: ## write the golden files anew; read the diff before you commit it
	go test ./fsm/... -rewrite

conformance: ## the client suites of all languages that are there against three members
	PEEKLOCK_CONFORMANCE=1 go test -count=1 -v -p 1 ./test/conformance/...

docs: ## rewrite the generated documents in docs/
	go test -p 1 -count=1 ./amqp ./admin ./cmd/peeklock ./test/arch -run TestDocs -update

site: ## build the documents as a static site in bin/site, with a virtual environment beside it
	bash docs/site/build bin/site

chart: ## lint the Helm chart, compare it with its golden files and with the types of Kubernetes
	go test -C deploy/check -count=1 ./...

image: ## build the container image peeklock:dev, with docker
	deploy/image/build

fault: ## three processes, a leader killed and paused under load
	go test -count=1 -timeout 20m -v ./test/fault/...

rounds: ## twenty rounds of each fault under clients; root, for networks whose cables are drawn
	PEEKLOCK_ROUNDS=20 go test -count=1 -timeout 60m -v -run TestClientsSurviveFailover ./test/fault

soak: ## everything that is to be forgotten, made for SOAK=10m while leaders die: what grows?
	PEEKLOCK_SOAK=$(or $(SOAK),10m) go test -count=1 -timeout 0 -v -run TestSoak ./test/fault

abuse: ## hostile clients of every kind at full size, and what honest clients wait meanwhile
	PEEKLOCK_ABUSE=1 go test -count=1 -timeout 60m -v -run TestAbuse ./test/abuse
