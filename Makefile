# `make` alone lists the targets.

LINTER := v2.15.0 # golangci-lint; the same in .ci/run
GOBIN  := $(shell go env GOPATH)/bin
EACH   ?= 30s
HOURS  ?= 0.5
MATRIX ?= bin/matrix
PART   ?= 1
OF     ?= 1
CALLS  ?= 400
PROCESSES ?= $(shell getconf _NPROCESSORS_ONLN)

.PHONY: help check test long race lint fuzz bench storm flood topics rebalance latency scale peers recipes dev golden conformance fault sim sim-replay model matrix matrix-table rounds soak abuse planted console chart kubernetes image emulator-image docs site nightly

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "%-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

check: ## everything that CI checks; installs nothing, and reports what is missing
	bash .ci/check

test: ## the tests of a plain go test ./..., four to six minutes on two cores, with the build
	go test ./...

long: ## all tests, including the long ones
	PEEKLOCK_LONG=1 go test -timeout 20m ./...

race: ## all tests but those with processes, with the race detector
	go test -race -short ./...

lint: ## vet, also of the next release, and the linters of .golangci.yml
	go vet ./...
	go vet -tags level2 -overlay "$$(go run ./test/upgrade/write "$$(mktemp -d)")" ./...
	@test "$$($(GOBIN)/golangci-lint version --short 2>/dev/null)" = "$(patsubst v%,%,$(strip $(LINTER)))" || { \
		echo 'golangci-lint $(strip $(LINTER)) is missing: install it with'; \
		echo '    go install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(strip $(LINTER))'; exit 1; }
	$(GOBIN)/golangci-lint run ./...

fuzz: ## every fuzz target, for EACH=30s
	bash .ci/fuzz $(EACH)

bench: ## the micro-benchmarks of all packages, ready for benchstat
	go test -run '^$$' -bench . -benchmem -count 10 $$(go list ./... | grep -v /test/)

storm: ## 200,000 messages expire at once while senders continue, in three processes
	go test -count=1 -run '^$$' -bench ExpiryStorm -benchtime 1x ./test/bench

flood: ## 10,000 idle connections to one of three members while senders continue
	go test -count=1 -run '^$$' -bench Flood -benchtime 1x ./test/bench

topics: ## publish to topics with many subscriptions and filters, in three processes
	go test -count=1 -timeout 30m -run '^$$' -bench Topic -benchtime 1x ./test/bench

rebalance: ## three members become five and three again while senders and receivers continue
	go test -count=1 -timeout 30m -run '^$$' -bench Rebalance -benchtime 1x ./test/bench

latency: ## what a send waits for, and how long members take to start
	go test -count=1 -v -run '^$$' -bench 'Stages|Start|Restart' -benchtime 1x ./test/bench

scale: ## CPU per message by queues, partitions and outstanding sends, and a model of more members
	go test -count=1 -run '^$$' -bench Scale -benchtime 1x ./test/bench

peers: ## Peeklock beside RabbitMQ and NATS: the same load by turns, as a table; about 10 minutes
	test/bench/peers/run $(PEERS)

dev: ## three members in one process, on loopback
	go run ./cmd/peeklock dev

golden: ## rewrite the golden files; read the diff before you commit it
	go test ./fsm/... -rewrite

conformance: ## the client suites whose tools are installed, against three members
	PEEKLOCK_CONFORMANCE=1 PEEKLOCK_LONG=1 go test -count=1 -v -p 1 ./test/conformance/...

docs: ## rewrite the generated documents in docs/
	go test -p 1 -count=1 ./amqp ./admin ./admin/condition ./admin/entity ./cmd/peeklock ./cmd/peeklock/internal/cli/declare ./test/arch -run TestDocs -update

site: ## build the documents as a static site in bin/site, with a virtual environment next to it
	bash docs/site/build bin/site

console: ## build the web console again, and test it in a headless browser
	bash test/console/run

chart: ## lint the Helm chart, compare it with its golden files and with the types of Kubernetes
	go test -C deploy/check -count=1 ./...

kubernetes: ## a real Kubernetes on this machine with the chart under load; needs root and containerd, under an hour
	deploy/cluster/run $(FROM)

image: ## build the container image peeklock:dev, with docker
	deploy/image/build

