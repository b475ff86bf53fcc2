package conformance

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// knownWithin is how long other members may take to learn of a change of keys.
const knownWithin = 30 * time.Second

// adminAccess creates, reads, uses, changes and removes keys of a queue with the official
// administration client alone.
func adminAccess(s suite) {
	name := s.queue + "-keys"
	rules := []admin.AuthorizationRule{
		{KeyName: ptr("sender"), AccessRights: []admin.AccessRight{admin.AccessRightSend}, PrimaryKey: ptr("first key of the sender"), SecondaryKey: ptr("second key of the sender")},
		{KeyName: ptr("owner"), AccessRights: []admin.AccessRight{admin.AccessRightManage, admin.AccessRightSend, admin.AccessRightListen}},
	}
	created, err := s.admin(1).CreateQueue(s.ctx, name, &admin.CreateQueueOptions{Properties: &admin.QueueProperties{AuthorizationRules: rules}})
	s.must("create", err)
	got, err := s.admin(2).GetQueue(s.ctx, name, nil)
	s.must("get", err)
	s.same("got", created.QueueProperties, got.QueueProperties)
	byName := cmpopts.SortSlices(func(a, b admin.AuthorizationRule) bool { return *a.KeyName < *b.KeyName })
	drawn := cmpopts.IgnoreFields(admin.AuthorizationRule{}, "CreatedTime", "ModifiedTime", "PrimaryKey", "SecondaryKey")
	if diff := cmp.Diff(rules, got.AuthorizationRules, byName, drawn); diff != "" {
		s.Fatal(diff)
	}
	sender, owner := ruleNamed(got, "sender"), ruleNamed(got, "owner")
	if *sender.PrimaryKey != "first key of the sender" || len(*owner.PrimaryKey) != 44 || owner.CreatedTime != nil {
		s.Errorf("%+v, %+v", sender, owner)
	}

	s.known("send by the first key", true, func() error { return s.sendBy(name, "sender", *sender.PrimaryKey) })
	s.must("send by the second", s.sendBy(name, "sender", *sender.SecondaryKey))
	s.noAccess("receive by it", s.receiveBy(name, "sender", *sender.PrimaryKey))
	s.must("receive by the owner's", s.receiveBy(name, "owner", *owner.PrimaryKey))
	s.noAccess("send elsewhere", s.sendBy(s.queue, "owner", *owner.PrimaryKey))

	// The owner's key manages the queue and nothing else.
	own, err := s.adminClient(s.Members[2].Admin, s.Members[2].Admin, "owner", *owner.PrimaryKey)
	s.must("client", err)
	var mine *admin.GetQueueResponse
	s.known("get by the owner's key", true, func() error {
		mine, err = own.GetQueue(s.ctx, name, nil)
		return err
	})
	if mine == nil {
		s.FailNow()
	}
	_, err = own.GetQueue(s.ctx, s.queue, nil)
	s.refusedAs("get another", err, http.StatusUnauthorized, "401")
	_, err = own.CreateQueue(s.ctx, name+"-more", nil)
	s.refusedAs("create", err, http.StatusUnauthorized, "401")

	// An update changes a key, and the old key becomes invalid.
	mine.AuthorizationRules = []admin.AuthorizationRule{owner, sender}
	mine.AuthorizationRules[1].PrimaryKey = ptr("new key of the sender")
	_, err = own.UpdateQueue(s.ctx, name, mine.QueueProperties, nil)
	s.must("change a key", err)
	s.known("send by the new key", true, func() error { return s.sendBy(name, "sender", "new key of the sender") })
	s.noAccess("send by the old one", s.sendBy(name, "sender", "first key of the sender"))

	// A missing list means an empty list: this client cannot express it differently.
	mine.AuthorizationRules = nil
	none, err := s.admin(1).UpdateQueue(s.ctx, name, mine.QueueProperties, nil)
	s.must("take all away", err)
	if len(none.AuthorizationRules) > 0 {
		s.Errorf("they are still there: %+v", none.AuthorizationRules)
	}
	s.known("send without a rule", false, func() error { return s.sendBy(name, "sender", "new key of the sender") })
}

func ruleNamed(queue *admin.GetQueueResponse, name string) admin.AuthorizationRule {
	for _, rule := range queue.AuthorizationRules {
		if *rule.KeyName == name {
			return rule
		}
	}
	return admin.AuthorizationRule{}
}

