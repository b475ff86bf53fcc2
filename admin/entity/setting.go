package entity

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/peeklock/peeklock/admin/auth"
	"github.com/peeklock/peeklock/fsm"
)

// Setting describes one setting of queues, topics and subscriptions. JSON, ATOM, Config.json of the
// emulator, the command line and the reference in docs/ all read it from [Table]. Immutable.
type Setting struct {
	// Name is the field of the JSON, Element the element of an ATOM description and the field in Config.json of the
	// emulator ("": the service has no such setting), Flag the flag of the command line.
	Name, Element, Flag string
	Kinds               []fsm.EntityKind // that have it
	Fixed               bool             // cannot be changed after the creation of the entity
	Destination         bool             // names the queue or topic that messages are forwarded to
	Verbatim            bool             // an ATOM element may be empty and keeps the spaces around its text
	Choices             []string         // all values of a text; nil: any text
	help                string           // of the flag, without range and default; %s is the kind
	defaultText         string           // of a default that depends on another setting; else ""

	value
}

// Has reports whether entities of a kind have the setting.
func (s *Setting) Has(kind fsm.EntityKind) bool { return slices.Contains(s.Kinds, kind) }

// nameFor returns the name that the client uses which gave the settings.
func (s *Setting) nameFor(given *Settings) string {
	if given.InElements {
		return cmp.Or(s.Element, s.Name)
	}
	return s.Name
}

// Default is the value of a new entity, as text.
func (s *Setting) Default(kind fsm.EntityKind) string {
	settings := DefaultSettings(kind)
	return cmp.Or(s.defaultText, s.text(&settings))
}

// Usage is the help text of the flag, with range and default.
func (s *Setting) Usage(kind fsm.EntityKind) string {
	text := strings.ReplaceAll(s.help, "%s", kind.String())
	switch {
	case s.Choices != nil:
		text += ": " + s.Range()
	case s.Range() != "":
		text += ", " + s.Range()
	}
	if s.Fixed {
		return text + "; cannot be changed later"
	}
	if normal := s.Default(kind); normal != "" && normal != "false" {
		text += " (server default " + normal + ")"
	}
	return text
}

// value is the typed half of a setting: where it is stored, and the forms of its values. given is what a
// request gives, stored what the state machine has.
type value interface {
	// Type is what the help of the command line calls the values: bool, duration, string or uint32.
	Type() string
	// Range is the set of values, as text; "" when it follows from the type.
	Range() string
	// IsGiven reports whether a request gives the setting.
	IsGiven(given *Settings) bool
	// Parse reads a value as the command line writes it, ParseElement the text of an ATOM element, and
	// ParseJSON a value of Config.json, into given. They do not check the range.
	Parse(text string, given *Settings) error
	ParseElement(text string, given *Settings) error
	ParseJSON(raw []byte, given *Settings) error
	// ElementText is the text of the ATOM element.
	ElementText(stored *fsm.EntitySettings) string

	// Check returns an error, "is ..., not ...", for a given value that limits do not allow. Its values are in the
	// unit in which the client gives them.
	Check(given *Settings, limits Limits) error

	// Copy sets the setting of to to that of from, and Differs reports whether the two differ.
	Copy(to, from *fsm.EntitySettings)
	Differs(a, b *fsm.EntitySettings) bool

	store(given *Settings, stored *fsm.EntitySettings)
	show(stored *fsm.EntitySettings, given *Settings)
	text(stored *fsm.EntitySettings) string
}

// typed is a value of type T in requests and of type S in the state machine.
type typed[T any, S comparable] struct {
	name     string // of T on the command line
	given    func(*Settings) **T
	stored   func(*fsm.EntitySettings) *S
	toStored func(T) S
	toGiven  func(S) T
	isValid  func(T, Limits, func(T) string) error // nil: every value is valid; the function formats values for the error
	values   string
	want     string // what a value of Config.json has to be; "": errors of parsing say it

	parse, parseElement   func(string) (T, error)
	format, formatElement func(T) string
}

func (v *typed[T, S]) Type() string                 { return v.name }
func (v *typed[T, S]) Range() string                { return v.values }
func (v *typed[T, S]) IsGiven(given *Settings) bool { return *v.given(given) != nil }

func (v *typed[T, S]) set(given *Settings, text string, parse func(string) (T, error)) error {
	parsed, err := parse(text)
	if err == nil {
		*v.given(given) = &parsed
	}
	return err
}

func (v *typed[T, S]) Parse(text string, given *Settings) error { return v.set(given, text, v.parse) }

func (v *typed[T, S]) ParseElement(text string, given *Settings) error {
	return v.set(given, text, v.parseElement)
}

