package arch

import (
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/tools/go/packages"

	"github.com/peeklock/peeklock/test/kit"
)

const (
	module = "github.com/peeklock/peeklock/"
	root   = "../.."
)

// packageImports maps a package to the packages that it may import. It may import no others, and a
// package that is not a key fails the test. Packages under test may import all packages; only
// packages under test may import them.
func packageImports() map[string][]string {
	return map[string][]string{
		"fsm/fields":   {},
		"fsm/filter":   {},
		"fsm/heap":     {},
		"fsm/totals":   {},
		"fsm":          {"fsm/fields", "fsm/filter"},
		"fsm/image":    {"fsm", "fsm/fields"},
		"fsm/index":    {"fsm", "fsm/heap", "fsm/image"},
		"fsm/answers":  {"fsm", "fsm/fields", "fsm/image"},
		"fsm/catalog":  {"fsm", "fsm/answers", "fsm/fields", "fsm/image"},
		"fsm/evaluate": {"fsm", "fsm/filter"},
		"fsm/queue":    {"fsm", "fsm/answers", "fsm/evaluate", "fsm/fields", "fsm/filter", "fsm/heap", "fsm/image", "fsm/index", "fsm/totals"},

		"topology": {"fsm"},

		"partition":           {"fsm", "fsm/catalog", "fsm/queue", "fsm/fields", "partition/bodystore", "partition/digest", "partition/disk", "partition/entrysum", "partition/histogram", "partition/lanes", "partition/logging", "partition/raftlog", "partition/savedlog", "partition/skip", "partition/snapshots", "partition/stamp", "partition/transport"},
		"partition/bodystore": {"fsm", "partition/disk"},
		"partition/digest":    {"fsm"},
		"partition/disk":      {},
		"partition/entrysum":  {},
		"partition/histogram": {},
		"partition/journal":   {"partition/disk"},
		"partition/lanes":     {"fsm"},
		"partition/logging":   {},
		"partition/raftlog":   {"fsm", "partition/disk", "partition/histogram", "partition/journal"},
		"partition/savedlog":  {"fsm"},
		"partition/skip":      {"fsm", "partition/disk", "partition/entrysum", "partition/raftlog", "partition/savedlog", "partition/snapshots"},
		"partition/snapshots": {"fsm", "fsm/fields", "partition/bodystore", "partition/digest", "partition/disk", "partition/raftlog"},
		"partition/stamp":     {"fsm"},
		"partition/transport": {"fsm", "fsm/fields", "partition/entrysum"},

		"cluster":            {"fsm", "fsm/catalog", "fsm/queue", "fsm/totals", "partition", "cluster/backup", "cluster/bootstrap", "cluster/client", "cluster/clocks", "cluster/compare", "cluster/confirm", "cluster/datadir", "cluster/gossip", "cluster/health", "cluster/levels", "cluster/move", "cluster/notify", "cluster/peer", "cluster/placement", "cluster/query", "cluster/quota", "cluster/raftgroup", "cluster/rates", "cluster/reconcile", "cluster/replicas", "cluster/rpc", "cluster/entities", "cluster/forwarding", "cluster/router", "cluster/shards", "cluster/slowdisk", "cluster/space", "cluster/throttle", "topology"},
		"cluster/backup":     {"fsm", "partition", "cluster/datadir", "cluster/raftgroup"},
		"cluster/bootstrap":  {"fsm", "cluster/datadir", "cluster/notify", "cluster/raftgroup"},
		"cluster/confirm":    {},
		"cluster/rates":      {"fsm", "fsm/totals", "partition", "cluster/raftgroup", "topology"},
		"cluster/compare":    {"fsm", "partition", "cluster/raftgroup", "topology"},
		"cluster/move":       {"fsm", "fsm/catalog", "partition", "cluster/gossip", "cluster/notify", "cluster/placement", "cluster/raftgroup", "cluster/rpc", "topology"},
		"cluster/datadir":    {"fsm", "cluster/gossip", "cluster/starts", "partition/disk"},
		"cluster/starts":     {"fsm/fields"},
		"cluster/peer":       {"fsm", "fsm/fields", "cluster/starts", "cluster/throttle"},
		"cluster/placement":  {"fsm"},
		"cluster/reconcile":  {"fsm", "partition", "cluster/bootstrap", "cluster/levels", "cluster/move", "cluster/notify", "cluster/peer", "cluster/placement", "cluster/raftgroup", "cluster/replicas", "cluster/rpc"},
		"cluster/health":     {"fsm", "partition", "cluster/raftgroup", "cluster/replicas"},
		"cluster/levels":     {"fsm", "partition", "cluster/bootstrap", "cluster/datadir", "cluster/gossip", "cluster/raftgroup", "cluster/rpc"},
		"cluster/slowdisk":   {"fsm", "partition", "cluster/notify", "cluster/raftgroup"},
		"cluster/quota":      {"fsm", "fsm/catalog", "partition", "cluster/raftgroup", "topology"},
		"cluster/space":      {"fsm", "partition", "cluster/gossip", "cluster/move"},
		"cluster/replicas":   {"fsm", "partition", "cluster/datadir", "cluster/notify", "cluster/peer", "cluster/placement", "cluster/raftgroup", "cluster/rpc"},
		"cluster/raftgroup":  {"fsm", "fsm/catalog", "fsm/queue", "partition"},
		"cluster/rpc":        {"fsm", "fsm/fields", "partition", "cluster/clocks", "cluster/notify"},
		"cluster/shards":     {"fsm"},
		"cluster/query":      {"fsm", "fsm/catalog", "fsm/queue", "partition", "cluster/raftgroup", "cluster/rpc"},
		"cluster/client":     {"fsm", "fsm/catalog", "partition", "cluster/confirm", "cluster/notify", "cluster/query", "cluster/raftgroup", "cluster/rpc"},
		"cluster/entities":   {"fsm", "fsm/catalog", "fsm/queue", "partition", "cluster/client", "cluster/confirm", "cluster/notify", "cluster/query", "cluster/raftgroup", "cluster/rpc", "cluster/shards"},
		"cluster/router":     {"fsm", "fsm/catalog", "fsm/queue", "partition", "cluster/client", "cluster/entities", "cluster/query", "cluster/raftgroup", "cluster/rpc", "cluster/shards"},
		"cluster/forwarding": {"fsm", "fsm/queue", "partition", "cluster/notify", "cluster/raftgroup", "cluster/router", "cluster/rpc", "cluster/shards"},
		"cluster/gossip":     {"fsm", "fsm/fields", "cluster/notify", "cluster/throttle", "topology"},
		"cluster/clocks":     {"fsm"},
		"cluster/notify":     {},
		"cluster/throttle":   {},
		"amqp/wire":          {},
		"amqp/account":       {},
		"amqp/budget":        {},
		"amqp/connlimit":     {},
		"amqp/work":          {},
		"amqp/message":       {"fsm", "fsm/filter", "amqp/wire"},
		"amqp/refusal":       {"fsm", "amqp/message", "amqp/wire"},
		"amqp/receiver":      {"fsm", "fsm/evaluate", "amqp/message", "amqp/work"},
		"amqp/consumers":     {"fsm"},
		"amqp/address":       {},
		"amqp/login":         {"fsm", "amqp/address", "amqp/refusal", "amqp/wire"},
		"amqp/management":    {"fsm", "amqp/message", "amqp/refusal", "amqp/rule", "amqp/settlement", "amqp/transaction", "amqp/wire"},
		"amqp/settlement":    {"fsm", "amqp/message", "amqp/refusal", "amqp/wire"},
		"amqp/transaction":   {"fsm", "amqp/refusal", "amqp/wire"},
		"amqp/counts":        {"fsm", "amqp/budget", "amqp/wire"},
		"amqp/tracing":       {"fsm", "amqp/message", "amqp/wire"},
		"amqp/rule":          {"fsm", "fsm/filter", "amqp/wire", "amqp/message"},
		"amqp":               {"fsm", "fsm/evaluate", "fsm/filter", "amqp/wire", "amqp/address", "amqp/consumers", "amqp/counts", "amqp/login", "amqp/management", "amqp/message", "amqp/receiver", "amqp/refusal", "amqp/rule", "amqp/settlement", "amqp/tracing", "amqp/transaction", "amqp/account", "amqp/budget", "amqp/connlimit", "amqp/work", "topology"},
		"admin/auth":         {"fsm", "amqp/connlimit"},
		"admin/entity":       {"fsm", "fsm/filter", "admin/auth"},
		"admin/atom":         {"fsm", "fsm/filter", "admin/entity"},
		"admin/dataplane":    {"fsm", "amqp/jsonmessage", "amqp/message", "amqp/wire", "admin/auth", "admin/atom", "admin/operation", "amqp/account"},
		"admin":              {"fsm", "admin/condition", "admin/connection", "admin/console", "admin/auth", "admin/dataplane", "admin/atom", "admin/entity", "topology", "admin/api", "amqp/account", "amqp/connlimit", "amqp/work", "admin/input", "admin/inspect", "admin/openapi", "admin/operation", "amqp/jsonmessage"},
		"admin/operation":    {},
		"admin/input":        {"admin/api", "admin/entity", "fsm"},
		"admin/openapi":      {"admin/api", "admin/entity", "admin/operation", "amqp/jsonmessage"},
		"admin/connection":   {"amqp/connlimit"},
		"admin/condition":    {"fsm", "topology"},
		"admin/console":      {},
		"admin/api":          {"admin/condition", "admin/entity", "fsm", "topology", "amqp/jsonmessage"},
		"amqp/jsonmessage":   {"amqp/wire"},
		"admin/inspect":      {"fsm", "fsm/evaluate", "fsm/filter", "amqp/jsonmessage", "amqp/message", "amqp/wire", "admin/api", "topology", "amqp/account"},
		"admin/emulator":     {"fsm", "fsm/filter", "admin/entity"},

		"cmd/listen":                           {"admin/connection", "amqp/connlimit"},
		"cmd/broker":                           {"amqp", "cluster/router", "fsm"},
		"cmd/objects":                          {},
		"cmd/metrics":                          {"topology", "fsm", "fsm/totals", "partition", "cluster", "cluster/client", "cluster/forwarding", "amqp", "cluster/quota"},
		"cmd/peeklock/internal/quantity":       {"admin/entity"},
		"cmd/peeklock/internal/audit":          {"amqp/connlimit", "topology"},
		"cmd/peeklock/internal/config":         {"admin/entity", "cmd/peeklock/internal/quantity", "cmd/listen", "cmd/metrics", "fsm", "partition", "amqp", "admin/auth", "admin/console", "cmd/peeklock/internal/cli"},
		"cmd/peeklock/internal/cli":            {},
		"cmd/peeklock/internal/cli/output":     {"cmd/peeklock/internal/cli"},
		"cmd/peeklock/internal/cli/contexts":   {"cmd/peeklock/internal/cli"},
		"cmd/peeklock/internal/cli/client":     {"admin/auth", "admin/condition", "cmd/peeklock/internal/cli", "cmd/peeklock/internal/cli/contexts", "cmd/peeklock/internal/cli/output", "fsm", "topology", "cmd/peeklock/internal/config", "admin/api"},
		"cmd/peeklock/internal/cli/gateway":    {"admin/auth", "cmd/peeklock/internal/cli", "cmd/peeklock/internal/cli/client", "cmd/peeklock/internal/cli/contexts", "cmd/peeklock/internal/config"},
		"cmd/peeklock/internal/cli/command":    {"admin/entity", "amqp/jsonmessage", "cmd/peeklock/internal/cli", "cmd/peeklock/internal/cli/client", "cmd/peeklock/internal/cli/output", "fsm/filter"},
		"cmd/peeklock/internal/cli/entities":   {"cmd/peeklock/internal/quantity", "admin/emulator", "admin/entity", "amqp/jsonmessage", "cmd/peeklock/internal/cli", "cmd/peeklock/internal/cli/client", "cmd/peeklock/internal/cli/command", "cmd/peeklock/internal/cli/output", "fsm", "admin/api"},
		"cmd/peeklock/internal/cli/messages":   {"cmd/peeklock/internal/quantity", "admin/entity", "amqp/jsonmessage", "cmd/peeklock/internal/cli", "cmd/peeklock/internal/cli/client", "cmd/peeklock/internal/cli/command", "cmd/peeklock/internal/cli/entities", "cmd/peeklock/internal/cli/gateway", "cmd/peeklock/internal/cli/output", "fsm", "fsm/filter", "admin/api"},
		"cmd/peeklock/internal/cli/operate":    {"cmd/peeklock/internal/cli", "cmd/peeklock/internal/cli/contexts", "cmd/peeklock/internal/cli/backups", "cmd/peeklock/internal/cli/client", "cmd/peeklock/internal/cli/command", "cmd/peeklock/internal/cli/output", "fsm", "topology", "admin/api"},
		"cmd/peeklock/internal/cli/doctor":     {"admin/condition", "cmd/peeklock/internal/cli", "cmd/peeklock/internal/cli/client", "cmd/peeklock/internal/cli/command", "fsm", "topology"},
		"cmd/peeklock/internal/cli/declare":    {"admin/api", "admin/entity", "cmd/peeklock/internal/cli", "cmd/peeklock/internal/cli/client", "cmd/peeklock/internal/cli/command", "cmd/peeklock/internal/cli/entities", "cmd/peeklock/internal/cli/output", "fsm", "admin/atom", "admin/auth", "cmd/peeklock/internal/cli/contexts", "admin/emulator", "cmd/peeklock/internal/cli/arm", "cmd/peeklock/internal/cli/kubernetes"},
		"cmd/peeklock/internal/cli/backups":    {"cmd/peeklock/internal/quantity", "cluster/backup", "cmd/objects", "cmd/peeklock/internal/cli", "cmd/peeklock/internal/cli/client", "cmd/peeklock/internal/cli/command", "cmd/peeklock/internal/cli/output", "cmd/peeklock/internal/config", "fsm", "partition", "topology"},
		"cmd/peeklock/internal/cli/kubernetes": {"cmd/peeklock/internal/quantity", "cluster/datadir", "cmd/peeklock/internal/cli", "cmd/peeklock/internal/cli/client", "cmd/peeklock/internal/cli/command", "admin/api"},
		"cmd/peeklock/internal/cli/arm":        {},
		"cmd/peeklock/internal/cli/install":    {"cmd/listen", "cmd/peeklock/internal/cli", "cmd/peeklock/internal/cli/output"},
		"cmd/peeklock/internal/cli/offline":    {"cluster", "cmd/peeklock/internal/cli", "cmd/peeklock/internal/cli/command", "cmd/peeklock/internal/config", "fsm", "partition", "partition/savedlog"},
		"cmd/peeklock/internal/bench":          {"admin/entity", "cmd/peeklock/internal/cli", "cmd/peeklock/internal/cli/client", "cmd/peeklock/internal/cli/entities", "cmd/peeklock/internal/cli/gateway", "cmd/peeklock/internal/cli/messages", "cmd/peeklock/internal/cli/output", "fsm", "admin/api", "cmd/peeklock/internal/quantity"},
		"cmd/peeklock":                         {"cmd/peeklock/internal/audit", "cmd/peeklock/internal/cli", "cmd/peeklock/internal/cli/backups", "cmd/peeklock/internal/cli/command", "cmd/peeklock/internal/cli/doctor", "cmd/peeklock/internal/cli/entities", "cmd/peeklock/internal/cli/install", "cmd/peeklock/internal/cli/kubernetes", "cmd/peeklock/internal/cli/messages", "cmd/peeklock/internal/cli/offline", "cmd/peeklock/internal/cli/operate", "cmd/peeklock/internal/cli/output", "cmd/peeklock/internal/bench", "cmd/peeklock/internal/config", "cmd/broker", "cmd/listen", "cmd/metrics", "admin/connection", "admin/console", "admin/emulator", "fsm", "partition", "cluster", "cluster/client", "cluster/datadir", "cluster/entities", "cluster/health", "cluster/router", "amqp", "amqp/message", "amqp/budget", "amqp/connlimit", "admin", "admin/auth", "admin/api", "admin/dataplane", "amqp/account", "admin/inspect", "cmd/peeklock/internal/cli/declare", "topology", "admin/entity", "cmd/peeklock/internal/quantity", "admin/condition"},
		"deploy/image/layout":                  {},
		"deploy/cluster":                       {}, // no code: what is built elsewhere
	}
}

