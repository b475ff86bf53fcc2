package datadir

import (
	"math/rand/v2"
	"testing"

	"github.com/peeklock/peeklock/test/kit"
	"github.com/peeklock/peeklock/test/sim/simfs"
)

// TestNewFolderOutlivesALossOfPower checks that the folder itself is durable once it has an identity: a member that
// forgot its identity would come back as a new member, without its messages.
func TestNewFolderOutlivesALossOfPower(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		disk := simfs.New(rand.New(rand.NewPCG(seed, 0)))
		before := kit.Must(Open(disk.Mount(), "/var/lib/peeklock"))(t)
		disk.Crash()
		after := kit.Must(Open(disk.Mount(), "/var/lib/peeklock"))(t)
		if before.Identity().Member != after.Identity().Member {
			t.Fatalf("seed %d: the folder has another identity: %+v, before %+v", seed, after.Identity(), before.Identity())
		}
	}
}
