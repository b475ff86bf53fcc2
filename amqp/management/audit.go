package management

import (
	"log/slog"
	"net/http"

	"github.com/peeklock/peeklock/amqp/rule"
	"github.com/peeklock/peeklock/amqp/wire"
)

// Events of the audit log: requests to management nodes that changed something for all.
const (
	auditRuleChange  = "rule_change"
	auditBatchDelete = "batch_delete"
)

// AuditEvent returns the event of the audit log, and its attributes, for a request that has, or may have, changed rules or
// deleted messages. The event is empty for every other request, and for a refused one.
func AuditEvent(operation string, r *Request, resp *Response) (event string, about []slog.Attr) {
	var changed slog.Attr
	switch operation {
	case AddRuleOperation, RemoveRuleOperation:
		body, _ := r.Body.(wire.Map)
		event, changed = auditRuleChange, slog.String("rule", rule.NameIn(body))
	case BatchDeleteOperation:
		event, changed = auditBatchDelete, slog.Any("count", resp.Body.Get(MessageCountKey))
	default:
		return "", nil
	}
	outcome := "ok"
	switch {
	case resp.Status == http.StatusOK:
	case resp.Condition == wire.ConditionTimeout:
		outcome = "unknown"
	default:
		return "", nil
	}
	return event, []slog.Attr{slog.String("operation", operation), slog.String("path", r.Path), changed, slog.String("outcome", outcome)}
}
