// Package kit has helpers for tests of several packages: a certificate authority in memory, a
// log that a test reads while it is written, waiting for a condition, free addresses, and the choice of long tests.
// Only tests import it.
package kit
