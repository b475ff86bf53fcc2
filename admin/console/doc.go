// Package console serves the web console: static files, built from the TypeScript in src and embedded from dist.
//
// The page has no API of its own. It calls the documented routes of the control API and the interface for messages
// over HTTP of the member that served it, which check each request; a page cannot do more than curl with the same key. Package
// admin decides which requests are for the console and who may open it, since queues may have its name. This package
// imports the standard library only.
//
// Change the sources in src, then run `npm ci && npm run build` here and commit dist: a build of Peeklock needs
// no node, and CI builds dist again and compares it.
package console
