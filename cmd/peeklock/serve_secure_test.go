package main

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/peeklock/peeklock/admin/auth"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/client"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/config"
	"github.com/peeklock/peeklock/test/kit"
)

// peerFiles returns a certificate for members as an operator creates it: valid for servers and clients, signed by
// a private authority.
func peerFiles(t *testing.T) (cert, key, ca string) {
	t.Helper()
	dir := t.TempDir()
	write := func(name, kind string, der []byte) string {
		t.Helper()
		path := filepath.Join(dir, name)
		kit.OK(t, os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
		return path
	}
	pair := func() *ecdsa.PrivateKey {
		t.Helper()
		k := kit.Must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
		return k
	}
	template := func(serial int64) *x509.Certificate {
		return &x509.Certificate{
			SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: fmt.Sprint("member ", serial)},
			NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), BasicConstraintsValid: true,
		}
	}
	above, its := pair(), template(1)
	its.IsCA, its.KeyUsage = true, x509.KeyUsageCertSign
	authority := kit.Must(x509.CreateCertificate(rand.Reader, its, its, &above.PublicKey, above))(t)
	own, leaf := pair(), template(2)
	leaf.KeyUsage, leaf.ExtKeyUsage = x509.KeyUsageDigitalSignature, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	signed := kit.Must(x509.CreateCertificate(rand.Reader, leaf, its, &own.PublicKey, above))(t)
	private := kit.Must(x509.MarshalPKCS8PrivateKey(own))(t)
	return write("cert.pem", "CERTIFICATE", signed), write("key.pem", "PRIVATE KEY", private), write("ca.pem", "CERTIFICATE", authority)
}

// Three members with encryption between them bootstrap a cluster, and each of them applies the same Config.json.
// The audit log has the changes.
func TestServeWithEncryptionEverywhere(t *testing.T) {
	if testing.Short() {
		t.Skip("starts three members")
	}
	t.Parallel()
	cert, key, ca := peerFiles(t)
	secret := kit.WriteFile(t, "c2VjcmV0LTE2LWJ5dGVzIQ==\n")
	audit := filepath.Join(t.TempDir(), "audit.log")
	gossip := make([]string, 3)
	for i := range gossip {
		var err error
		if gossip[i], err = freeGossipPort(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	members := make([]devMember, len(gossip))
	logs, codes := make([]kit.LogLines, len(gossip)), make(chan int, len(gossip))
	for i := range gossip {
		dir := kit.MemoryDir(t)
		members[i].Admin = client.SocketScheme + filepath.Join(dir, config.SocketName)
		args := []string{
			"serve", "--name", fmt.Sprint("m", i), "--dir", dir, "--expect", "3", "--join", strings.Join(gossip, ","), "--partitions", "2",
			"--amqp", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--peer", "127.0.0.1:0", "--gossip", gossip[i],
			"--peer-cert", cert, "--peer-key", key, "--peer-ca", ca, "--gossip-key", secret,
			"--key", auth.DevKey, "--config-emulator", sampleConfig, "--audit-log", fmt.Sprint(audit, i),
		}
		go func() {
			codes <- run(ctx, cli.Process{Args: args, In: strings.NewReader(""), Out: &bytes.Buffer{}, Err: &logs[i]})
		}()
	}
	t.Cleanup(func() {
		cancel()
		for range gossip {
			if code := <-codes; code != 0 {
				t.Error("exit code", code)
			}
		}
	})
	for i := range logs {
		kit.Eventually(t, "ready: "+logs[i].String(), func() bool { return strings.Contains(logs[i].String(), "member became ready") })
		wants(t, logs[i].String(), "emulator configuration applied")
		if strings.Contains(logs[i].String(), "problem=") {
			t.Error(logs[i].String())
		}
	}
	wants(t, say(t, members[1], 0, "rule", "list", "orders/Subscriptions/web"), "from-the-web", "from-a-partner")
	wants(t, say(t, members[2], 0, "queue", "show", "intake", "-o", "json"), `"forwardTo": "orders"`)
	say(t, members[0], 0, "message", "send", "intake", "hello")
	wants(t, say(t, members[2], 0, "message", "receive", "orders/Subscriptions/everything", "--wait", "60s"), "hello")
	say(t, members[1], 0, "queue", "delete", "lost", "--yes")
	data := kit.Must(os.ReadFile(audit + "1"))(t)
	wants(t, string(data), `"msg":"audit"`, "lost", `"member":"m1"`)
}
