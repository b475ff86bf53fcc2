package partition

import (
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/planted"
)

// isEarly reports whether a command needs a higher format level than this machine has. The cluster has reached that
// level before somebody writes such a command; the log of this group has not, and will soon.
func (g *Group) isEarly(command []byte) bool {
	level := max(1, g.level.Load())
	return level < fsm.FormatLevel && fsm.CommandLevel(command) > level && !planted.Active(planted.SubmitAboveLevel)
}

// SetReadOnly makes this replica, as leader, refuse commands that make data grow, as if its own disk were low
// on space: for when so many other voters are low that no quorum has space. Its refusals are then Final.
func (g *Group) SetReadOnly(on bool) { g.toldReadOnly.Store(on) }

// isReadOnly reports whether commands that make data grow are refused.
func (g *Group) isReadOnly() bool {
	return g.toldReadOnly.Load() || g.cfg.Log.Disk().RefusesGrowth()
}
