package ui

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestEveryActionHasAText finds actions in the source that have no text in the catalogues.
func TestEveryActionHasAText(t *testing.T) {
	t.Parallel()
	all, err := readLanguages(textFiles)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range actionGroups() {
		names = append(names, regexp.QuoteMeta(f.name))
	}
	const given = `Action: +"([a-z]+\.[a-z_]+)"`
	found := 0
	for pattern, written := range map[string]string{
		"../../store/sqlstore/*.go": given + `|"((?:` + strings.Join(names, "|") + `)[a-z_]+)"`,
		"../../dispatch/*/*.go":     given,
	} {
		written := regexp.MustCompile(written)
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: no files: %v", pattern, err)
		}
		files = slices.DeleteFunc(files, func(name string) bool {
			return strings.HasSuffix(name, "_test.go")
		})
		for _, name := range files {
			source, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range written.FindAllStringSubmatch(string(source), -1) {
				found++
				action := strings.Join(m[1:], "")
				if !all[0].has("action." + action) {
					t.Errorf("%s writes %s, which has no text", name, action)
				}
				if actionGroupOf(action).name == "" {
					t.Errorf("%s is in no action group", action)
				}
			}
		}
	}
	if found < 30 {
		t.Errorf("only %d actions found, want at least 30: the pattern is wrong", found)
	}
}
