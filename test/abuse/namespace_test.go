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
	ownKey       = "tenant"   // may do everything in it
	sendKey      = "sender"   // may send only
	listenKey    = "listener" // may receive only
	openQueue    = "open"
	ownSecret    = "secret of the tenant" // 16 bytes at least

	keyedCount = 10 // queues with long keys
	ruleCount  = 12 // access rules of each
	keyBytes   = 256

	tinyQueue = "tiny"
	tinyBatch = 4000 // messages
	tinyPace  = 20 * time.Millisecond

	copyTopic = "copies"
	copyRules = 1700 // each of which makes a copy with 4 KB: 7 MB of a message
)

// createNamespace creates the namespace of the attackers, and a queue for links that do nothing.
func (a *abuseRun) createNamespace() {
	a.t.Helper()
	rule := func(name, right string) map[string]any {
		return map[string]any{"name": name, "rights": []string{right}, "primaryKey": ownSecret}
	}
	a.callOwn(http.MethodPut, "/v1/namespaces/"+ownNamespace, map[string]any{
		"accessRules": []any{rule(ownKey, "Manage"), rule(sendKey, "Send"), rule(listenKey, "Listen")},
	})
	createQueue(openQueue)(a)
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

// createOwn creates an entity of the attackers.
func createOwn(path string, settings harness.Fields) func(*abuseRun) {
	return func(a *abuseRun) { a.callOwn(http.MethodPut, ownPath(path), settings) }
}

// deleteOwn deletes entities of the attackers.
func deleteOwn(paths ...string) func(*abuseRun) {
	return func(a *abuseRun) {
		for _, path := range paths {
			a.callOwn(http.MethodDelete, ownPath(path), nil)
		}
	}
}

// createQueue creates a queue of the attackers, and deleteQueue deletes it.
func createQueue(name string) func(*abuseRun) {
	return createOwn("queues/"+name, harness.Fields{"lockDuration": "5m"})
}

func deleteQueue(name string) func(*abuseRun) { return deleteOwn("queues/" + name) }

func keyedNames() (paths []string) {
	for i := range keyedCount {
		paths = append(paths, fmt.Sprintf("queues/keyed-%d", i))
	}
	return paths
}

// keyedQueues creates queues with as many and as long keys as are possible.
func keyedQueues(a *abuseRun) {
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
			sleep(ctx, requestPace) // with more the attackers occupy the machine, also at a sink
			if i%4 == 0 && !at.sink {
				_, _ = io.CopyN(io.Discard, conn, 4<<10)
			}
		}
		sleep(ctx, shortAttack) // a sink has read everything at once
		return nil
	})
}

// flood sends messages to an entity of the attackers at a pace, without waiting for an answer.
func (at *target) flood(ctx context.Context, entity string, n int, pace time.Duration, format uint32, payload func(i int, round uint32) []byte) error {
	return at.swarm(ctx, n, func(ctx context.Context, i int, c *rawamqp.Conn) error {
		if err := errors.Join(signIn(c, sendKey), c.Attach(rawamqp.Sender(0, entity))); err != nil {
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

// copyingTopic creates a topic whose rules copy each message with properties that are longer than the rules.
func copyingTopic(a *abuseRun) {
	action := "SET a = '" + strings.Repeat("x", 200) + "'; SET b = a + a + a + a; SET c = b + b + b + b"
	a.createTopic(copyTopic, a.sized(20, copyRules), func(int) harness.Rule { return harness.Rule{True: true, Action: action} })
}

// sendCopied sends messages of five bytes to the topic.
func sendCopied(ctx context.Context, at *target) error {
	return at.flood(ctx, copyTopic, at.attackers(4, 12), tinyPace, 0, func(int, uint32) []byte { return rawamqp.Message([]byte("five.")) })
}