emulator-image: ## build the image of the emulator without an engine, as an OCI layout in bin/
	deploy/image/emulator

recipes: ## frameworks that people have, as they are published, against Peeklock; installs what they need
	set -e; for recipe in test/recipes/*/run; do bash $$recipe; done

# A test of the simulation that runs the same way again. PEEKLOCK_PLANTED adds planted faults.
SIMULATION = set -e; folder=$$(mktemp -d); trap 'rm -r $$folder' EXIT; go run ./test/sim/repeat $$folder; \
	go test -c -overlay $$folder/overlay.json -tags repeat -o $$folder/sim.test ./test/sim; cd test/sim;

sim: ## clusters in virtual time with faults from new seeds, until HOURS=0.5 have passed in those of all PROCESSES
	$(SIMULATION) \
	export PEEKLOCK_SIM_HOURS=$$(awk 'BEGIN { print $(HOURS) / $(PROCESSES) }'); \
	seq $(PROCESSES) | xargs -P $(PROCESSES) -I{} $$folder/sim.test -test.v -test.timeout 0 -test.run TestSimulatedHours

sim-replay: ## run SEED=7, or PLAN=/tmp/peeklock-sim-7/plan, of the simulation again, exactly, TIMES=1
	$(SIMULATION) \
	PEEKLOCK_SIM_SEED=$(SEED) PEEKLOCK_SIM_PLAN=$(abspath $(PLAN)) \
	$$folder/sim.test -test.v -test.timeout 0 -test.count $(or $(TIMES),1) -test.run '^TestSimulation$$'

model: ## check the models of protocols with their full bounds: three minutes, 1 GiB
	PEEKLOCK_MODEL=full go test -count=1 -v ./test/model/...

matrix: ## make calls of the storage fail, one in each simulation: PART=1 OF=1, with results in MATRIX=bin/matrix, where it goes on
	$(SIMULATION) \
	export PEEKLOCK_MATRIX=$(abspath $(MATRIX)) PEEKLOCK_MATRIX_PART=$(PART)/$(OF) PEEKLOCK_MATRIX_TIME=$(TIME); \
	export PEEKLOCK_MATRIX_EVERY=$(CALLS) PEEKLOCK_MATRIX_ONLY="$(ONLY)" PEEKLOCK_MATRIX_PLANS=$(PLANS); \
	$$folder/sim.test -test.v -test.timeout 0 -test.run '^TestMatrix$$'

matrix-table: ## the results of `make matrix` as a table
	@PEEKLOCK_MATRIX=$(abspath $(MATRIX)) go test -count=1 -run '^TestMatrixTable$$' ./test/sim >&2
	@cat $(MATRIX)/table

fault: ## every fault test: three processes under load, killed, paused and isolated
	PEEKLOCK_LONG=1 go test -count=1 -timeout 20m -v ./test/fault/...

rounds: ## twenty rounds of each fault under official clients; needs root for network partitions
	PEEKLOCK_LONG=1 PEEKLOCK_ROUNDS=20 go test -count=1 -timeout 60m -v -run TestClientsSurvive ./test/fault

soak: ## create and delete temporary state for SOAK=10m while leaders are killed: what grows?
	PEEKLOCK_SOAK=$(or $(SOAK),10m) go test -count=1 -timeout 0 -v -run TestSoak ./test/fault

abuse: ## hostile clients of every kind at full size, and the latency of honest clients meanwhile
	PEEKLOCK_ABUSE=1 PEEKLOCK_LONG=1 go test -count=1 -timeout 60m -v ./test/abuse

# New random histories, the race detector in long tests, every planted fault, a sixtieth of the storage errors, twenty rounds, simulated hours, abuse, recipes, and the Rust client.
nightly: ## the tests that take too long for CI
	RAPID_SEED=0 go test -count=1 -timeout 60m ./fsm/... -rapid.checks=2000
	PEEKLOCK_LONG=1 go test -race -short -timeout 40m ./...
	$(MAKE) matrix MATRIX=bin/nightly/$$(date +%j) PART=$$(expr $$(date +%j) % 60 + 1) OF=60
	$(MAKE) planted rounds sim abuse recipes model
	bash test/conformance/rust/run

planted: ## build the planted faults, and check that the test of each (or of FAULTS="name ...") finds it
	go run ./test/planted $(FAULTS)
