package abuse

import (
	"context"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/peeklock/peeklock/test/harness"
	"github.com/peeklock/peeklock/test/kit"
)

const (
	volumeBytes      = 512 << 20
	diskReserveBytes = 64 << 20 // the smallest one
)

// TestStatesLeaveDiskForOthers: a key that may receive only stores states of sessions until its namespace is refused. Sends of
// others go on. When something else takes the rest of the disks, to 0 bytes, an operator still deletes the queue.
func TestStatesLeaveDiskForOthers(t *testing.T) {
	kit.Long(t)
	var volumes [3]string
	for i := range volumes {
		volumes[i] = kit.LoopDisk(t, volumeBytes)
	}
	a := newAttacked(t, harness.Options{
		Data: func(i int) string { return filepath.Join(volumes[i], "data") },
		Args: []string{"--disk-reserve", strconv.Itoa(diskReserveBytes)},
	})
	createOwn("queues/"+sessionQueue, harness.Fields{"requiresSession": true, "lockDuration": "5m"})(a)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	attacked := make(chan error, 1)
	go func() { attacked <- storeStates(ctx, a.members()) }()
	length := 3 * shortAttack
	if a.full {
		length = 4 * fullAttack
	}
	for until := time.Now().Add(length); time.Now().Before(until); sleep(ctx, sampleEvery) {
		for _, m := range a.Members {
			if err := sendOnce(ctx, m); err != nil {
				t.Fatalf("an honest send at %s during the attack: %v", m.Name, err)
			}
		}
	}
	for _, volume := range volumes {
		defer kit.FillDisk(t, volume)()
	}
	cancel()
	if err := <-attacked; err != nil {
		t.Errorf("the attack could not be made: %v", err)
	}
	deleteQueue(sessionQueue)(a)
}
