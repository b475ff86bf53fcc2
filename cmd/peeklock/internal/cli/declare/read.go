package declare

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/peeklock/peeklock/admin/emulator"
	"github.com/peeklock/peeklock/admin/entity"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/arm"
	"github.com/peeklock/peeklock/fsm"
)

// documentBytesMax is the size of the largest file that is read, in bytes.
const documentBytesMax = 16 << 20

// armPrefix begins the types of what is in a namespace.
const armPrefix = "Microsoft.ServiceBus/namespaces/"

// source says what to read: a file in one of three forms.
type source struct {
	file       string            // "-" is standard input
	of         string            // namespace of the file; "": it has only one
	parameters map[string]string // of an ARM template
}

// read reads the file. Its content tells the form: a Config.json of the emulator, an ARM template, or else a document. Warnings
// list what was ignored. Errors are usage errors with the name of the file in them.
func (s *source) read(in io.Reader) (d *Document, warnings []string, err error) {
	name := s.file
	if s.file == "-" {
		name = "standard input"
	} else {
		file, err := os.Open(s.file)
		if err != nil {
			return nil, nil, cli.Usage(err)
		}
		defer func() { _ = file.Close() }()
		in = file
	}
	text, err := io.ReadAll(io.LimitReader(in, documentBytesMax+1))
	if err != nil {
		return nil, nil, cli.Usagef("read %s: %w", name, err)
	}
	if len(text) > documentBytesMax {
		return nil, nil, cli.Usagef("%s is larger than %d bytes: divide it", name, documentBytesMax)
	}
	d, warnings, err = s.parse(name, text)
	if err == nil {
		if err = d.check(); err != nil {
			err = fmt.Errorf("%s: %w", name, err)
		}
	}
	if err != nil {
		return nil, nil, cli.Usage(err)
	}
	return d, warnings, nil
}

func (s *source) parse(name string, text []byte) (*Document, []string, error) {
	plain := emulator.WithoutComments(text)
	var tree map[string]json.RawMessage
	isJSON := json.Unmarshal(plain, &tree) == nil
	isConfig := isJSON && slices.ContainsFunc(keys(tree), func(key string) bool { return strings.EqualFold(key, "UserConfig") })
	isTemplate := isJSON && tree["resources"] != nil && strings.Contains(strings.ToLower(string(tree["$schema"])), "deploymenttemplate.json")
	switch {
	case !isTemplate && len(s.parameters) > 0:
		return nil, nil, fmt.Errorf("--parameter is for ARM templates, and %s is none", name)
	case !isTemplate && !isConfig && s.of != "":
		return nil, nil, fmt.Errorf("--file-namespace is for Config.json and ARM templates, and %s is neither", name)
	case isConfig:
		d, warnings, err := s.config(plain)
		if err != nil {
			err = fmt.Errorf("%s: %w", name, err)
		}
		return d, warnings, err
	case isTemplate:
		d, warnings, err := s.template(plain)
		if err != nil {
			err = fmt.Errorf("%s: %w", name, err)
		}
		return d, warnings, err
	}
	d := new(Document)
	return d, nil, decodeYAML(name, text, d)
}

func keys(tree map[string]json.RawMessage) (list []string) {
	for key := range tree {
		list = append(list, key)
	}
	return list
}

// namespace chooses the namespace of a file that may have several.
func (s *source) namespace(names []string) (int, error) {
	if s.of == "" && len(names) == 1 {
		return 0, nil
	}
	at := slices.IndexFunc(names, func(name string) bool { return s.of != "" && strings.EqualFold(name, s.of) })
	if at < 0 {
		return 0, fmt.Errorf("the file has the namespaces %s: choose one with --file-namespace, and where it goes with --namespace", strings.Join(names, ", "))
	}
	return at, nil
}

// config reads a Config.json.
func (s *source) config(text []byte) (*Document, []string, error) {
	file, err := emulator.Parse(text)
	if err != nil {
		return nil, nil, err
	}
	if len(file.Namespaces()) == 0 {
		return new(Document), file.Warnings, nil
	}
	at, err := s.namespace(file.Namespaces())
	if err != nil {
		return nil, nil, err
	}
	return documentOf(file.Entities(at)), file.Warnings, nil
}

