package config

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/seed-ff5a32d8/dispatcher/internal/transcript"
)

// TestServiceEnvironment writes all settings into deploy/systemd/dispatcher.env, below the text that people
// write. systemd's unit and the packages use this file.
func TestServiceEnvironment(t *testing.T) {
	t.Parallel()
	const mark = "# All settings, with their defaults -----"
	transcript.File(t, "../../../../deploy/systemd/dispatcher.env", func(t *testing.T, text string) string {
		text, _, found := strings.Cut(text, mark)
		if !found {
			t.Fatalf("the file has no line %q", mark)
		}
		text += mark + "\n"
		for _, s := range catalogue() {
			def := s.def
			if s.key == "data_dir" {
				def = "/var/lib/dispatcher" // of the unit
			}
			text += "\n" + comment(s.help) + fmt.Sprintf("#%s=%s\n", s.env(), def)
		}
		return text
	})
}

// comment returns a text as lines of at most 110 columns that begin with "# ".
func comment(text string) string {
	var lines []string
	line := "#"
	for word := range strings.FieldsSeq(text) {
		if len(line)+1+len(word) > 110 {
			lines = append(lines, line)
			line = "#"
		}
		line += " " + word
	}
	return strings.Join(slices.Concat(lines, []string{line}), "\n") + "\n"
}
