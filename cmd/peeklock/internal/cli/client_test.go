package cli

import (
	"context"
	"encoding/json"
	"net/http"
)

// runClient runs a command of the client commands.
func runClient(ctx context.Context, p Process) int {
	root, _ := NewRoot(p)
	return Execute(ctx, p, root)
}

// writeJSON answers a request as a member does.
func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v)
}
