package main

import (
	"context"
	"io/fs"
	"log/slog"
	"math"
	"path"
	"runtime/debug"
	"strconv"
	"strings"

	"github.com/peeklock/peeklock/amqp"
	"github.com/peeklock/peeklock/amqp/budget"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/config"
)

// Shares of the memory limit of the process, in percent. The shares below GOMEMLIMIT leave 20 % to the
// collector, which runs more often the less memory is free above the live heap; the 10 % above it are
// for memory that Go does not count (mapped pages of the log, stacks of the system).
const (
	memoryGoPercent          = 90 // GOMEMLIMIT: all memory that Go counts
	memoryIndexPercent       = 40 // the index of waiting messages, without bodies; above it, sends are refused
	memoryGatewayPercent     = 20 // data that connections hold until it is stored, settled or sent (amqp/budget)
	memoryConnectionsPercent = 10 // the fixed cost of connections: it limits their number
)

const (
	// connectionCostBytes is the fixed cost of a connection with its socket and TLS (cmd/listen).
	connectionCostBytes = 32 << 10
	// connectionsMin is the number of connections that are accepted even under the lowest limit.
	connectionsMin = 256
	// openFilesReserved is the number of open files (file descriptors) that each member keeps for its data and for connections of
	// other kinds: 1,000 whose protocol is not known yet, 512 of HTTP, those of members. It is half of a limit that is lower than twice that.
	openFilesReserved = 4096
	// Shares of the machine's memory when the system sets no limit: serve assumes that other
	// processes run on the machine, dev that it runs on a workstation.
	memoryOfMachineServePercent = 50
	memoryOfMachineDevPercent   = 25
	memoryUnknownBytes          = 2 << 30 // assumed if the memory of the machine is unknown
)

// Sources of a limit, for the log.
const (
	memoryFromSetting   = "memory_limit"
	memoryFromGo        = "GOMEMLIMIT"
	memoryFromCgroup    = "cgroup"
	memoryFromMachine   = "memory of the machine"
	memoryFromNoSources = "assumed"
)

// memoryPlan divides the memory of the process, in bytes unless stated otherwise.
type memoryPlan struct {
	limit       int64
	source      string // of the limit
	index       int64  // of the process
	gateway     int64  // of each member in it
	connections int    // that each member accepts
}

// perAddress returns how many connections of one address a member accepts. If memory allows fewer connections than
// usual, the default is half of them. A value from the operator is used as it is, because all clients behind a
// load balancer may have one address.
func (p memoryPlan) perAddress(value int, isGiven bool) int {
	if isGiven {
		return value
	}
	return min(value, p.connections/2)
}

// limitConnections lowers the number of connections to what the limit of open files of the process leaves to each member: a member that
// has no file descriptor left cannot store anything in a new file. A limit of 0 is unknown.
func (p memoryPlan) limitConnections(ctx context.Context, openFiles uint64, members int, logger *slog.Logger) memoryPlan {
	each := openFiles / uint64(members)
	left := max(1, each-min(openFilesReserved, each/2))
	if openFiles == 0 || left >= uint64(p.connections) {
		return p
	}
	logger.WarnContext(ctx, "client connections limited by the limit of open files: raise it (LimitNOFILE= in systemd, --ulimit nofile for a container)",
		"open_files_max", openFiles, "connections", left, "memory_allows", p.connections)
	p.connections = int(left)
	return p
}

// planMemory divides a limit among the members of the process.
func planMemory(limit int64, source string, members int) memoryPlan {
	shared := max(limit, config.MemoryLimitMin)
	each := shared / int64(members)
	return memoryPlan{
		limit: limit, source: source,
		index:       shared / 100 * memoryIndexPercent,
		gateway:     max(budget.BytesMin, each/100*memoryGatewayPercent),
		connections: int(min(int64(amqp.DefaultConfig().ConnectionsMax), max(connectionsMin, each/100*memoryConnectionsPercent/connectionCostBytes))),
	}
}

// memorySource provides the sources of limits: the root of the file system, the environment, and the limit that
// the Go runtime read from it.
type memorySource struct {
	root    fs.FS
	getenv  func(string) string
	goLimit int64
}

// find returns the limit of the process: the setting, otherwise GOMEMLIMIT, otherwise the limit of the cgroup,
// otherwise a part of the machine's memory.
func (m memorySource) find(set, ofMachinePercent int64) (limit int64, source string) {
	if set > 0 {
		return set, memoryFromSetting
	}
	if m.getenv("GOMEMLIMIT") != "" && m.goLimit > 0 && m.goLimit < math.MaxInt64 {
		return m.goLimit / memoryGoPercent * 100, memoryFromGo
	}
	machine := machineMemory(m.root)
	if limit := cgroupMemory(m.root); limit > 0 && (machine == 0 || limit < machine) {
		return limit, memoryFromCgroup
	}
	if machine > 0 {
		return machine / 100 * ofMachinePercent, memoryFromMachine
	}
	return memoryUnknownBytes, memoryFromNoSources
}

// limitMemory sets GOMEMLIMIT, unless the environment sets it.
func limitMemory(ctx context.Context, plan *memoryPlan, getenv func(string) string, logger *slog.Logger) {
	if getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(plan.limit / 100 * memoryGoPercent)
	}
	logger.InfoContext(ctx, "memory limit was set", "bytes", plan.limit, "from", plan.source,
		"index_bytes", plan.index, "gateway_bytes", plan.gateway, "connections", plan.connections)
	if plan.limit < config.MemoryLimitMin {
		logger.WarnContext(ctx, "memory limit was found too low for a member: set memory_limit, or raise the limit of the container", "bytes", plan.limit, "bytes_min", config.MemoryLimitMin)
	}
}

// cgroupMemory returns the smallest limit of the cgroups of the process, or 0 if there is none. In a container,
// the files of its own cgroup are at the root, independent of the path of the cgroup.
func cgroupMemory(root fs.FS) (limit int64) {
	lower := func(name string) {
		if n, ok := readNumber(root, name); ok && n > 0 && (limit == 0 || n < limit) {
			limit = n
		}
	}
	lower("sys/fs/cgroup/memory.max")
	lower("sys/fs/cgroup/memory/memory.limit_in_bytes")
	groups, _ := fs.ReadFile(root, "proc/self/cgroup") // without the file there are no cgroups
	for line := range strings.Lines(string(groups)) {
		id, rest, _ := strings.Cut(strings.TrimSpace(line), ":")
		controllers, group, _ := strings.Cut(rest, ":")
		var base, file string
		switch {
		case id == "0" && controllers == "":
			base, file = "sys/fs/cgroup", "memory.max"
		case controllers == "memory":
			base, file = "sys/fs/cgroup/memory", "memory.limit_in_bytes"
		default:
			continue
		}
		for dir := path.Join("/", group); dir != "/"; dir = path.Dir(dir) {
			lower(path.Join(base, dir, file))
		}
	}
	return limit
}

// machineMemory returns the memory of the machine in bytes, or 0 if it is unknown.
func machineMemory(root fs.FS) int64 {
	info, _ := fs.ReadFile(root, "proc/meminfo")
	for line := range strings.Lines(string(info)) {
		if rest, found := strings.CutPrefix(line, "MemTotal:"); found {
			kib, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
			if err == nil && kib > 0 && kib < math.MaxInt64>>10 {
				return kib << 10
			}
		}
	}
	return 0
}

// readNumber reads a file with one number; it returns false for "max", too.
func readNumber(root fs.FS, name string) (int64, bool) {
	text, err := fs.ReadFile(root, name)
	if err != nil {
		return 0, false
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	return n, err == nil
}