// libraryImporters maps each external module to the packages whose non-test code may import it, so
// that replacing a module changes few packages. "test" is everything below test.
func libraryImporters() map[string][]string {
	return map[string][]string{
		"github.com/hashicorp/raft":             {"partition", "partition/digest", "partition/raftlog", "partition/skip", "partition/snapshots", "partition/transport", "test"},
		"github.com/hashicorp/raft-boltdb":      {"partition/raftlog"},
		"go.etcd.io/bbolt":                      {"partition/raftlog"},
		"github.com/hashicorp/go-hclog":         {"partition/logging", "partition/transport"},
		"github.com/hashicorp/memberlist":       {"cluster/gossip"},
		"github.com/Azure/go-amqp":              {"cmd/peeklock/internal/cli/gateway", "cmd/peeklock/internal/cli/messages", "cmd/peeklock/internal/bench", "test"},
		"github.com/Azure/azure-sdk-for-go/sdk": {"test"},
		"github.com/coder/websocket":            {"cmd/listen"},
		"github.com/pires/go-proxyproto":        {"cmd/listen"},
		"github.com/coreos/go-oidc":             {"admin/auth"},
		"github.com/go-jose/go-jose":            {"admin/auth"}, // go-oidc verifies signatures with it
		"github.com/hashicorp/golang-lru":       {"admin/auth"},
		"golang.org/x/time":                     {"admin/auth", "cmd/objects"},
		"golang.org/x/crypto":                   {"cmd/peeklock"},
		"github.com/spf13/cobra":                {"cmd/peeklock", "cmd/peeklock/internal/cli", "cmd/peeklock/internal/cli/command", "cmd/peeklock/internal/cli/entities", "cmd/peeklock/internal/cli/messages", "cmd/peeklock/internal/cli/operate", "cmd/peeklock/internal/cli/backups", "cmd/peeklock/internal/cli/kubernetes", "cmd/peeklock/internal/cli/offline", "cmd/peeklock/internal/cli/install", "cmd/peeklock/internal/bench", "cmd/peeklock/internal/cli/declare"},
		"github.com/spf13/pflag":                {"cmd/peeklock/internal/quantity", "cmd/peeklock/internal/cli", "cmd/peeklock/internal/cli/client", "cmd/peeklock/internal/cli/command", "cmd/peeklock/internal/cli/entities", "cmd/peeklock/internal/cli/messages", "cmd/peeklock/internal/config"},
		"github.com/knadh/koanf":                {"cmd/peeklock/internal/config"},
		"github.com/go-viper/mapstructure":      {"cmd/peeklock/internal/config"}, // decodes what koanf has read
		"go.yaml.in/yaml":                       {"cmd/peeklock/internal/cli/declare", "cmd/peeklock/internal/cli/output", "cmd/peeklock/internal/config"},
		"github.com/jedib0t/go-pretty":          {"cmd/peeklock/internal/cli/output"},
		"github.com/HdrHistogram":               {"cmd/peeklock/internal/bench"},
		"github.com/minio/minio-go":             {"cmd/objects"},
		"github.com/prometheus/client_golang":   {"cmd/metrics"},
		"go.opentelemetry.io/otel/trace":        {"amqp", "amqp/tracing", "cmd/peeklock"}, // the API, a no-op until configured
		"go.opentelemetry.io/otel":              {"amqp/tracing", "cmd/peeklock"},
		"go.opentelemetry.io/otel/sdk":          {"cmd/peeklock"},
		"go.opentelemetry.io/otel/exporters":    {"cmd/peeklock"},
		"github.com/cespare/xxhash":             {"fsm", "fsm/image", "fsm/queue", "partition", "partition/digest", "partition/snapshots", "cluster"},
		"golang.org/x/sys":                      {"partition", "cmd/peeklock"},
		"golang.org/x/sync":                     {"partition", "cluster", "amqp", "admin", "cmd/peeklock", "test"},
		"golang.org/x/tools":                    {"test"},
		"golang.org/x/mod":                      {"test"},
		"github.com/google/go-cmp":              {"test"},
		"github.com/anishathalye/porcupine":     {"test"},
		"go.uber.org/goleak":                    {"test"},
	}
}

