package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

func TestRefusedConnectionsAreTriedAgain(t *testing.T) {
	t.Parallel()
	refused := fmt.Errorf("connect: %w", &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED})
	other := errors.New("another error")
	for name, test := range map[string]struct {
		answers []error // of the dials; the last one repeats
		want    error
		dials   int
		took    time.Duration
	}{
		"accepted":      {[]error{nil}, nil, 1, 0},
		"refused twice": {[]error{refused, refused, nil}, nil, 3, 2 * retryInterval},
		"other error":   {[]error{other}, other, 1, 0},
		"never":         {[]error{refused}, refused, 12, busyTimeMax + retryInterval},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				dials, began := 0, time.Now()
				err := untilAccepted(context.Background(), func() error {
					dials++
					return test.answers[min(dials, len(test.answers))-1]
				})
				if took := time.Since(began); !errors.Is(err, test.want) || dials != test.dials || took != test.took {
					t.Errorf("%d dials in %s: %v; want %d in %s: %v", dials, took, err, test.dials, test.took, test.want)
				}
			})
		})
	}
}
