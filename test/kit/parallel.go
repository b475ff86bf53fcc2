package kit

import (
	"flag"
	"runtime"
	"strconv"
)

// Parallel lets perProcessor tests of a package run at once on each processor, where the default is one: tests that
// wait for disks and timers leave processors idle. TestMain calls it. The flag -parallel takes precedence. With the
// race detector tests compute more than they wait, and the default stays.
func Parallel(perProcessor int) {
	flag.Parse()
	if parallel := flag.Lookup("test.parallel"); !RaceDetector && parallel.Value.String() == parallel.DefValue {
		if err := flag.Set(parallel.Name, strconv.Itoa(perProcessor*runtime.GOMAXPROCS(0))); err != nil {
			panic(err)
		}
	}
}
