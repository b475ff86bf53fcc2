// Command matrix makes the table of clients and scenarios from the results that the
// suites left in $PEEKLOCK_MATRIX, and fails when a result has failed or is missing.
//
//	matrix          prints the table
//	matrix -check   compares it with the table in docs/clients.md
//	matrix -write   writes it to docs/clients.md
//
// Run it in the root of the repository.
package main
