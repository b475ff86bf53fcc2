package atom

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/peeklock/peeklock/fsm"
)

// Limits of a document. The caller bounds the size of the body; these bound the memory that the tree takes. The largest
// rule is a description with 128 parameters for filter and action each, of 3 elements.
const (
	xmlDepthMax      = 16   // nested elements
	xmlElementsMax   = 2048 // of one document
	xmlAttributesMax = 4096 // of one document, including declarations of namespaces
)

// Element is an element of a document, with its children. Namespaces are resolved and then ignored: clients differ in prefixes
// and declarations, and no two elements of the API differ in the namespace alone. Immutable.
type Element struct {
	name     string // without prefix
	attrs    []xml.Attr
	text     string // its own text, joined
	children []Element
}

// child returns the first child of a name; nil for none, and for one with i:nil.
func (n *Element) child(name string) *Element {
	if n == nil {
		return nil
	}
	for i := range n.children {
		if c := &n.children[i]; c.name == name && !c.isNil() {
			return c
		}
	}
	return nil
}

// attr returns an attribute of the instance namespace of XML Schema, "" when it is omitted.
func (n *Element) attr(name string) string {
	for _, a := range n.attrs {
		if a.Name.Local == name && a.Name.Space == instanceXMLNS {
			return strings.TrimSpace(a.Value)
		}
	}
	return ""
}

// isNil reports i:nil, which .NET writes for an omitted value.
func (n *Element) isNil() bool { v := n.attr("nil"); return v == "true" || v == "1" }

// kindName is the type of a filter, action or value, without the prefix, which the client chooses.
func (n *Element) kindName() string {
	name := n.attr("type")
	return name[strings.LastIndexByte(name, ':')+1:]
}

// ReadDescription reads the body of a request, an ATOM entry whose content is one description, and returns the
// description. Errors wrap fsm.InvalidArgument, fsm.MessageTooLarge or fsm.ServerBusy.
func ReadDescription(body io.Reader) (*Element, error) {
	data, err := io.ReadAll(body)
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return nil, fmt.Errorf("%w: the body is longer than %d bytes", fsm.MessageTooLarge, tooLarge.Limit)
	case errors.Is(err, fsm.ServerBusy): // there was no slot for the request
		return nil, err
	case err != nil:
		return nil, fmt.Errorf("%w: the body: %w", fsm.InvalidArgument, err)
	}
	entry, err := parseXML(data)
	if err != nil {
		return nil, fmt.Errorf("%w: the body: %w", fsm.InvalidArgument, err)
	}
	content := entry.child("content")
	if entry.name != "entry" || content == nil || len(content.children) != 1 {
		return nil, fmt.Errorf("%w: the body is not an ATOM entry whose content is one description", fsm.InvalidArgument)
	}
	return &content.children[0], nil
}

// xmlReader reads one document into a tree.
type xmlReader struct {
	decoder              *xml.Decoder
	elements, attributes int
}

// parseXML reads one document. A document type is refused, since XML bombs are made of entities and no client needs one.
// encoding/xml refuses encodings other than UTF-8.
func parseXML(data []byte) (*Element, error) {
	data = bytes.TrimPrefix(data, []byte("\xef\xbb\xbf")) // the byte order mark of .NET
	x := xmlReader{decoder: xml.NewDecoder(bytes.NewReader(data))}
	var root *Element
	for {
		token, err := x.decoder.Token()
		switch {
		case errors.Is(err, io.EOF) && root != nil:
			return root, nil
		case errors.Is(err, io.EOF):
			return nil, errors.New("no XML element")
		case err != nil:
			return nil, err
		}
		switch token := token.(type) {
		case xml.Directive:
			return nil, errors.New("a document type is not allowed")
		case xml.StartElement:
			if root != nil {
				return nil, errors.New("more than one element at the top")
			}
			root = &Element{}
			if err := x.element(root, token, 1); err != nil {
				return nil, err
			}
		}
	}
}

func (x *xmlReader) element(n *Element, start xml.StartElement, depth int) error {
	x.elements++
	x.attributes += len(start.Attr)
	switch {
	case depth > xmlDepthMax:
		return fmt.Errorf("elements are nested more than %d deep", xmlDepthMax)
	case x.elements > xmlElementsMax:
		return fmt.Errorf("more than %d elements", xmlElementsMax)
	case x.attributes > xmlAttributesMax:
		return fmt.Errorf("more than %d attributes", xmlAttributesMax)
	}
	n.name, n.attrs = start.Name.Local, start.Attr
	var text strings.Builder
	for {
		token, err := x.decoder.Token()
		if err != nil {
			return err
		}
		switch token := token.(type) {
		case xml.Directive:
			return errors.New("a document type is not allowed")
		case xml.CharData:
			text.Write(token)
		case xml.StartElement:
			var child Element
			if err := x.element(&child, token, depth+1); err != nil {
				return err
			}
			n.children = append(n.children, child)
		case xml.EndElement:
			n.text = text.String()
			return nil
		}
	}
}
