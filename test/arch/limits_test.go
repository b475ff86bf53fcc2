package arch

import (
	"fmt"
	"go/constant"
	"go/types"
	"strings"
	"testing"
	"time"

	"golang.org/x/tools/go/packages"

	"github.com/peeklock/peeklock/test/document"
)

// limit is a row of docs/limits.md: a constant of the code and what it limits.
type limit struct {
	text     string
	at       string // package and constant; a package below it may declare the constant
	unit     string // bytes, ms and ns are converted to larger units; other units follow the number
	exceeded string
}

// entityLimits are the limits of the settings and the number of entities.
func entityLimits() []limit {
	return []limit{
		{"name of a queue or topic", "admin.NameCharactersMax", "characters", "`InvalidArgument`"},
		{"name of a subscription", "admin.SubscriptionNameMax", "characters", "`InvalidArgument`"},
		{"name of a rule", "fsm.ruleNameCharactersMax", "characters", "`InvalidArgument`"},
		{"name of a namespace", "admin.namespaceNameMax", "characters", "`InvalidArgument`"},
		{"minimum lock duration", "fsm.lockDurationMin", "ms", "`InvalidArgument`"},
		{"maximum lock duration in a namespace without a limit of its own", "fsm/catalog.lockDurationCloudMax", "ms", "`InvalidArgument`"},
		{"maximum lock duration that a namespace may allow", "fsm.lockDurationMax", "ms", "`InvalidArgument`"},
		{"largest maximum delivery count", "fsm.deliveryCountMax", "", "`InvalidArgument`"},
		{"shortest window of duplicate detection", "fsm.DuplicateWindowMin", "ms", "`InvalidArgument`"},
		{"longest window of duplicate detection", "fsm.duplicateWindowMax", "ms", "`InvalidArgument`"},
		{"message ids in one window of duplicate detection", "fsm/queue.windowIDsMax", "ids", "sends get `amqp:resource-limit-exceeded`"},
		{"shortest idle time for automatic deletion", "fsm.AutoDeleteMin", "ms", "`InvalidArgument`"},
		{"smallest maximum size of an entity", "fsm.QueueBytesMin", "bytes", "`InvalidArgument`"},
		{"largest maximum size of an entity", "fsm.queueBytesMax", "bytes", "`InvalidArgument`"},
		{"longest retry delay, longest delay of an abandon", "fsm.DelayMax", "ms", "`InvalidArgument`, `com.microsoft:argument-out-of-range`"},
		{"user metadata", "fsm.UserMetadataBytesMax", "bytes", "`InvalidArgument`"},
		{"access rules of a namespace, queue or topic", "fsm.AccessRulesMax", "rules", "`QuotaExceeded`"},
		{"subscriptions of a topic", "fsm.SubscriptionsMax", "", "`QuotaExceeded`"},
		{"rules of all subscriptions of a topic, except correlation filters", "fsm/queue.sqlRulesMax", "rules", "`QuotaExceeded`"},
		{"correlation filters of all subscriptions of a topic", "fsm/queue.correlationRulesMax", "", "`QuotaExceeded`"},
		{"one rule", "fsm.RuleBytesMax", "bytes", "`InvalidArgument`"},
		{"work of one rule for one message (`go doc ./fsm/filter`)", "fsm/queue.ruleStepsMax", "steps", "the rule fails for this message"},
		{"sessions of one entity", "fsm/queue.sessionsMax", "", "`QuotaExceeded`"},
		{"shards of a partitioned entity", "fsm.ShardsMax", "", ""},
		{"hops of a forwarded message", "fsm.HopsMax", "", "dead-letter queue of the source"},
		{"entities that forward to one destination shard", "fsm/queue.transferSourcesMax", "", "dead-letter queue of the source"},
		{"entities of a cluster", "fsm.EntitiesMax", "", "`QuotaExceeded`"},
		{"namespaces of a cluster", "fsm.NamespacesMax", "", "`QuotaExceeded`"},
		{"host names of a namespace", "fsm.namespaceHostsMax", "", "`InvalidArgument`"},
		{"message partitions of a new cluster", "cluster/move.PartitionsMax", "", "`serve` does not start"},
		{"replicas of a partition of a new cluster", "cluster.replicationMax", "", "`serve` does not start"},
		{"members of a cluster, including removed ones", "fsm/catalog.membersMax", "", "the member is not added"},
	}
}

