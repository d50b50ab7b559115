package app

import (
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/cmdtest"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/config"
)

func TestLogFormats(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		settings config.Settings
		terminal bool
		json     bool
	}{
		"json without a terminal": {config.Settings{LogLevel: "info"}, false, true},
		"text on a terminal":      {config.Settings{LogLevel: "info"}, true, false},
		"json by setting":         {config.Settings{LogLevel: "info", LogFormat: "json"}, true, true},
		"text by setting":         {config.Settings{LogLevel: "info", LogFormat: "text"}, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			term := new(cmdtest.Program).Terminal()
			term.ErrTerminal = tc.terminal
			log := NewLogger(&term.Console, &tc.settings)
			log.Debug("below the level")
			log.Info("hello", "callback_id", "cb_1")
			lines := term.Lines()
			if len(lines) != 1 || !strings.Contains(lines[0], "cb_1") {
				t.Fatalf("logged %q", lines)
			}
			if json.Valid([]byte(lines[0])) != tc.json {
				t.Errorf("logged %q", lines[0])
			}
		})
	}
}

func TestLogsShowNoSecrets(t *testing.T) {
	t.Parallel()
	s := &config.Settings{LogLevel: "info", DatabaseURL: "postgres://u:hidden-password@h/d",
		AdminKey: "hidden-admin"}
	for _, format := range []string{"text", "json"} {
		s.LogFormat = format
		term := new(cmdtest.Program).Terminal()
		log := NewLogger(&term.Console, s).With("url", s.DatabaseURL)
		log.WithGroup("g").Error("boom with hidden-admin", "error", errors.New("dial "+s.DatabaseURL), "text",
			"hidden-password")
		if got := term.Stderr.String(); strings.Contains(got, "hidden") || !strings.Contains(got, "u:***@h") {
			t.Errorf("%s: %s", format, got)
		}
	}
}

// TestUnsolicitedResponsesAreNotQuoted checks a log line of net/http: such a response may contain a secret.
func TestUnsolicitedResponsesAreNotQuoted(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	log := slog.New(slog.NewTextHandler(&b, &slog.HandlerOptions{Level: slog.LevelDebug}))
	line := "Unsolicited response received on idle HTTP channel starting with " +
		`"HTTP/1.1 200 OK whsec_c2VjcmV0"; err=<nil>` + "\n"
	if n, err := (libraryLog{log}).Write([]byte(line)); n != len(line) || err != nil {
		t.Fatalf("wrote %d of %d, %v", n, len(line), err)
	}
	if got := b.String(); strings.Contains(got, "whsec") || !strings.Contains(got, "idle HTTP channel") {
		t.Errorf("logged %q", got)
	}
}
