package ui

import (
	"os"
	"path/filepath"
	"regexp"
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
	for _, folder := range []string{"../../store/sqlstore", "../../dispatch"} {
		files, err := filepath.Glob(filepath.Join(folder, "*.go"))
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: no files: %v", folder, err)
		}
		for _, name := range files {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
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
