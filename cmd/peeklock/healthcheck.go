package main

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli"
)

// healthcheckMax is the time for an answer.
const healthcheckMax = 3 * time.Second

func newHealthcheck(p cli.Process) *cobra.Command {
	var url string
	cmd := &cobra.Command{
		Use: "healthcheck", Short: "Report whether the member on this machine is healthy",
		Long: `Ask GET /health, and end with exit code 0 if the member is healthy and 1 otherwise. It is the health check of images, which
have no other program.`,
		Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			port := cmp.Or(p.Getenv("EMULATOR_HTTP_PORT"), "5300")
			return checkHealth(cmd.Context(), cmp.Or(url, "http://127.0.0.1:"+port+"/health"))
		},
	}
	cmd.Flags().StringVar(&url, "url", "", "URL to ask (default: /health on port EMULATOR_HTTP_PORT, or 5300, of this machine)")
	return cmd
}

// checkHealth returns an error unless the URL answers with 200.
func checkHealth(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, healthcheckMax)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return cli.Usage(err)
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return fmt.Errorf("not healthy: %w", err)
	}
	_ = answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("not healthy: %s answered %s", url, answer.Status)
	}
	return nil
}
