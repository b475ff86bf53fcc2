package catalog

import (
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/answers"
	"github.com/peeklock/peeklock/fsm/fields"
)

// New returns an empty state machine. It stores no bodies.
func New() *Machine {
	c := &Machine{}
	c.reset()
	return c
}

func (c *Machine) reset() {
	*c = Machine{}
	c.table = answers.New(&c.generation, func(*answers.Details) {})
}

// Apply performs one command and returns its result. A refused command changes nothing. A repeated
// command is answered from memory.
//
// Apply panics, with the index and the reason, if the bytes do not decode or the kind is not one of
// the catalog.
func (c *Machine) Apply(env fsm.Env, command []byte) fsm.Result {
	c.times = c.times.Advance(env)
	r := fields.Decoder(command)
	kind, h := fsm.ReadHeader(&r)
	if r.Err() == nil && !kind.IsFor(fsm.CatalogPartition) {
		r.Fail(fsm.ErrKind)
	}
	cmd, err := fsm.ReadPayload(r, kind)
	if err != nil {
		panic(fsm.Undecodable(env, kind, err))
	}
	if h.Incarnation == 0 {
		return c.perform(cmd)
	}
	l, old, code := c.table.Begin(h, c.times.Serving)
	switch {
	case code != fsm.OK:
		return fsm.Result{Code: code}
	case old != nil:
		return old.Result()
	}
	res := c.perform(cmd)
	if x, ok := answers.NewRecord(kind, h.Serial, fsm.Address{}, res); ok {
		c.table.Remember(l, x)
	}
	return res
}

// Skip answers a command with Internal, without performing it (see answers.Table.Skip).
func (c *Machine) Skip(env fsm.Env, command []byte) fsm.Result {
	c.times = c.times.Advance(env)
	return c.table.Skip(command, c.times.Serving)
}

func (c *Machine) perform(cmd fsm.Command) fsm.Result {
	if code := cmd.Check(); code != fsm.OK {
		return fsm.Result{Code: code}
	}
	switch cmd := cmd.(type) {
	case fsm.FoundCluster:
		return c.foundCluster(cmd)
	case fsm.PartitionFormed:
		return c.markFormed(cmd.Partition)
	case fsm.CreateEntity:
		return c.createEntity(cmd)
	case fsm.UpdateEntity:
		return c.updateEntity(cmd)
	case fsm.DeleteEntity:
		return c.deleteEntity(cmd.Entity)
	case fsm.ForgetEntity:
		return c.forgetEntity(cmd.Entity)
	case fsm.CreateNamespace, fsm.UpdateNamespace, fsm.DeleteNamespace, fsm.SetAccess:
		return c.applyNamespaceCommand(cmd)
	case fsm.SetMember, fsm.PlacePartition, fsm.PartitionPlaced, fsm.ReplaceReplica, fsm.AddPartitions:
		return c.applyPlacementCommand(cmd)
	case fsm.RaiseLevel:
		return fsm.Result{Code: c.raiseLevel(cmd.Level)}
	case fsm.HoldLevel:
		return fsm.Result{Code: c.holdLevel(cmd.Max)}
	case fsm.RenameCluster:
		return fsm.Result{Code: c.renameCluster(cmd.ClusterID)}
	case fsm.CloseReceiver:
		c.table.CloseReceiver(cmd)
	case fsm.Pulse:
		c.table.ForgetIdle(c.times.Serving, fsm.PulseMessagesMax)
	}
	return fsm.Result{}
}

func (c *Machine) foundCluster(cmd fsm.FoundCluster) fsm.Result {
	if c.clusterID != "" {
		return fsm.Result{Code: fsm.EntityExists}
	}
	c.clusterID, c.tokenKey, c.level = cmd.ClusterID, cmd.TokenKey, 1
	for i := range cmd.Partitions {
		p := cmd.Partitions[i]
		for _, replica := range p.Replicas {
			p.Last = max(p.Last, replica.Number)
		}
		c.partitions = append(c.partitions, &p)
	}
	c.load = make([]int, len(c.partitions))
	c.addNamespace(fsm.CreateNamespace{Name: fsm.DefaultNamespaceName})
	return fsm.Result{}
}

// renameCluster gives the cluster another id.
func (c *Machine) renameCluster(id string) fsm.Code {
	if !c.isOnOneMember() {
		return fsm.PreconditionFails
	}
	c.clusterID = id
	return fsm.OK
}

// isOnOneMember reports whether one member has all partitions, and no move is under way.
func (c *Machine) isOnOneMember() bool {
	for _, p := range c.partitions {
		if len(p.Replicas) != 1 || p.Target != nil || p.Replicas[0].Member != c.partitions[0].Replicas[0].Member {
			return false
		}
	}
	return true
}

func (c *Machine) markFormed(id fsm.PartitionID) fsm.Result {
	old := c.partition(id)
	switch {
	case old == nil:
		return fsm.Result{Code: fsm.InvalidArgument}
	case !old.Formed:
		p := *old
		p.Formed = true
		c.putPartition(&p)
	}
	return fsm.Result{}
}

// Effects returns nothing: a catalog has no effects.
func (c *Machine) Effects() []fsm.Effect { return nil }

// Times returns the times of the newest entry.
func (c *Machine) Times() fsm.Times { return c.times }

// NextDeadline returns the time at which an incarnation is to be forgotten.
func (c *Machine) NextDeadline() fsm.Times { return fsm.Times{Serving: c.table.Due()} }

// Refs calls visit for nothing: a catalog has no bodies.
func (c *Machine) Refs(func(fsm.Owner, fsm.Ref) fsm.Ref) {}

// raiseLevel sets the level of the cluster. A level above FormatLevel is accepted too: all replicas
// must answer alike, and package cluster checks whether this binary is too old.
func (c *Machine) raiseLevel(level uint32) fsm.Code {
	if level < c.level || c.levelMax != 0 && level > c.levelMax || c.clusterID == "" {
		return fsm.PreconditionFails
	}
	c.level = level
	return fsm.OK
}

// holdLevel sets the level above which the cluster does not rise.
func (c *Machine) holdLevel(most uint32) fsm.Code {
	if most != 0 && most < c.level || c.clusterID == "" {
		return fsm.PreconditionFails
	}
	c.levelMax = most
	return fsm.OK
}

// FormatLevelMax returns the level above which the cluster does not rise, 0 for none.
func (c *Machine) FormatLevelMax() uint32 { return c.levelMax }

// FormatLevel returns the level of the cluster, which decides what may be written: 0 before the
// cluster is bootstrapped, then 1 or more.
func (c *Machine) FormatLevel() uint32 { return c.level }