// messageLimits are the limits of messages and of requests of AMQP clients.
func messageLimits() []limit {
	return []limit{
		{"maximum message size of an entity, by default", "admin.messageBytesDefault", "bytes", ""},
		{"largest maximum message size of an entity in a namespace without a limit of its own", "admin.messageBytesMax", "bytes", "`InvalidArgument`"},
		{"message over AMQP, regardless of entity and namespace", "amqp/message.BytesMax", "bytes", "`amqp:link:message-size-exceeded`"},
		{"annotations, properties and application properties together", "amqp.propertiesBytesMax", "bytes", "`amqp:link:message-size-exceeded`"},
		{"one property with its key", "amqp.propertyBytesMax", "bytes", "`amqp:link:message-size-exceeded`"},
		{"message id, session id, partition key", "amqp.NameCharactersMax", "characters", "`com.microsoft:argument-error`"},
		{"messages of one batch", "amqp.BatchMessagesMax", "messages", "`amqp:link:message-size-exceeded`"},
		{"messages of one peek", "amqp/management.PeekMessagesMax", "messages", "the page is shorter"},
		{"messages of one batch delete over AMQP", "amqp/management.PurgeMessagesMax", "messages", "fewer are deleted"},
		{"lock tokens or sequence numbers of one request", "amqp/management.TokensMax", "", "`com.microsoft:argument-error`"},
		{"wait for a session", "amqp.acceptWithinMax", "ns", "longer waits are shortened to it"},
		{"sends of one transaction", "fsm.transactionSendsMax", "messages", "`amqp:resource-limit-exceeded`"},
		{"settlements of one transaction", "fsm.transactionSettlementsMax", "messages", "`amqp:resource-limit-exceeded`"},
		{"payloads of one transaction", "amqp/transaction.BytesMax", "bytes", "`amqp:resource-limit-exceeded`"},
		{"duration of a transaction", "amqp/transaction.Within", "ns", "`amqp:transaction:timeout`"},
		{"transactions of a connection at a time", "amqp/transaction.OpenMax", "", "`amqp:resource-limit-exceeded`"},
	}
}

