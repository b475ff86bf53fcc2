package operation

import (
	"net/url"
	"strconv"
	"strings"
)

// Right is what an operation requires of its caller.
type Right uint8

// Rights. A caller that needs no key may do everything.
const (
	AnyKey          Right = iota + 1 // any valid key
	ManageEntity                     // Manage on the entity of the request
	ListenEntity                     // Listen on it: the answer holds messages, or the request settles them
	SendEntity                       // Send on it
	ManageNamespace                  // Manage on the whole namespace
	OperatorOnly                     // a key that is valid for the cluster itself
	ReadEntity                       // Read or Manage on the entity: settings and figures
	ReadNamespace                    // the same on the whole namespace
	ReadCluster                      // an operator, or Read of a key in the configuration: figures of all namespaces
)

// String returns the right in the words of documents.
func (r Right) String() string {
	return [...]string{"", "any key", "Manage, for the entity", "Listen, for the entity", "Send, for the entity", "Manage, for the namespace", "operator", "Read, for the entity", "Read, for the namespace", "Read, of a configured key"}[r]
}

// SmallAnswerBytes bounds the answers of operations that have no bound of their own.
const SmallAnswerBytes = 32 << 10

// Operation is a row of a table.
type Operation struct {
	Name    string // unique in its table: an identifier such as listQueues
	Pattern string // method and path, as of http.ServeMux
	Summary string // a sentence that says what it does
	Right   Right
	// Work returns the units (package work) that a request costs in addition to those of every request and of the bytes of its
	// answer; nil: none.
	Work func(url.Values) int
	// Answers returns the most bytes of the answer to a request; nil: SmallAnswerBytes. A streamed answer is never whole in
	// memory, and has no bound.
	Answers func(url.Values) int
	Query   []Parameter // of the query; others are refused
	// Body and Answer are values of the types whose JSON they are; nil: none. An Answer of type []byte is a file.
	Body, Answer any
	One          any   // the type of the answer to a request that selects one entry of a page; nil: there is none
	Streams      bool  // the answer is a line of JSON again and again, each an Answer; Answers bounds a line
	Statuses     []int // of success, where these are not 200 for an answer and 204 for none
}

// Method returns the method of the pattern.
func (o *Operation) Method() string {
	method, _, _ := strings.Cut(o.Pattern, " ")
	return method
}

// Path returns the path of the pattern.
func (o *Operation) Path() string {
	_, path, _ := strings.Cut(o.Pattern, " ")
	return path
}

// Succeeds returns the statuses of success.
func (o *Operation) Succeeds() []int {
	switch {
	case o.Statuses != nil:
		return o.Statuses
	case o.Answer == nil:
		return []int{204}
	}
	return []int{200}
}

// WorkOf returns the units that a request costs in addition to those of every request and of its answer.
func (o *Operation) WorkOf(query url.Values) int {
	if o.Work == nil {
		return 0
	}
	return o.Work(query)
}

// AnswerBytesMax returns the most bytes of the answer to a request.
func (o *Operation) AnswerBytesMax(query url.Values) int {
	if o.Answers == nil {
		return SmallAnswerBytes
	}
	return o.Answers(query)
}

// Parameter is a parameter of a query.
type Parameter struct {
	Name, Summary   string
	Type            string // string, integer or boolean, as in JSON schemas
	Format          string // "", or date-time
	Normal          int    // of an integer that is omitted
	Least, Greatest int    // of an integer
	Required        bool
}

// Text returns a parameter with a text.
func Text(name, summary string) Parameter {
	return Parameter{Name: name, Summary: summary, Type: "string"}
}

// Needed returns a parameter with a text that each request must have.
func Needed(name, summary string) Parameter {
	return Parameter{Name: name, Summary: summary, Type: "string", Required: true}
}

// Time returns a parameter with a time (RFC 3339).
func Time(name, summary string) Parameter {
	return Parameter{Name: name, Summary: summary, Type: "string", Format: "date-time"}
}

// Flag returns a parameter that is true or false.
func Flag(name, summary string) Parameter {
	return Parameter{Name: name, Summary: summary, Type: "boolean"}
}

// Number returns a parameter with a number, normal where it is omitted.
func Number(name, summary string, normal, least, greatest int) Parameter {
	return Parameter{Name: name, Summary: summary, Type: "integer", Normal: normal, Least: least, Greatest: greatest}
}

// Of returns the number that a query gives for the parameter, within its limits: what is not a number counts as the greatest,
// because only its handler refuses it.
func (p Parameter) Of(query url.Values) int {
	text := query.Get(p.Name)
	if text == "" {
		return p.Normal
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		return p.Greatest
	}
	return min(max(n, p.Least), p.Greatest)
}

// Names returns the names of the parameters.
func (o *Operation) Names() []string {
	names := make([]string, len(o.Query))
	for i := range o.Query {
		names[i] = o.Query[i].Name
	}
	return names
}
