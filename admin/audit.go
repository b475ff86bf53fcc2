package admin

import (
	"cmp"
	"net/http"

	"github.com/peeklock/peeklock/admin/input"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/topology"
)

// auditTextMax limits texts of clients in the audit log, in bytes.
const auditTextMax = 400

// anyEntity is the kind of an entity whose path does not determine it.
const anyEntity = "entity"

// auditedChange describes a change for the audit log.
type auditedChange struct {
	operation string // create, update, delete, purge, redrive, regenerate
	kind      string // queue, topic, subscription, rule, access_rule, namespace
	name      string // of the entity or namespace; "" is the namespace of the request
	rule      string // the rule, when one is changed
}

// auditChange writes the audit line of a change, also of a failed one. It has no secrets and no bodies.
func (s *core) auditChange(r *http.Request, c auditedChange, err error) {
	v := contextOf(r)
	if c.kind == "" || c.kind == anyEntity {
		c.kind = cmp.Or(v.kind, c.kind)
	}
	c.rule = cmp.Or(c.rule, v.rule)
	outcome := statusOf(fsm.OK).name
	if err != nil {
		outcome = statusOf(codeOf(unknownIfChanged(r, err))).name
	}
	line := []any{
		"event", "admin_change", "who", v.caller, "peer", r.RemoteAddr,
		"operation", c.operation, "kind", c.kind, "name", truncate(c.name), "rule", truncate(c.rule),
		"namespace", s.config.Control.NamespaceName(v.namespace), "outcome", outcome,
	}
	if v.count > 0 {
		line = append(line, "messages", v.count)
	}
	s.config.Audit.InfoContext(r.Context(), "audit", line...)
}

// auditNormal is how many events a page has without a wish.
const auditNormal = 100

// listAudit is GET /v1/audit?after=&max=: the newest audit events of all members.
func (s *operatorAPI) listAudit(w http.ResponseWriter, r *http.Request) error {
	most, err := input.Number(r, "max", auditNormal, 1, topology.AuditPageMax)
	if err != nil {
		return err
	}
	page, err := s.config.Control.Audit(r.Context(), r.URL.Query().Get("after"), most)
	if err != nil {
		return err
	}
	s.writeJSON(w, r, http.StatusOK, page)
	return nil
}

// auditMissingRight writes the audit line of a valid key that lacks the right for a request.
func (s *core) auditMissingRight(r *http.Request, v *requestContext, err error) {
	s.config.Audit.WarnContext(r.Context(), "audit", "event", "right_missing", "who", v.caller, "peer", r.RemoteAddr,
		"operation", r.Method, "path", truncate(r.URL.Path), "namespace", s.config.Control.NamespaceName(v.namespace), "reason", err.Error())
}

func truncate(text string) string { return text[:min(len(text), auditTextMax)] }
