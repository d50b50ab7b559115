package main

import (
	"context"
	"fmt"
	stdlog "log"
	"log/slog"
	"strings"
	"time"

	"github.com/lmittmann/tint"
	"github.com/redis/go-redis/v9"
)

// logLevel reads the name of a level.
func logLevel(name string) (slog.Level, error) {
	switch name {
	case "debug":
		return slog.LevelDebug, nil
	case "info":
		return slog.LevelInfo, nil
	case "warn":
		return slog.LevelWarn, nil
	case "error":
		return slog.LevelError, nil
	}
	return 0, fmt.Errorf("%q is none of debug, info, warn and error", name)
}

// newLogger returns the logger that the settings ask for; it writes to the console's error output. Errors and other
// texts pass the settings' scrubber, so that no driver can put a password into the log.
func newLogger(c *console, s *Settings) *slog.Logger {
	level, err := logLevel(s.LogLevel)
	if err != nil {
		level = slog.LevelInfo
	}
	clean := func(_ []string, a slog.Attr) slog.Attr { return scrubAttr(s, a) }
	if s.LogFormat == "text" || s.LogFormat == "" && c.errTerminal {
		return slog.New(tint.NewTextHandler(c.err, &tint.Options{
			Level:       level,
			TimeFormat:  "15:04:05.000",
			NoColor:     !c.errTerminal || c.lookup("NO_COLOR") != "",
			ReplaceAttr: clean,
		}))
	}
	return slog.New(slog.NewJSONHandler(c.err, &slog.HandlerOptions{Level: level, ReplaceAttr: clean}))
}

// scrubAttr takes secrets out of a text or an error, and prints durations as they are written in settings.
func scrubAttr(s *Settings, a slog.Attr) slog.Attr {
	switch v := a.Value.Any().(type) {
	case string:
		if clean := s.scrub(v); clean != v {
			a.Value = slog.StringValue(clean)
		}
	case error:
		a.Value = slog.StringValue(s.scrub(v.Error()))
	case time.Duration:
		a.Value = slog.StringValue(v.String())
	}
	return a
}

// adoptLibraries sends what libraries print by themselves to the program's own log, at debug: net/http tells
// of answers that nobody asked for, and go-redis repeats what its callers are told anyway.
func adoptLibraries(log *slog.Logger) {
	l := libraryLog{log}
	stdlog.SetFlags(0)
	stdlog.SetOutput(l)
	redis.SetLogger(l)
}

// A libraryLog is where libraries print to.
type libraryLog struct{ log *slog.Logger }

// Write logs a line of the standard logger, without what net/http quotes of answers that nobody asked for: a
// receiver may repeat a secret in one.
func (l libraryLog) Write(p []byte) (int, error) {
	text, _, _ := strings.Cut(strings.TrimSpace(string(p)), " starting with ")
	l.log.Debug("library", "text", text)
	return len(p), nil
}

// Printf logs a line of go-redis.
func (l libraryLog) Printf(ctx context.Context, format string, v ...any) {
	l.log.DebugContext(ctx, "library", "text", fmt.Sprintf(format, v...))
}
