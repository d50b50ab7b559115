package config

import (
	"strings"
	"testing"

	"github.com/seed-ff5a32d8/dispatcher/internal/transcript"
)

// FuzzSettingsFile checks that parseSettings returns only known settings and that each problem names the
// file.
func FuzzSettingsFile(f *testing.F) {
	for _, s := range transcript.Inputs(f, "testdata/lines/files.txt") {
		f.Add([]byte(s))
	}
	known := map[string]setting{}
	for _, s := range catalogue() {
		known[s.key] = s
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		values, problems := parseSettings("d.yaml", content)
		for key, value := range values {
			s, ok := known[key]
			if !ok || len(value.values) != 1 && !s.isList() ||
				!strings.HasPrefix(value.origin, "file d.yaml:") {
				t.Errorf("%q sets %s to %+v", content, key, value)
			}
		}
		for _, p := range problems {
			if !strings.HasPrefix(p.message, "d.yaml") || p.key != "" && known[p.key].key == "" {
				t.Errorf("%q has the problem %+v", content, p)
			}
		}
	})
}
