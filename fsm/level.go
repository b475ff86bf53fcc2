package fsm

// FormatLevel is the highest level that this binary knows.
//
// A level is a number for a set of formats: which kinds of commands a binary of that level may
// write and in which versions, and so what stands in logs, images, backups, gossip and results. Whatever
// an older binary would refuse or read otherwise is a new level, however small it is. A binary reads all
// levels up to its own, and writes that of the cluster (Catalog.Level), which rises when all members know
// the next one. So a change of format comes in two parts: the code that reads it, with a new Level here,
// and the code that writes it where Catalog.Level says that it may.
//
//	1  all that stands in testdata/formats
//	2  RaiseLevel in the logs of message partitions. From it on a message machine counts steps
//	   (ruleStepsMax, entryStepsMax), keeps what does not fit into an entry as Pending messages,
//	   and writes image version 4, which begins with its level.
const FormatLevel uint32 = 2

// levelPublishSteps is the level from which on publishing is bounded by steps.
const levelPublishSteps = 2

// RaiseLevel records that every member knows a level, which must be above 0: from now on its
// formats may be written, and a binary that knows less takes part no more. Result: nothing. It
// never falls: PreconditionFails, as in a catalog that is not founded.
//
// In the catalog it is the level of the cluster. In the log of a message partition it is that of
// its machine, which knows no other: the leader writes it there when it has heard that the cluster
// has risen, and from that entry on all replicas do what the level says, whatever their members
// have heard.
type RaiseLevel struct{ Level uint32 }

func (RaiseLevel) command() {}

// raiseLevel sets the level. A binary of any level does so: that it knows less than it raises to
// is for its owner to find out.
func (c *Catalog) raiseLevel(level uint32) Code {
	if level < c.level || c.clusterID == "" {
		return PreconditionFails
	}
	c.level = level
	return OK
}

// FormatLevel is the level of the machine: what of its behaviour and of its image is decided by a
// level goes by it. 1 or more.
func (q *Queues) FormatLevel() uint32 { return max(1, q.level) }

// raiseLevel sets the level of the machine. Nothing of before is taken apart: what was
// published stays so.
func (q *Queues) raiseLevel(level uint32) Code {
	if level == 0 {
		return InvalidArgument
	}
	if level < q.FormatLevel() {
		return PreconditionFails
	}
	if q.FormatLevel() < levelPublishSteps && level >= levelPublishSteps {
		for _, x := range q.entities {
			if x.topicState != nil {
				x.topicState.rebuildIndex(q.arena.generation)
			}
		}
	}
	q.level = level
	return OK
}

// FormatLevel is the level of the cluster: what may be written. 0 before it is founded, then 1 or more.
func (c *Catalog) FormatLevel() uint32 { return c.level }
