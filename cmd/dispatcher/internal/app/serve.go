package app

import (
	"context"
	"errors"

	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/config"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/console"
)

// ServeCommand runs the dispatcher.
type ServeCommand struct {
	config.Flags
}

// Run serves until the first SIGINT or SIGTERM, then drains.
func (cmd *ServeCommand) Run(ctx context.Context, c *console.Console) error {
	l, err := config.Load(c, &cmd.Flags)
	if err != nil {
		return err
	}
	s := &l.Settings
	log := NewLogger(c, s)
	AdoptLibraries(log)
	srv, err := New(ctx, c, s, log)
	if err != nil {
		return s.Clean(err)
	}
	srv.Announce()
	return s.Clean(errors.Join(srv.Run(ctx), srv.Close()))
}
