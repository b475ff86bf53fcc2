// Package foreign runs a suite of another language against three members. Such a suite
// needs tools that a Go developer may not have, and packages from the network, so a plain
// `go test ./...` leaves it out and says so. The script `run` beside the suite installs
// the tools and sets PEEKLOCK_CONFORMANCE to "require": then whatever is missing is a
// failure. Any other value runs the suite where its tools are there.
package foreign

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/peeklock/peeklock/test/conformance/scenario"
	"github.com/peeklock/peeklock/test/harness"
)

const (
	runVariable   = "PEEKLOCK_CONFORMANCE"
	required      = "require"
	suiteWithin   = 6 * time.Minute // a suite takes less than two; a busy machine more
	installWithin = 5 * time.Minute
)

// Need ends the test, in the way that PEEKLOCK_CONFORMANCE says, when a suite is not
// wanted or find does not find its tools. what names the client, as in "the official Java
// client".
func Need(t *testing.T, what string, find func() error) {
	t.Helper()
	mode := os.Getenv(runVariable)
	if mode == "" {
		t.Skipf("%s is left out: `bash run` in this folder installs what it needs and runs it", what)
	}
	err := find()
	switch {
	case err == nil:
	case mode == required:
		t.Fatal(err)
	default:
		t.Skipf("%s is left out: %v", what, err)
	}
}

// Copy copies files and folders of this folder into one of the test, because what other
// tools leave beside their sources does not belong into the repository.
func Copy(t *testing.T, names ...string) (folder string) {
	t.Helper()
	folder = t.TempDir()
	for _, name := range names {
		var err error
		if at, to := filepath.Clean(name), filepath.Join(folder, name); isFolder(t, at) {
			err = os.CopyFS(to, os.DirFS(at))
		} else {
			var content []byte
			if content, err = os.ReadFile(at); err == nil {
				err = os.WriteFile(to, content, 0o600)
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return folder
}

func isFolder(t *testing.T, path string) bool {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.IsDir()
}

// Installed returns a folder in the user's cache that install has made and filled, once for
// each content of key: what another version needs lies beside it. What an install that was
// broken off has left is thrown away.
func Installed(t *testing.T, name string, key []byte, install func(ctx context.Context, at string) error) string {
	t.Helper()
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(key)
	at := filepath.Join(cache, "peeklock", "conformance-"+name+"-"+hex.EncodeToString(sum[:8]))
	whole := filepath.Join(at, "installed")
	if _, err := os.Stat(whole); err == nil {
		return at
	}
	ctx, cancel := context.WithTimeout(t.Context(), installWithin)
	defer cancel()
	if err := errors.Join(os.MkdirAll(filepath.Dir(at), 0o755), os.RemoveAll(at), install(ctx, at)); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(whole, nil, 0o600); err != nil && !errors.Is(err, fs.ErrExist) {
		t.Fatal(err)
	}
	return at
}

// Suite is how the cases of another language are run.
type Suite struct {
	Name    string         // its folder below test/conformance
	Folder  string         // where the command runs
	Passed  *regexp.Regexp // has to match what it prints, because a run of nothing is no success
	Reports string         // pattern of the reports in JUnit's format that it leaves in Folder
	// Case makes the name that the files <client>.scenarios use of the class and name in a report.
	Case    func(class, name string) string
	Command []string
}

// Run starts three members, and three more in one process that speak TLS, and then the
// command of the suite, which finds in its environment
//
//	PEEKLOCK_MEMBER_1 to _3  connection strings
//	PEEKLOCK_ADMIN_1 to _3   addresses of the control API
//	PEEKLOCK_TLS             a connection string of a member that speaks TLS, for everything
//	PEEKLOCK_TLS_ADMIN       the address of its control API
//	PEEKLOCK_CA              the file with the authority that it is to be trusted by
//	PEEKLOCK_TRUSTED         host and port of member 1 for TLS by that authority
//	PEEKLOCK_ISSUER          the identity provider of the three; see harness.Issuer
//	PEEKLOCK_CLIENT_CERT     the files with the certificate of a client in the name of the rule
//	PEEKLOCK_CLIENT_KEY      that may manage, and its key
//	PEEKLOCK_OPERATOR        where a member can be had that may be killed; see operator
//	PEEKLOCK_REPORT          a file for its report, if it writes one itself
//
// The results go into the matrix of clients and scenarios.
func Run(t *testing.T, s Suite) {
	t.Helper()
	secure, issuer := harness.StartDev(t, "--tls"), harness.NewIssuer(t)
	certificate, key := secure.ClientCertificate(t, harness.KeyName)
	// The suites ask the control API without a key, and not every language has a client for sockets.
	cluster := harness.Start(t, harness.Options{Args: slices.Concat(issuer.Args(), secure.TLSArgs(), []string{"--trust-loopback"})})
	_, port, _ := strings.Cut(cluster.Members[0].AMQP, ":")
	ctx, cancel := context.WithTimeout(t.Context(), suiteWithin)
	defer cancel()
	operator := newClusterOperator(ctx, t)
	var printed bytes.Buffer
	cmd := exec.CommandContext(ctx, s.Command[0], s.Command[1:]...)
	cmd.Dir = s.Folder
	cmd.Stdout, cmd.Stderr = io.MultiWriter(os.Stdout, &printed), os.Stderr
	cmd.Env = append(os.Environ(),
		"PEEKLOCK_TLS="+harness.SecureConnectionString(secure.Members[0].AMQP), "PEEKLOCK_TLS_ADMIN=http://"+secure.Members[0].Admin,
		"PEEKLOCK_CA="+secure.CA, "NODE_EXTRA_CA_CERTS="+secure.CA, "PEEKLOCK_OPERATOR="+operator.url,
		"PEEKLOCK_TRUSTED=localhost:"+port, "PEEKLOCK_ISSUER="+issuer.URL, "PEEKLOCK_CLIENT_CERT="+certificate, "PEEKLOCK_CLIENT_KEY="+key,
		"PEEKLOCK_REPORT="+filepath.Join(s.Folder, "report.xml"))
	for i, m := range cluster.Members {
		n := strconv.Itoa(i + 1)
		cmd.Env = append(cmd.Env, "PEEKLOCK_MEMBER_"+n+"="+m.ConnectionString(), "PEEKLOCK_ADMIN_"+n+"=http://"+m.Admin)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	if err := operator.serve(t, cluster, ended); err != nil {
		t.Errorf("the scenarios, reported above: %v", err)
	}
	if !s.Passed.Match(printed.Bytes()) {
		t.Errorf("the report does not say %v", s.Passed)
	}
	if err := s.record(); err != nil {
		t.Error(err)
	}
}

// record reads the reports and writes the results of the clients that the suite is for.
func (s Suite) record() error {
	reports, err := filepath.Glob(filepath.Join(s.Folder, s.Reports))
	if err != nil || len(reports) == 0 {
		return fmt.Errorf("no reports as %s: %w", s.Reports, err)
	}
	var outcomes scenario.Outcomes
	for _, path := range reports {
		content, err := os.ReadFile(path)
		if err = errors.Join(err, outcomes.AddJUnit(content, s.Case)); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	for _, c := range scenario.Clients() {
		if c.Suite != s.Name {
			continue
		}
		cases, err := os.ReadFile(c.ID + ".scenarios")
		if err = errors.Join(err, outcomes.Write(c.ID, cases)); err != nil {
			return err
		}
	}
	return nil
}
