package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/google/go-cmp/cmp"

	"github.com/peeklock/peeklock/admin/auth"
	"github.com/peeklock/peeklock/test/kit"
)

const messagesConfig = `{"UserConfig":{"Namespaces":[{"Name":"n","Queues":[{"Name":"orders","Properties":{"MaxDeliveryCount":10}},{"Name":"other"},
	{"Name":"sessions","Properties":{"RequiresSession":true}},{"Name":"off","Properties":{"Status":"SendDisabled"}}],
	"Topics":[{"Name":"events","Subscriptions":[{"Name":"eu","Rules":[{"Name":"r","Properties":{"FilterType":"Sql","SqlFilter":{"SqlExpression":"region = 'eu' AND size > 6"}}}]}]}]}]}}`

// dataClient sends requests about messages to an emulator.
type dataClient struct {
	*testing.T

	e *emulation
}

func newDataClient(t *testing.T, args ...string) dataClient {
	t.Helper()
	return dataClient{t, startEmulator(t, []string{"PEEKLOCK_CONFIG_JSON=" + messagesConfig}, jsonReady, append([]string{"-o", "json"}, args...)...)}
}

// do sends a request with headers, which keep their spelling, and checks the status of the answer.
func (c dataClient) do(want int, method, path, body string, headers ...string) (http.Header, string) {
	c.Helper()
	if !strings.HasPrefix(path, "http") {
		path = c.e.Admin + path
	}
	request, err := http.NewRequestWithContext(c.Context(), method, path, strings.NewReader(body))
	if err != nil {
		c.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		request.Header[headers[i]] = []string{headers[i+1]}
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		c.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		c.Fatal(err)
	}
	if answer.StatusCode != want {
		c.Errorf("%s %s: %d, want %d: %s", method, path, answer.StatusCode, want, text)
	}
	return answer.Header, string(text)
}

// broker reads the header BrokerProperties.
func (c dataClient) broker(header http.Header) map[string]any {
	c.Helper()
	var properties map[string]any
	if err := json.Unmarshal([]byte(header.Get("BrokerProperties")), &properties); err != nil {
		c.Fatalf("BrokerProperties %q: %v", header.Get("BrokerProperties"), err)
	}
	return properties
}

func (c dataClient) amqp() *azservicebus.Client {
	c.Helper()
	client, err := azservicebus.NewClientFromConnectionString(c.e.ConnectionString, nil)
	if err != nil {
		c.Fatal(err)
	}
	c.Cleanup(func() { _ = client.Close(context.Background()) })
	return client
}

// A message that HTTP sends is received by AMQP, with its properties in the spelling and type in which they were written.
func TestMessageOfHTTPIsReceivedByAMQP(t *testing.T) {
	t.Parallel()
	c := newDataClient(t)
	c.do(201, "POST", "/orders/messages?timeout=60&api-version=2014-01", "one coffee", "Content-Type", "application/atom+xml;type=entry;charset=utf-8",
		"BrokerProperties", `{"MessageId":"m1","Label":"subject","CorrelationId":"c","ReplyTo":"r","To":"t","SessionId":"s","ReplyToSessionId":"rs","TimeToLive":60}`,
		"pRiority", `"High"`, "Size", "7", "Ratio", "0.5", "isGood", "true", "At", `"Fri, 20 Nov 2026 12:00:00 GMT"`)
	receiver := kit.Must(c.amqp().NewReceiverForQueue("orders", nil))(t)
	got, err := receiver.ReceiveMessages(t.Context(), 1, nil)
	if err != nil || len(got) != 1 {
		t.Fatal(len(got), err)
	}
	m := got[0]
	want := map[string]any{"pRiority": "High", "Size": int64(7), "Ratio": 0.5, "isGood": true, "At": time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)}
	if diff := cmp.Diff(want, m.ApplicationProperties); diff != "" {
		t.Error(diff)
	}
	for name, pair := range map[string][2]string{
		"body": {string(m.Body), "one coffee"}, "id": {m.MessageID, "m1"}, "subject": {*m.Subject, "subject"}, "correlation": {*m.CorrelationID, "c"}, "reply": {*m.ReplyTo, "r"},
		"to": {*m.To, "t"}, "session": {*m.SessionID, "s"}, "reply session": {*m.ReplyToSessionID, "rs"}, "ttl": {m.TimeToLive.String(), "1m0s"},
		"content type": {*m.ContentType, "application/atom+xml;type=entry;charset=utf-8"},
	} {
		if pair[0] != pair[1] {
			t.Errorf("%s: %q, want %q", name, pair[0], pair[1])
		}
	}
}

