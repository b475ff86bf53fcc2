package kubernetes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/peeklock/peeklock/admin/api"
	"github.com/peeklock/peeklock/cluster/datadir"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/client"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/command"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/quantity"
)

// Times and paths of the prestop hook.
const (
	kubernetesTries      = 3
	prestopWithin        = 55 * time.Minute // less than the grace period of the pod, after which Kubernetes kills it
	prestopEndpointDelay = 5 * time.Second  // time for services to remove a terminating pod
)

// prestop is one execution of "peeklock kubernetes prestop".
type prestop struct {
	*client.Client
	set            string // name of the StatefulSet
	within         time.Duration
	endpointDelay  time.Duration
	serviceAccount string // directory of the service account
	events         int    // sent, or tried to send
}

// Nouns returns the commands for hooks and init containers of pods.
func Nouns() []command.Noun { return []command.Noun{kubernetesNoun()} }

func kubernetesNoun() command.Noun {
	var p prestop
	var dir string
	return command.Noun{Name: "kubernetes", Short: "Commands for hooks and init containers of pods", Verbs: []command.Verb{
		{
			Use: "prestop --statefulset NAME", Short: "Prepare the member of this pod for the end of the pod",
			Long: `Prepare the member of this pod for the end of the pod, as the preStop hook of a StatefulSet. When the set is scaled down so
that it no longer needs this pod, and is not being deleted, the member is removed: its data moves to other
members. Otherwise the pod comes back: the command only waits until services have removed the pod from their endpoints,
and the member transfers its leaderships when it stops. Kubernetes drops the output of hooks, so the member logs what happens, and a
removal and its failure become events of the pod if the service account may create events. After a failure the exit code is
not 0: Kubernetes creates an event (FailedPreStopHook) and stops the pod nevertheless.`,
			Flags: func(cmd *cobra.Command) {
				f := cmd.Flags()
				f.StringVar(&p.set, "statefulset", "", "name of the StatefulSet that this pod belongs to")
				quantity.DurationVar(f, &p.within, "within", prestopWithin, "time after which the command ends at the latest")
				quantity.DurationVar(f, &p.endpointDelay, "forget", prestopEndpointDelay, "time that services take to remove a pod from their endpoints")
				f.StringVar(&p.serviceAccount, "account", Account, "directory of the service account: token, ca.crt, namespace")
				for _, name := range []string{"forget", "account"} {
					_ = f.MarkHidden(name) // for tests
				}
			},
			Run: func(i command.Invocation) error {
				if p.set == "" || p.within <= 0 {
					return cli.Usagef("give --statefulset, and --within more than 0")
				}
				p.Client = i.Client
				return p.run(i.Ctx)
			},
		},
		{
			// A pod that returns after the set was scaled down finds the disk of a member that was removed.
			Use: "prepare --dir DATA", Short: "Set the data of a removed member aside",
			Long: `Move the data of a member that was removed from its cluster to the folder "removed" in its data directory, which keeps the
last one, so that a new member starts there. Any other directory is left as it is. "peeklock serve --rejoin-removed" does
the same at its start.`,
			Flags: func(cmd *cobra.Command) { cmd.Flags().StringVar(&dir, "dir", "", "data directory") },
			Run: func(i command.Invocation) error {
				if dir == "" {
					return cli.Usagef("give --dir")
				}
				moved, err := datadir.SetAsideRemoved(dir)
				if moved {
					_, _ = fmt.Fprintf(i.Client.Err, "prepare: the data in %s was moved aside: its member had been removed from the cluster\n", dir)
				}
				return err
			},
		},
	}}
}

// run reports a failure like the progress before it: Kubernetes drops what the command prints.
func (p *prestop) run(ctx context.Context) error {
	err := p.prepare(ctx)
	if err != nil {
		p.tell(context.WithoutCancel(ctx), err.Error())
		p.sendEvent(context.WithoutCancel(ctx), eventWarning, err.Error())
	}
	return err
}

// prepare removes the member within its time limit if the pod does not return. If it cannot find out whether the pod
// returns, that is an error, too: the data of a pod that does not return would be left behind silently.
func (p *prestop) prepare(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, p.within)
	defer cancel()
	leaves, err := p.isScaledDown(ctx)
	switch {
	case err != nil:
		err = fmt.Errorf("cannot tell whether this pod comes back, so nothing is moved: %w", err)
	case leaves:
		if err := p.removeSelf(ctx); err != nil {
			return err
		}
		p.report(ctx, "the member was removed, its data is with others")
		return nil
	}
	p.log(ctx, fmt.Sprintf("waits %s until services have forgotten this pod", p.endpointDelay))
	cli.Sleep(ctx, p.endpointDelay)
	return err
}

// isScaledDown reports whether the set was scaled down so that it no longer needs this pod.
func (p *prestop) isScaledDown(ctx context.Context) (bool, error) {
	name, err := p.podName()
	if err != nil {
		return false, err
	}
	number, found := strings.CutPrefix(name, p.set+"-")
	ordinal, err := strconv.Atoi(number)
	if !found || err != nil {
		return false, fmt.Errorf("the pod %q does not belong to StatefulSet %q", name, p.set)
	}
	var set statefulSet
	for range kubernetesTries {
		if err = p.readStatefulSet(ctx, &set); err == nil || ctx.Err() != nil {
			break
		}
		cli.Sleep(ctx, client.RetryInterval)
	}
	switch {
	case err != nil:
		return false, err
	case set.Metadata.Deleted != nil: // the whole set is deleted, and the disks stay
		return false, nil
	case set.Spec.Replicas == nil:
		return false, errors.New("the StatefulSet has no number of replicas")
	case *set.Spec.Replicas == 0: // the cluster is suspended, and there is no member to move replicas to
		return false, nil
	}
	return ordinal >= set.Spec.Ordinals.Start+*set.Spec.Replicas, nil
}

