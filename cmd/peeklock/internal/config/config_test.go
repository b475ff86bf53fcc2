package config

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/peeklock/peeklock/admin/auth"
	"github.com/peeklock/peeklock/cluster"
	"github.com/peeklock/peeklock/test/kit"
)

// settingsOf loads the settings of a command line.
func settingsOf(t *testing.T, args ...string) *Settings {
	t.Helper()
	flags := pflag.NewFlagSet("serve", pflag.ContinueOnError)
	AddFlags(flags)
	kit.OK(t, flags.Parse(args))
	s := kit.Must(Load(nil, flags))(t)
	return s
}

// Addresses that other machines can reach must be encrypted, each with the settings of its protocol, unless a
// setting says that the network is trusted (S.1).
func TestAddressesBeyondLoopbackNeedEncryption(t *testing.T) {
	t.Parallel()
	peers := []string{"--peer-cert", "c", "--peer-key", "k", "--peer-ca", "a"}
	gossip := []string{"--gossip-key", "g"}
	clients := []string{"--tls-cert", "c", "--tls-key", "k"}
	for _, c := range []struct {
		args []string
		want string // "": allowed
	}{
		{[]string{"--peer", ":7947"}, "peer: :7947 can be reached from other machines and nothing is encrypted: give peer_cert, peer_key and peer_ca, or set --allow-remote-plain"},
		{append([]string{"--peer", ":7947"}, clients...), "give peer_cert"},
		{append([]string{"--peer", ":7947"}, peers...), ""},
		{append([]string{"--gossip", "0.0.0.0:7946"}, peers...), "gossip: 0.0.0.0:7946 can be reached from other machines and nothing is encrypted: give gossip_key"},
		{append([]string{"--gossip", "0.0.0.0:7946"}, gossip...), ""},
		{append(append([]string{"--peer", ":7947", "--gossip", ":7946", "--amqp", ":5672"}, gossip...), peers...), "amqp: :5672 can be reached from other machines and nothing is encrypted: give tls_cert and tls_key"},
		{append(append(append([]string{"--peer", ":7947", "--gossip", ":7946", "--amqp", ":5672", "--admin", ":5300", "--also", ":443"}, gossip...), peers...), clients...), ""},
		{[]string{"--peer", ":7947", "--gossip", ":7946", "--amqp", ":5672", "--allow-remote-plain"}, ""},
		{nil, ""},
	} {
		s := settingsOf(t, c.args...)
		switch err := s.checkListenAddresses(true); {
		case c.want == "" && err != nil:
			t.Errorf("%v: %v", c.args, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%v: %v, want %s", c.args, err, c.want)
		}
		if err := s.checkListenAddresses(false); (err == nil) != (len(c.args) == 0) {
			t.Errorf("%v without a key: %v", c.args, err)
		}
	}
}

// Incomplete combinations of settings are refused.
func TestIncompleteSecuritySettingsAreRefused(t *testing.T) {
	t.Parallel()
	const (
		oidc    = "--oidc-issuer=https://login.example.com/t"
		console = oidc + " --oidc-audience=x --oidc-client-id=c"
	)
	for _, c := range []struct{ args, want string }{
		{"--peer-cert=c --peer-key=k", "peer_cert, peer_key and peer_ca belong together"},
		{"--peer-ca=c", "peer_cert, peer_key and peer_ca belong together"},
		{"--peer-cert=c --peer-key=k --peer-ca=a", ""},
		{"--tls-client-ca=a", "tls_client_ca needs a certificate"},
		{"--tls-client-ca=a --tls-cert=c --tls-key=k", ""},
		{"--oidc-audience=x", "give oidc_issuer, too"},
		{oidc, "oidc_issuer needs oidc_audience"},
		{oidc + " --oidc-audience=x", ""},
		{oidc + " --oidc-audience=x --oidc-roles-claim=", "name the claim"},
		{"--oidc-issuer=login --oidc-audience=x", "is not a URL"},
		{"--oidc-issuer=http://login.example.com --oidc-audience=x", "could issue tokens: use https"},
		{"--oidc-issuer=http://login.example.com --oidc-audience=x --allow-remote-plain", ""},
		{"--oidc-issuer=http://127.0.0.1:8080 --oidc-audience=x", ""},
		{"--oidc-issuer=http://localhost:8080/x --oidc-audience=x", ""},
		{"--oidc-client-id=c", "oidc_client_id needs the identity provider"},
		{oidc + " --oidc-audience=x --oidc-scopes=openid", "give oidc_client_id, too"},
		{oidc + " --oidc-audience=x --oidc-token-origin=https://a", "give oidc_client_id, too"},
		{console, ""},
		{console + " --oidc-scopes=offline_access", "does not contain openid"},
		{console + " --oidc-scopes=", "does not contain openid"},
		{"--oidc-issuer=https://a;script-src/x --oidc-audience=x --oidc-client-id=c", "is no issuer that the console can use"},
		{"--oidc-issuer=https://a/x?y --oidc-audience=x --oidc-client-id=c", "is no issuer that the console can use"},
		{console + " --oidc-token-origin=https://oauth2.example.com:8443", ""},
		{console + " --oidc-token-origin=https://oauth2.example.com/token", "without a path"},
		{console + " --oidc-token-origin=*", "is no origin"},
		{console + " --oidc-token-origin=https://*", "is no origin"},
		{console + " --oidc-token-origin=http://oauth2.example.com", "could read tokens: use https"},
	} {
		err := settingsOf(t, strings.Fields(c.args)...).Validate()
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.args, err, c.want)
		}
	}
}

