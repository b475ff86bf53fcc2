// Package cluster has no code, only a test of run. The other Go files of its folder are programs and a test that build compiles in
// modules of their own, because their dependencies are not those of Peeklock; they carry the build constraint "ignore" here. This file
// makes the folder a package, so that tools that are given its path find one.
package cluster
