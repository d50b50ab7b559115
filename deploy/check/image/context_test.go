package image

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/moby/patternmatcher"
	"github.com/moby/patternmatcher/ignorefile"

	"github.com/seed-ff5a32d8/dispatcher/deploy/check/program"
)

// listFiles prints the files of our own packages that a build reads, one a line.
const listFiles = `{{if not .Standard}}{{with .Module}}{{if .Main}}{{$dir := $.Dir}}` +
	`{{range $.GoFiles}}{{$dir}}/{{.}}
{{end}}{{range $.EmbedFiles}}{{$dir}}/{{.}}
{{end}}{{end}}{{end}}{{end}}`

// TestBuildContext checks that .dockerignore leaves every file that the Dockerfile's build reads, and keeps
// data, keys and the history of the repository out of the build.
func TestBuildContext(t *testing.T) {
	file, err := os.Open(program.Root + ".dockerignore")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	patterns, err := ignorefile.ReadAll(file)
	if err != nil {
		t.Fatal(err)
	}
	matcher, err := patternmatcher.New(patterns)
	if err != nil {
		t.Fatal(err)
	}
	needed := []string{"go.mod", "go.sum", "LICENSE", "cmd/dispatcher/default.pgo", "tools/sbom.sh"}
	needed = append(needed, files(t, "", "./cmd/dispatcher")...)
	needed = append(needed, files(t, "tools", "./licenses")...)
	if len(needed) < 200 {
		t.Fatalf("found %d files", len(needed))
	}
	for _, name := range needed {
		if ignored(t, matcher, name) {
			t.Errorf(".dockerignore leaves out %s, which the build reads", name)
		}
	}
	for _, name := range []string{".git/config", "dispatcher-data/master.key", "bin/dispatcher"} {
		if !ignored(t, matcher, name) {
			t.Errorf(".dockerignore does not leave out %s", name)
		}
	}
}

func ignored(t *testing.T, m *patternmatcher.PatternMatcher, name string) bool {
	t.Helper()
	yes, err := m.MatchesOrParentMatches(name)
	if err != nil {
		t.Fatal(err)
	}
	return yes
}

// files are the files of our packages that a build of a program in a module reads, from the root.
func files(t *testing.T, module, target string) (names []string) {
	t.Helper()
	root, err := filepath.Abs(program.Root)
	if err != nil {
		t.Fatal(err)
	}
	list := exec.Command("go", "list", "-deps", "-tags", "nomsgpack", "-f", listFiles, target)
	list.Dir = filepath.Join(root, module)
	out, err := list.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	for line := range strings.SplitSeq(string(out), "\n") {
		if line == "" {
			continue
		}
		name, err := filepath.Rel(root, line)
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, name)
	}
	return names
}
