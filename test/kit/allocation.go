package kit

import "runtime"

// Allocation runs do once, and then some times more, and returns the bytes that each of these allocates, and what all of
// them together leave behind. It measures the whole process, so the calling test must not be parallel.
func Allocation(times int, do func()) (each, retained int) {
	do()
	var before, after, collected runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for range times {
		do()
	}
	runtime.ReadMemStats(&after)
	runtime.GC()
	runtime.GC() // the first one leaves what pools hold
	runtime.ReadMemStats(&collected)
	return int(after.TotalAlloc-before.TotalAlloc) / times, int(int64(collected.HeapAlloc) - int64(before.HeapAlloc))
}

// Bounds of what an operation may cost, in tests of the tables of operations.
const (
	UnitBytesMax     = 16 << 10 // bytes that a request allocates for each unit of work (package amqp/work) that it is charged
	RetainedBytesMax = 64 << 10 // bytes that requests leave behind besides their last response: what the runtime keeps
)

// LiveBytes returns the bytes that are reachable in the process.
func LiveBytes() int64 {
	var stats runtime.MemStats
	runtime.GC()
	runtime.GC() // the first one leaves what pools hold
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}
