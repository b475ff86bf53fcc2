package admin

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/peeklock/peeklock/admin/api"
	"github.com/peeklock/peeklock/admin/input"
	"github.com/peeklock/peeklock/admin/operation"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/topology"
)

// Limits of requests of operators.
const (
	growthMax       = 1024 // partitions added at a time
	moveReplicasMax = 16   // replicas of a partition
	weightMax       = 100
	defaultWeight   = 10 // a stored weight of 0 means this
	zoneBytesMax    = 64
	planMovesMax    = 256 // moves of a plan in a request: the number that fits into a body
	memberBytesMax  = 256 // bytes of a name or id
	memberHint      = "name or id of a member: GET /v1/members lists them"
)

// Operations are the changes that operators make to the members and partitions of the cluster. A long operation is
// recorded and continues by itself; a method that waits for it returns Timeout when ctx ends, and may be called again.
// Errors wrap EntityNotFound, InvalidArgument, PreconditionFails, ServerBusy or Timeout, with a text for operators.
type Operations interface {
	// Members lists the recorded members, including removed ones.
	Members(ctx context.Context) ([]fsm.Member, error)
	// SetMember records zone and weight.
	SetMember(ctx context.Context, member fsm.Member) error
	// Drain returns when the member leads no partition that another member could lead.
	Drain(ctx context.Context, id fsm.MemberID) error
	Undrain(ctx context.Context, id fsm.MemberID) error
	// RemoveMember returns when the member has no replica and is recorded as removed.
	RemoveMember(ctx context.Context, id fsm.MemberID) error
	// ReplaceMember is RemoveMember, with one member that gets all replicas.
	ReplaceMember(ctx context.Context, old, fresh fsm.MemberID) error
	// Move records the members that are to have replicas of a partition, the preferred leader first.
	Move(ctx context.Context, id fsm.PartitionID, members []fsm.MemberID) error
	PauseMove(ctx context.Context, id fsm.PartitionID) error
	ResumeMove(ctx context.Context, id fsm.PartitionID) error
	CancelMove(ctx context.Context, id fsm.PartitionID) error
	// TransferLeader transfers a leadership once; the preferred leader stays the same.
	TransferLeader(ctx context.Context, id fsm.PartitionID, to fsm.MemberID) error
	// PlanRebalance returns the moves of a rebalance; Rebalance records moves.
	PlanRebalance(ctx context.Context) ([]topology.PlannedMove, error)
	Rebalance(ctx context.Context, moves []topology.PlannedMove) error
	// Moves lists the partitions whose replicas are not yet placed as recorded.
	Moves(ctx context.Context) ([]topology.Move, error)
	// Grow adds partitions and returns their new number.
	Grow(ctx context.Context, n int) (int, error)
	// HoldFormatLevel sets the format level above which the cluster does not rise, 0 for none.
	HoldFormatLevel(ctx context.Context, most uint32) error
	// ConfirmTime accepts the time to which the clocks of a quorum were set together, and returns by how much wall time
	// moves. The error wraps PreconditionFails if wall time follows the clocks.
	ConfirmTime(ctx context.Context) (step time.Duration, err error)
	// Verify compares the state of all replicas of a partition; 0 is the catalog.
	Verify(ctx context.Context, id fsm.PartitionID) (topology.Verification, error)
	// Backup writes a consistent copy of the leader's replica of a partition, at a time after the call. If the
	// error wraps ServerBusy, nothing was written; after any other error the written part is useless.
	Backup(ctx context.Context, id fsm.PartitionID, w io.Writer) error
}

// operatorAPI serves the part of the control API that concerns the cluster: members, partitions, backups.
type operatorAPI struct {
	*core
	backups chan struct{} // one token per backup in flight
}

