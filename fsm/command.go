package fsm

// Header makes a command exactly-once. The router of a member numbers its requests to a partition.
// The state machine remembers the answer to every (Incarnation, Receiver, Serial) until a later
// command of the receiver has a Low above that serial. A repeated command is answered from memory
// and not performed again (Raft dissertation, section 6.3). Incarnation 0 is the leader itself
// (pulses): its answers are not remembered.
type Header struct {
	Incarnation uint64 // of the requesting member, drawn at its start; 0: none
	Receiver    uint64 // 0 for ordinary requests, else one receiver, which has at most one request in flight
	Serial      uint64 // rises by one per receiver, from 1
	Low         uint64 // every Serial below it has been answered and need not be remembered
}

// Command is implemented by the command structs of this package, as values.
type Command interface{ command() }

func (PutEntity) command()        {}
func (DropEntity) command()       {}
func (SettleMessages) command()   {}
func (RenewLocks) command()       {}
func (FetchDeferred) command()    {}
func (CloseReceiver) command()    {}
func (Pulse) command()            {}
func (CancelScheduled) command()  {}
func (PurgeMessages) command()    {}
func (RedriveMessages) command()  {}
func (Touch) command()            {}
func (PutRule) command()          {}
func (DropRule) command()         {}
func (ForwardMessages) command()  {}
func (TransferMessages) command() {}
