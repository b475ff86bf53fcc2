package entities

import (
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/client"
)

// absentMember refuses connections until a time.
type absentMember struct {
	until time.Time
	asked int
}

func (m *absentMember) RoundTrip(*http.Request) (*http.Response, error) {
	m.asked++
	if time.Now().Before(m.until) {
		return nil, &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
	}
	w := httptest.NewRecorder()
	_, _ = w.WriteString("{}")
	return w.Result(), nil
}

// A job that starts together with its cluster waits for it, and no longer than it was told.
func TestImportWaitsForAMember(t *testing.T) {
	t.Parallel()
	for wait, want := range map[time.Duration]error{0: client.ErrNoMember, 30 * time.Second: client.ErrNoMember, 2 * time.Minute: nil} {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			m := &absentMember{until: began.Add(time.Minute)}
			c := new(client.Client).WithHTTP(&http.Client{Transport: m})
			err := waitForMember(t.Context(), c, wait)
			if took := time.Since(began); !errors.Is(err, want) || want != nil && took > wait+time.Second {
				t.Errorf("--wait %s: %v after %s and %d requests", wait, err, took, m.asked)
			}
		})
	}
}
