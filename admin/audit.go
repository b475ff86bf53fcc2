package admin

import (
	"cmp"
	"net/http"

	"github.com/peeklock/peeklock/fsm"
)

// auditTextMax cuts texts of clients in the audit log, in bytes.
const auditTextMax = 400

// anyEntity is a kind that the path alone does not tell.
const anyEntity = "entity"

// auditedChange is what the audit log says of a request that changes something.
type auditedChange struct {
	operation string // create, update, delete, purge, redrive, regenerate
	kind      string // queue, topic, subscription, rule, access_rule, namespace
	name      string // of the entity or namespace; "" is the namespace of the request
	rule      string // its rule, when the change is about one
}

// auditChange writes down who changed what, or failed to. Secrets and bodies are not in it.
func (s *Server) auditChange(r *http.Request, c auditedChange, err error) {
	v := contextOf(r)
	if c.kind == "" || c.kind == anyEntity {
		c.kind = cmp.Or(v.kind, c.kind)
	}
	c.rule = cmp.Or(c.rule, v.rule)
	outcome := statusOf(fsm.OK).name
	if err != nil {
		outcome = statusOf(codeOf(err)).name
	}
	s.config.Audit.InfoContext(r.Context(), "audit", "event", "admin_change", "who", v.caller, "peer", r.RemoteAddr,
		"operation", c.operation, "kind", c.kind, "name", truncate(c.name), "rule", truncate(c.rule),
		"namespace", s.config.Control.NamespaceName(v.namespace), "outcome", outcome)
}

// auditMissingRight writes down that a key was good, but not for this.
func (s *Server) auditMissingRight(r *http.Request, v *requestContext, err error) {
	s.config.Audit.WarnContext(r.Context(), "audit", "event", "right_missing", "who", v.caller, "peer", r.RemoteAddr,
		"operation", r.Method, "path", truncate(r.URL.Path), "namespace", s.config.Control.NamespaceName(v.namespace), "reason", err.Error())
}

func truncate(text string) string { return text[:min(len(text), auditTextMax)] }
