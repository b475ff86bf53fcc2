package objects

import (
	"context"
	"fmt"
	"strings"
)

// Open opens the store at a location: s3://bucket/prefix, or a directory. getenv reads the environment, which has
// the address and the keys of an object store; see [EnvironmentHelp]. Open does not contact the store; for keys,
// it reads the credentials file and requests them from the service that assigns roles. All its errors are usage
// errors.
func Open(ctx context.Context, location string, getenv func(string) string) (Store, error) {
	scheme, rest, isURL := strings.Cut(location, "://")
	switch {
	case !isURL:
		return folder(location), nil
	case scheme != "s3":
		return nil, fmt.Errorf("%s is not a location for backups: give a folder, or s3://bucket/prefix", location)
	}
	name, prefix, _ := strings.Cut(rest, "/")
	if strings.ContainsAny(rest, "?#@") || name == "" || strings.Contains(rest, "//") {
		return nil, fmt.Errorf("%s is not a location for backups: write it like s3://bucket/prefix, and nothing else", location)
	}
	if prefix = strings.TrimSuffix(prefix, "/"); prefix != "" {
		prefix += "/"
	}
	return newBucket(ctx, name, prefix, getenv)
}
