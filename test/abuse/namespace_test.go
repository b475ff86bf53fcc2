package abuse

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/peeklock/peeklock/admin/auth"
	"github.com/peeklock/peeklock/amqp/wire"
	"github.com/peeklock/peeklock/test/harness"
	"github.com/peeklock/peeklock/test/rawamqp"
)

// Attackers with the key of a namespace of their own, which stores much or asks for much. Honest clients are in another one.

const (
	ownNamespace = "abuse"
	ownHost      = ownNamespace + ".localhost"
	ownKey       = "tenant"
	ownSecret    = "secret of the tenant" // 16 bytes at least

	keyedCount = 10 // queues with long keys
	ruleCount  = 12 // access rules of each
	keyBytes   = 256

	tinyQueue = "tiny"
	tinyBatch = 4000 // messages
	tinyPace  = 20 * time.Millisecond

	copyTopic = "copies"
	copyRules = 400 // each of which makes a copy
)

// ownNamespaceFor creates the namespace of the attackers.
func ownNamespaceFor(a *abuseRun) {
	a.t.Helper()
	a.callOwn(http.MethodPut, "/v1/namespaces/"+ownNamespace, map[string]any{
		"accessRules": []map[string]any{{"name": ownKey, "rights": []string{"Manage"}, "primaryKey": ownSecret}},
	})
}

// callOwn calls the control API until it succeeds. A member may not know the namespace yet.
func (a *abuseRun) callOwn(method, path string, in any) {
	a.t.Helper()
	harness.Eventually(a.t, progressWithin, method+" "+path, func(ctx context.Context) error {
		return a.Members[0].Call(ctx, method, path, in, nil)
	})
}

func ownPath(path string) string {
	separator := "?"
	if strings.Contains(path, "?") {
		separator = "&"
	}
	return "/v1/" + path + separator + "namespace=" + ownNamespace
}

// ownQueue creates a queue of the attackers.
func ownQueue(name string, settings harness.Fields) func(*abuseRun) {
	return func(a *abuseRun) {
		ownNamespaceFor(a)
		a.callOwn(http.MethodPut, ownPath("queues/"+name), settings)
	}
}

// leaveNamespace deletes entities of the attackers, and their namespace.
func leaveNamespace(paths ...string) func(*abuseRun) {
	return func(a *abuseRun) {
		for _, path := range paths {
			a.callOwn(http.MethodDelete, ownPath(path), nil)
		}
		a.callOwn(http.MethodDelete, "/v1/namespaces/"+ownNamespace, nil)
	}
}

func keyedNames() (paths []string) {
	for i := range keyedCount {
		paths = append(paths, fmt.Sprintf("queues/keyed-%d", i))
	}
	return paths
}

// keyedQueues creates queues with as many and as long keys as are possible.
func keyedQueues(a *abuseRun) {
	ownNamespaceFor(a)
	key := strings.Repeat("<", keyBytes)
	for _, path := range keyedNames() {
		a.callOwn(http.MethodPut, ownPath(path), nil)
		for i := range ruleCount {
			a.callOwn(http.MethodPut, ownPath(strings.Replace(path, "queues", "access", 1)+fmt.Sprintf("?rule=%0*d&replace=%v", keyBytes-10, i, false)),
				map[string]any{"rights": []string{"Send"}, "primaryKey": key, "secondaryKey": key})
		}
	}
}