// known asserts that a key works, or does not work, as soon as every member has learned of it.
func (s suite) known(what string, works bool, try func() error) {
	s.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(knownWithin); ; <-tick.C {
		err := try()
		if (err == nil) == works {
			if !works {
				s.noAccess(what, err)
			}
			return
		}
		if time.Now().After(end) {
			s.Errorf("%s: %v", what, err)
			return
		}
	}
}

// noAccess asserts that a client was refused because of its key.
func (s suite) noAccess(what string, err error) {
	s.Helper()
	var known *azservicebus.Error
	if !errors.As(err, &known) || known.Code != azservicebus.CodeUnauthorizedAccess {
		s.Errorf("%s: %v, want %s", what, err, azservicebus.CodeUnauthorizedAccess)
	}
}

func (s suite) keyed(rule, key string) (*azservicebus.Client, func()) {
	text := "Endpoint=sb://" + s.Members[1].AMQP + ";SharedAccessKeyName=" + rule + ";SharedAccessKey=" + key + ";UseDevelopmentEmulator=true"
	c, err := azservicebus.NewClientFromConnectionString(text, &azservicebus.ClientOptions{RetryOptions: azservicebus.RetryOptions{MaxRetries: -1}})
	s.must("client", err)
	return c, func() { _ = c.Close(context.Background()) }
}

func (s suite) sendBy(queue, rule, key string) error {
	c, done := s.keyed(rule, key)
	defer done()
	sender, err := c.NewSender(queue, nil)
	if err != nil {
		return err
	}
	return sender.SendMessage(s.ctx, &azservicebus.Message{Body: []byte("body")}, nil)
}

func (s suite) receiveBy(queue, rule, key string) error {
	c, done := s.keyed(rule, key)
	defer done()
	receiver, err := c.NewReceiverForQueue(queue, nil)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(s.ctx, knownWithin)
	defer cancel()
	_, err = receiver.ReceiveMessages(ctx, 1, nil)
	return err
}

// at is a transport that sends every request to one address without TLS, whatever host the client uses.
type at string

func (a at) Do(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Host = r.URL.Host
	r.URL.Scheme, r.URL.Host = "http", string(a)
	return http.DefaultClient.Do(r)
}

func (s suite) adminClient(address, host, rule, key string) (*admin.Client, error) {
	options := &admin.ClientOptions{}
	options.Transport = at(address)
	options.Retry.MaxRetries = -1
	return admin.NewClientFromConnectionString("Endpoint=sb://"+host+";SharedAccessKeyName="+rule+";SharedAccessKey="+key, options)
}

// adminNamespaces: a namespace has its own queues and keys and is selected by the host that the
// client uses; keys of one namespace do not open another.
func adminNamespaces(s suite) {
	name := strings.NewReplacer("/", "-", "_", "-").Replace(strings.ToLower(s.queue)) // a label
	name = "n" + name[max(0, len(name)-40):]
	var made struct {
		AccessRules []struct{ Name, PrimaryKey string }
	}
	if err := s.Members[0].Call(s.ctx, http.MethodPut, "/v1/namespaces/"+name, map[string]any{"maxMessageBytes": 1048576}, &made); err != nil || len(made.AccessRules) != 1 {
		s.Fatalf("%v %+v", err, made)
	}
	host := name + ".example.com"
	own, err := s.adminClient(s.Members[1].Admin, host, made.AccessRules[0].Name, made.AccessRules[0].PrimaryKey)
	s.must("client", err)
	s.known("its key", true, func() error { _, err := own.GetNamespaceProperties(s.ctx, nil); return err })
	info, err := own.GetNamespaceProperties(s.ctx, nil)
	s.must("namespace", err)
	if info.Name != name || info.SKU != "Premium" || info.MessagingUnits == nil || *info.MessagingUnits != 1 || time.Since(info.CreatedTime).Abs() > time.Hour {
		s.Errorf("%+v", info)
	}
	_, err = own.CreateQueue(s.ctx, s.queue, nil) // the default namespace has a queue of that name
	s.must("create a queue", err)
	pager, listed := own.NewListQueuesPager(nil), []string{}
	for pager.More() {
		page, err := pager.NextPage(s.ctx)
		s.must("list", err)
		for _, queue := range page.Queues {
			listed = append(listed, queue.QueueName)
		}
	}
	s.same("queues", []string{s.queue}, listed)
	elsewhere, err := s.adminClient(s.Members[1].Admin, "localhost", made.AccessRules[0].Name, made.AccessRules[0].PrimaryKey)
	s.must("client", err)
	_, err = elsewhere.GetQueue(s.ctx, s.queue, nil)
	s.refusedAs("its key in another namespace", err, http.StatusUnauthorized, "401")
}