// ParseJSON takes what ParseElement takes, as a text or as a bare number or boolean, and durations in both forms.
func (v *typed[T, S]) ParseJSON(raw []byte, given *Settings) error {
	var text string
	isText := json.Unmarshal(raw, &text) == nil
	bare := v.name != "string" && v.name != "duration"
	switch {
	case !isText && !bare:
		return fmt.Errorf("is %s, not %.40s", cmp.Or(v.want, `text like "PT30S"`), raw)
	case !isText:
		text = string(raw)
	case text == "" && v.name != "string": // as if it was omitted
		return nil
	}
	parse := v.parseElement
	if v.name == "duration" {
		parse = v.parse
	}
	err := v.set(given, text, parse)
	if err != nil && v.want != "" {
		err = fmt.Errorf("is %s, not %.40s", v.want, raw)
	}
	return err
}

func (v *typed[T, S]) ElementText(stored *fsm.EntitySettings) string {
	return v.formatElement(v.toGiven(*v.stored(stored)))
}

func (v *typed[T, S]) Check(given *Settings, limits Limits) error {
	at := *v.given(given)
	switch {
	case at == nil || v.isValid == nil:
		return nil
	case given.InElements:
		return v.isValid(*at, limits, v.formatElement)
	}
	return v.isValid(*at, limits, func(value T) string { return fmt.Sprint(value) })
}

func (v *typed[T, S]) store(given *Settings, stored *fsm.EntitySettings) {
	if at := *v.given(given); at != nil {
		*v.stored(stored) = v.toStored(*at)
	}
}

func (v *typed[T, S]) Copy(to, from *fsm.EntitySettings) { *v.stored(to) = *v.stored(from) }

func (v *typed[T, S]) Differs(a, b *fsm.EntitySettings) bool { return *v.stored(a) != *v.stored(b) }

func (v *typed[T, S]) show(stored *fsm.EntitySettings, given *Settings) {
	shown := v.toGiven(*v.stored(stored))
	*v.given(given) = &shown
}

func (v *typed[T, S]) text(stored *fsm.EntitySettings) string {
	return v.format(v.toGiven(*v.stored(stored)))
}

// duration is a setting from least to most.
func duration(given func(*Settings) **Duration, stored func(*fsm.EntitySettings) *fsm.Millis, least, most time.Duration) *typed[Duration, fsm.Millis] {
	return durationUpTo(given, stored, least, most, func(Limits) time.Duration { return most }, "")
}

// durationUpTo is a duration whose maximum a namespace may set; most holds where it does not. wayOut says how to raise the
// maximum.
func durationUpTo(given func(*Settings) **Duration, stored func(*fsm.EntitySettings) *fsm.Millis, least, most time.Duration, limit func(Limits) time.Duration, wayOut string) *typed[Duration, fsm.Millis] {
	return &typed[Duration, fsm.Millis]{
		name: "duration", given: given, stored: stored, toStored: ToMillis, toGiven: fromMillis,
		values: ShortDuration(least) + " to " + ShortDuration(most),
		isValid: func(d Duration, l Limits, show func(Duration) string) error {
			return checkRange(d, Duration(least), Duration(limit(l)), Duration(TierLockDurationMax), show, wayOut)
		},
		parse: func(text string) (Duration, error) {
			d, err := ParseDuration(text)
			return Duration(d), err
		},
		parseElement:  parseISODuration,
		format:        func(d Duration) string { return ShortDuration(time.Duration(d)) },
		formatElement: Duration.ISO,
	}
}

// checkRange returns an error for a value that is not from least to most. That of a value which is too large ends with the
// way out, unless no namespace allows more than most.
func checkRange[T uint32 | Duration](value, least, most, tierMax T, show func(T) string, wayOut string) error {
	switch {
	case value >= least && value <= most:
		return nil
	case value < least || most >= tierMax:
		wayOut = ""
	}
	return fmt.Errorf("is %s to %s, not %s%s", show(least), show(most), show(value), wayOut)
}

// number is a setting from least to most, stored as a multiple of unit.
func number[S uint32 | uint64](given func(*Settings) **uint32, stored func(*fsm.EntitySettings) *S, least, most uint32, unit S) *typed[uint32, S] {
	return numberUpTo(given, stored, least, most, unit, func(Limits) uint32 { return most }, "")
}

