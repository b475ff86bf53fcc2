//go:build ignore

// The object store of the cluster, for backups: the one that tests use.
package main

import (
	"log"
	"net/http"

	"github.com/peeklock/peeklock/test/objectstore"
)

func main() {
	log.Fatal(http.ListenAndServe(":9000", objectstore.New()))
}