// The file of gossip keys holds one to eight; errors never show its content.
func TestGossipKeysAreReadAndNeverShown(t *testing.T) {
	t.Parallel()
	const (
		short = "c2VjcmV0LTE2LWJ5dGVzIQ=="                     // 16 bytes
		long  = "c2VjcmV0LW9mLXRoaXJ0eS10d28tYnl0ZXMtLS0tLS0=" // 32 bytes
	)
	keys, err := settingsOf(t, "--gossip-key", kit.WriteFile(t, long+"\r\n\n "+short+"\n")).GossipKeys()
	if err != nil || len(keys) != 2 || string(keys[0]) != "secret-of-thirty-two-bytes------" || string(keys[1]) != "secret-16-bytes!" {
		t.Errorf("%q %v", keys, err)
	}
	if keys, err := settingsOf(t).GossipKeys(); keys != nil || err != nil {
		t.Error(keys, err)
	}
	if keys, err := settingsOf(t, "--gossip-key", kit.WriteFile(t, strings.Repeat(short+"\n", gossipKeysMax))).GossipKeys(); len(keys) != gossipKeysMax || err != nil {
		t.Error(len(keys), err)
	}
	for content, want := range map[string]string{
		"": "holds 0 keys",
		strings.Repeat(short+"\n", gossipKeysMax+1): "holds 9 keys",
		short + "\nc2VjcmV0":                        "key 2 of",
		"secret-16-bytes!":                          "key 1 of",
	} {
		_, err := settingsOf(t, "--gossip-key", kit.WriteFile(t, content)).GossipKeys()
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "ecret") || strings.Contains(err.Error(), "c2Vj") {
			t.Errorf("%v, want %s", err, want)
		}
	}
	if _, err := settingsOf(t, "--gossip-key", "/none").GossipKeys(); err == nil {
		t.Error("a file that is not there was read")
	}
}

func TestConsoleSignInHasTheOriginsOfTheProvider(t *testing.T) {
	t.Parallel()
	if got := settingsOf(t, "--oidc-issuer=https://login.example.com/t", "--oidc-audience=x").ConsoleSignIn(); got.ClientID != "" || got.Origins != nil {
		t.Errorf("without oidc_client_id: got %+v, want none", got)
	}
	const issuer = "https://login.example.com"
	for to, want := range map[string][]string{"": {issuer}, issuer: {issuer}, "https://oauth2.example.com": {issuer, "https://oauth2.example.com"}} {
		got := settingsOf(t, "--oidc-issuer=https://login.example.com/t", "--oidc-audience=x", "--oidc-client-id=c", "--oidc-token-origin="+to).ConsoleSignIn()
		if !slices.Equal(got.Origins, want) || got.Issuer != issuer+"/t" || got.ClientID != "c" || got.Scopes != "openid" {
			t.Errorf("token origin %q: got %+v, want origins %q", to, got, want)
		}
	}
}

// The identity provider is not contacted at the start: a member starts while it is unavailable.
func TestIssuerIsNotContactedAtStart(t *testing.T) {
	t.Parallel()
	keys, err := settingsOf(t, "--key-file", kit.WriteFile(t, auth.DevKey), "--oidc-issuer", "http://127.0.0.1:1/tenant", "--oidc-audience", "peeklock").AuthConfig()
	if err != nil || keys.Issuer == nil {
		t.Error(keys.Issuer, err)
	}
	if keys, err := settingsOf(t, "--key-file", kit.WriteFile(t, auth.DevKey)).AuthConfig(); err != nil || keys.Issuer != nil {
		t.Error(keys.Issuer, err)
	}
}

