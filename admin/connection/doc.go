// Package connection bounds the connections of an HTTP listener, and knows of each request how it arrived: over TLS, through
// the listener of operators, through a proxy, and with which spelling of header names. net/http keeps none of this.
// [IsLoopbackHost] is the one check of the host names that callers of the same machine may use.
//
// Package admin sets [WithOrigin] and [State] in its http.Server, and serves the listeners that [Limit] returns. The package
// knows no credentials and no entities. Its functions may be called concurrently.
package connection
