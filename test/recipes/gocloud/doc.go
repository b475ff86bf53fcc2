// Package gocloud runs gocloud.dev/pubsub/azuresb, as it is published, against three members. It is a module of its own, because
// Peeklock does not need what gocloud.dev needs.
package gocloud
