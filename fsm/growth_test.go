package fsm_test

import (
	"testing"

	"github.com/peeklock/peeklock/fsm"
)

// What stores data is refused while disk or memory is short; what settles, clears, deletes or releases never is.
func TestGrowthIsRefusedAndReleaseIsNot(t *testing.T) {
	t.Parallel()
	at, more := fsm.Address{Entity: 1}, []byte{1, 2, 3}
	held := fsm.SessionLock{ID: "s", Epoch: 1}
	settle := func(s ...fsm.Settlement) fsm.Command { return fsm.SettleMessages{Address: at, Settlements: s} }
	for _, c := range []struct {
		name    string
		command fsm.Command
		want    bool
	}{
		{"send", fsm.SendMessages{Entity: 1, Messages: []fsm.Message{{Payload: more}}}, true},
		{"create an entity", fsm.CreateEntity{}, true},
		{"update an entity", fsm.UpdateEntity{}, true},
		{"update a namespace", fsm.UpdateNamespace{}, true},
		{"put a rule", fsm.PutRule{}, true},
		{"set access rules", fsm.SetAccess{Namespace: 1, Rules: []fsm.AccessRule{{Name: "a", Primary: "b", Rights: fsm.Send}}}, true},
		{"remove all access rules", fsm.SetAccess{Namespace: 1}, false},
		{"set a state", fsm.SetSessionState{Entity: 1, Lock: held, State: more}, true},
		{"clear a state", fsm.SetSessionState{Entity: 1, Lock: held, Clear: true}, false},
		{"abandon", settle(fsm.Settlement{Verb: fsm.Abandon}), false},
		{"abandon with properties", settle(fsm.Settlement{Verb: fsm.Complete}, fsm.Settlement{Verb: fsm.Abandon, Properties: more}), true},
		{"defer with properties", settle(fsm.Settlement{Verb: fsm.Defer, Properties: more}), true},
		{"complete with properties", settle(fsm.Settlement{Verb: fsm.Complete, Properties: more}), false},
		{"dead-letter with a reason", settle(fsm.Settlement{Verb: fsm.DeadLetter, Reason: "r"}), false},
		{"a transaction that sends", fsm.Transact{Sends: []fsm.SendMessages{{Entity: 1, Messages: []fsm.Message{{Payload: more}}}}}, true},
		{"a transaction that completes", fsm.Transact{Settles: []fsm.SettleMessages{{Address: at, Settlements: []fsm.Settlement{{Verb: fsm.Complete}}}}}, false},
		{"a transaction that clears a state", fsm.Transact{States: []fsm.SetSessionState{{Entity: 1, Lock: held, Clear: true}}}, false},
		{"drop a rule", fsm.DropRule{}, false},
		{"purge", fsm.PurgeMessages{}, false},
		{"delete an entity", fsm.DeleteEntity{}, false},
		{"drop an entity", fsm.DropEntity{}, false},
		{"release a session", fsm.ReleaseSession{}, false},
	} {
		encoded := fsm.AppendCommand(nil, header, c.command)
		if got := fsm.Grows(encoded); got != c.want {
			t.Errorf("%s: grows %t, want %t", c.name, got, c.want)
		}
		info, err := fsm.PeekCommand(encoded)
		if err != nil || c.want && !info.Kind.Grows() {
			t.Errorf("%s: the kind %v does not grow, %v", c.name, info.Kind, err)
		}
	}
}

// While only the last reserve of a disk is left, what moves or renews is refused, and what frees space, or is needed to free it, is not.
func TestTheLastReserveIsForWhatFrees(t *testing.T) {
	t.Parallel()
	at := fsm.Address{Entity: 1}
	for _, c := range []struct {
		command fsm.Command
		want    bool
	}{
		{fsm.LockMessages{Address: at, Max: 1}, false},
		{fsm.FetchDeferred{Address: at, Sequences: []fsm.SequenceNumber{1}}, false},
		{fsm.FetchReady{Address: at, Seen: []fsm.LockID{{Sequence: 1}}}, false},
		{fsm.RenewLocks{Address: at, Locks: []fsm.LockID{{Sequence: 1}}}, true},
		{fsm.AcceptSession{Entity: 1}, false},
		{fsm.RenewSession{Entity: 1, Lock: fsm.SessionLock{ID: "s", Epoch: 1}}, true},
		{fsm.RedriveMessages{Entity: 1, Sequences: []fsm.SequenceNumber{1}}, true},
		{fsm.SettleMessages{Address: at, Settlements: []fsm.Settlement{{Verb: fsm.Complete}}}, false},
		{fsm.SettleUnlocked{Address: at, Sequences: []fsm.SequenceNumber{1}, Verb: fsm.Complete, States: fsm.SetOf(fsm.Ready)}, false},
		{fsm.PurgeMessages{Address: at, Max: 1}, false},
		{fsm.CancelScheduled{Entity: 1, Sequences: []fsm.SequenceNumber{1}}, false},
		{fsm.ReleaseSession{Entity: 1, Lock: fsm.SessionLock{ID: "s", Epoch: 1}}, false},
		{fsm.SetSessionState{Entity: 1, Lock: fsm.SessionLock{ID: "s", Epoch: 1}, Clear: true}, false},
		{fsm.DropRule{Subscription: 1, Name: "r"}, false},
		{fsm.DropEntity{Entity: 1}, false},
		{fsm.DeleteEntity{Entity: 1}, false},
		{fsm.ForgetEntity{Entity: 1}, false},
		{fsm.DeleteNamespace{Namespace: 2}, false},
		{fsm.SetAccess{Namespace: 2}, false},
		{fsm.Pulse{}, false},
	} {
		if got := fsm.Holds(fsm.AppendCommand(nil, header, c.command)); got != c.want {
			t.Errorf("%T: holds %t, want %t: %+v", c.command, got, c.want, c.command)
		}
	}
}