// TestProxyNetworksAreParsed checks that networks are parsed in the form of every layer, and that invalid ones are refused.
func TestProxyNetworksAreParsed(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args    []string
		want    string
		refused string
	}{
		{nil, "[]", ""},
		{[]string{"--proxy-protocol-from", "10.1.0.0/16,2001:db8::/32", "--proxy-protocol-from", "10.2.3.4/32"}, "[10.1.0.0/16 2001:db8::/32 10.2.3.4/32]", ""},
		{[]string{"--proxy-protocol-from", "10.1.2.3/16"}, "[10.1.0.0/16]", ""},
		{[]string{"--proxy-protocol-from", "10.1.2.3"}, "", `"10.1.2.3" is not a network`},
		{[]string{"--proxy-protocol-from", "balancer"}, "", "is not a network"},
		{[]string{"--proxy-protocol-from", "10.0.0.0/33"}, "", "is not a network"},
		{[]string{"--proxy-protocol-from", "::ffff:10.0.0.0/104"}, "", "is not a network"},
	} {
		s := settingsOf(t, c.args...)
		err := s.Validate()
		if c.refused != "" {
			if err == nil || !strings.Contains(err.Error(), c.refused) {
				t.Errorf("%q: %v", c.args, err)
			}
			continue
		}
		if networks, _ := s.ProxyNetworks(); err != nil || fmt.Sprint(networks) != c.want {
			t.Errorf("%q: %v, %v", c.args, networks, err)
		}
	}
}

// placement holds the expected values of the placement settings.
type placement struct {
	Zone         string
	Rebalance    bool
	ReplaceAfter time.Duration
	Interval     time.Duration // of rebalances; 0: the default
}

// TestPlacementPolicySettings checks that the zone of a member and the policy for automatic moves reach it, and
// that invalid values are refused before anything is opened.
func TestPlacementPolicySettings(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args    []string
		want    placement
		refused string
	}{
		{},
		{args: []string{"--zone", "eu-1", "--rebalance", "--replace-after", "10m"}, want: placement{Zone: "eu-1", Rebalance: true, ReplaceAfter: 10 * time.Minute}},
		{args: []string{"--replace-after", "1m"}, want: placement{ReplaceAfter: time.Minute}},
		{args: []string{"--replace-after", "59s"}, refused: "--replace-after: 0 for never, or 1m and more, such as 10m, not 59s"},
		{args: []string{"--rebalance-interval", "10s"}, want: placement{Interval: 10 * time.Second}},
		{args: []string{"--rebalance-interval", "9s"}, refused: "--rebalance-interval: 10s and more"},
		{args: []string{"--rebalance-interval", "0"}, refused: "--rebalance-interval: 10s and more, such as 5m, not 0"},
		{args: []string{"--zone", strings.Repeat("z", zoneBytesMax)}, want: placement{Zone: strings.Repeat("z", zoneBytesMax)}},
		{args: []string{"--zone", strings.Repeat("z", zoneBytesMax+1)}, refused: "--zone: at most 64 bytes"},
		{args: []string{"--zone", "\xff"}, refused: "zone"},
	} {
		s := settingsOf(t, c.args...)
		err := s.Validate()
		if c.refused != "" {
			if err == nil || !strings.Contains(err.Error(), c.refused) {
				t.Errorf("%q: %v", c.args, err)
			}
			continue
		}
		if err != nil || s.Zone != c.want.Zone || s.Rebalance != c.want.Rebalance || time.Duration(s.ReplaceAfter) != c.want.ReplaceAfter ||
			time.Duration(s.RebalanceInterval) != cmp.Or(c.want.Interval, cluster.Default().Timing.Policy) {
			t.Errorf("%q: %+v, %v", c.args, s.Member, err)
		}
	}
}

