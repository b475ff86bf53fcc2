package filter

const (
	// TextCharactersMax is the longest text of a filter or an action, in Unicode characters
	// (service quotas: "maximum length of filter condition string", "of rule action string").
	TextCharactersMax = 1024
	// StatementsMax is how many SET and REMOVE an action has at most (service quotas:
	// "maximum number of expressions per rule action").
	StatementsMax = 32
	// DepthMax is how deep parentheses, NOT and signs may be nested. The service names no
	// number; people write 5, generators 20.
	DepthMax = 100
	// ParametersMax is how many parameters a filter or an action has at most. A text of
	// TextCharactersMax has room for about three times as many; nobody uses so many.
	ParametersMax = 128
	// ParameterBytesMax is the longest name plus value of a parameter, in bytes.
	ParameterBytesMax = 4096
	// NameBytesMax is the longest name of a property in a correlation filter, in bytes.
	NameBytesMax = 1024
	// ConditionsMax is how many properties a correlation filter compares at most.
	ConditionsMax = 64
	// CorrelationBytesMax bounds the names and values of a correlation filter together, in
	// bytes; with ConditionsMax it bounds what one filter costs in memory (about 20 KiB; a
	// usual one with two conditions costs about 290 bytes with its place in the Index).
	CorrelationBytesMax = 16384
	// ComputedBytesMax is the longest text that `+` makes, in bytes: no longer value fits
	// into the properties of a message (64 KB, service quotas).
	ComputedBytesMax = 65536
)