// A message that AMQP sends is received by HTTP, completed, unlocked and renewed, by its number or its id.
func TestMessageOfAMQPIsReceivedByHTTP(t *testing.T) {
	t.Parallel()
	c := newDataClient(t)
	sender := kit.Must(c.amqp().NewSender("orders", nil))(t)
	subject, id, contentType := "ä", "a/b 1", "text/plain"
	kit.OK(t, sender.SendMessage(t.Context(), &azservicebus.Message{
		Body: []byte("one coffee"), Subject: &subject, MessageID: &id, ContentType: &contentType,
		ApplicationProperties: map[string]any{"pRiority": `say "yes"`, "size": int32(7), "Good": false, "at": time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC), "no header": 1},
	}, nil))
	header, body := c.do(201, "POST", "/orders/messages/head?timeout=10", "")
	if body != "one coffee" || header.Get("Content-Type") != contentType {
		t.Errorf("%q of type %q", body, header.Get("Content-Type"))
	}
	for name, want := range map[string]string{"Priority": `"say \"yes\""`, "Size": "7", "Good": "false", "At": `"Fri, 20 Nov 2026 12:00:00 GMT"`} {
		if got := header.Get(name); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
	first := c.broker(header)
	if first["Label"] != "ä" || first["MessageId"] != id || first["DeliveryCount"] != 1.0 || first["State"] != "Active" || first["LockedUntilUtc"] == nil || first["EnqueuedTimeUtc"] == nil {
		t.Errorf("%v", first)
	}
	location := header.Get("Location")
	if want := fmt.Sprintf("%s/orders/messages/%.0f/%s", c.e.Admin, first["SequenceNumber"], first["LockToken"]); location != want {
		t.Errorf("location %s, want %s", location, want)
	}
	token, _ := first["LockToken"].(string)
	byID := "/orders/Messages/" + url.PathEscape(id) + "/" + strings.ToUpper(token)
	c.do(200, "POST", byID, "")
	c.do(404, "POST", "/orders/messages/other/"+token, "")
	c.do(404, "DELETE", "/orders/messages/1/7da9cfd5-40d5-4bb1-8d64-ec5a52e1c547", "")
	c.do(200, "PUT", byID, "")
	c.do(404, "DELETE", location, "")
	header, _ = c.do(201, "POST", "/orders/messages/head", "")
	if again := c.broker(header); again["DeliveryCount"] != 2.0 {
		t.Errorf("delivery count %v, want 2", again["DeliveryCount"])
	}
	c.do(200, "DELETE", header.Get("Location"), "")
	c.do(204, "DELETE", "/orders/messages/head?timeout=0", "")
	c.do(204, "POST", "/orders/messages/head?timeout=0", "")
}

// A batch is sent as a whole; headers do not apply to its messages.
func TestBatchOfHTTPIsReceived(t *testing.T) {
	t.Parallel()
	c := newDataClient(t)
	const batch = "application/vnd.microsoft.servicebus.json"
	c.do(201, "POST", "/events/messages", `[{"Body":"first","BrokerProperties":{"Label":"l","TimeToLiveTimeSpan":"00:00:40"},"UserProperties":{"region":"eu","size":7}},
		{"Body":"AAEC","IsBodyBase64":true,"UserProperties":{"region":"eu","size":7.5}},{"Body":"elsewhere","UserProperties":{"region":"us","size":9}}]`, "Content-Type", batch, "region", `"us"`)
	const subscription = "/events/Subscriptions/eu/messages/head?timeout=5"
	header, body := c.do(200, "DELETE", subscription, "")
	if p := c.broker(header); body != "first" || p["Label"] != "l" || p["TimeToLive"] != 40.0 || header.Get("region") != `"eu"` {
		t.Errorf("%s %v %v", body, p, header)
	}
	if _, body := c.do(200, "DELETE", subscription, ""); body != "\x00\x01\x02" {
		t.Errorf("%q", body)
	}
	c.do(204, "DELETE", "/events/subscriptions/EU/messages/head?timeout=0", "")
	_, text := c.do(400, "POST", "/orders/messages", `[{"Body":"x"}]`, "Content-Type", batch+"; charset=utf-8")
	wants(t, text, "has no parameters")
	for _, bad := range []string{`{}`, `[]`, `[{"Body":"%","IsBodyBase64":true}]`, `[{"Body":"x","BrokerProperties":{"TimeToLive":"x"}}]`} {
		c.do(400, "POST", "/orders/messages", bad, "Content-Type", batch)
	}
	c.do(204, "DELETE", "/orders/messages/head?timeout=0", "")
}

