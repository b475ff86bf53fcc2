// Package contexts stores the clusters that a user of the command line has named: their addresses and credentials.
//
// They are in one JSON file, contexts.json, in the folder of the user's configuration. It may hold secrets: it has mode
// 0600, and a file that other users can read is refused. Package client reads it, and "peeklock context" changes it.
//
// Concurrency: a change replaces the file atomically; of two changes at the same time, the last one counts.
package contexts
