package harness

import (
	"crypto/x509"
	"encoding/pem"
	"os"
	"testing"

	"github.com/peeklock/peeklock/test/kit"
)

// TestCertificatesNameTheirAuthority: clients with OpenSSL refuse a certificate as self-signed if its issuer has its own name.
func TestCertificatesNameTheirAuthority(t *testing.T) {
	t.Parallel()
	own, _, authority := Certificate(t, "host")
	parse := func(file string) *x509.Certificate {
		text := kit.Must(os.ReadFile(file))(t)
		block, _ := pem.Decode(text)
		certificate := kit.Must(x509.ParseCertificate(block.Bytes))(t)
		return certificate
	}
	its, root := parse(own), parse(authority)
	if its.Issuer.String() != root.Subject.String() || its.Issuer.String() == its.Subject.String() {
		t.Errorf("%s was issued by %s, the authority is %s", its.Subject, its.Issuer, root.Subject)
	}
}
