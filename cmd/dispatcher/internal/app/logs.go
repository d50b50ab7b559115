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

// NewLogger returns the logger of the settings, which writes to the console's error output. It masks the
// settings' secrets in texts and errors, so that no driver can log a password.
func NewLogger(c *console.Console, s *config.Settings) *slog.Logger {
	level, err := config.LogLevel(s.LogLevel)
	if err != nil {
		level = slog.LevelInfo
	}
	scrub := s.Scrubber()
	clean := func(_ []string, a slog.Attr) slog.Attr { return scrubAttr(scrub, a) }
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

// scrubAttr masks secrets in a text or an error, and formats durations as texts.
func scrubAttr(scrub func(string) string, a slog.Attr) slog.Attr {
	switch v := a.Value.Any().(type) {
	case string:
		if clean := scrub(v); clean != v {
			a.Value = slog.StringValue(clean)
		}
	case error:
		a.Value = slog.StringValue(scrub(v.Error()))
	case time.Duration:
		a.Value = slog.StringValue(v.String())
	}
	return a
}

// AdoptLibraries sends the output of libraries to the program's log at level debug: net/http prints
// unsolicited responses, and go-redis prints errors that it also returns.
func AdoptLibraries(log *slog.Logger) {
	l := libraryLog{log}
	stdlog.SetFlags(0)
	stdlog.SetOutput(l)
	redis.SetLogger(l)
}

// libraryLog receives the output of libraries.
type libraryLog struct{ log *slog.Logger }

// Write logs a line of the standard logger. It drops what net/http quotes of an unsolicited response: a
// receiver may put a secret into one.
func (l libraryLog) Write(p []byte) (int, error) {
	text, _, _ := strings.Cut(strings.TrimSpace(string(p)), " starting with ")
	l.log.Debug("library message", "text", text)
	return len(p), nil
}

// Printf logs a line of go-redis.
func (l libraryLog) Printf(ctx context.Context, format string, v ...any) {
	l.log.DebugContext(ctx, "redis client", "line", fmt.Sprintf(format, v...))
}