// load parses all packages of the module once, with syntax and types.
var load = sync.OnceValues(func() ([]*packages.Package, error) {
	return packages.Load(&packages.Config{
		Dir: root,
		Mode: packages.NeedName | packages.NeedFiles | packages.NeedImports |
			packages.NeedSyntax | packages.NeedTypes | packages.NeedTypesInfo,
	}, "./...")
})

// loadPackages returns the packages of the module by their import path below the module path. A
// package that does not compile fails the test. With the race detector, which shows nothing about source, it skips
// the test: it takes a minute and a half there.
func loadPackages(t *testing.T) map[string]*packages.Package {
	t.Helper()
	if kit.RaceDetector {
		t.Skip("examines source: the race detector shows nothing")
	}
	all, err := load()
	if err != nil {
		t.Fatalf("load packages: %v", err)
	}
	byPath := map[string]*packages.Package{}
	for _, p := range all {
		for _, e := range p.Errors {
			t.Errorf("%s: %v", p.PkgPath, e)
		}
		if pkgPath, ok := strings.CutPrefix(p.PkgPath, module); ok {
			byPath[pkgPath] = p
		}
	}
	if len(byPath) == 0 {
		t.Fatal("no packages found: the test looks at the wrong place")
	}
	return byPath
}

// importerName returns the name that the tables use for a package: "test" for all packages below test.
func importerName(pkgPath string) string {
	if strings.HasPrefix(pkgPath, "test/") {
		return "test"
	}
	return pkgPath
}

