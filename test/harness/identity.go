package harness

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/peeklock/peeklock/test/kit"
)

const (
	issuerAudience  = "https://servicebus.azure.net"
	issuerKeyBits   = 2048
	certificateLife = time.Hour
)

// Issuer is an identity provider for tests, with the parts that members and clients use.
//
//	GET /.well-known/openid-configuration, /keys  for members (OpenID Connect Discovery 1.0, 4)
//	GET /token?role=R&seconds=N                   for clients: a token in the answer's body
type Issuer struct {
	URL string
	key *rsa.PrivateKey
	t   testing.TB
}

// NewIssuer starts an identity provider that ends with the test.
func NewIssuer(t testing.TB) *Issuer {
	t.Helper()
	key := kit.Must(rsa.GenerateKey(rand.Reader, issuerKeyBits))(t)
	i := &Issuer{key: key, t: t}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(map[string]any{
			"issuer": i.URL, "jwks_uri": i.URL + "/keys", "id_token_signing_alg_values_supported": []string{"RS256"},
		})
	})
	mux.HandleFunc("GET /keys", func(w http.ResponseWriter, _ *http.Request) {
		e := big.NewInt(int64(key.E)).Bytes()
		_ = json.NewEncoder(w).Encode(map[string]any{"keys": []any{map[string]string{
			"kty": "RSA", "use": "sig", "alg": "RS256", "kid": "test",
			"n": base64.RawURLEncoding.EncodeToString(key.N.Bytes()), "e": base64.RawURLEncoding.EncodeToString(e),
		}}})
	})
	mux.HandleFunc("GET /token", func(w http.ResponseWriter, r *http.Request) {
		seconds, err := strconv.Atoi(r.FormValue("seconds"))
		if err != nil {
			http.Error(w, "for how many seconds?", http.StatusBadRequest)
			return
		}
		_, _ = w.Write([]byte(i.Token(r.FormValue("role"), time.Duration(seconds)*time.Second)))
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	i.URL = server.URL
	return i
}

// Args are the flags of a member that accepts its tokens.
func (i *Issuer) Args() []string {
	return []string{"--oidc-issuer", i.URL, "--oidc-audience", issuerAudience}
}

// Token makes a token for a role.
func (i *Issuer) Token(role string, life time.Duration) string {
	part := func(v any) string {
		text, err := json.Marshal(v)
		if err != nil {
			i.t.Error(err)
		}
		return base64.RawURLEncoding.EncodeToString(text)
	}
	now := time.Now()
	text := part(map[string]string{"alg": "RS256", "kid": "test", "typ": "JWT"}) + "." + part(map[string]any{
		"iss": i.URL, "aud": issuerAudience, "sub": "somebody", "roles": []string{role},
		"iat": now.Unix(), "nbf": now.Unix(), "exp": now.Add(life).Unix(),
	})
	sum := sha256.Sum256([]byte(text))
	signature, err := rsa.SignPKCS1v15(rand.Reader, i.key, crypto.SHA256, sum[:])
	if err != nil {
		i.t.Error(err)
	}
	return text + "." + base64.RawURLEncoding.EncodeToString(signature)
}

// TLSArgs are the flags of a member that has the certificate of `dev --tls`, trusts client certificates
// of its authority, and accepts clients without TLS too.
func (c *Cluster) TLSArgs() []string {
	dir := filepath.Dir(c.CA)
	return []string{
		"--tls-cert", filepath.Join(dir, "cert.pem"), "--tls-key", filepath.Join(dir, "key.pem"), "--tls-client-ca", c.CA, "--allow-remote-plain",
	}
}

// ClientCertificate issues a certificate for a client of that name by the authority of `dev --tls`, and
// returns the files with certificate and key (PKCS 8).
func (c *Cluster) ClientCertificate(t testing.TB, name string) (certificate, key string) {
	t.Helper()
	authority := kit.Must(x509.ParseCertificate(readPEM(t, c.CA)))(t)
	signer := kit.Must(x509.ParsePKCS8PrivateKey(readPEM(t, filepath.Join(filepath.Dir(c.CA), "ca-key.pem"))))(t)
	own := kit.Must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	der := kit.Must(x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Minute), NotAfter: time.Now().Add(certificateLife),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, authority, own.Public(), signer))(t)
	secret := kit.Must(x509.MarshalPKCS8PrivateKey(own))(t)
	dir := t.TempDir()
	certificate, key = filepath.Join(dir, "client.pem"), filepath.Join(dir, "client-key.pem")
	for path, block := range map[string]*pem.Block{certificate: {Type: "CERTIFICATE", Bytes: der}, key: {Type: "PRIVATE KEY", Bytes: secret}} {
		kit.OK(t, os.WriteFile(path, pem.EncodeToMemory(block), 0o600))
	}
	return certificate, key
}

// readPEM returns the first block of a file.
func readPEM(t testing.TB, path string) []byte {
	t.Helper()
	text := kit.Must(os.ReadFile(path))(t)
	block, _ := pem.Decode(text)
	if block == nil {
		t.Fatalf("%s holds no PEM", path)
	}
	return block.Bytes
}
