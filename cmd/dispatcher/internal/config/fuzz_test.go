package config

import (
	"strings"
	"testing"
)

// FuzzSettingsFile: what is taken of a file are settings that there are, and what it is refused for names the
// file.
func FuzzSettingsFile(f *testing.F) {
	for _, s := range []string{
		"workers: 1\nroles: [api, ui]\n", "---\nlisten: '127.0.0.1:1'\n...\n---\nworkers: 2\n",
		"workers: 1\nworkers: 2\n", "- a\n", "a", "", "#",
		"worker: 1\n", "admin_key: |\n  abc\n", "roles:\n- api\n-\n", "workers: &a 1\nlane_concurrency: *a\n",
		"? [a]\n: b\n", "{workers: 1}", "workers: {a: b}",
		"<<: {workers: 1}", "workers: !!str 1", "\xef\xbb\xbfworkers: 1", "workers:\t1", "a: b: c", "&", "*a",
		"!", "%YAML 1.2\n---\n", "'", "\"\\", "workers: 1_000",
	} {
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
