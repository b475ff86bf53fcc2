package cli

import (
	"context"
	"encoding/json"
	"net/http"
)

// runClient runs one of the client commands.
func runClient(ctx context.Context, p Process) int {
	root, _ := NewRoot(p)
	return Execute(ctx, p, root)
}

// writeJSON writes a response as a member does.
func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v)
}
