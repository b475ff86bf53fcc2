package condition

import (
	"fmt"
	"strings"
)

// Name is the name of a condition.
type Name string

// The conditions.
const (
	PartitionWithoutLeader Name = "PartitionWithoutLeader"
	MemberAway             Name = "MemberAway"
	MemberNotReady         Name = "MemberNotReady"
	MemberUnreachable      Name = "MemberUnreachable"
	AddressNotAnnounced    Name = "AddressNotAnnounced"
	MemberReadOnly         Name = "MemberReadOnly"
	DiskNearlyFull         Name = "DiskNearlyFull"
	DiskSlow               Name = "DiskSlow"
	DiskStalled            Name = "DiskStalled"
	ClockOff               Name = "ClockOff"
	TimeHeld               Name = "TimeHeld"
	ClientClockOff         Name = "ClientClockOff"
	CertificateEnds        Name = "CertificateEnds"
	VersionsDiffer         Name = "VersionsDiffer"
	FewOpenFiles           Name = "FewOpenFiles"
	NotExamined            Name = "NotExamined"
)

// Severity says how soon a person should act.
type Severity string

// The severities, which are those of the alerts, and one below them.
const (
	Critical Severity = "critical" // now: clients are affected
	Warning  Severity = "warning"  // within days
	Info     Severity = "info"     // there is something to know
)

// Condition describes a condition.
type Condition struct {
	Name     Name     `json:"name"`
	Severity Severity `json:"severity"`
	Means    string   `json:"means"`
	Mend     string   `json:"mend"`
	// IsAlert is set if there is an alert of this name.
	IsAlert bool `json:"isAlert"`
}

// All returns all conditions, in the order in which reports show them.
func All() []Condition {
	return []Condition{
		{PartitionWithoutLeader, Critical, "A partition has no leader: its entities accept and deliver nothing.", "Start the members that it waits for. With a quorum, a leader is elected within seconds.", true},
		{MemberAway, Warning, "A member is dead. Others lead its partitions; one more failure may leave some without a quorum.", "Start it on its own disk. If it is lost for good: `peeklock member replace` or `peeklock member remove`.", true},
		{MemberNotReady, Warning, "A member runs and asks clients to use another one.", "`/readyz?verbose` on that member names the component. While it starts, wait.", true},
		{MemberUnreachable, Warning, "The address that a member announces does not answer from here.", "Correct `advertise` of the member, the name service, the firewall, or the certificate, as the cause says.", false},
		{AddressNotAnnounced, Warning, "A member announces no address that clients can use.", "Set `advertise` to a name or address that clients can reach.", false},
		{MemberReadOnly, Critical, "A member refuses new messages because its disk or its memory is nearly full.", "Remove messages, enlarge the volume or the memory, or add a member.", true},
		{DiskNearlyFull, Warning, "The disk of a member has less than twice the space that must stay free.", "Enlarge the volume, or move partitions to other members.", true},
		{DiskSlow, Warning, "The disk of a member syncs slowly, and every send waits for it.", "Look for other load on the disk; use a disk with a short sync time.", true},
		{DiskStalled, Critical, "A write to the disk of a member has not ended for seconds.", "Restart the member on another machine; look at the log of the kernel.", true},
		{ClockOff, Warning, "The clock of a member differs by more than 0.5 s from the others: it leads no partition.", "Repair time synchronization on that machine.", true},
		{TimeHeld, Critical, "All clocks were set together by more than a minute, and wall time does not follow them.", "Find out which time is right; then `peeklock cluster confirm-time`, or set the clocks back.", true},
		{ClientClockOff, Warning, "The clock of this machine differs by more than 30 s from a member's: signatures may be refused.", "Repair time synchronization on this machine.", false},
		{CertificateEnds, Warning, "A certificate of a member ends within 14 days.", "Replace the files; the member reads them again. `peeklock init cluster` renews those that it made.", true},
		{VersionsDiffer, Info, "Members run different releases, as during an upgrade.", "Complete the upgrade: the format level does not rise before.", false},
		{FewOpenFiles, Warning, "A member uses more than 80 % of the files that it may have open, or may have fewer than 4096.", "Raise LimitNOFILE of the unit or the limit of the container.", false},
		{NotExamined, Info, "A member did not show its metrics, so its disk, its certificates and its files were not examined.", "Give an operator key, and do not set `metrics` to off.", false},
	}
}

// Of returns a condition. The name must be one of the list.
func Of(name Name) Condition {
	for _, c := range All() {
		if c.Name == name {
			return c
		}
	}
	panic("condition: no condition is called " + string(name))
}

// runbook has a section for each alert.
const runbook = "../deploy/RUNBOOK.md"

// Table returns the conditions as a table of docs/operations.md.
func Table() string {
	var b strings.Builder
	b.WriteString("| condition | severity | meaning | what to do |\n|---|---|---|---|\n")
	for _, c := range All() {
		name := "`" + string(c.Name) + "`"
		if c.IsAlert {
			name = fmt.Sprintf("[`%s`](%s#%s)", c.Name, runbook, strings.ToLower("Peeklock"+string(c.Name)))
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", name, c.Severity, c.Means, c.Mend)
	}
	return b.String()
}