// documentOf returns the document that declares entities. Topics are before their subscriptions.
func documentOf(list []emulator.Entity) *Document {
	d := new(Document)
	for i := range list {
		e := &list[i]
		e.Settings.InElements = false
		switch e.Kind {
		case fsm.QueueEntity:
			d.Queues = append(d.Queues, Queue{Name: e.Name, Settings: e.Settings})
		case fsm.TopicEntity:
			d.Topics = append(d.Topics, Topic{Name: e.Name, Settings: e.Settings})
		case fsm.SubscriptionEntity:
			topic, name, _ := fsm.SplitSubscriptionPath(e.Name)
			sub := Subscription{Name: name, Settings: e.Settings}
			for _, rule := range e.Rules {
				sub.Rules = append(sub.Rules, entity.DescribeRule(rule))
			}
			at := slices.IndexFunc(d.Topics, func(t Topic) bool { return fsm.PathKey(t.Name) == fsm.PathKey(topic) })
			d.Topics[at].Subscriptions = append(d.Topics[at].Subscriptions, sub)
		}
	}
	return d
}

// configEntity is an entity or rule in the form of a Config.json.
type configEntity struct {
	Name          string         `json:"Name"`
	Properties    map[string]any `json:"Properties,omitempty"`
	Queues        []configEntity `json:"Queues,omitempty"`
	Topics        []configEntity `json:"Topics,omitempty"`
	Subscriptions []configEntity `json:"Subscriptions,omitempty"`
	Rules         []configEntity `json:"Rules,omitempty"`
}

// find returns the element with a name, which it adds if it may.
func find(list *[]configEntity, name string, add bool) *configEntity {
	at := slices.IndexFunc(*list, func(e configEntity) bool { return strings.EqualFold(e.Name, name) })
	switch {
	case at >= 0:
		return &(*list)[at]
	case !add:
		return nil
	}
	*list = append(*list, configEntity{Name: name})
	return &(*list)[len(*list)-1]
}

// template reads an ARM template. Its entities have the properties of a Config.json, in other case.
func (s *source) template(text []byte) (*Document, []string, error) {
	resources, err := arm.Read(text, armPrefix, s.parameters)
	if err != nil {
		return nil, nil, err
	}
	if len(resources) == 0 {
		return nil, nil, errors.New("the template has no queues, topics or authorization rules of Microsoft.ServiceBus/namespaces")
	}
	var names []string
	for i := range resources {
		if resources[i].Names[0] != "" && !slices.ContainsFunc(names, func(n string) bool { return strings.EqualFold(n, resources[i].Names[0]) }) {
			names = append(names, resources[i].Names[0])
		}
	}
	if len(names) == 0 && s.of == "" { // only a deployment knows it
		return templateDocument(resources)
	}
	at, err := s.namespace(names)
	if err != nil {
		return nil, nil, err
	}
	for i := range resources {
		r := &resources[i]
		if r.Names[0] == "" && len(names) > 1 {
			return nil, nil, fmt.Errorf("%s %s: only a deployment in Azure knows which of the namespaces %s it is in", r.Type, strings.Join(r.Names[1:], "/"), strings.Join(names, ", "))
		}
	}
	resources = slices.DeleteFunc(resources, func(r arm.Resource) bool { return r.Names[0] != "" && !strings.EqualFold(r.Names[0], names[at]) })
	return templateDocument(resources)
}

// templateDocument returns the document of the resources of one namespace. Parents are read first: templates have any order.
func templateDocument(resources []arm.Resource) (*Document, []string, error) {
	slices.SortStableFunc(resources, func(a, b arm.Resource) int { return len(a.Names) - len(b.Names) })
	space := configEntity{Name: "namespace"}
	var warnings []string
	var access []arm.Resource
	for i := range resources {
		r := &resources[i]
		kind := strings.ToLower(r.Type[len(armPrefix):])
		switch kind {
		case "authorizationrules", "queues/authorizationrules", "topics/authorizationrules":
			access = append(access, *r)
			continue
		}
		list, err := place(&space, kind, r)
		switch {
		case err != nil:
			return nil, nil, err
		case list == nil:
			warnings = append(warnings, fmt.Sprintf("%s %s: ignored", r.Type, strings.Join(r.Names[1:], "/")))
			continue
		case find(list, r.Names[len(r.Names)-1], false) != nil:
			return nil, nil, fmt.Errorf("%s %s is declared twice", r.Type, strings.Join(r.Names[1:], "/"))
		}
		find(list, r.Names[len(r.Names)-1], true).Properties = configProperties(kind, r.Properties)
	}
	text, err := json.Marshal(map[string]any{"UserConfig": map[string]any{"Namespaces": []configEntity{space}}})
	if err != nil {
		return nil, nil, err
	}
	readable := readablePaths(&space)
	file, err := emulator.Parse(text)
	if err != nil {
		return nil, nil, errors.New(readable.Replace(err.Error()))
	}
	for _, w := range file.Warnings {
		warnings = append(warnings, readable.Replace(w))
	}
	d := documentOf(file.Entities(0))
	d.grant(access)
	return d, warnings, nil
}

