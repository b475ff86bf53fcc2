// Package sim runs whole clusters in virtual time. Members of the real code (package cluster with raft, gossip,
// router and forwarding) run in one process under testing/synctest, on the network of package simnet and the disks of
// package simfs, with a clock of their own each. A plan of faults, drawn from a seed, kills members, cuts power, cuts
// and delays links and slows them down, resets streams, suspends hosts, disturbs disks, and moves, drains, removes and adds members, while clients
// (package load) use every kind of entity through the routers, and go-amqp clients use the AMQP gateways of the members. Once in a plan a member loses its disk while another one lags behind
// (package simplan), and once the whole cluster is copied under load, lost, and restored (restore.go). Half of the plans end
// with a loss of power, or of one process, while messages are in flight and no client sends. Afterwards the results are checked:
//
//   - package judge checks what the clients of each stream of messages saw: what arrived, where, when and in which order, who
//     held it, and what a restore lost and duplicated;
//   - the former members, which come back beside the restored cluster, stay apart from it;
//   - a minute of virtual time after the last fault, every member is ready, everything that was accepted has been
//     received although nothing more was sent, and every queue has taken another message;
//   - all replicas of every partition have the same state;
//   - members that were restarted know the names and keys that were changed before (names.go).
//
// A simulated minute takes about two seconds of one core. A failed seed prints its plan, and saves it in a folder
// with the findings, the histories, the log of all members, and every entry that the replicas of each group have stored
// (save.go). simplan.Shrink makes the plan smaller:
//
//	PEEKLOCK_SIM_SEED=7 go test -count=1 -run TestSimulation ./test/sim
//	PEEKLOCK_SIM_PLAN=/tmp/peeklock-sim-7-small/plan go test -count=1 -run TestSimulation ./test/sim
//	make sim HOURS=2         # new seeds until so much time has passed in the clusters
//	go run ./cmd/peeklock debug replay /tmp/peeklock-sim-7
//
// The plan, the latencies and what the clients do follow from the seed. So does the order in which Go runs goroutines,
// and with it the whole run, if the test is built with the patched runtime of command repeat, as `make sim` and
// `make sim-replay` do, and otherwise not. test/RESULTS.md, "Simulation", reports what was found and measured.
//
// Under synctest, time passes when every goroutine waits for a channel, a timer or a condition. A goroutine that
// waits for a mutex stops virtual time: code of the simulation holds no mutex while it waits for anything else, and
// writing to a stream waits only when eight megabytes have not been read.
package sim
