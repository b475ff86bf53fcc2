package conformance

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/go-amqp"

	"github.com/peeklock/peeklock/admin/auth"
	"github.com/peeklock/peeklock/test/harness"
)

func keyChecks() []check {
	return []check{
		{name: "quickstart", run: quickstart},
		{name: "missing right", run: missingRight},
		{name: "token expires", run: tokenExpires},
		{name: "audiences", run: audiences},
	}
}

// quickstart is the program of the client's manual: a message, a batch, and a loop that
// receives. Only the connection string is changed.
func quickstart(s suite) {
	client, err := azservicebus.NewClientFromConnectionString(s.Members[0].ConnectionString(), nil)
	s.must("client", err)
	defer func() { _ = client.Close(context.Background()) }()

	sender, err := client.NewSender(s.queue, nil)
	s.must("sender", err)
	s.must("send", sender.SendMessage(s.ctx, &azservicebus.Message{Body: []byte("firstMessage")}, nil))
	batch, err := sender.NewMessageBatch(s.ctx, nil)
	s.must("batch", err)
	for _, text := range []string{"secondMessage", "thirdMessage"} {
		s.must("add", batch.AddMessage(&azservicebus.Message{Body: []byte(text)}, nil))
	}
	s.must("send the batch", sender.SendMessageBatch(s.ctx, batch, nil))
	s.must("close", sender.Close(s.ctx))

	receiver, err := client.NewReceiverForQueue(s.queue, nil)
	s.must("receiver", err)
	got := map[string]bool{}
	for len(got) < 3 {
		messages, err := receiver.ReceiveMessages(s.ctx, 3, nil)
		s.must("receive", err)
		for _, m := range messages {
			got[string(m.Body)] = true
			s.must("complete", receiver.CompleteMessage(s.ctx, m, nil))
		}
	}
	s.must("close", receiver.Close(s.ctx))
	if !got["firstMessage"] || !got["secondMessage"] || !got["thirdMessage"] {
		s.Errorf("received %v", got)
	}
	s.counts(harness.Counts{})
}

// oneTryAt returns a client with its own connection string that does not retry.
func (s suite) oneTryAt(connection string) *azservicebus.Client {
	s.Helper()
	c, err := azservicebus.NewClientFromConnectionString(connection, &azservicebus.ClientOptions{
		RetryOptions: azservicebus.RetryOptions{MaxRetries: -1},
	})
	s.must("client", err)
	s.Cleanup(func() { _ = c.Close(context.Background()) })
	return c
}

// A client with only the send right may not receive, and vice versa; the refusal has its own code.
func missingRight(s suite) {
	as := func(key string) *azservicebus.Client {
		return s.oneTryAt(strings.Replace(s.Members[0].ConnectionString(), harness.KeyName, key, 1))
	}
	tell := func(c *azservicebus.Client) error {
		sender, err := c.NewSender(s.queue, nil)
		s.must("sender", err)
		return sender.SendMessage(s.ctx, &azservicebus.Message{Body: []byte("x")}, nil)
	}
	get := func(c *azservicebus.Client) error {
		r, err := c.NewReceiverForQueue(s.queue, nil)
		s.must("receiver", err)
		_, err = r.ReceiveMessages(s.ctx, 1, nil)
		return err
	}
	s.must("send with the key that may", tell(as(harness.SendKeyName)))
	wantCode(s, "send with the key that may only receive", tell(as(harness.ListenKeyName)), azservicebus.CodeUnauthorizedAccess)
	wantCode(s, "receive with the key that may only send", get(as(harness.SendKeyName)), azservicebus.CodeUnauthorizedAccess)
	s.must("receive with the key that may", get(as(harness.ListenKeyName)))
	s.counts(harness.Counts{Active: 1, Locked: 1})
}

// signed returns a connection string with a signature of limited validity in place of the key.
func (s suite) signed(member int, life time.Duration) string {
	address := "sb://" + s.Members[member-1].AMQP + "/"
	resource, expires := url.QueryEscape(address), time.Now().Add(life).Unix()
	mac := hmac.New(sha256.New, []byte(harness.Key))
	_, _ = fmt.Fprintf(mac, "%s\n%d", resource, expires)
	signature := url.QueryEscape(base64.StdEncoding.EncodeToString(mac.Sum(nil)))
	return fmt.Sprintf("Endpoint=%s;SharedAccessSignature=SharedAccessSignature sr=%s&sig=%s&se=%d&skn=%s;UseDevelopmentEmulator=true",
		address, resource, signature, expires, harness.KeyName)
}

