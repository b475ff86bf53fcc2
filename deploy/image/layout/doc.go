// Command layout writes the image of the emulator as an OCI image layout, without an engine: one index with an image for each
// architecture, whose only layer has the binary and the folders that it needs. It imports nothing of the project: the
// binaries are compiled before it runs (deploy/image/emulator does both).
//
//	layout DIR NAME:TAG amd64=BINARY arm64=BINARY
//
// The same binaries give the same bytes.
package main
