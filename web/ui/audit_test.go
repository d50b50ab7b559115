package ui

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestEveryActionHasItsWords: an action that the program writes and no catalogue has is found here.
func TestEveryActionHasItsWords(t *testing.T) {
	t.Parallel()
	all, err := readLanguages(textFiles)
	if err != nil {
		t.Fatal(err)
	}
	written := regexp.MustCompile(`(?:Action: |action[A-Z]\w+ += )"([a-z]+\.[a-z_]+)"`)
	found := 0
	for _, pattern := range []string{"../../store/sqlstore/*.go", "../../dispatch/*.go", "../../dispatch/*/*.go"} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: no files: %v", pattern, err)
		}
		files = slices.DeleteFunc(files, func(name string) bool { return strings.HasSuffix(name, "_test.go") })
		for _, name := range files {
			source, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range written.FindAllStringSubmatch(string(source), -1) {
				found++
				if !all[0].has("action." + m[1]) {
					t.Errorf("%s writes %s, for which there are no words", name, m[1])
				}
				if familyOf(m[1]).name == "" {
					t.Errorf("%s is of no family", m[1])
				}
			}
		}
	}
	if found < 30 {
		t.Errorf("only %d actions were found: the test looks for them in the wrong way", found)
	}
}
