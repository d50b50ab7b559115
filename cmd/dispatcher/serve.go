package main

import (
	"context"
	"errors"
)

// serveCommand runs the dispatcher.
type serveCommand struct {
	settingFlags
}

// Run serves until the first SIGINT or SIGTERM, then drains.
func (cmd *serveCommand) Run(ctx context.Context, c *console) error {
	l, problems := loadSettings(c, &cmd.settingFlags)
	if err := l.judge(problems, l.check()); err != nil {
		return err
	}
	s := &l.Settings
	log := newLogger(c, s)
	adoptLibraries(log)
	srv, err := openServer(ctx, c, s, log)
	if err != nil {
		return s.clean(err)
	}
	srv.announce()
	return s.clean(errors.Join(srv.run(ctx), srv.close()))
}

// A cleanError is an error whose text has lost its secrets.
type cleanError struct {
	error
	text string
}

func (e *cleanError) Error() string { return e.text }
func (e *cleanError) Unwrap() error { return e.error }

// clean takes the settings' secrets out of an error's text: drivers quote addresses with their passwords.
func (s *Settings) clean(err error) error {
	if err == nil {
		return nil
	}
	return &cleanError{error: err, text: s.scrub(err.Error())}
}