// routes returns the routes of operators.
func (s *operatorAPI) routes() []route {
	const member, partition, cluster = "member", "partition", "cluster"
	of := func(name, pattern, summary string, body, answer any) operation.Operation {
		return operation.Operation{Name: name, Pattern: pattern, Right: operation.OperatorOnly, Summary: summary, Body: body, Answer: answer, Answers: always(statusBytesMax)}
	}
	accepted := func(o operation.Operation) operation.Operation {
		o.Statuses = []int{http.StatusAccepted}
		return o
	}
	mostEvents := operation.Number("max", "events of the page", auditNormal, 1, topology.AuditPageMax)
	return []route{
		{page(operation.Operation{
			Name: "listAudit", Pattern: "GET /v1/audit", Right: operation.OperatorOnly, Query: []operation.Parameter{operation.Text("after", "next of the page before"), mostEvents}, Answer: topology.AuditPage{},
			Summary: "Lists the audit events that members have kept, the last 1,000 of each, newest first.",
		}, operation.Parameter{}, mostEvents, auditAnswerBytes), "", "", s.listAudit},
		{of("getStatus", "GET /v1/status", "Shows the state of the cluster as this member sees it.", nil, topology.Status{}), "", "", s.status},
		{of("listConditions", "GET /v1/conditions", "Lists what needs attention in the cluster, as this member sees it, and at this member.", nil, api.Conditions{}), "", "", s.conditions},
		{of("getStorage", "GET /v1/storage", "Shows the disks of all members, and the last backup that was read from each partition since its member started.", nil, topology.Storage{}), "", "", s.storage},
		{of("listMembers", "GET /v1/members", "Lists the recorded members with their state as this member sees it.", nil, api.Members{}), "", "", s.listMembers},
		{of("updateMember", "PATCH /v1/members/{name}", "Changes zone and weight of a member.", api.MemberChange{}, api.Member{}), "update", member, s.updateMember},
		{of("drainMember", "POST /v1/members/{name}/drain", "Transfers all leaderships of a member.", api.MemberForce{}, nil), "drain", member, s.memberAction(Operations.Drain, true)},
		{of("undrainMember", "POST /v1/members/{name}/undrain", "Lets a member lead partitions again.", nil, nil), "undrain", member, s.memberAction(Operations.Undrain, false)},
		{of("removeMember", "POST /v1/members/{name}/remove", "Moves all replicas of a member and removes it.", api.MemberForce{}, nil), "remove", member, s.memberAction(Operations.RemoveMember, true)},
		{of("replaceMember", "POST /v1/members/{name}/replace", "Moves all replicas of a member to another one and removes it.", api.MemberReplacement{}, nil), "replace", member, s.replaceMember},
		{of("addPartitions", "POST /v1/partitions", "Adds partitions.", api.GrowRequest{}, api.GrowResult{}), "grow", cluster, s.grow},
		{accepted(of("movePartition", "POST /v1/partitions/{name}/move", "Records the members that are to have replicas of a partition.", api.MoveRequest{}, nil)), "move", partition, s.movePartition},
		{of("pauseMove", "POST /v1/partitions/{name}/pause", "Pauses the move of a partition.", nil, nil), "pause", partition, s.partitionAction(Operations.PauseMove)},
		{of("resumeMove", "POST /v1/partitions/{name}/resume", "Resumes the move of a partition.", nil, nil), "resume", partition, s.partitionAction(Operations.ResumeMove)},
		{of("cancelMove", "POST /v1/partitions/{name}/cancel", "Cancels the move of a partition.", nil, nil), "cancel", partition, s.partitionAction(Operations.CancelMove)},
		{of("transferLeader", "POST /v1/partitions/{name}/transfer", "Transfers the leadership of a partition once; 0 is the catalog.", api.TransferRequest{}, nil), "transfer", partition, s.transferLeader},
		{of("logNote", "POST /v1/notes", "Writes a text to the log of this member.", api.Note{}, nil), "", "", s.logNote},
		{of("listMoves", "GET /v1/moves", "Lists the partitions whose replicas are not yet placed as recorded.", nil, api.Moves{}), "", "", s.listMoves},
		{of("planRebalance", "GET /v1/rebalance", "Shows the moves of a rebalance.", nil, api.Plan{}), "", "", s.planRebalance},
		{accepted(of("rebalance", "POST /v1/rebalance", "Records the moves of a plan, or of the one that GET shows.", api.Plan{}, api.Plan{})), "rebalance", cluster, s.rebalance},
		{of("holdFormatLevel", "PUT /v1/format-level", "Sets the format level above which the cluster does not rise; 0: none.", api.FormatLevelRequest{}, nil), "hold format level", cluster, s.holdFormatLevel},
		{of("confirmTime", "POST /v1/confirm-time", "Accepts the time to which the clocks of a quorum were set together.", nil, api.ConfirmedTime{}), "confirm time", cluster, s.confirmTime},
		{of("verifyPartition", "GET /v1/verify/{name}", "Compares the state of all replicas of a partition; 0 is the catalog.", nil, topology.Verification{}), "", "", s.verify},
		{of("backUpPartition", "GET /v1/backup/{name}", "Streams a consistent copy of a partition; 0 is the catalog.", nil, []byte(nil)), "back up", partition, s.backup},
	}
}

