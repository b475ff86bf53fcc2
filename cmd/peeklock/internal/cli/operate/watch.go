package operate

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/peeklock/peeklock/admin/api"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/client"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/command"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/output"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/topology"
)

// Times and rates of commands that watch the work of the cluster.
const (
	watchInterval = 500 * time.Millisecond // between two checks of the progress
	// copyRate is the rate of two concurrent copies that an estimate assumes, in bytes per second.
	copyRate = 50 << 20
	// copyOverhead is the additional time per partition to open the replica, to elect a leader and to transfer the
	// leadership.
	copyOverhead = 2 * time.Second
)

// memberNames resolves member names.
type memberNames struct{ members []api.Member }

func readMembers(ctx context.Context, c *client.Client) (*memberNames, error) {
	var list api.Members
	if err := c.Call(ctx, http.MethodGet, "/v1/members", nil, &list); err != nil {
		return nil, err
	}
	return &memberNames{list.Members}, nil
}

// name returns the name of a member if it is unique, otherwise the id.
func (r *memberNames) name(id fsm.MemberID) string {
	at := slices.IndexFunc(r.members, func(m api.Member) bool { return m.ID == id })
	if at < 0 {
		return string(id)
	}
	if found, err := r.find(r.members[at].Name); err != nil || found.ID != id {
		return string(id)
	}
	return r.members[at].Name
}

func (r *memberNames) names(ids []fsm.MemberID) string {
	texts := make([]string, len(ids))
	for i, id := range ids {
		texts[i] = r.name(id)
	}
	return strings.Join(texts, " ")
}

// find finds a member by name or id, as the control API does.
func (r *memberNames) find(text string) (api.Member, error) {
	var named []api.Member
	for _, m := range r.members {
		if string(m.ID) == text {
			return m, nil
		}
		if m.Name == text {
			named = append(named, m)
		}
	}
	if still := slices.DeleteFunc(slices.Clone(named), func(m api.Member) bool { return m.Removed }); len(still) > 0 {
		named = still
	}
	switch len(named) {
	case 0:
		return api.Member{}, fmt.Errorf("no member is called %q: peeklock member list shows them", output.Printable(text, 100))
	case 1:
		return named[0], nil
	}
	return api.Member{}, fmt.Errorf("%d members are called %q: use the id, which peeklock member list --all -o json shows", len(named), output.Printable(text, 100))
}

// completeMember offers partition numbers for the first from arguments and member names for the others, up to most
// arguments; most < 0: no limit.
func completeMember(from, most int) command.Completer {
	return func(ctx context.Context, c *client.Client, args []string) (names []string) {
		if len(args) < from {
			return partitionIDs(ctx, c)
		}
		if most >= 0 && len(args) >= most {
			return nil
		}
		r, err := readMembers(ctx, c)
		if err != nil {
			return nil
		}
		for _, m := range r.members {
			if name := r.name(m.ID); !m.Removed && !slices.Contains(args, name) && len(names) < command.CompletionNames {
				names = append(names, name)
			}
		}
		return names
	}
}

func partitionIDs(ctx context.Context, c *client.Client) (ids []string) {
	var st topology.Status
	if c.Call(ctx, http.MethodGet, "/v1/status", nil, &st) != nil {
		return nil
	}
	for _, p := range st.Partitions {
		if p.ID != fsm.CatalogPartition && len(ids) < command.CompletionNames {
			ids = append(ids, strconv.FormatUint(uint64(p.ID), 10))
		}
	}
	return ids
}

// detachedError is the error of a command that stopped watching while the cluster continues the work.
func detachedError(what string, why error) error {
	return cli.Unknown(fmt.Errorf("%s continues in the cluster, but this command has stopped watching it (%w): peeklock partition moves shows the progress, and the same command waits for it again", what, why))
}

