package fsm

// Level is the highest level that this binary knows.
//
// A level is a number for a set of formats: which kinds of commands a binary of that level may
// write and in which versions, and so what stands in logs, images, backups, gossip and results. Whatever
// an older binary would refuse or read otherwise is a new level, however small it is. A binary reads all
// levels up to its own, and writes that of the cluster (Catalog.Level), which rises when all members know
// the next one. So a change of format comes in two parts: the code that reads it, with a new Level here,
// and the code that writes it where Catalog.Level says that it may.
//
//	1  all that stands in testdata/formats
const Level uint32 = 1

// RaiseLevel records that every member knows a level, which must be above 0: from now on its
// formats may be written, and a binary that knows less takes part no more. Result: nothing. It
// never falls: PreconditionFails, as in a catalog that is not founded.
type RaiseLevel struct{ Level uint32 }

func (RaiseLevel) command() {}

// raise sets the level. A binary of any level does so: that it knows less than it raises to
// is for its owner to find out.
func (c *Catalog) raise(level uint32) Code {
	if level < c.level || c.clusterID == "" {
		return PreconditionFails
	}
	c.level = level
	return OK
}

// Level is the level of the cluster: what may be written. 0 before it is founded, then 1 or more.
func (c *Catalog) Level() uint32 { return c.level }
