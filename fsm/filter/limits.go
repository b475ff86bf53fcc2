package filter

const (
	// TextCharactersMax is the longest text of a filter or an action, in Unicode characters
	// (service quotas: "maximum length of filter condition string", "of rule action string").
	TextCharactersMax = 1024
	// StatementsMax is the maximum number of SET and REMOVE statements of an action (service
	// quotas: "maximum number of expressions per rule action").
	StatementsMax = 32
	// DepthMax is the maximum nesting of parentheses, NOT and signs. The service documents no
	// number; people write 5, generators 20.
	DepthMax = 100
	// ParametersMax is the maximum number of parameters of a filter or an action. A text of
	// TextCharactersMax has room for about three times as many; nobody uses so many.
	ParametersMax = 128
	// ParameterBytesMax is the longest name plus value of a parameter, in bytes.
	ParameterBytesMax = 4096
	// NameBytesMax is the longest name of a property in a correlation filter, in bytes.
	NameBytesMax = 1024
	// ConditionsMax is the maximum number of properties that a correlation filter compares.
	ConditionsMax = 64
	// CorrelationBytesMax bounds the names and values of a correlation filter together, in bytes;
	// with ConditionsMax it bounds the memory for one filter (about 20 KiB; a usual one with two
	// conditions takes about 290 bytes including its entry in the Index).
	CorrelationBytesMax = 16384
	// ComputedBytesMax is the longest string that `+` makes, in bytes: no longer value fits into
	// the properties of a message (64 KB, service quotas).
	ComputedBytesMax = 65536
)
