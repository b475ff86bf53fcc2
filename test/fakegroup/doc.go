// Package fakegroup provides a replica of a partition for tests of the packages that use replicas. Only
// tests import it. It has no logic of its own: a test answers the submissions.
package fakegroup
