package scenario

import (
	_ "embed"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

//go:embed scenarios.txt
var text string

// Audience says which clients must show a scenario.
type Audience string

// The audiences, by their names in scenarios.txt.
const (
	All      Audience = "all"
	Official Audience = "official"
	Generic  Audience = "generic"
)

// Scenario is one line of scenarios.txt.
type Scenario struct {
	Name string
	Of   Audience
	Text string // description for readers
}

// List returns the scenarios in the order of scenarios.txt.
func List() ([]Scenario, error) {
	var all []Scenario
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		parts := strings.Split(line, "\t")
		if len(parts) != 3 {
			return nil, fmt.Errorf("scenarios.txt: %q has %d parts, not name, who and what", line, len(parts))
		}
		s := Scenario{Name: parts[0], Of: Audience(parts[1]), Text: parts[2]}
		if !slices.Contains([]Audience{All, Official, Generic}, s.Of) {
			return nil, fmt.Errorf("scenarios.txt: %s is asked of %q", s.Name, s.Of)
		}
		if slices.ContainsFunc(all, func(a Scenario) bool { return a.Name == s.Name }) {
			return nil, fmt.Errorf("scenarios.txt: %s is there twice", s.Name)
		}
		all = append(all, s)
	}
	return all, nil
}

// Client is a column of the matrix.
type Client struct {
	ID       string // prefix of the files of its results
	Title    string // its name in the registry
	Language string
	Of       Audience // Official or Generic
	Suite    string   // the folder below test/conformance with its cases
	pinned   string   // the file of the repository that pins its version
	pattern  string   // matches the version in that file
	// Nightly is a client whose suite CI does not run. The table takes its results as its cases promise them, and the nightly
	// run fails when one does not keep it.
	Nightly bool
}

// Clients returns the columns in order.
func Clients() []Client {
	return []Client{
		{"azservicebus", "azservicebus", "Go", Official, "go", "go.mod", `messaging/azservicebus v(\S+)`, false},
		{"service-bus-js", "@azure/service-bus", "JavaScript", Official, "js", "test/conformance/js/package.json", `"@azure/service-bus": "(.*?)"`, false},
		{"azure-servicebus", "azure-servicebus", "Python", Official, "python", "test/conformance/python/requirements.in", `(?m)^azure-servicebus==(\S+)`, false},
		{"azure-messaging-servicebus", "azure-messaging-servicebus", "Java", Official, "java", "test/conformance/java/pom.xml", `azure-messaging-servicebus</artifactId>\s*<version>(.*?)<`, false},
		{"azservicebus-rust", "azservicebus", "Rust", Official, "rust", "test/conformance/rust/Cargo.toml", `azservicebus = \{ version = "=(.*?)"`, true},
		{"go-amqp", "go-amqp", "Go", Generic, "go", "go.mod", `Azure/go-amqp v(\S+)`, false},
		{"rhea", "rhea", "JavaScript", Generic, "js", "test/conformance/js/package.json", `"rhea": "(.*?)"`, false},
		{"qpid-jms", "qpid-jms-client", "Java", Generic, "java", "test/conformance/java/pom.xml", `qpid-jms-client</artifactId>\s*<version>(.*?)<`, false},
		{"protonj2", "protonj2-client", "Java", Generic, "java", "test/conformance/java/pom.xml", `protonj2-client</artifactId>\s*<version>(.*?)<`, false},
	}
}

// Asked says whether a client must show a scenario.
func (c Client) Asked(s Scenario) bool { return s.Of == All || s.Of == c.Of }

// Version returns the version of the client that the tests use. read returns a file of the
// repository by its path.
func (c Client) Version(read func(path string) ([]byte, error)) (string, error) {
	content, err := read(c.pinned)
	if err != nil {
		return "", fmt.Errorf("version of %s: %w", c.ID, err)
	}
	found := regexp.MustCompile(c.pattern).FindSubmatch(content)
	if found == nil {
		return "", fmt.Errorf("version of %s: %s does not say it", c.ID, c.pinned)
	}
	return string(found[1]), nil
}