// listKeys asks for lists with all keys, by the hundred on a connection, and reads few of the answers.
func listKeys(ctx context.Context, at *target) error {
	http11 := &target{amqp: at.admin, sink: at.sink, full: at.full}
	defer func() { at.hits.Add(http11.hits.Load()) }()
	token := auth.Sign("http://"+ownHost+"/", ownKey, ownSecret, time.Now().Add(time.Hour))
	var requests strings.Builder
	for _, path := range []string{"/$Resources/Queues?api-version=2021-05&$top=1000", "/v1/queues?max=1000&counts=true", "/v1/access/keyed-0"} {
		fmt.Fprintf(&requests, "GET %s HTTP/1.1\r\nHost: %s\r\nAuthorization: %s\r\n\r\n", path, ownHost, token)
	}
	return http11.paced(ctx, at.attackers(12, 140), requestPace, func(ctx context.Context, i, _ int) error {
		conn, err := http11.dial(ctx, http11.amqp[i%len(http11.amqp)])
		if err != nil {
			return err
		}
		defer func() { _ = conn.Close() }()
		_ = conn.SetDeadline(time.Now().Add(shortAttack))
		for range 100 {
			http11.countHit()
			if _, err := io.WriteString(conn, requests.String()); err != nil || ended(ctx) {
				return nil
			}
			if i%4 == 0 && !at.sink {
				_, _ = io.CopyN(io.Discard, conn, 4<<10)
			}
		}
		return nil
	})
}

// flood sends messages to an entity of the attackers at a pace, without waiting for an answer.
func (at *target) flood(ctx context.Context, entity string, n int, pace time.Duration, format uint32, payload func(i int, round uint32) []byte) error {
	return at.swarm(ctx, n, func(ctx context.Context, i int, c *rawamqp.Conn) error {
		c.Host = ownHost
		open := openFrame()
		open.Hostname = ptr(ownHost)
		if err := errors.Join(c.Login(ownKey, ownSecret), c.Open(open), c.Attach(rawamqp.Sender(0, entity))); err != nil {
			return err
		}
		go discard(c)
		round := uint32(0)
		return every(ctx, pace, func() error {
			at.countHit()
			t := &wire.Transfer{DeliveryID: ptr(round), DeliveryTag: binary.BigEndian.AppendUint32(nil, round), MessageFormat: ptr(format), Payload: payload(i, round)}
			round++
			return c.Send(0, t)
		})
	})
}

// sendTiny sends batches of messages of a byte, each with an id of its own.
func sendTiny(ctx context.Context, at *target) error {
	const batchFormat = 0x80013700
	begun := time.Now().UnixNano()
	return at.flood(ctx, tinyQueue, at.attackers(4, 12), tinyPace, batchFormat, func(i int, round uint32) []byte {
		var batch []byte
		for n := range tinyBatch {
			id := binary.BigEndian.AppendUint64(nil, uint64(begun)+uint64(i)<<40+uint64(round)<<16+uint64(n))
			one := append(wire.AppendProperties(nil, &wire.Properties{MessageID: string(fmt.Appendf(nil, "%x", id[2:]))}), rawamqp.Message([]byte{1})...)
			batch = wire.AppendBinary(wire.AppendSectionDescriptor(batch, wire.SectionData), one)
			if len(batch) > 60<<10 { // a frame
				break
			}
		}
		return batch
	})
}

// copyingTopic creates a topic whose rules copy each message with long properties.
func copyingTopic(a *abuseRun) {
	ownNamespaceFor(a)
	a.callOwn(http.MethodPut, ownPath("topics/"+copyTopic), nil)
	path := copyTopic + "/Subscriptions/s"
	a.callOwn(http.MethodPut, ownPath("subscriptions/"+path), nil)
	rules := 20
	if a.full {
		rules = copyRules
	}
	for i := range rules {
		a.callOwn(http.MethodPut, ownPath(fmt.Sprintf("rules/%s?name=r%d", path, i)), map[string]any{
			"filter": map[string]any{"kind": "true"}, "action": map[string]any{"expression": "SET a = '" + strings.Repeat("x", 900) + "'"},
		})
	}
}

// sendCopied sends messages of five bytes to the topic.
func sendCopied(ctx context.Context, at *target) error {
	return at.flood(ctx, copyTopic, at.attackers(4, 12), tinyPace, 0, func(int, uint32) []byte { return rawamqp.Message([]byte("five.")) })
}
