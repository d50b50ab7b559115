package app

import (
	"context"
	"fmt"
	stdlog "log"
	"log/slog"
	"strings"
	"time"

	"github.com/lmittmann/tint"
	"github.com/redis/go-redis/v9"

	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/config"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/console"
)

// NewLogger returns the logger that the settings ask for; it writes to the console's error output. Errors and
// other texts pass the settings' scrubber, so that no driver can put a password into the log.
func NewLogger(c *console.Console, s *config.Settings) *slog.Logger {
	level, err := config.LogLevel(s.LogLevel)
	if err != nil {
		level = slog.LevelInfo
	}
	clean := func(_ []string, a slog.Attr) slog.Attr { return scrubAttr(s, a) }
	if s.LogFormat == "text" || s.LogFormat == "" && c.ErrTerminal {
		return slog.New(tint.NewTextHandler(c.Err, &tint.Options{
			Level:       level,
			TimeFormat:  "15:04:05.000",
			NoColor:     !c.ErrTerminal || c.Lookup("NO_COLOR") != "",
			ReplaceAttr: clean,
		}))
	}
	return slog.New(slog.NewJSONHandler(c.Err, &slog.HandlerOptions{Level: level, ReplaceAttr: clean}))
}

// scrubAttr takes secrets out of a text or an error, and prints durations as they are written in settings.
func scrubAttr(s *config.Settings, a slog.Attr) slog.Attr {
	switch v := a.Value.Any().(type) {
	case string:
		if clean := s.Scrub(v); clean != v {
			a.Value = slog.StringValue(clean)
		}
	case error:
		a.Value = slog.StringValue(s.Scrub(v.Error()))
	case time.Duration:
		a.Value = slog.StringValue(v.String())
	}
	return a
}

// AdoptLibraries sends what libraries print by themselves to the program's own log, at debug: net/http tells
// of answers that nobody asked for, and go-redis repeats what its callers are told anyway.
func AdoptLibraries(log *slog.Logger) {
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
	l.log.DebugContext(ctx, "redis client", "line", fmt.Sprintf(format, v...))
}
