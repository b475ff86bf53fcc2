package declare

import (
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"

	"github.com/peeklock/peeklock/admin/api"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/command"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/kubernetes"
)

// secretKey are the names that the data of a Secret can have.
var secretKey = regexp.MustCompile(`^[-._a-zA-Z0-9]{1,253}$`)

// declaredKey is a declared key of an entity, of the namespace where that is "".
type declaredKey struct{ entity, key string }

// secretKeys returns the declared keys by the names under which a Secret has their connection strings.
func (d *Document) secretKeys() (map[string]declaredKey, error) {
	names := make(map[string]declaredKey)
	var mistakes []error
	add := func(entity string, keys []Key) {
		for _, k := range keys {
			name := k.Name
			if entity != "" {
				name = strings.ReplaceAll(entity, "/", ".") + "." + k.Name
			}
			other, taken := names[name]
			switch {
			case !secretKey.MatchString(name):
				mistakes = append(mistakes, fmt.Errorf("%q cannot be a name in a Secret, which has letters, digits and . - _: rename the key or the entity", name))
			case taken:
				mistakes = append(mistakes, fmt.Errorf("the key %s of %q and the key %s of %q would both be %q in the Secret: rename one", other.key, other.entity, k.Name, entity, name))
			}
			names[name] = declaredKey{entity, k.Name}
		}
	}
	add("", d.Keys)
	for i := range d.Queues {
		add(d.Queues[i].Name, d.Queues[i].Keys)
	}
	for i := range d.Topics {
		add(d.Topics[i].Name, d.Topics[i].Keys)
	}
	if len(mistakes) > 0 {
		return nil, cli.Usage(errors.Join(mistakes...))
	}
	return names, nil
}

// writeSecret writes the connection strings of the declared keys, as the members have them, to a Secret of Kubernetes.
func writeSecret(i command.Invocation, o *options, want *Document) error {
	names, err := want.secretKeys()
	if err != nil {
		return err
	}
	data := make(map[string][]byte)
	for name, of := range names {
		var key api.AccessRule
		if err := i.Client.Call(i.Ctx, http.MethodGet, accessPath(of.entity, of.key), nil, &key); err != nil {
			return fmt.Errorf("read the key %s: %w", name, err)
		}
		if key.PrimaryConnectionString == "" {
			return fmt.Errorf("the key %s has no connection string: give the namespace a host (peeklock namespace update NAME --host HOST), and the key a secret without a semicolon", name)
		}
		data[name] = []byte(key.PrimaryConnectionString)
	}
	if err := kubernetes.ReplaceSecret(i.Ctx, i.Client.Getenv, o.account, o.secret, data); err != nil {
		return err
	}
	return i.Out.Note("%d connection strings are in the Secret %s", len(data), o.secret)
}