func TestInvalidLoginSettingsAreRefused(t *testing.T) {
	t.Parallel()
	config, err := settingsOf(t, "--key-file", kit.WriteFile(t, auth.DevKey)).AuthConfig()
	if err != nil || *config.Limits != auth.DefaultLimits() {
		t.Errorf("by default: %+v, %v", config.Limits, err)
	}
	config, err = settingsOf(t, "--key-file", kit.WriteFile(t, auth.DevKey), "--login-failures", "5", "--login-failures-per-minute", "10", "--login-delay", "0", "--login-verifications", "2").AuthConfig()
	if want := (auth.Limits{FailuresMax: 5, FailuresPerMinute: 10, VerificationsMax: 2}); err != nil || *config.Limits != want {
		t.Errorf("%+v, %v", config.Limits, err)
	}
	for flag, value := range map[string]string{"--login-failures": "0", "--login-failures-per-minute": "-1", "--login-delay": "6s", "--login-verifications": "0"} {
		if err := settingsOf(t, flag, value).Validate(); err == nil || !strings.Contains(err.Error(), "login") {
			t.Errorf("%s %s: %v", flag, value, err)
		}
	}
	if limits, err := settingsOf(t, "--login-delay", "5s").loginLimits(); err != nil || limits.DelayMax != 5*time.Second {
		t.Errorf("%+v, %v", limits, err)
	}
}

func TestMetricsAccessSettings(t *testing.T) {
	t.Parallel()
	for access, ok := range map[string]bool{"open": true, "all": true, "operators": true, "off": true, "": false, "yes": false} {
		if err := settingsOf(t, "--metrics", access, "--metrics-entities", "5").Validate(); (err == nil) != ok {
			t.Errorf("metrics %q: %v", access, err)
		}
	}
	if err := settingsOf(t, "--metrics-entities", "3001").Validate(); err == nil {
		t.Error("10,001 entities are taken")
	}
}