// place returns the list that a resource belongs to, nil if Peeklock has nothing of its type.
func place(space *configEntity, kind string, r *arm.Resource) (*[]configEntity, error) {
	parent := space
	for i, part := range strings.Split(kind, "/") {
		list := map[string]*[]configEntity{"queues": &parent.Queues, "topics": &parent.Topics, "subscriptions": &parent.Subscriptions, "rules": &parent.Rules}[part]
		if list == nil || i+2 == len(r.Names) {
			return list, nil
		}
		// A parent that the template only refers to is declared without settings: that changes nothing if it exists.
		parent = find(list, r.Names[i+1], true)
	}
	return nil, fmt.Errorf("%s has no name", r.Type)
}

// configProperties returns properties as a Config.json has them.
func configProperties(kind string, properties map[string]any) map[string]any {
	for _, ignored := range []string{"isClientAffine", "clientAffineProperties"} { // of JMS
		if value := properties[ignored]; value == nil || value == false {
			delete(properties, ignored)
		}
	}
	if !strings.HasSuffix(kind, "/rules") {
		return properties
	}
	for _, part := range []string{"sqlFilter", "correlationFilter", "action"} {
		of, _ := properties[part].(map[string]any)
		if of == nil || part == "action" && of["sqlExpression"] == nil {
			delete(properties, part)
			continue
		}
		delete(of, "compatibilityLevel") // reserved by the service
		delete(of, "requiresPreprocessing")
		if properties["filterType"] == nil && part != "action" {
			properties["filterType"] = part
		}
	}
	return properties
}

// readablePaths replaces the paths of a Config.json by the names of entities.
func readablePaths(space *configEntity) *strings.Replacer {
	var pairs []string
	add := func(path, kind, name string) { pairs = append(pairs, path, kind+" "+name) }
	for i, t := range space.Topics {
		topic := fmt.Sprintf("Namespaces[0].Topics[%d]", i)
		for j, sub := range t.Subscriptions {
			subscription := fmt.Sprintf("%s.Subscriptions[%d]", topic, j)
			for k, rule := range sub.Rules {
				add(fmt.Sprintf("%s.Rules[%d]", subscription, k), "rule", rule.Name+" of "+t.Name+"/"+sub.Name)
			}
			add(subscription, "subscription", t.Name+"/"+sub.Name)
		}
		add(topic, "topic", t.Name)
	}
	for i, q := range space.Queues {
		add(fmt.Sprintf("Namespaces[0].Queues[%d]", i), "queue", q.Name)
	}
	return strings.NewReplacer(pairs...)
}

// grant adds authorization rules as keys.
func (d *Document) grant(list []arm.Resource) {
	for i := range list {
		r := &list[i]
		key := Key{Name: r.Names[len(r.Names)-1]}
		rights, _ := r.Properties["rights"].([]any)
		for _, right := range rights {
			key.Rights = append(key.Rights, fmt.Sprint(right))
		}
		into := &d.Keys
		if len(r.Names) > 2 {
			into = d.keysOf(strings.Split(strings.ToLower(r.Type[len(armPrefix):]), "/")[0], r.Names[1])
		}
		*into = append(*into, key)
	}
}

// keysOf returns the keys of a queue or topic, which it adds if it is only referred to.
func (d *Document) keysOf(plural, name string) *[]Key {
	if plural == "queues" {
		at := slices.IndexFunc(d.Queues, func(q Queue) bool { return strings.EqualFold(q.Name, name) })
		if at < 0 {
			at, d.Queues = len(d.Queues), append(d.Queues, Queue{Name: name})
		}
		return &d.Queues[at].Keys
	}
	at := slices.IndexFunc(d.Topics, func(t Topic) bool { return strings.EqualFold(t.Name, name) })
	if at < 0 {
		at, d.Topics = len(d.Topics), append(d.Topics, Topic{Name: name})
	}
	return &d.Topics[at].Keys
}

// parameterFlag parses NAME=VALUE.
func parameterFlag(pairs []string) (map[string]string, error) {
	values := make(map[string]string)
	for _, pair := range pairs {
		name, value, found := strings.Cut(pair, "=")
		if !found || name == "" {
			return nil, cli.Usagef("--parameter is NAME=VALUE, not %.60q", pair)
		}
		values[name] = value
	}
	return values, nil
}