// The statuses and words of the service.
func TestHTTPRefusesAsTheServiceDoes(t *testing.T) {
	t.Parallel()
	c := newDataClient(t, "--require-key")
	sign := func(resource, name, secret string) string {
		return auth.Sign(resource, name, secret, time.Now().Add(time.Hour))
	}
	root := sign(c.e.Admin+"/", auth.DevKeyName, auth.DevKey)
	c.do(401, "POST", "/orders/messages", "x")
	c.do(401, "POST", "/orders/messages", "x", "Authorization", sign(c.e.Admin+"/", auth.DevKeyName, "wrong"))
	c.do(401, "POST", "/orders/messages", "x", "Authorization", sign(c.e.Admin+"/other", auth.DevKeyName, auth.DevKey))
	c.do(401, "POST", "/orders/messages", "x", "Authorization", "nonsense")
	for _, resource := range []string{"/orders", "/orders/messages", "/Orders/Messages/", ""} {
		c.do(201, "POST", "/orders/messages", "x", "Authorization", sign(c.e.Admin+resource, auth.DevKeyName, auth.DevKey))
	}
	c.do(200, "DELETE", "/orders/messages/head", "", "Authorization", sign(c.e.Admin+"/orders/messages", auth.DevKeyName, auth.DevKey))
	do := func(want int, method, path, body string, words ...string) {
		t.Helper()
		_, text := c.do(want, method, path, body, "Authorization", root)
		wants(t, text, append(words, "<Error><Code>"+fmt.Sprint(want)+"</Code><Detail>", "TrackingId:")...)
	}
	do(410, "POST", "/nowhere/messages", "x")
	do(410, "DELETE", "/nowhere/messages/head", "")
	do(403, "POST", "/orders/messages", strings.Repeat("x", 257<<10))
	do(403, "POST", "/off/messages", "x")
	do(400, "POST", "/sessions/messages", "x", "SessionId was not set")
	do(405, "POST", "/sessions/messages/head", "", "It is not possible for an entity that requires sessions to create a non-sessionful message receiver")
	do(405, "POST", "/events/messages/head", "")
	do(405, "POST", "/events/subscriptions/eu/messages", "x")
	do(400, "POST", "/orders/messages/head?timeout=x", "")
	c.do(201, "POST", "/sessions/messages", "x", "Authorization", root, "BrokerProperties", `{"SessionId":"s"}`)
	c.do(400, "POST", "/orders/messages", "x", "Authorization", root, "BrokerProperties", `{`)
	c.do(403, "POST", "/orders/messages", "x", "Authorization", root, "Origin", "https://example.org", "Sec-Fetch-Site", "cross-site")
	m := c.e.devMember
	say(t, m, 0, "key", "create", "reader", "--rights", "listen", "--primary-key", "the secret of the reader", "--key", auth.DevKey)
	reader := sign(c.e.Admin+"/", "reader", "the secret of the reader")
	c.do(401, "POST", "/orders/messages", "x", "Authorization", reader)
	c.do(200, "DELETE", "/orders/messages/head", "", "Authorization", reader)
}

// The dead-letter queue can be read, also of an entity with sessions.
func TestDeadLettersAreReadByHTTP(t *testing.T) {
	t.Parallel()
	c := newDataClient(t)
	c.do(201, "POST", "/orders/messages", "bad")
	receiver := kit.Must(c.amqp().NewReceiverForQueue("orders", nil))(t)
	got, err := receiver.ReceiveMessages(t.Context(), 1, nil)
	if err != nil || len(got) != 1 {
		t.Fatal(len(got), err)
	}
	reason := "why"
	kit.OK(t, receiver.DeadLetterMessage(t.Context(), got[0], &azservicebus.DeadLetterOptions{Reason: &reason}))
	header, body := c.do(200, "DELETE", "/orders/$DeadLetterQueue/messages/head", "")
	if body != "bad" || header.Get("DeadLetterReason") != `"why"` {
		t.Errorf("%s: %v", body, header)
	}
	c.do(204, "DELETE", "/sessions/$deadletterqueue/messages/head?timeout=0", "")
}

// A poll waits for a message, and one whose client has gone takes none.
func TestPollWhoseClientHasGoneTakesNoMessage(t *testing.T) {
	t.Parallel()
	c := newDataClient(t)
	at := kit.Must(url.Parse(c.e.Admin))(t)
	for _, method := range []string{"POST", "DELETE"} {
		conn := kit.Must(new(net.Dialer).DialContext(t.Context(), "tcp", at.Host))(t)
		// The second request on the connection waits; the answer of the first shows that it is served.
		kit.Must(fmt.Fprintf(conn, "%s /orders/messages/head?timeout=0 HTTP/1.1\r\nHost: x\r\n\r\n", method))(t)
		answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil || answer.StatusCode != http.StatusNoContent {
			t.Fatal(answer, err)
		}
		_ = answer.Body.Close()
		_, err = fmt.Fprintf(conn, "%s /orders/messages/head HTTP/1.1\r\nHost: x\r\n\r\n", method)
		if err = errors.Join(err, conn.Close()); err != nil {
			t.Fatal(err)
		}
	}
	received := make(chan string)
	go func() {
		header, body := c.do(200, "DELETE", "/orders/messages/head", "")
		received <- fmt.Sprint(body, c.broker(header)["DeliveryCount"])
	}()
	c.do(201, "POST", "/orders/messages", "one")
	if got := <-received; got != "one1" {
		t.Errorf("received %s, want one1", got)
	}
}

