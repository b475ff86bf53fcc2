package partition

// isEarly reports whether a command that needs a format level comes before the log of this group has that level. The
// cluster has reached it before somebody writes such a command; the log will soon.
func (g *Group) isEarly(needed uint32) bool {
	return needed > max(1, g.level.Load())
}

// SetReadOnly makes this replica, as leader, refuse commands that make data grow, as if its own disk were low
// on space: for when so many other voters are low that no quorum has space. Its refusals are then Final.
func (g *Group) SetReadOnly(on bool) { g.toldReadOnly.Store(on) }

// isReadOnly reports whether commands that make data grow are refused.
func (g *Group) isReadOnly() bool {
	return g.toldReadOnly.Load() || g.cfg.Log.Disk().RefusesGrowth()
}