// retryUntilDone repeats a request until the change is complete. A member waits for up to half a minute, then
// answers Timeout and continues the work, so the request is repeated; so it is when the member is busy or briefly
// unreachable. look is called from time to time to show the progress.
func retryUntilDone(ctx context.Context, c *client.Client, what string, ask func(context.Context) error, look func(context.Context)) error {
	watching, stop := context.WithCancel(ctx)
	var watch sync.WaitGroup
	if c.Interactive {
		watch.Go(func() { pollWhile(watching, watchInterval, func() bool { look(watching); return true }) })
	}
	defer watch.Wait()
	defer stop()
	lost := time.Time{}
	for begun := false; ; {
		err := ask(ctx)
		_, refused := client.Code(err)
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return detachedError(what, errors.New("interrupted"))
		case client.IsCode(err, "Timeout"):
			begun, lost = true, time.Time{}
			cli.Sleep(ctx, watchInterval) // the member has waited; one that does not wait must not be flooded
			continue
		case client.IsCode(err, "ServerBusy"), begun && client.IsCode(err, "InvalidArgument"): // a member that took part may be back soon
		case !begun && !cli.IsUnknown(err), refused:
			return err
		}
		// The member did not answer, or not now. The change has started, or may have.
		now := time.Now()
		if lost.IsZero() {
			lost = now
		}
		if now.Sub(lost) > client.UnreachableMax {
			if !begun {
				return err
			}
			return detachedError(what, err)
		}
		cli.Sleep(ctx, client.RetryInterval)
	}
}

// pollWhile calls call at once and then repeatedly, until it returns false or ctx ends.
func pollWhile(ctx context.Context, pause time.Duration, call func() bool) {
	for ctx.Err() == nil && call() {
		cli.Sleep(ctx, pause)
	}
}

// estimate returns the approximate time to copy bytes in this number of moves.
func estimate(bytes int64, moves int) time.Duration {
	return (time.Duration(float64(bytes)/copyRate*float64(time.Second)) + time.Duration(moves)*copyOverhead).Round(time.Second)
}

// errMovesPaused ends the watching of moves that do not end on their own.
var errMovesPaused = errors.New("paused")

// watchMoves watches the moves of these partitions until all have ended. sizes has the bytes to copy, as far as
// they are known.
func watchMoves(ctx context.Context, c *client.Client, what string, sizes map[fsm.PartitionID]int64) (err error) {
	m := output.NewBytesMeter(c.Process, what, 1)
	defer func() { m.End(err != nil) }()
	lost := time.Time{}
	pollWhile(ctx, watchInterval, func() bool {
		var list api.Moves
		if err = c.Call(ctx, http.MethodGet, "/v1/moves", nil, &list); err != nil {
			if lost.IsZero() {
				lost = time.Now()
			}
			return time.Since(lost) < client.UnreachableMax
		}
		lost = time.Time{}
		left, paused := showMoves(m, what, sizes, list.Moves)
		if left > 0 && left == paused {
			err = errMovesPaused
		}
		return left > paused
	})
	switch {
	case ctx.Err() != nil:
		return detachedError(what, errors.New("interrupted"))
	case errors.Is(err, errMovesPaused):
		return fmt.Errorf("%s: the remaining moves are paused; resume them with peeklock partition resume ID", what)
	case err != nil:
		return detachedError(what, err)
	}
	return nil
}

// showMoves shows the progress of moves and counts those that are unfinished.
func showMoves(m *output.Meter, what string, sizes map[fsm.PartitionID]int64, list []topology.Move) (left, paused int) {
	const least = 1 << 20 // so that partitions without data count, too
	total, done := int64(0), int64(0)
	moving := map[fsm.PartitionID]topology.Move{}
	states := []string{}
	for _, move := range list {
		if _, ours := sizes[move.Partition]; ours {
			moving[move.Partition] = move
			left++
			if move.State == "paused" {
				paused++
			}
			if move.State != "waiting" {
				states = append(states, fmt.Sprintf("%d %s", move.Partition, move.State))
			}
		}
	}
	for id, size := range sizes {
		move, still := moving[id]
		size = max(size, move.Bytes, least)
		total += size
		switch {
		case !still:
			done += size
		case move.State == "catching up":
			done += min(move.Copied, size)
		case move.State == "handing over", move.State == "removing":
			done += size * 9 / 10
		}
	}
	m.Set(done, total)
	text := what
	if len(states) > 0 {
		text += " (" + strings.Join(states[:min(3, len(states))], ", ") + ")"
	}
	m.Say(text)
	return left, paused
}
