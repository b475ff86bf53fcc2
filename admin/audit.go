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

// change is what the audit log says of a request that changes something.
type change struct {
	operation string // create, update, delete, purge, redrive, regenerate
	kind      string // queue, topic, subscription, rule, access_rule, namespace
	name      string // of the entity or namespace; "" is the namespace of the request
	rule      string // its rule, when the change is about one
}

// changed writes down who changed what, or failed to. Secrets and bodies are not in it.
func (s *Server) changed(r *http.Request, c change, err error) {
	v := visitOf(r)
	if c.kind == "" || c.kind == anyEntity {
		c.kind = cmp.Or(v.kind, c.kind)
	}
	c.rule = cmp.Or(c.rule, v.rule)
	outcome := answerTo(fsm.OK).name
	if err != nil {
		outcome = answerTo(codeOf(err)).name
	}
	s.config.Audit.InfoContext(r.Context(), "audit", "event", "admin_change", "who", v.who, "peer", r.RemoteAddr,
		"operation", c.operation, "kind", c.kind, "name", cut(c.name), "rule", cut(c.rule),
		"namespace", s.config.Control.NamespaceName(v.namespace), "outcome", outcome)
}

// rightMissing writes down that a key was good, but not for this.
func (s *Server) rightMissing(r *http.Request, v *visit, err error) {
	s.config.Audit.WarnContext(r.Context(), "audit", "event", "right_missing", "who", v.who, "peer", r.RemoteAddr,
		"operation", r.Method, "path", cut(r.URL.Path), "namespace", s.config.Control.NamespaceName(v.namespace), "reason", err.Error())
}

func cut(text string) string { return text[:min(len(text), auditTextMax)] }
