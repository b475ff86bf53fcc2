package admin

import (
	"net"
	"net/http"
	"strings"

	"github.com/peeklock/peeklock/admin/connection"
	"github.com/peeklock/peeklock/fsm"
)

// emulatorFlag makes official clients connect without TLS, and to the port in the endpoint.
const emulatorFlag = ";UseDevelopmentEmulator=true"

// endpoint returns the first part of connection strings to a namespace, "" if no known host selects it. Its
// host is that of the request, because every port of a member except Config.Local speaks AMQP too.
func (s *core) endpoint(r *http.Request, namespace fsm.Namespace) string {
	host, secure := r.Host, connection.IsSecure(r)
	if name, port, err := net.SplitHostPort(host); err == nil && port == s.config.ControlPort && s.config.ClientPort != "" {
		host = net.JoinHostPort(name, s.config.ClientPort)
	}
	if connection.IsLocal(r) {
		host, secure = s.config.Local.Endpoint, s.config.RequireTLS
	}
	if host != "" {
		if selected, err := s.config.Control.NamespaceByHost(r.Context(), host); err != nil || selected != namespace.ID {
			host = hostSelecting(host, namespace)
		}
	}
	if host == "" {
		return ""
	}
	text := "Endpoint=sb://" + host
	if !secure {
		text += emulatorFlag
	}
	return text
}

// endpointOf returns the endpoint of the namespace of the request.
func (s *core) endpointOf(r *http.Request) (string, error) {
	namespace, err := s.namespace(r).Describe(r.Context())
	if err != nil {
		return "", err
	}
	return s.endpoint(r, namespace), nil
}

// hostSelecting returns a host that selects a namespace at the member that the client reached by another host: one of the
// hosts of the namespace, else its name as a label before the host; "" for an address, which has no labels.
func hostSelecting(asked string, namespace fsm.Namespace) string {
	host, port := asked, ""
	if h, p, err := net.SplitHostPort(asked); err == nil {
		host, port = h, ":"+p
	}
	ip := net.ParseIP(strings.Trim(host, "[]"))
	switch {
	case len(namespace.Settings.Hosts) > 0:
		return namespace.Settings.Hosts[0] + port
	case ip == nil:
		return strings.ToLower(namespace.Name) + "." + host + port
	case ip.IsLoopback():
		return strings.ToLower(namespace.Name) + ".localhost" + port
	}
	return ""
}

// connectionString returns a complete connection string for an application, "" if there is none: the format
// has no escape for a semicolon.
func connectionString(endpoint, rule, secret, entityName string) string {
	if endpoint == "" || secret == "" || strings.ContainsAny(rule+secret, ";") {
		return ""
	}
	endpoint, flag, _ := strings.Cut(endpoint, ";")
	text := endpoint + ";SharedAccessKeyName=" + rule + ";SharedAccessKey=" + secret
	if entityName != "" {
		text += ";EntityPath=" + entityName
	}
	if flag != "" {
		text += ";" + flag
	}
	return text
}
