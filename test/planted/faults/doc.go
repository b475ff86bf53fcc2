// Package faults lists faults that can be planted in Peeklock to show that the tests find them. The product knows nothing
// of them: each fault is one or more patches of its source, and all patches of all faults make one overlay for
// `go build -overlay`. In a program that is built with it, the environment variable PEEKLOCK_PLANTED names the active
// faults, separated by commas; without the variable the program behaves as usual.
//
// A patch is a file, a text that the file contains exactly once, and the replacement. In the replacement, the word FAULT
// stands for a condition that is true while the fault is active:
//
//	{"partition/bodystore/read.go", `if err != nil {`, `if err != nil && !FAULT {`}
//
// TestPatchesFit fails when a change of the product removes such a text, or repeats it. Then write the new text into the
// patch, and change the replacement so that it still makes the fault that the comment describes.
package faults
