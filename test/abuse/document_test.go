package abuse

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/peeklock/peeklock/admin/auth"
	"github.com/peeklock/peeklock/test/harness"
)

// Documents that are small on the wire and large in memory.

const bombPace = 40 * time.Millisecond // between two requests of one attacker: a sink takes whole bodies, and more of them occupy the machine

var errUnauthorized = errors.New("a signed request was refused as unauthorized: its body was not read")

// bombs sends requests with bodies to the control API, signed and not.
func bombs(ctx context.Context, at *target, method, path, kind string, bodies []string) error {
	http := &target{amqp: at.admin, sink: at.sink, full: at.full}
	defer func() { at.hits.Add(http.hits.Load()) }()
	return http.paced(ctx, at.attackers(12, 24), bombPace, func(ctx context.Context, i, round int) error {
		body, address, signed := bodies[(i+round)%len(bodies)], http.amqp[i%len(http.amqp)], i%2 == 0
		authorization := ""
		if signed {
			token := auth.Sign("http://"+address+"/", harness.KeyName, harness.Key, time.Now().Add(time.Hour))
			authorization = "Authorization: " + token + "\r\n"
		}
		request := fmt.Sprintf("%s %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n%sContent-Type: %s\r\nContent-Length: %d\r\n\r\n%s",
			method, path, address, authorization, kind, len(body), body)
		answer, err := http.request(ctx, address, request)
		if err == nil && signed && strings.HasPrefix(answer, "HTTP/1.1 401") {
			err = errUnauthorized
		}
		return err
	})
}

// request opens a connection, writes a text, and returns the answer until the member closes the
// connection; "" also when the member closes it before it has read the text.
func (at *target) request(ctx context.Context, address, text string) (string, error) {
	conn, err := at.dial(ctx, address)
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(answerWithin))
	at.countHit()
	if _, err := io.WriteString(conn, text); err != nil || at.sink {
		return "", nil // a member that has read enough may close at once
	}
	answer, _ := io.ReadAll(conn)
	return string(answer), nil
}

// xmlBombs have entities to expand, nested elements and many attributes.
func xmlBombs(ctx context.Context, at *target) error {
	const entry = `<entry xmlns="http://www.w3.org/2005/Atom"><content type="application/xml"><QueueDescription xmlns="http://schemas.microsoft.com/netservices/2010/10/servicebus/connect">%s</QueueDescription></content></entry>`
	laughs := `<!DOCTYPE entry [<!ENTITY a0 "ha">`
	for i := 1; i < 40; i++ {
		laughs += fmt.Sprintf(`<!ENTITY a%d "&a%d;&a%d;&a%d;&a%d;">`, i, i-1, i-1, i-1, i-1)
	}
	laughs += "]>" + fmt.Sprintf(entry, "<UserMetadata>&a39;</UserMetadata>")
	var attributes strings.Builder
	for i := range 20_000 {
		fmt.Fprintf(&attributes, ` a%d="b"`, i)
	}
	return bombs(ctx, at, "PUT", "/abuse-bomb?api-version=2021-05", "application/atom+xml", []string{
		laughs,
		fmt.Sprintf(entry, strings.Repeat("<a>", 300_000)),
		fmt.Sprintf(entry, "<a"+attributes.String()+"/>"),
		fmt.Sprintf(entry, "<UserMetadata>"+strings.Repeat("a", 900_000)+"</UserMetadata>"),
		`<!DOCTYPE entry SYSTEM "file:///etc/passwd">` + fmt.Sprintf(entry, ""),
	})
}

// jsonBombs have nested values, repeated keys and too large numbers.
func jsonBombs(ctx context.Context, at *target) error {
	return bombs(ctx, at, "PUT", "/v1/queues/abuse-bomb", "application/json", []string{
		strings.Repeat("[", 500_000),
		strings.Repeat(`{"a":`, 200_000),
		`{"lockDuration":"` + strings.Repeat("1", 900_000) + `s"}`,
		`{"maxDeliveryCount":1e999999999}`,
		"{" + strings.Repeat(`"lockDuration":"30s",`, 40_000) + `"lockDuration":7}`,
	})
}
