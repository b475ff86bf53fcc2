package cli

func versionVerb() verb {
	return verb{use: "version", short: "Print the version of this binary", run: func(i invocation) error {
		return i.out.fields(versionInfo{Version: Version()})
	}}
}

// versionInfo is the answer of peeklock version.
type versionInfo struct {
	Version string `json:"version"`
}
