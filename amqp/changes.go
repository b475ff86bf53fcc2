package amqp

import (
	"context"
	"log/slog"
	"net/http"

	"github.com/peeklock/peeklock/amqp/management"
	"github.com/peeklock/peeklock/amqp/rule"
	"github.com/peeklock/peeklock/amqp/wire"
)

// Events of the audit log: requests to management nodes that changed something for all.
const (
	auditRuleChange  = "rule_change"
	auditBatchDelete = "batch_delete"
)

// auditRequest records a request to a management node that has, or may have, changed rules or deleted messages. mu is
// held.
func (c *conn) auditRequest(ctx context.Context, r *request, resp *management.Response) {
	event, operation := auditRuleChange, r.argument("operation")
	switch operation {
	case management.AddRuleOperation, management.RemoveRuleOperation:
	case management.BatchDeleteOperation:
		event = auditBatchDelete
	default:
		return
	}
	outcome := "ok"
	switch {
	case resp.Status == http.StatusOK:
	case resp.Condition == wire.ConditionTimeout:
		outcome = "unknown"
	default:
		return
	}
	about := []slog.Attr{slog.String("operation", operation), slog.String("path", r.Path)}
	if event == auditRuleChange {
		body, _ := r.Body.(wire.Map)
		about = append(about, slog.String("rule", rule.NameIn(body)))
	} else {
		about = append(about, slog.Any("count", resp.Body.Get(management.MessageCountKey)))
	}
	kind, who := c.credentials.Who(r.Path)
	c.credentials.Audit(ctx, slog.LevelInfo, event, append(about, slog.String("kind", kind), slog.String("who", who), slog.String("outcome", outcome))...)
}
