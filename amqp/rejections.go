package amqp

import (
	"context"
	"log/slog"
	"net"
	"time"
)

// rejections counts the connections that were refused since the last log line about them. The mutex of the Server
// guards it.
type rejections struct {
	count  int
	logged time.Time // the last line
}

// add counts a refused connection. It logs at most once per rejectLogEvery, so that a flood of connections does not
// become a flood of log lines. most is the limit that the connection exceeds.
func (r *rejections) add(ctx context.Context, log *slog.Logger, peer net.Addr, cause error, most int) {
	r.count++
	if now := time.Now(); now.Sub(r.logged) >= rejectLogEvery {
		log.WarnContext(ctx, "connections refused", "reason", cause, "peer", peer, "max", most, "count", r.count)
		*r = rejections{logged: now}
	}
}