// storage is GET /v1/storage.
func (s *operatorAPI) storage(w http.ResponseWriter, r *http.Request) error {
	s.writeJSON(w, r, http.StatusOK, s.config.Control.Storage(r.Context()))
	return nil
}

// listMembers is GET /v1/members: the recorded members with their state as this member sees it.
func (s *operatorAPI) listMembers(w http.ResponseWriter, r *http.Request) error {
	list, err := s.members(r.Context())
	if err != nil {
		return err
	}
	s.writeJSON(w, r, http.StatusOK, api.Members{Members: list})
	return nil
}

func (s *operatorAPI) members(ctx context.Context) ([]api.Member, error) {
	known, err := s.config.Control.Members(ctx)
	if err != nil {
		return nil, err
	}
	status, err := s.config.Control.Status(ctx)
	if err != nil {
		return nil, err
	}
	list := make([]api.Member, 0, len(known))
	for _, m := range known {
		list = append(list, describeMember(m, status.Members))
	}
	slices.SortFunc(list, func(a, b api.Member) int { return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.ID, b.ID)) })
	return list, nil
}

// describeMember returns the JSON form of a recorded member with its seen state.
func describeMember(m fsm.Member, seen []topology.Member) api.Member {
	shown := api.Member{
		Member: topology.Member{ID: m.ID, Name: m.Name, State: topology.Dead},
		Zone:   m.Zone, Weight: cmp.Or(m.Weight, defaultWeight), Removed: m.Removed,
	}
	if at := slices.IndexFunc(seen, func(s topology.Member) bool { return s.ID == m.ID }); at >= 0 {
		shown.Member = seen[at]
	} else if m.Removed {
		shown.State = topology.Removed
	}
	shown.Drained = m.Drained
	return shown
}

// resolveMember finds a member by id or by name. A name of several members is refused, unless all but one of them
// were removed: the replacement of a machine keeps its name.
func (s *operatorAPI) resolveMember(ctx context.Context, text string) (fsm.Member, error) {
	if text == "" || len(text) > memberBytesMax {
		return fsm.Member{}, fmt.Errorf("%w: %s", fsm.InvalidArgument, memberHint)
	}
	all, err := s.config.Control.Members(ctx)
	if err != nil {
		return fsm.Member{}, err
	}
	return findMember(all, text)
}

func findMember(all []fsm.Member, text string) (fsm.Member, error) {
	var named []fsm.Member
	for _, m := range all {
		if string(m.ID) == text {
			return m, nil
		}
		if m.Name == text {
			named = append(named, m)
		}
	}
	if still := slices.DeleteFunc(slices.Clone(named), func(m fsm.Member) bool { return m.Removed }); len(still) > 0 {
		named = still
	}
	switch len(named) {
	case 0:
		return fsm.Member{}, fmt.Errorf("%w: no member is called %q: GET /v1/members lists them", fsm.EntityNotFound, truncate(text))
	case 1:
		return named[0], nil
	}
	return fsm.Member{}, fmt.Errorf("%w: %d members are called %q: use the id", fsm.InvalidArgument, len(named), truncate(text))
}

// updateMember is PATCH /v1/members/{member}.
func (s *operatorAPI) updateMember(w http.ResponseWriter, r *http.Request) error {
	var asked api.MemberChange
	if err := input.Decode(r, &asked, "zone, weight"); err != nil {
		return err
	}
	switch {
	case asked.Zone != nil && len(*asked.Zone) > zoneBytesMax:
		return fmt.Errorf("%w: zone: at most %d bytes", fsm.InvalidArgument, zoneBytesMax)
	case asked.Weight != nil && (*asked.Weight < 1 || *asked.Weight > weightMax):
		return fmt.Errorf("%w: weight: 1 to %d, not %d", fsm.InvalidArgument, weightMax, *asked.Weight)
	}
	m, err := s.resolveMember(r.Context(), r.PathValue("name"))
	if err != nil {
		return err
	}
	if m.Removed {
		return fmt.Errorf("%w: member %q was removed for good", fsm.PreconditionFails, truncate(r.PathValue("name")))
	}
	if asked.Zone != nil {
		m.Zone = *asked.Zone
	}
	if asked.Weight != nil {
		m.Weight = *asked.Weight
	}
	if err := s.config.Control.SetMember(r.Context(), m); err != nil {
		return err
	}
	status, err := s.config.Control.Status(r.Context())
	if err != nil {
		return err
	}
	s.writeJSON(w, r, http.StatusOK, describeMember(m, status.Members))
	return nil
}

