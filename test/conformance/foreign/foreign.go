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
	"github.com/peeklock/peeklock/test/kit"
)

const (
	runVariable   = "PEEKLOCK_CONFORMANCE"
	required      = "require"
	suiteWithin   = 6 * time.Minute // a suite takes less than two; a busy machine needs more
	installWithin = 5 * time.Minute
)

// Need skips or fails the test, depending on PEEKLOCK_CONFORMANCE, when a suite is not
// requested or find does not find its tools. what names the client, for example "the official
// Java client".
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

// Copy copies files and folders of this folder into a folder of the test, because files that other
// tools leave beside their sources do not belong in the repository.
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
	info := kit.Must(os.Stat(path))(t)
	return info.IsDir()
}

// Installed returns a folder in the user's cache that install fills once for each content of key, so
// that different versions have different folders. It discards the results of an interrupted
// install.
func Installed(t *testing.T, name string, key []byte, install func(ctx context.Context, at string) error) string {
	t.Helper()
	cache := kit.Must(os.UserCacheDir())(t)
	sum := sha256.Sum256(key)
	at := filepath.Join(cache, "peeklock", "conformance-"+name+"-"+hex.EncodeToString(sum[:8]))
	whole := filepath.Join(at, "installed")
	if _, err := os.Stat(whole); err == nil {
		return at
	}
	ctx, cancel := context.WithTimeout(t.Context(), installWithin)
	defer cancel()
	kit.OK(t, errors.Join(os.MkdirAll(filepath.Dir(at), 0o755), os.RemoveAll(at), install(ctx, at)))
	if err := os.WriteFile(whole, nil, 0o600); err != nil && !errors.Is(err, fs.ErrExist) {
		t.Fatal(err)
	}
	return at
}

// Suite describes how to run the test cases of another language.
type Suite struct {
	Name    string         // the folder below test/conformance
	Folder  string         // working directory of the command
	Passed  *regexp.Regexp // must match the output, because a run without cases is not a success
	Reports string         // pattern of the JUnit reports that the command leaves in Folder
	// Case maps the class and name in a report to the name in the files <client>.scenarios.
	Case    func(class, name string) string
	Command []string
}

// Run starts three members, and three more in one process that use TLS, and then the command
// of the suite with these environment variables:
//
//	PEEKLOCK_MEMBER_1 to _3  connection strings
//	PEEKLOCK_ADMIN_1 to _3   addresses of the control API
//	PEEKLOCK_TLS             connection string for a member that uses TLS, with all rights
//	PEEKLOCK_TLS_ADMIN       the address of its control API
//	PEEKLOCK_CA              the file with the certificate authority of that member
//	PEEKLOCK_TRUSTED         host and port of member 1 for TLS by that authority
//	PEEKLOCK_ISSUER          the identity provider of the three; see harness.Issuer
//	PEEKLOCK_CLIENT_CERT     the file with a client certificate in the name of the rule
//	PEEKLOCK_CLIENT_KEY      that may manage, and the file with its key
//	PEEKLOCK_OPERATOR        address that starts a member for tests to kill; see clusterOperator
//	PEEKLOCK_REPORT          a file for the report of a command that writes it itself
//
// Run adds the results to the matrix of clients and scenarios.
func Run(t *testing.T, s Suite) {
	t.Helper()
	secure, issuer := harness.StartDev(t, "--tls"), harness.NewIssuer(t)
	certificate, key := secure.ClientCertificate(t, harness.KeyName)
	// The suites use the control API without a key, and not every language has a client for Unix sockets.
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
	kit.OK(t, cmd.Start())
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

// record reads the reports and writes the results of the suite's clients.
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
		if failed, err := outcomes.Failed(c, cases); err != nil || len(failed) > 0 {
			return errors.Join(err, fmt.Errorf("%s does not show %v", c.ID, failed))
		}
	}
	return nil
}