func TestPackagesImportDownward(t *testing.T) {
	t.Parallel()
	plan := packageImports()
	for name, p := range loadPackages(t) {
		allowed, ok := plan[name]
		switch {
		case importerName(name) == "test":
			continue
		case !ok:
			t.Errorf("%s has no entry in packageImports: add one, or move the package", name)
			continue
		}
		for path := range p.Imports {
			to, ours := strings.CutPrefix(path, module)
			if ours && !slices.Contains(allowed, to) {
				t.Errorf("%s may not import %s", name, to)
			}
		}
	}
}

func TestListedPackagesExist(t *testing.T) {
	t.Parallel()
	have := loadPackages(t)
	for pkgPath := range packageImports() {
		if have[pkgPath] == nil {
			t.Errorf("packageImports names %s, which has no Go files", pkgPath)
		}
	}
}

func TestEveryLibraryHasOneImporter(t *testing.T) {
	t.Parallel()
	table := libraryImporters()
	for name, p := range loadPackages(t) {
		for path := range p.Imports {
			first, _, _ := strings.Cut(path, "/")
			if strings.HasPrefix(path, module) || !strings.Contains(first, ".") {
				continue // a package of this module or of the standard library
			}
			allowed, ok := importersOf(table, path)
			switch {
			case !ok:
				t.Errorf("%s imports %s, which has no entry in libraryImporters: name the package that may import it", name, path)
			case !slices.Contains(allowed, importerName(name)):
				t.Errorf("%s imports %s, which only %s may import", name, path, strings.Join(allowed, ", "))
			}
		}
	}
}

// importersOf returns the entry of the module that contains path: the longest prefix that ends
// at a path element.
func importersOf(table map[string][]string, path string) ([]string, bool) {
	for at := path; ; {
		if allowed, ok := table[at]; ok {
			return allowed, true
		}
		cut := strings.LastIndexByte(at, '/')
		if cut < 0 {
			return nil, false
		}
		at = at[:cut]
	}
}

func TestImportersMatchWholePathElements(t *testing.T) {
	t.Parallel()
	table := map[string][]string{"example.com/raft": {"partition"}}
	for path, want := range map[string]bool{
		"example.com/raft":        true,
		"example.com/raft/v2":     true,
		"example.com/raft-boltdb": false,
		"example.com":             false,
	} {
		if _, got := importersOf(table, path); got != want {
			t.Errorf("address(%q) found %v, want %v", path, got, want)
		}
	}
}