// memberAction is POST /v1/members/{member}/drain and the like: it answers when the operation is done, or
// with Timeout; the operation then continues, and the client can repeat the request.
func (s *operatorAPI) memberAction(do func(Operations, context.Context, fsm.MemberID) error, isRisky bool) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		var asked api.MemberForce
		possible := "force"
		if !isRisky {
			possible = "nothing"
		}
		if err := input.Decode(r, &asked, possible); err != nil {
			return err
		}
		m, err := s.resolveMember(r.Context(), r.PathValue("name"))
		if err == nil && isRisky {
			err = s.checkRisk(r.Context(), &m, asked.Force)
		}
		if err == nil {
			err = do(s.config.Control, r.Context(), m.ID)
		}
		if err != nil {
			return err
		}
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
}

// checkRisk refuses to take a living member out of service while another one is dead and holds some of the same partitions, unless the
// request says force.
func (s *operatorAPI) checkRisk(ctx context.Context, m *fsm.Member, force bool) error {
	if force || m.Removed {
		return nil
	}
	st, err := s.config.Control.Status(ctx)
	if err != nil {
		return err
	}
	partitions, dead := api.AtRisk(st, m.ID)
	if len(partitions) == 0 {
		return nil
	}
	return fmt.Errorf("%w: %s is dead: without %s the partitions %v are one failure from standing still: start the dead member or remove it first, or repeat the request with force",
		fsm.PreconditionFails, strings.Join(dead, ", "), cmp.Or(m.Name, string(m.ID)), partitions)
}

