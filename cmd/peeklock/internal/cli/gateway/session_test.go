package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/client"
)

func TestRefusedConnectionsAreTriedAgain(t *testing.T) {
	t.Parallel()
	refused := fmt.Errorf("connect: %w", &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED})
	timedOut := fmt.Errorf("connect: %w", context.DeadlineExceeded)
	other := errors.New("another error")
	const noRouteTime = 3 * time.Second // until an address has no route
	for name, test := range map[string]struct {
		answers []error // of the dials; the last one repeats
		want    error
		dials   int
		took    time.Duration
		each    time.Duration // that a dial takes
	}{
		"accepted":           {[]error{nil}, nil, 1, 0, 0},
		"refused twice":      {[]error{refused, refused, nil}, nil, 3, 2 * client.RetryInterval, 0},
		"cut off once":       {[]error{fmt.Errorf("connect: %w", io.EOF), nil}, nil, 2, client.RetryInterval, 0},
		"other error":        {[]error{other}, other, 1, 0, 0},
		"never":              {[]error{refused}, refused, 12, client.BusyTimeMax + client.RetryInterval, 0},
		"slow, but at last":  {[]error{timedOut, timedOut, nil}, nil, 3, 3*dialTimeMax + 2*client.RetryInterval, dialTimeMax},
		"seventh is lucky":   {[]error{refused, refused, refused, refused, refused, refused, nil}, nil, 7, 7*noRouteTime + 6*client.RetryInterval, noRouteTime},
		"timed out for good": {[]error{timedOut}, timedOut, acceptedTriesMin, acceptedTriesMin*dialTimeMax + (acceptedTriesMin-1)*client.RetryInterval, dialTimeMax},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				dials, began := 0, time.Now()
				err := untilAccepted(context.Background(), func() error {
					dials++
					cli.Sleep(context.Background(), test.each)
					return test.answers[min(dials, len(test.answers))-1]
				})
				if took := time.Since(began); !errors.Is(err, test.want) || dials != test.dials || took != test.took {
					t.Errorf("%d dials in %s: %v; want %d in %s: %v", dials, took, err, test.dials, test.took, test.want)
				}
			})
		})
	}
}
