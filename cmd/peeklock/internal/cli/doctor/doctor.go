package doctor

import (
	"context"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/peeklock/peeklock/admin/condition"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/client"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/command"
	"github.com/peeklock/peeklock/topology"
)

// clientClockOffMax is how far the clock of this machine may be from that of a member.
const clientClockOffMax = 30 * time.Second

// report is the answer of doctor.
type report struct {
	Cluster    string             `json:"cluster"`
	Target     string             `json:"target"` // the server and what named it
	Members    int                `json:"members"`
	Partitions int                `json:"partitions"`
	Findings   condition.Findings `json:"findings"` // the most severe first
}

// Verb returns the command.
func Verb() command.Verb {
	return command.Verb{
		Use: "doctor", Short: "Examine the cluster and report what needs attention",
		Long: `Examine the cluster and report what needs attention: members that are away or cannot be reached at the addresses that they announce,
partitions without a leader, clocks (also that of this machine), disks and their sync time, certificates and their ends, versions,
and limits of open files. It changes nothing. The conditions are a fixed list, and alerts have the same names ("Conditions" in the
operations guide).

The exit code is 0 if nothing needs attention, 1 if a condition of severity critical or warning was found, 2 for a mistake on the
command line, and 3 if no member could be examined.`,
		Example: `  peeklock doctor
  peeklock doctor -o json`,
		Run: run,
	}
}

func run(i command.Invocation) error {
	target, err := i.Client.Target()
	if err != nil {
		return err
	}
	var st topology.Status
	if err := i.Client.Call(i.Ctx, http.MethodGet, "/v1/status", nil, &st); err != nil {
		return notExamined(err)
	}
	if _, err := i.Client.Endpoints(i.Ctx); err != nil { // it finds out whether members require TLS
		return notExamined(err)
	}
	found := append(append(condition.Findings{}, condition.OfStatus(st)...), examineMembers(i.Ctx, i.Client, st.Members)...)
	r := report{st.ClusterID, target, len(st.Members), len(st.Partitions), condition.Sort(found)}
	if err := printReport(i, &r); err != nil {
		return err
	}
	for _, f := range r.Findings {
		if f.Severity != condition.Info {
			return cli.Exit(cli.ExitRefused)
		}
	}
	return nil
}

// notExamined marks an error as one after which nothing is known of the cluster: exit code 1 says that a condition was found.
func notExamined(err error) error {
	if cli.IsUsage(err) {
		return err
	}
	return cli.Unknown(err)
}

// examineMembers asks all living members at the same time.
func examineMembers(ctx context.Context, c *client.Client, members []topology.Member) condition.Findings {
	all := make([]condition.Findings, len(members))
	var group sync.WaitGroup
	for at, m := range members {
		if m.State == topology.Alive {
			group.Go(func() { all[at] = examineMember(ctx, c, m) })
		}
	}
	group.Wait()
	return slices.Concat(all...)
}

func examineMember(ctx context.Context, c *client.Client, m topology.Member) (f condition.Findings) {
	subject := "member " + m.Name
	if !isUsable(m.HTTP) || !isUsable(m.AMQP) {
		f.Add(condition.AddressNotAnnounced, subject, "it announces %q for clients and %q for the control API", m.AMQP, m.HTTP)
	}
	if !isUsable(m.HTTP) {
		return f
	}
	scheme := "http://"
	if _, usesTLS := c.Reached(); usesTLS {
		scheme = "https://"
	}
	answer, err := c.Fetch(ctx, scheme+m.HTTP, "/metrics")
	if err != nil {
		f.Add(condition.MemberUnreachable, subject, "%s%s: %v", scheme, m.HTTP, err)
		return f
	}
	now := time.Now()
	examined, hasMetrics := condition.OfMetrics(subject, now, answer.Body)
	if answer.Status != http.StatusOK || !hasMetrics {
		f.Add(condition.NotExamined, subject, "%s%s/metrics answered %d", scheme, m.HTTP, answer.Status)
	}
	for _, each := range examined {
		if each.Condition == condition.CertificateEnds && strings.Contains(each.Detail, "for clients") {
			answer.CertificateEnds = time.Time{} // said once
		}
	}
	return append(append(f, examined...), examineTimes(subject, now, answer.Date, answer.CertificateEnds)...)
}

// isUsable reports whether clients can dial an announced address.
func isUsable(address string) bool {
	host, port, err := net.SplitHostPort(address)
	if err != nil || port == "" || port == "0" {
		return false
	}
	ip := net.ParseIP(host)
	return host != "" && (ip == nil || !ip.IsUnspecified())
}

// examineTimes finds conditions of the clock of this machine and of the certificate that a member shows.
func examineTimes(subject string, now, date, ends time.Time) (f condition.Findings) {
	// The date has whole seconds.
	if off := now.Sub(date).Truncate(time.Second); !date.IsZero() && off.Abs() > clientClockOffMax {
		f.Add(condition.ClientClockOff, "this machine", "its clock differs by %s from that of %s", off, subject)
	}
	if !ends.IsZero() && ends.Sub(now) < condition.CertificateEndsWithin {
		f.Add(condition.CertificateEnds, subject, "the certificate for clients ends at %s", ends.UTC().Format(time.RFC3339))
	}
	return f
}

func printReport(i command.Invocation, r *report) error {
	if !i.Out.IsTable() {
		return i.Out.Data(r)
	}
	if err := i.Out.Note("cluster %s at %s: %d members, %d partitions", r.Cluster, r.Target, r.Members, r.Partitions); err != nil {
		return err
	}
	if len(r.Findings) == 0 {
		return i.Out.Note("nothing needs attention")
	}
	for _, f := range r.Findings {
		if err := i.Out.Note("\n%s: %s, %s: %s\n  %s", f.Severity, f.Condition, f.Subject, f.Detail, strings.ReplaceAll(f.Mend, "`", "")); err != nil {
			return err
		}
	}
	return nil
}