// logNote is POST /v1/notes: it logs a report of a program whose own output is lost, such as a hook of Kubernetes.
func (s *operatorAPI) logNote(w http.ResponseWriter, r *http.Request) error {
	var note api.Note
	if err := input.Decode(r, &note, "source and text"); err != nil {
		return err
	}
	if note.Text == "" || len(note.Text) > api.NoteBytesMax || len(note.Source) > api.NoteSourceBytesMax {
		return fmt.Errorf("%w: a note has a text of 1 to %d bytes and a source of at most %d", fsm.InvalidArgument, api.NoteBytesMax, api.NoteSourceBytesMax)
	}
	s.config.Logger.InfoContext(r.Context(), "note received", "source", note.Source, "text", note.Text, "who", contextOf(r).caller)
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// replaceMember is POST /v1/members/{member}/replace.
func (s *operatorAPI) replaceMember(w http.ResponseWriter, r *http.Request) error {
	var asked api.MemberReplacement
	if err := input.Decode(r, &asked, "with and force"); err != nil {
		return err
	}
	old, err := s.resolveMember(r.Context(), r.PathValue("name"))
	if err != nil {
		return err
	}
	fresh, err := s.resolveMember(r.Context(), asked.With)
	if err != nil {
		return fmt.Errorf("with: %w", err)
	}
	if err := s.checkRisk(r.Context(), &old, asked.Force); err != nil {
		return err
	}
	if err := s.config.Control.ReplaceMember(r.Context(), old.ID, fresh.ID); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// partitionInPath parses the id in a path.
func partitionInPath(r *http.Request) (fsm.PartitionID, error) {
	id, err := strconv.ParseUint(r.PathValue("name"), 10, 32)
	if err != nil || id == 0 {
		return 0, fmt.Errorf("%w: a partition is a number from 1 on: GET /v1/status lists them", fsm.InvalidArgument)
	}
	return fsm.PartitionID(id), nil
}

// partitionAction is POST /v1/partitions/{id}/pause and the like.
func (s *operatorAPI) partitionAction(do func(Operations, context.Context, fsm.PartitionID) error) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		if err := input.Decode(r, &struct{}{}, "nothing"); err != nil {
			return err
		}
		id, err := partitionInPath(r)
		if err == nil {
			err = do(s.config.Control, r.Context(), id)
		}
		if err != nil {
			return err
		}
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
}

// movePartition is POST /v1/partitions/{id}/move. It answers when the move is
// recorded.
func (s *operatorAPI) movePartition(w http.ResponseWriter, r *http.Request) error {
	var asked api.MoveRequest
	if err := input.Decode(r, &asked, "members"); err != nil {
		return err
	}
	id, err := partitionInPath(r)
	if err != nil {
		return err
	}
	if len(asked.Members) < 1 || len(asked.Members) > moveReplicasMax {
		return fmt.Errorf("%w: members: 1 to %d, not %d", fsm.InvalidArgument, moveReplicasMax, len(asked.Members))
	}
	all, err := s.config.Control.Members(r.Context())
	if err != nil {
		return err
	}
	members := make([]fsm.MemberID, len(asked.Members))
	for i, text := range asked.Members {
		m, err := findMember(all, text)
		if err != nil {
			return err
		}
		members[i] = m.ID
	}
	if err := s.config.Control.Move(r.Context(), id, members); err != nil {
		return err
	}
	w.WriteHeader(http.StatusAccepted)
	return nil
}

// transferLeader is POST /v1/partitions/{id}/transfer.
func (s *operatorAPI) transferLeader(w http.ResponseWriter, r *http.Request) error {
	var asked api.TransferRequest
	if err := input.Decode(r, &asked, "to"); err != nil {
		return err
	}
	id, err := partitionOrCatalogInPath(r)
	if err != nil {
		return err
	}
	m, err := s.resolveMember(r.Context(), asked.To)
	if err != nil {
		return err
	}
	if err := s.config.Control.TransferLeader(r.Context(), id, m.ID); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// partitionOrCatalogInPath is partitionInPath, but also accepts the catalog, whose leadership can be
// transferred too.
func partitionOrCatalogInPath(r *http.Request) (fsm.PartitionID, error) {
	if r.PathValue("name") == "0" {
		return fsm.CatalogPartition, nil
	}
	return partitionInPath(r)
}

// grow is POST /v1/partitions.
func (s *operatorAPI) grow(w http.ResponseWriter, r *http.Request) error {
	var asked api.GrowRequest
	if err := input.Decode(r, &asked, "add"); err != nil {
		return err
	}
	if asked.Add < 1 || asked.Add > growthMax {
		return fmt.Errorf("%w: add: 1 to %d partitions, not %d", fsm.InvalidArgument, growthMax, asked.Add)
	}
	n, err := s.config.Control.Grow(r.Context(), asked.Add)
	if err != nil {
		return err
	}
	s.writeJSON(w, r, http.StatusOK, api.GrowResult{Partitions: n})
	return nil
}

// holdFormatLevel is PUT /v1/format-level.
func (s *operatorAPI) holdFormatLevel(w http.ResponseWriter, r *http.Request) error {
	var asked api.FormatLevelRequest
	err := input.Decode(r, &asked, "max")
	if err == nil {
		err = s.config.Control.HoldFormatLevel(r.Context(), asked.Max)
	}
	if err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// confirmTime is POST /v1/confirm-time.
func (s *operatorAPI) confirmTime(w http.ResponseWriter, r *http.Request) error {
	if err := input.Decode(r, &struct{}{}, "nothing"); err != nil {
		return err
	}
	step, err := s.config.Control.ConfirmTime(r.Context())
	if err != nil {
		return err
	}
	s.writeJSON(w, r, http.StatusOK, api.ConfirmedTime{Step: step})
	return nil
}

// listMoves is GET /v1/moves.
func (s *operatorAPI) listMoves(w http.ResponseWriter, r *http.Request) error {
	moves, err := s.config.Control.Moves(r.Context())
	if err != nil {
		return err
	}
	s.writeJSON(w, r, http.StatusOK, api.Moves{Moves: append([]topology.Move{}, moves...)})
	return nil
}

// planRebalance is GET /v1/rebalance. It changes nothing.
func (s *operatorAPI) planRebalance(w http.ResponseWriter, r *http.Request) error {
	moves, err := s.config.Control.PlanRebalance(r.Context())
	if err != nil {
		return err
	}
	s.writeJSON(w, r, http.StatusOK, api.Plan{Moves: append([]topology.PlannedMove{}, moves...)})
	return nil
}

// rebalance is POST /v1/rebalance. It answers with the recorded moves.
func (s *operatorAPI) rebalance(w http.ResponseWriter, r *http.Request) error {
	var asked api.Plan
	err := input.Decode(r, &asked, "moves")
	if err == nil && len(asked.Moves) > planMovesMax {
		err = fmt.Errorf("%w: moves: at most %d", fsm.InvalidArgument, planMovesMax)
	}
	if err == nil && len(asked.Moves) == 0 {
		asked.Moves, err = s.config.Control.PlanRebalance(r.Context())
	}
	if err == nil {
		err = s.config.Control.Rebalance(r.Context(), asked.Moves)
	}
	if err != nil {
		return err
	}
	s.writeJSON(w, r, http.StatusAccepted, api.Plan{Moves: append([]topology.PlannedMove{}, asked.Moves...)})
	return nil
}