// connectionLimits are the limits of AMQP and HTTP connections.
func connectionLimits() []limit {
	return []limit{
		{"AMQP connections of a member (fewer with a memory limit below 6.2 GiB or a limit of open files below 24,096: see [sizing](sizing.md#memory))", "amqp.connectionsMaxDefault", "", "closed at once"},
		{"AMQP connections of one address (setting `connections_per_address`)", "amqp.connectionsPerPeerMaxDefault", "", "closed at once"},
		{"largest AMQP channel number of a connection", "amqp.channelMax", "", "`amqp:connection:framing-error`, the connection is closed"},
		{"links of a connection", "amqp.linksMax", "", "`amqp:resource-limit-exceeded`"},
		{"temporary queues, temporary topics and consumers of topics of a connection", "amqp.temporariesMax", "", "`amqp:resource-limit-exceeded`"},
		{"shared subscriptions that are not durable and that a connection creates", "amqp.volatilesMax", "", "`amqp:resource-limit-exceeded`"},
		{"container id (client id) of a client of subscriptions with names", "amqp.clientIDBytesMax", "bytes", "`amqp:invalid-field`"},
		{"burst of work of a connection (see [work](#work-of-requests))", "amqp.workBurst", "units", "the next frames are read later"},
		{"the same, per second", "amqp.workPerSecond", "units", "the next frames are read later"},
		{"the same, of all connections of a member, per second and processor", "amqp.workPerSecondPerProcessor", "units", "the same, for the connections that request most"},
		{"burst of work of the links of a connection that have selectors", "amqp.scanWorkBurst", "units", "they look at the queue later"},
		{"the same, per second", "amqp.scanWorkPerSecond", "units", "they look at the queue later"},
		{"the same, of all connections of a member, per second and processor", "amqp.scanWorkPerSecondPerProcessor", "units", "the same, for the connections that look at most"},
		{"one search for messages that a selector selects", "amqp.scanWithin", "ns", "a browser, or a drain, gets what was found"},
		{"burst of work of an unauthenticated connection", "amqp.unauthenticatedWorkBurst", "units", "the next frames are read later"},
		{"the same, per second", "amqp.unauthenticatedWorkPerSecond", "units", "the next frames are read later"},
		{"the same, of all unauthenticated connections of a member, per second and processor", "amqp.unauthenticatedWorkPerSecondPerProcessor", "units", "the same, for the connections that request most"},
		{"bytes of a WebSocket connection that carry nothing (headers of small fragments, pings), as a burst", "cmd/listen.emptyBytesBurst", "bytes", "the next messages are read later"},
		{"the same, per second", "cmd/listen.emptyBytesPerSecond", "bytes", "the next messages are read later"},
		{"closed receivers of a member that a partition has not confirmed, for example while it has no leader", "cluster/client.keptClosesMax", "", "entries beyond the limit are kept until the member restarts and use up places for new ones"},
		{"audiences with a token on one connection", "amqp/login.AudiencesMax", "", "`$cbs` answers 403"},
		{"largest AMQP frame", "amqp.frameBytesMax", "bytes", "the connection is closed"},
		{"sends of one link that are not confirmed yet", "amqp.linkCreditMax", "messages", "no more credit is granted"},
		{"requests of one link to a node at a time", "amqp.requestCreditMax", "", "no more credit is granted"},
		{"silence of a client", "amqp.idleTimeOut", "ns", "`amqp:connection:forced`"},
		{"connection without a link", "amqp.linklessWithin", "ns", "`amqp:connection:forced`"},
		{"rules of one `enumerate-rules`, above which the page ends", "amqp/management.rulesBytesMax", "bytes", "the page is shorter"},
		{"messages of one `receive-by-sequence-number`, above which no more are fetched", "amqp/management.FetchBytesMax", "bytes", "the response is shorter"},
		{"requests to `$management` in progress, of all keys", "amqp/account.requestsMax", "", "`com.microsoft:server-busy` after 5 s, for keys above their [share](#shares)"},
		{"links to a member, of all keys", "amqp/account.linksOfAllMax", "", "`amqp:resource-limit-exceeded`, for keys above their [share](#shares)"},
		{"receivers that wait in a partition, of all entities", "partition.waitersMax", "", "those of the entity with the most wait at their member, and get messages later"},
		{"receivers of a member that are known in a partition, of all entities", "cluster/client.registeredMax", "", "the same"},
		{"HTTP connections of one listener", "admin.connectionsMax", "", "one of the address with the most is closed; first idle ones and those whose answer is being written"},
		{"audit events that a member keeps in memory", "cmd/peeklock/internal/audit.recentEventsMax", "", "the oldest ones are dropped; those in the file of `audit_log` stay"},
		{"the same, in bytes", "cmd/peeklock/internal/audit.recentBytesMax", "bytes", "the same"},
		{"streams of `GET /v1/events` of a member", "admin.streamsMax", "", "503 `ServerBusy`"},
		{"the same, of one address", "admin.streamsPerAddressMax", "", "503 `ServerBusy`"},
		{"entities with a row in one stream", "admin.streamRowsMax", "", "`InvalidArgument`"},
		{"time in which a viewer reads a line of a stream", "admin.streamWriteMax", "ns", "the connection is closed"},
		{"HTTP requests of the administration at a time, of all keys", "amqp/account.HTTPRequestsMax", "", "503 `ServerBusy`, first for keys above their [share](#shares)"},
		{"time in which a client reads an HTTP answer, and a second more for each 256 KiB", "admin.answerWriteMax", "ns", "the connection is closed"},
		{"burst of work of HTTP requests of a key", "admin.workBurst", "units", "they are performed later"},
		{"the same, per second", "admin.workPerSecond", "units", "they are performed later"},
		{"burst of work of requests for `/metrics` without a key, of one address", "admin.publicWorkBurst", "units", "they are answered later"},
		{"the same, per second", "admin.publicWorkPerSecond", "units", "they are answered later"},
		{"burst of work of requests over HTTP that no key pays for, such as refused ones and files of the console, of one address", "admin.unauthenticatedWorkBurst", "units", "they are answered later"},
		{"the same, per second", "admin.unauthenticatedWorkPerSecond", "units", "they are answered later"},
		{"body of an HTTP request", "admin.bodyBytesMax", "bytes", "413 `MessageTooLarge`"},
		{"HTTP requests at a time that send or settle messages, of all keys", "amqp/account.HTTPMessagesMax", "", "503, first for keys above their [share](#shares)"},
		{"HTTP requests at a time that receive messages, and may wait, of all keys", "amqp/account.HTTPPollsMax", "", "503, first for keys above their [share](#shares)"},
		{"wait of an HTTP request for a message", "admin.waitMax", "ns", "it ends then"},
		{"duration of an HTTP request", "admin.requestTimeMax", "ns", "504 `Timeout`"},
		{"entities of one page", "admin.pageEntitiesMax", "", "400 `InvalidArgument`"},
		{"messages of one purge request", "admin.purgeMessagesMax", "messages", "400 `InvalidArgument`"},
		{"messages of one request that changes them by number or by conditions", "admin.ChangeMessagesMax", "messages", "400 `InvalidArgument`"},
		{"messages that one request looks at", "admin.lookMessagesMax", "messages", "the answer says where to go on"},
		{"bytes of the messages that one request looks at", "admin.lookBytesMax", "bytes", "the answer says where to go on"},
		{"duration of one look at messages", "admin.lookTimeMax", "ns", "the answer says where to go on"},
		{"requests at a time that look at messages, of all keys", "admin.scansMax", "", "503 `ServerBusy`, first for keys above their [share](#shares)"},
		{"bytes of the messages of one answer", "admin.AnswerBytesMax", "bytes", "the answer says where to go on"},
	}
}