// numberUpTo is a number whose maximum a namespace may set; most holds where it does not. wayOut says how to raise the
// maximum.
func numberUpTo[S uint32 | uint64](given func(*Settings) **uint32, stored func(*fsm.EntitySettings) *S, least, most uint32, unit S, limit func(Limits) uint32, wayOut string) *typed[uint32, S] {
	format := func(n uint32) string { return strconv.FormatUint(uint64(n), 10) }
	return &typed[uint32, S]{
		name: "uint32", given: given, stored: stored,
		toStored: func(n uint32) S { return S(n) * unit },
		toGiven:  func(n S) uint32 { return uint32(n / unit) },
		values:   fmt.Sprintf("%d to %d", least, most), want: fmt.Sprintf("a number from %d to %d", least, most),
		isValid: func(n uint32, l Limits, show func(uint32) string) error {
			return checkRange(n, least, limit(l), TierMessageBytesMax, show, wayOut)
		},
		parse: parseUint32, parseElement: parseUint32, format: format, formatElement: format,
	}
}

func boolean(given func(*Settings) **bool, stored func(*fsm.EntitySettings) *bool) *typed[bool, bool] {
	return &typed[bool, bool]{
		name: "bool", given: given, stored: stored, toStored: same[bool], toGiven: same[bool], want: "true or false",
		parse: strconv.ParseBool, parseElement: ParseBool, format: strconv.FormatBool, formatElement: strconv.FormatBool,
	}
}

// text is a setting of at most bytesMax bytes; otherwise the error says that it "is" something else.
func text(given func(*Settings) **string, stored func(*fsm.EntitySettings) *string, bytesMax int, is string) *typed[string, string] {
	return &typed[string, string]{
		name: "string", given: given, stored: stored, toStored: same[string], toGiven: same[string], want: is,
		isValid: func(text string, _ Limits, _ func(string) string) error {
			if len(text) > bytesMax {
				return fmt.Errorf("is %s", is)
			}
			return nil
		},
		parse: parseText, parseElement: parseText, format: same[string], formatElement: same[string],
	}
}

// destination is the name of a queue or topic that messages are forwarded to. Clients of the service's API
// may write an absolute URL for it.
func destination(given func(*Settings) **string, stored func(*fsm.EntitySettings) *string) *typed[string, string] {
	v := text(given, stored, NameCharactersMax, fmt.Sprintf("the name of a queue or topic, at most %d characters long", NameCharactersMax))
	v.parseElement = ParseDestination
	return v
}

func status(given func(*Settings) **string, stored func(*fsm.EntitySettings) *fsm.EntityStatus) *typed[string, fsm.EntityStatus] {
	number := func(text string) int {
		return slices.IndexFunc(statusNames(), func(name string) bool { return strings.EqualFold(name, text) })
	}
	return &typed[string, fsm.EntityStatus]{
		name: "string", given: given, stored: stored,
		toStored: func(text string) fsm.EntityStatus { return fsm.EntityStatus(number(text)) },
		toGiven:  fsm.EntityStatus.String,
		values:   strings.Join(statusNames(), ", "),
		isValid: func(text string, _ Limits, _ func(string) string) error {
			if number(text) < 0 {
				return fmt.Errorf("is one of %s, not %.40q", strings.Join(statusNames(), ", "), text)
			}
			return nil
		},
		parse: parseText, parseElement: parseText, format: same[string], formatElement: same[string],
	}
}

// statusNames are the statuses in the words of the service, by their number.
func statusNames() []string { return []string{"Active", "Disabled", "SendDisabled", "ReceiveDisabled"} }

func same[T any](v T) T { return v }

func parseText(text string) (string, error) { return text, nil }

// ParseBool parses the forms of XML Schema, in any case.
func ParseBool(text string) (bool, error) {
	switch strings.ToLower(strings.TrimSpace(text)) {
	case "true", "1":
		return true, nil
	case "false", "0":
		return false, nil
	}
	return false, fmt.Errorf("%.40q is not true or false", text)
}

func parseUint32(text string) (uint32, error) {
	n, err := strconv.ParseUint(text, 10, 32)
	if err != nil {
		return 0, fmt.Errorf("%.40q is not a number from 0 to %d", text, uint32(math.MaxUint32))
	}
	return uint32(n), nil
}

// parseBytes32 parses a number of bytes that fits the settings of entities.
func parseBytes32(text string) (uint32, error) {
	n, err := ParseBytes(text)
	if err == nil && n > math.MaxUint32 {
		return 0, fmt.Errorf("%s is more than %d bytes", text, TierMessageBytesMax)
	}
	return uint32(n), err
}

// parseKilobytes parses a size in KiB and returns it in bytes.
func parseKilobytes(text string) (uint32, error) {
	n, err := parseUint32(text)
	if err == nil && n > math.MaxUint32/1024 {
		return 0, fmt.Errorf("%d is more than %d", n, TierMessageBytesMax/1024)
	}
	return n * 1024, err
}

// ParseDestination returns the name of a destination that a client of the service's API writes as a name or as
// an absolute URL.
func ParseDestination(text string) (string, error) {
	if !strings.Contains(text, "://") {
		return strings.Trim(text, "/"), nil
	}
	return auth.ParseDestination(text)
}
