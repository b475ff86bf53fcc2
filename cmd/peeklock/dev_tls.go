package main

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/peeklock/peeklock/admin/auth"
	"github.com/peeklock/peeklock/cmd/listen"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/output"
)

// Ports of the cloud service. Several clients cannot use others.
const (
	portAMQPS = 5671
	portHTTPS = 443
)

// devTLS is the part of the output that --tls adds. Its paths are absolute.
type devTLS struct {
	listen.DevelopmentFiles
	unbound []string // why ports of the cloud service are not served
}

// bindTLS binds the ports of the cloud service for the first member, if they are available: 443 needs permission,
// and another process may use either port. Nothing depends on them.
// It returns why the others could not be bound.
func (o *devOptions) bindTLS(ctx context.Context, first *memberParts) (unbound []string) {
	if !o.tls || o.amqpPort == 0 {
		return nil
	}
	for _, port := range []int{portAMQPS, portHTTPS} {
		l, err := listenLoopback(ctx, port)
		if err != nil {
			unbound = append(unbound, unboundText(port, err))
			continue
		}
		first.also = append(first.also, l)
	}
	return unbound
}

func unboundText(port int, err error) string {
	return fmt.Sprintf("port %d could not be bound (%v): %s", port, err, portUse[port])
}

// portUse says what clients lose without a port of the cloud service.
var portUse = map[int]string{ //nolint:gochecknoglobals // a table
	portAMQPS: "clients that cannot be given a port do not connect over AMQP; give the others the connection string with its port",
	portHTTPS: "administration clients and AMQP over WebSocket that cannot be given a port do not connect",
}

// loadTLS sets the development certificate of every member; it returns nil without --tls.
func (o *devOptions) loadTLS(parts []memberParts, logger *slog.Logger) (*devTLS, error) {
	for i := range parts {
		parts[i].origins = origins(false)
	}
	if !o.tls {
		return nil, nil //nolint:nilnil // nothing is there, and nothing is wrong
	}
	dir, err := filepath.Abs(filepath.Join(o.dir, "tls"))
	if err != nil {
		return nil, fmt.Errorf("find the data folder: %w", err)
	}
	files, err := listen.Development(dir)
	if err != nil {
		return nil, err
	}
	cert, err := listen.LoadCertificate(files.Cert, files.Key, logger.With("component", "listen"))
	if err != nil {
		return nil, err
	}
	for i := range parts {
		parts[i].tls = cert.TLS()
	}
	return &devTLS{files, o.unbound}, nil
}

// emulatorTLSFolder is where the emulator keeps its certificates if it exists: clients share it with a container by mounting it.
const emulatorTLSFolder = "/ServiceBus_Emulator/Certificates"

// loadTLS sets the development certificate of the emulator and binds the ports of the cloud service, if they are available; it
// returns nil without --tls.
func (o *emulatorOptions) loadTLS(ctx context.Context, p cli.Process, parts *memberParts) (*devTLS, error) {
	if !o.tls {
		return nil, nil //nolint:nilnil // nothing is there, and nothing is wrong
	}
	names := o.tlsNames
	if names == nil {
		names = []string{"host.docker.internal"}
		if host, err := os.Hostname(); err == nil {
			names = append(names, strings.ToLower(host))
		}
	}
	dir := filepath.Join(o.dir, "tls")
	if info, err := os.Stat(emulatorTLSFolder); err == nil && info.IsDir() && o.temporary {
		dir = emulatorTLSFolder
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("find the folder of the certificates: %w", err)
	}
	files, err := listen.Development(dir, names...)
	if err != nil {
		return nil, err
	}
	cert, err := listen.LoadCertificate(files.Cert, files.Key, parts.logger.With("component", "listen"))
	if err != nil {
		return nil, err
	}
	if parts.ca, err = os.ReadFile(files.CA); err != nil {
		return nil, fmt.Errorf("read the authority: %w", err)
	}
	parts.tls = cert.TLS()
	var unbound []string
	if o.amqpPort != 0 {
		for _, port := range []int{portAMQPS, portHTTPS} {
			l, err := listenOn(ctx, ":"+strconv.Itoa(port))
			if err != nil {
				unbound = append(unbound, unboundText(port, err))
				continue
			}
			parts.also = append(parts.also, l)
		}
	}
	for _, name := range files.Missing {
		_, _ = fmt.Fprintf(p.Err, "peeklock: the certificate lacks %s, because the authority in %s was not made for it: remove the folder to get a new one\n", name, dir)
	}
	return &devTLS{files, unbound}, nil
}

// addTLS adds the connection string for TLS. If the member has both ports of the cloud service, the endpoint has
// no port, which is the only form that all clients understand.
func (m *devMember) addTLS(p memberParts) {
	if p.tls == nil {
		return
	}
	host := p.cluster.AMQPAddr
	for _, l := range p.also {
		m.Also = append(m.Also, localhost(l))
	}
	if len(m.Also) == 2 {
		host, _, _ = net.SplitHostPort(host)
	}
	m.TLSConnectionString = fmt.Sprintf("Endpoint=sb://%s;SharedAccessKeyName=%s;SharedAccessKey=%s", host, auth.DevKeyName, auth.DevKey)
}

// note prints the paths in the table output.
func (t *devTLS) note(out *output.Output, members []devMember) error {
	if t == nil {
		return nil
	}
	if err := out.Note("\nTLS on every port. Trust %s\n  certificate %s\n  key         %s", t.CA, t.Cert, t.Key); err != nil {
		return err
	}
	for _, reason := range t.unbound {
		if err := out.Note("  %s", reason); err != nil {
			return err
		}
	}
	for _, m := range members {
		for _, also := range m.Also {
			if err := out.Note("%s  also on %s", m.Name, also); err != nil {
				return err
			}
		}
		if err := out.Note("  %s", m.TLSConnectionString); err != nil {
			return err
		}
	}
	return nil
}
