package main

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
)

func TestLogFormats(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		settings Settings
		terminal bool
		json     bool
	}{
		"json where nobody looks":  {Settings{LogLevel: "info"}, false, true},
		"text on a terminal":       {Settings{LogLevel: "info"}, true, false},
		"json because it was said": {Settings{LogLevel: "info", LogFormat: "json"}, true, true},
		"text because it was said": {Settings{LogLevel: "info", LogFormat: "text"}, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			term := newTerminal()
			term.errTerminal = tc.terminal
			log := newLogger(&term.console, &tc.settings)
			log.Debug("below the level")
			log.Info("hello", "callback_id", "cb_1")
			lines := term.lines()
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
	s := &Settings{LogLevel: "info", DatabaseURL: "postgres://u:hidden-password@h/d", AdminKey: "hidden-admin"}
	for _, format := range []string{"text", "json"} {
		s.LogFormat = format
		term := newTerminal()
		log := newLogger(&term.console, s).With("url", s.DatabaseURL)
		log.WithGroup("g").Error("boom with hidden-admin", "error", errors.New("dial "+s.DatabaseURL), "text", "hidden-password")
		if got := term.stderr.String(); strings.Contains(got, "hidden") || !strings.Contains(got, "u:***@h") {
			t.Errorf("%s: %s", format, got)
		}
	}
}