// The expiry of a token ends the link: the client gets the reason, and settles its locked messages
// under the next token.
func tokenExpires(s suite) {
	life := 8 * s.pace
	s.send(2)
	early := s.until(time.Now().Add(life).Truncate(time.Second)) // tokens expire at full seconds
	short := s.oneTryAt(s.signed(2, life))
	r, err := short.NewReceiverForQueue(s.queue, nil)
	s.must("receiver", err)
	locked := early.receive(r, 2)
	early.must("complete before the end", r.CompleteMessage(s.ctx, locked[0], nil))
	_, err = r.ReceiveMessages(s.ctx, 1, nil) // waits until the broker detaches the link
	wantCode(s, "receive over the end of the token", err, azservicebus.CodeUnauthorizedAccess)
	sender, err := short.NewSender(s.queue, nil)
	s.must("sender", err)
	err = sender.SendMessage(s.ctx, &azservicebus.Message{Body: []byte("late")}, nil)
	wantCode(s, "send after it", err, azservicebus.CodeUnauthorizedAccess)

	next, err := s.oneTryAt(s.signed(2, time.Hour)).NewReceiverForQueue(s.queue, nil)
	s.must("receiver", err)
	s.must("complete with the next token", next.CompleteMessage(s.ctx, locked[1], nil))
	s.counts(harness.Counts{})
}

// The key of one queue opens that queue and no other, whatever audience its token is put for.
func audiences(s suite) {
	host, theirs := "localhost", s.another("theirs", s, harness.Settings{})
	body := map[string]any{"rights": []string{"Send", "Listen"}, "primaryKey": "the secret of mine"}
	s.must("make a key", s.Members[0].Call(s.ctx, http.MethodPut, "/v1/access/"+s.queue+"?rule=mine", body, nil))
	s.known("send by it", true, func() error { return s.sendBy(s.queue, "mine", "the secret of mine") })

	conn := s.dial(2, &amqp.ConnOptions{SASLType: amqp.SASLTypeAnonymous(), HostName: host})
	session, err := conn.NewSession(s.ctx, nil)
	s.must("session", err)
	mine := "sb://" + host + "/" + s.queue
	token := auth.Sign(mine, "mine", "the secret of mine", time.Now().Add(time.Hour))
	for name, status := range map[string]int32{
		"?://" + host + "/" + s.queue:                           http.StatusBadRequest,
		theirs.queue + "?://" + host + "/" + s.queue:            http.StatusBadRequest,
		mine + "?" + theirs.queue:                               http.StatusBadRequest,
		mine + "/../" + theirs.queue:                            http.StatusBadRequest,
		"sb://" + theirs.queue + "@" + host + "/" + s.queue:     http.StatusBadRequest,
		"sb://" + host + "/" + theirs.queue:                     http.StatusUnauthorized,
		"sb://" + host + "/":                                    http.StatusUnauthorized,
		"AMQPS://" + host + ":5671/" + strings.ToUpper(s.queue): http.StatusAccepted,
		mine + "/$management":                                   http.StatusAccepted,
	} {
		if got, text := s.putToken(session, name, token); got != status {
			s.Errorf("%s: status %d (%s), want %d", name, got, text, status)
		}
	}
	sender, err := session.NewSender(s.ctx, s.queue, nil)
	s.must("sender of the own queue", err)
	s.must("send to the own queue", sender.Send(s.ctx, amqp.NewMessage([]byte("x")), nil))
	for _, target := range []string{theirs.queue, theirs.queue + "/$management", "?://" + host + "/" + theirs.queue} {
		if _, err := session.NewSender(s.ctx, target, nil); err == nil {
			s.Errorf("a sender at %s", target)
		} else if known := (*amqp.Error)(nil); !errors.As(err, &known) || known.Condition != amqp.ErrCondUnauthorizedAccess {
			s.Errorf("a sender at %s: %v", target, err)
		}
	}
	theirs.counts(harness.Counts{})
}

// putToken puts a token for an audience and returns the answer.
func (s suite) putToken(session *amqp.Session, name, token string) (status int32, text string) {
	s.Helper()
	const node, replyTo = "$cbs", "answers"
	requests, err := session.NewSender(s.ctx, node, nil)
	s.must("requests", err)
	answers, err := session.NewReceiver(s.ctx, node, &amqp.ReceiverOptions{TargetAddress: replyTo})
	s.must("answers", err)
	s.must("put", requests.Send(s.ctx, &amqp.Message{
		Value:                 token,
		Properties:            &amqp.MessageProperties{MessageID: "1", ReplyTo: ptr(replyTo)},
		ApplicationProperties: map[string]any{"operation": "put-token", "type": auth.KindSAS, "name": name},
	}, nil))
	m := s.get(answers)
	s.must("accept", answers.AcceptMessage(s.ctx, m))
	s.must("close", errors.Join(requests.Close(s.ctx), answers.Close(s.ctx)))
	status, _ = m.ApplicationProperties["status-code"].(int32)
	text, _ = m.ApplicationProperties["status-description"].(string)
	return status, text
}
