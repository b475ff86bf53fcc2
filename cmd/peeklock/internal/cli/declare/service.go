package declare

import (
	"cmp"
	"context"
	"encoding/xml"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/peeklock/peeklock/admin/atom"
	"github.com/peeklock/peeklock/admin/auth"
	"github.com/peeklock/peeklock/admin/entity"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/client"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/contexts"
	"github.com/peeklock/peeklock/fsm"
)

// Limits of reading a namespace of the service.
const (
	feedBytesMax   = 16 << 20 // one page
	serviceTimeMax = 60 * time.Second
	tokenLife      = time.Hour
)

// service reads a Service Bus namespace through its administration API.
type service struct {
	base string // scheme and host
	to   contexts.ConnectionString
}

// feedEntry is an entry of an ATOM feed.
type feedEntry struct {
	Title string `xml:"title"`
	Inner string `xml:",innerxml"`
}

// readService reads the entities of the namespace of a connection string, with their rules and keys.
func readService(ctx context.Context, to contexts.ConnectionString) (*Document, error) {
	s := &service{"https://" + to.Host, to}
	if to.Plain {
		s.base = "http://" + net.JoinHostPort(to.Host, cmp.Or(to.Port, "5300"))
	} else if to.Port != "" {
		s.base = "https://" + net.JoinHostPort(to.Host, to.Port)
	}
	d := new(Document)
	err := s.each(ctx, "/$Resources/queues", func(name string, e *atom.Element) error {
		q := Queue{Name: name}
		if err := s.entity(e, &q.Settings, &q.Keys); err != nil {
			return err
		}
		d.Queues = append(d.Queues, q)
		return nil
	})
	if err != nil {
		return nil, err
	}
	err = s.each(ctx, "/$Resources/topics", func(name string, e *atom.Element) error {
		t := Topic{Name: name}
		if err := s.entity(e, &t.Settings, &t.Keys); err != nil {
			return err
		}
		d.Topics = append(d.Topics, t)
		return nil
	})
	for i := 0; i < len(d.Topics) && err == nil; i++ {
		err = s.subscriptions(ctx, &d.Topics[i])
	}
	if err != nil {
		return nil, err
	}
	return d, d.check()
}

func (s *service) subscriptions(ctx context.Context, t *Topic) error {
	at := client.NamePath("/", t.Name) + "/Subscriptions"
	err := s.each(ctx, at, func(name string, e *atom.Element) error {
		sub := Subscription{Name: name}
		err := s.entity(e, &sub.Settings, nil)
		t.Subscriptions = append(t.Subscriptions, sub)
		return err
	})
	for i := 0; i < len(t.Subscriptions) && err == nil; i++ {
		sub := &t.Subscriptions[i]
		err = s.each(ctx, client.NamePath(at+"/", sub.Name)+"/Rules", func(name string, e *atom.Element) error {
			rule, err := e.Rule(name)
			if err == nil {
				described := entity.DescribeRule(rule)
				described.Created = nil
				sub.Rules = append(sub.Rules, described)
			}
			return err //nolint:wrapcheck // each names the entry
		})
	}
	return err
}

// entity reads the settings and the keys of an entity. A subscription has no keys.
func (s *service) entity(e *atom.Element, settings *entity.Settings, keys *[]Key) (err error) {
	if *settings, err = e.Settings(); err != nil {
		return err //nolint:wrapcheck // each names the entry
	}
	settings.InElements = false
	for _, target := range []*string{settings.ForwardTo, settings.ForwardDeadLetteredMessagesTo} {
		if target == nil {
			continue
		}
		if address, err := url.Parse(*target); err == nil && address.Host != "" { // the service names entities by URL
			*target = strings.TrimPrefix(address.Path, "/")
		}
	}
	if keys == nil {
		return nil
	}
	rules, err := e.AccessRules()
	for _, r := range rules {
		*keys = append(*keys, Key{r.Name, r.Rights, r.PrimaryKey, r.SecondaryKey})
	}
	return err //nolint:wrapcheck // each names the entry
}

// each calls visit for the entries of a list, page by page.
func (s *service) each(ctx context.Context, path string, visit func(name string, e *atom.Element) error) error {
	for skip := 0; ; skip += pageMax {
		entries, err := s.page(ctx, path, skip)
		if err != nil {
			return fmt.Errorf("read %s of %s: %w", path, s.to.Host, err)
		}
		for _, entry := range entries {
			e, err := atom.ReadDescription(strings.NewReader("<entry>" + entry.Inner + "</entry>"))
			if err == nil {
				err = visit(entry.Title, e)
			}
			if err != nil {
				return fmt.Errorf("%s of %s in %s: %w", entry.Title, path, s.to.Host, err)
			}
		}
		if len(entries) < pageMax {
			return nil
		}
	}
}

func (s *service) page(ctx context.Context, path string, skip int) ([]feedEntry, error) {
	ctx, cancel := context.WithTimeout(ctx, serviceTimeMax)
	defer cancel()
	address := fmt.Sprintf("%s%s?api-version=2021-05&$skip=%d&$top=%d", s.base, path, skip, pageMax)
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, err //nolint:wrapcheck // each names the list
	}
	request.Header.Set("Authorization", auth.Sign("https://"+s.to.Host+"/", s.to.KeyName, s.to.Key, time.Now().Add(tokenLife)))
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err //nolint:wrapcheck // each names the list
	}
	defer func() { _ = answer.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(answer.Body, feedBytesMax+1))
	switch {
	case err != nil:
		return nil, err //nolint:wrapcheck // each names the list
	case answer.StatusCode == http.StatusNotFound && skip > 0:
		return nil, nil
	case answer.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("%s: %.300q; the key needs Manage on the namespace", answer.Status, body)
	case len(body) > feedBytesMax:
		return nil, fmt.Errorf("the page is larger than %d bytes: %w", feedBytesMax, fsm.MessageTooLarge)
	}
	var feed struct {
		Entries []feedEntry `xml:"entry"`
	}
	err = xml.Unmarshal(body, &feed)
	return feed.Entries, err //nolint:wrapcheck // each names the list
}