// The commands of the document work as they are written there.
func TestCurlTranscriptsWork(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip("needs curl")
	}
	content := kit.Must(os.ReadFile(docs + "getting-started/curl.md"))(t)
	e := startEmulator(t, []string{`PEEKLOCK_CONFIG_JSON={"UserConfig":{"Namespaces":[{"Name":"n"}]}}`}, jsonReady, "-o", "json")
	transcripts := 0
	for _, block := range strings.Split(string(content), "```console\n")[1:] {
		block, _, _ = strings.Cut(block, "```")
		for _, step := range strings.Split("\n"+block, "\n$ ")[1:] {
			command, want, _ := strings.Cut(step, "\n")
			for strings.HasSuffix(command, "\\") {
				var more string
				more, want, _ = strings.Cut(want, "\n")
				command = strings.TrimSuffix(command, "\\") + more
			}
			transcripts++
			shell := exec.CommandContext(t.Context(), "sh", "-c", strings.ReplaceAll(command, "http://localhost:5300", e.Admin))
			output, err := shell.CombinedOutput()
			if got := strings.TrimSpace(string(output)); err != nil || got != strings.TrimSpace(want) {
				t.Errorf("%s\nprinted: %s\nwant:    %s\n%v", command, got, strings.TrimSpace(want), err)
			}
		}
	}
	if transcripts < 8 {
		t.Errorf("%d transcripts, want 8 or more", transcripts)
	}
}

// A test that ends resets the emulator, so that the next one finds the entities of the file alone.
func TestResetRestoresTheFile(t *testing.T) {
	t.Parallel()
	c := newDataClient(t)
	m := c.e.devMember
	c.do(201, "POST", "/orders/messages", "left behind")
	say(t, m, 0, "queue", "create", "own")
	say(t, m, 0, "queue", "delete", "other", "--yes")
	say(t, m, 0, "key", "create", "mine", "--rights", "send")
	say(t, m, 0, "namespace", "create", "shop")
	say(t, m, 0, "queue", "create", "a", "--namespace", "shop")
	_, body := c.do(200, "POST", "/reset", "")
	wants(t, body, `"created":6`)
	list := say(t, m, 0, "queue", "list")
	wants(t, list, "orders", "other", "sessions", "off")
	if strings.Contains(list, "own") || strings.Contains(say(t, m, 0, "namespace", "list"), "shop") || strings.Contains(say(t, m, 0, "key", "list"), "mine") {
		t.Errorf("something was left: %s", list)
	}
	c.do(204, "DELETE", "/orders/messages/head?timeout=0", "")
	c.do(201, "POST", "/orders/messages", "new")
	c.do(200, "DELETE", "/orders/messages/head", "")
}

// A test moves the clock instead of waiting for scheduled messages, locks and times to live.
func TestClockIsMovedForward(t *testing.T) {
	t.Parallel()
	c := newDataClient(t)
	at := time.Now().Add(40 * time.Minute).UTC().Format(http.TimeFormat)
	c.do(201, "POST", "/orders/messages", "scheduled", "BrokerProperties", `{"ScheduledEnqueueTimeUtc":"`+at+`"}`)
	c.do(201, "POST", "/other/messages", "locked")
	c.do(201, "POST", "/other/messages/head", "")
	c.do(204, "DELETE", "/orders/messages/head?timeout=0", "")
	_, body := c.do(200, "POST", "/clock/advance?by=1h", "")
	var answer clockAdvanced
	if err := json.Unmarshal([]byte(body), &answer); err != nil || time.Until(answer.Now) < 50*time.Minute {
		t.Errorf("%s: %v", body, err)
	}
	if _, body := c.do(200, "DELETE", "/orders/messages/head?timeout=20", ""); body != "scheduled" {
		t.Errorf("received %q, want the scheduled message", body)
	}
	header, _ := c.do(200, "DELETE", "/other/messages/head?timeout=20", "")
	if got := c.broker(header)["DeliveryCount"]; got != 2.0 {
		t.Errorf("delivery count %v, want 2: the lock has ended", got)
	}
	for _, by := range []string{"", "-1h", "0s", "x", "2000000h"} {
		c.do(400, "POST", "/clock/advance?by="+by, "")
	}
}