// podName returns the name of the pod, which Kubernetes uses as its host name.
func (p *prestop) podName() (string, error) {
	if name := cmp.Or(p.Getenv("PEEKLOCK_NAME"), p.Getenv("HOSTNAME")); name != "" {
		return name, nil
	}
	return os.Hostname()
}

// wasRemoved reports whether the member, which no longer answers, stopped because it was removed. The data
// directory shows that; a member that crashed during its removal does not count as removed.
func (p *prestop) wasRemoved() bool {
	id, err := p.identity()
	return err == nil && id.Removed
}

// identity returns what the data directory of this pod says about its member.
func (p *prestop) identity() (datadir.Identity, error) {
	dir := p.Getenv("PEEKLOCK_DIR")
	if dir == "" {
		return datadir.Identity{}, errors.New("PEEKLOCK_DIR is not set")
	}
	return datadir.ReadIdentity(dir)
}

// removeSelf removes this member and waits for the removal. The process may stop as soon as it has learned that it
// was removed; after that it no longer answers. While the cluster says why the member is still needed, removeSelf
// waits: a process that stops too early can cost other members their quorum.
func (p *prestop) removeSelf(ctx context.Context) error {
	name, err := p.podName()
	if err != nil {
		return err
	}
	p.report(ctx, fmt.Sprintf("the set gets smaller: moves the data of %s to others", name))
	member := name
	if id, err := p.identity(); err == nil { // the name is also that of a member that has lost the volume of this pod
		member = string(id.Member)
	}
	waitsFor, lost := "", time.Time{}
	for begun := false; ; cli.Sleep(ctx, client.RetryInterval) {
		_, err := p.CallOnce(ctx, http.MethodPost, client.MemberPath(member, "remove"), api.MemberForce{Force: true}, nil) // the set no longer has this pod, whatever else is dead
		_, refused := client.Code(err)
		stopped := errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, fs.ErrNotExist) // the socket was removed, or no process listens on it
		switch {
		case err == nil, begun && stopped && p.wasRemoved():
			return nil
		case ctx.Err() != nil:
			return fmt.Errorf("%s was not enough to move everything away: the rest has to be moved from the replicas at others (peeklock member remove %s --yes)", p.within, member)
		case needsTime(err):
			begun, lost = true, time.Time{}
		case !begun && !cli.IsUnknown(err), refused:
			return err
		default: // it did not answer, or stopped without having been removed
			begun, lost = true, cmp.Or(lost, time.Now())
			if time.Since(lost) > client.UnreachableMax && stopped {
				return err
			}
		}
		if text := err.Error(); text != waitsFor {
			waitsFor = text
			p.report(ctx, "this member has to stay for now: "+text)
		}
	}
}

// needsTime reports whether the cluster refused to complete a removal now and may complete it later. Whether other
// members can take what a member holds changes with the members.
func needsTime(err error) bool {
	return slices.ContainsFunc([]string{"Timeout", "ServerBusy", "InvalidArgument", "PreconditionFails", "QuotaExceeded"},
		func(code string) bool { return client.IsCode(err, code) })
}

// report prints progress, has the member log it, and makes it an event of the pod.
func (p *prestop) report(ctx context.Context, text string) {
	p.log(ctx, text)
	p.sendEvent(ctx, eventNormal, text)
}

// log prints progress and has the member log it.
func (p *prestop) log(ctx context.Context, text string) {
	_, _ = fmt.Fprintln(p.Err, "prestop: "+text)
	p.tell(ctx, text)
}

// tell has the member log a text. The member may have stopped already, so a failure is not reported.
func (p *prestop) tell(ctx context.Context, text string) {
	ctx, cancel := context.WithTimeout(ctx, reportTimeMax)
	defer cancel()
	_, _ = p.CallOnce(ctx, http.MethodPost, "/v1/notes", api.Note{Source: "prestop", Text: truncate(text, api.NoteBytesMax)}, nil)
}

// sendEvent creates an event of the pod. The service account may lack the right, so a failure is not reported.
func (p *prestop) sendEvent(ctx context.Context, kind, text string) {
	name, err := p.podName()
	if p.events++; err != nil || p.events > eventsMax {
		return
	}
	server, err := findServer(p.Getenv, p.serviceAccount)
	if err != nil {
		return
	}
	now := time.Now().UTC().Truncate(time.Second)
	event := podEvent{Type: kind, Reason: "MemberRemoval", Message: truncate(text, eventBytesMax), First: now, Last: now, Count: 1}
	event.Metadata.GenerateName, event.Metadata.Namespace = name+"-", server.namespace
	event.Involved.APIVersion, event.Involved.Kind, event.Involved.Name, event.Involved.UID = "v1", "Pod", name, p.Getenv("POD_UID")
	event.Involved.Namespace = server.namespace
	event.Source.Component = "peeklock"
	ctx, cancel := context.WithTimeout(ctx, reportTimeMax)
	defer cancel()
	_ = server.call(ctx, http.MethodPost, "/api/v1", "events", event, nil)
}

// truncate returns the beginning of a text, without a part of a character at its end.
func truncate(text string, bytesMax int) string {
	return strings.ToValidUTF8(text[:min(len(text), bytesMax)], "")
}

// readStatefulSet reads the StatefulSet from the API server.
func (p *prestop) readStatefulSet(ctx context.Context, set *statefulSet) error {
	server, err := findServer(p.Getenv, p.serviceAccount)
	if err != nil {
		return err
	}
	return server.call(ctx, http.MethodGet, "/apis/apps/v1", "statefulsets/"+url.PathEscape(p.set), nil, set)
}