func TestInvalidTraceEndpointIsRefused(t *testing.T) {
	t.Parallel()
	for text, good := range map[string]bool{
		"": true, "http://localhost:4318": true, "https://collector.example.com/v1/traces": true,
		"localhost:4318": false, "ftp://a": false, "http://": false,
	} {
		err := settingsOf(t, "--otlp-endpoint", text).Validate()
		if (err == nil) != good || err != nil && !strings.Contains(err.Error(), "--otlp-endpoint") {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// loaded loads a file, an environment and a command line, and validates the settings.
func loaded(t *testing.T, file string, env []string, args ...string) (*Settings, error) {
	t.Helper()
	flags := pflag.NewFlagSet("serve", pflag.ContinueOnError)
	AddFlags(flags)
	if err := flags.Parse(append(args, "--config", file)); err != nil {
		return nil, err
	}
	s, err := Load(env, flags)
	if err == nil {
		err = s.Validate()
	}
	return s, err
}

// TestQuantitiesHaveOneForm checks that bytes and durations are read alike from the file, the environment and flags.
func TestQuantitiesHaveOneForm(t *testing.T) {
	t.Parallel()
	s, err := loaded(t, kit.WriteFile(t, "disk_reserve: 134217728\nslow: 0\nreplace_after: PT10M\nmemory_limit: 268435456B\n"),
		[]string{"PEEKLOCK_SNAPSHOT_BYTES=1.34217728e+08", "PEEKLOCK_REBALANCE_INTERVAL=90s"}, "--login-delay", "PT0.5S", "--memory-limit", "4GiB")
	if err != nil {
		t.Fatal(err)
	}
	got := []any{s.DiskReserve, s.Slow, s.ReplaceAfter, s.SnapshotBytes, s.RebalanceInterval, s.LoginDelay, s.MemoryLimit}
	if want := "[128MiB 0 10m 128MiB 1m30s 500ms 4GiB]"; fmt.Sprint(got) != want {
		t.Errorf("got %v, want %s", got, want)
	}
}

// TestInvalidValuesAreNamedWithTheirPlace checks that an error names the place, the key and the value, and says what is accepted.
func TestInvalidValuesAreNamedWithTheirPlace(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ file, env, flag, want string }{
		{file: "name: a\n\nsnapshot_bytes: 64MB", want: `FILE:3: snapshot_bytes: "64MB" is not a number of bytes: write a whole number, alone or with B, KiB, MiB, GiB or TiB, such as 64MiB`},
		{file: "snapshot_bytes: 1KiB", want: "FILE:1: snapshot_bytes: 64KiB to 1GiB, not 1KiB"},
		{file: "slow: 5", want: `FILE:1: slow: "5" is not a duration: write it like 30s or PT30S`},
		{file: "slow: forever", want: `FILE:1: slow: "forever" has no end here: write a length of time such as 30s or PT30S`},
		{file: "# ports\nexpect: three", want: `FILE:2: expect: "three" is not a whole number`},
		{file: "rebalance: often", want: `FILE:1: rebalance: "often" is not true or false`},
		{file: "name: {a: b}", want: "FILE:1: name.a: unknown setting (did you mean \"name\"?): possible are"},
		{file: "join: {a: b}", want: "FILE:1: join.a: unknown setting (did you mean \"join\"?): possible are"},
		{file: "name: a\npartition: 3", want: `FILE:2: partition: unknown setting (did you mean "partitions"?): possible are accept_rollback, admin,`},
		{file: "name: a\nname: b", want: `FILE: yaml: `},
		{file: "slow: 1s", env: "PEEKLOCK_SLOW=-1s", want: `PEEKLOCK_SLOW: "-1s" is not a duration`},
		{env: "PEEKLOCK_MEMORY_LIMIT=255MiB", want: "PEEKLOCK_MEMORY_LIMIT: 255MiB is too little: 256MiB or more"},
		{env: "PEEKLOCK_PARTITIONS=1025", want: "PEEKLOCK_PARTITIONS: 1 to 1024, not 1025"},
		{env: "PEEKLOCK_SLOW=soon", flag: "--slow=1s"},
		{flag: "--log-level=loud", want: `--log-level: debug, info, warn or error, not "loud"`},
		{flag: "--amqp=5672", want: `--amqp: "5672" is not an address: write host:port`},
	} {
		file := kit.WriteFile(t, c.file)
		var env, args []string
		if c.env != "" {
			env = []string{c.env}
		}
		if c.flag != "" {
			args = []string{c.flag}
		}
		_, err := loaded(t, file, env, args...)
		if want := strings.ReplaceAll(c.want, "FILE", file); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q %s %s:\n got %v,\nwant %s", c.file, c.env, c.flag, err, want)
		}
	}
}

// TestEverySettingHasAField checks that each setting has a field, or it could not be read, and each field a
// setting, or it could not be set.
func TestEverySettingHasAField(t *testing.T) {
	t.Parallel()
	fields := map[string]bool{}
	for f := range reflect.TypeFor[Member]().Fields() {
		fields[strings.ToLower(f.Name)] = true
	}
	for _, s := range Table() {
		name := strings.ReplaceAll(s.Name, "_", "")
		if !fields[name] {
			t.Errorf("%s has no field", s.Name)
		}
		delete(fields, name)
	}
	for name := range fields {
		t.Errorf("the field %s has no setting", name)
	}
}

// A value that equals the default is distinguished from one that is not given.
func TestExplicitDefaultIsGiven(t *testing.T) {
	t.Parallel()
	if settingsOf(t).IsGiven("connections_per_address") {
		t.Error("a setting that is not given counts as given")
	}
	if s := settingsOf(t, "--connections-per-address", "5000"); !s.IsGiven("connections_per_address") || s.ConnectionsPerAddress != 5000 {
		t.Errorf("an explicit 5000 does not count as given: %d", s.ConnectionsPerAddress)
	}
}

// TestLogFormatSetting checks that json and text are the only formats.
func TestLogFormatSetting(t *testing.T) {
	t.Parallel()
	for format, ok := range map[string]bool{"json": true, "text": true, "": false, "logfmt": false} {
		if err := settingsOf(t, "--log-format", format).Validate(); (err == nil) != ok {
			t.Errorf("%q: %v", format, err)
		}
	}
}

// TestKeyFileHoldsTwoSecrets: the first secret of a key file signs, and the one on the second line is valid as well.
func TestKeyFileHoldsTwoSecrets(t *testing.T) {
	t.Parallel()
	for content, want := range map[string]auth.Key{
		"new secret":                   {Primary: "new secret"},
		"new secret\r\nold secret\r\n": {Primary: "new secret", Secondary: "old secret"},
		"\nnew secret\n\nold secret":   {Primary: "new secret", Secondary: "old secret"},
	} {
		s := settingsOf(t, "--key-file", kit.WriteFile(t, content))
		c, err := s.AuthConfig()
		if err != nil || len(c.Keys) != 1 || c.Keys[0].Primary != want.Primary || c.Keys[0].Secondary != want.Secondary {
			t.Errorf("%q: %+v, %v, want %+v", content, c.Keys, err, want)
		}
	}
	for _, args := range [][]string{
		{"--key-file", kit.WriteFile(t, "a\nb\nc\n")},
		{"--key-file", kit.WriteFile(t, "\n")},
		{"--key-file", kit.WriteFile(t, "a\nb\n"), "--key-secondary", "c"},
	} {
		if _, err := settingsOf(t, args...).AuthConfig(); err == nil || !strings.Contains(err.Error(), "the key file") {
			t.Errorf("%q: %v, want an error about the key file", args, err)
		}
	}
}
