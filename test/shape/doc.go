// Command shape measures how the packages of the module are cut. For each package it prints the
// number of files, of arrows and of upward arrows, and the type with the most methods:
//
//	go run ./test/shape ./fsm/... ./partition
//
// An arrow leads from a file to another file of the same package that declares a name it uses: a
// function, type, variable, constant, method or field. The files are put in the order that leaves
// the fewest arrows pointing up; an arrow that still points up belongs to a cycle of files. A
// package without upward arrows can be read, tested and split from the bottom.
//
// Test files do not count.
package main