// TestDocsLimits checks that the reference shows the limits of the code.
func TestDocsLimits(t *testing.T) {
	t.Parallel()
	have := loadPackages(t)
	for name, rows := range map[string][]limit{"entities": entityLimits(), "messages": messageLimits(), "connections": connectionLimits()} {
		var text strings.Builder
		text.WriteString("| subject | limit | when exceeded |\n|---|---|---|\n")
		for _, l := range rows {
			value := constantOf(have, l.at)
			if value == nil {
				t.Fatalf("there is no constant %s: correct the row %q in test/arch/limits_test.go", l.at, l.text)
			}
			fmt.Fprintf(&text, "| %s | %s | %s |\n", l.text, shown(t, value, l.unit), l.exceeded)
		}
		document.Section(t, root+"/docs/limits.md", name, text.String())
	}
}

// constantOf returns a package-level constant of a package or of those below it, or nil.
func constantOf(have map[string]*packages.Package, at string) constant.Value {
	pkgPath, name, _ := strings.Cut(at, ".")
	for path, p := range have {
		if path != pkgPath && !strings.HasPrefix(path, pkgPath+"/") {
			continue
		}
		if c, ok := p.Types.Scope().Lookup(name).(*types.Const); ok {
			return c.Val()
		}
	}
	return nil
}

// shown formats a value for readers.
func shown(t *testing.T, value constant.Value, unit string) string {
	t.Helper()
	n, exact := constant.Int64Val(constant.ToInt(value))
	if !exact {
		t.Fatalf("%s is no integer", value)
	}
	switch unit {
	case "ms":
		return duration(time.Duration(n) * time.Millisecond)
	case "ns":
		return duration(time.Duration(n))
	case "bytes":
		return size(n)
	}
	return strings.TrimSpace(grouped(n) + " " + unit)
}

// duration formats a duration in its largest whole unit.
func duration(d time.Duration) string {
	for _, u := range []struct {
		of   time.Duration
		name string
	}{{24 * time.Hour, "days"}, {time.Hour, "hours"}, {time.Minute, "minutes"}} {
		if d >= 2*u.of && d%u.of == 0 {
			return fmt.Sprintf("%d %s", d/u.of, u.name)
		}
	}
	return fmt.Sprintf("%g seconds", d.Seconds())
}

// size formats a number of bytes in its largest whole unit.
func size(n int64) string {
	for i, unit := range []string{"GiB", "MiB", "KiB"} {
		if of := int64(1) << (30 - 10*i); n >= of && n%of == 0 {
			return fmt.Sprintf("%d %s", n/of, unit)
		}
	}
	return grouped(n) + " bytes"
}

// grouped formats a number with commas between groups of three digits.
func grouped(n int64) string {
	text := fmt.Sprint(n)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}
