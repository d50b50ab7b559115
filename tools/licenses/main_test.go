package main

import (
	"debug/buildinfo"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
)

// TestLicencesAreRecognized checks that licences are recognized by their text, and that a module without a
// known licence is an error.
func TestLicencesAreRecognized(t *testing.T) {
	apache, err := os.ReadFile(filepath.Join("..", "..", "LICENSE"))
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"LICENSE": string(apache), "COPYING.md": string(apache)} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		ids, texts, err := licencesIn(dir)
		if err != nil || !slices.Equal(ids, []string{"Apache-2.0"}) || len(texts) != 1 {
			t.Errorf("%s: %v, %d texts, %v; want Apache-2.0", name, ids, len(texts), err)
		}
	}
	dir := t.TempDir()
	noLicence := []byte("You may not use this.\n")
	if err := os.WriteFile(filepath.Join(dir, "LICENSE"), noLicence, 0o600); err != nil {
		t.Fatal(err)
	}
	if ids, _, err := licencesIn(dir); err == nil {
		t.Errorf("a text without a licence was recognized as %v", ids)
	}
}

// TestTextsOfABinary checks that the texts are those of all modules of the binary, in the compiled version.
func TestTextsOfABinary(t *testing.T) {
	info := &buildinfo.BuildInfo{
		GoVersion: "go1.26.0", Path: "a.org/dispatcher/cmd/dispatcher",
		Main: debug.Module{Path: "a.org/dispatcher"},
		Deps: []*debug.Module{
			{Path: "c.org/d", Version: "v1.0.0"},
			{Path: "a.org/b", Version: "v2.0.0", Replace: &debug.Module{Path: "a.org/b", Version: "v1.9.0"}},
		},
	}
	modules := map[string]module{
		"a.org/b": {"a.org/b", "v1.9.0", []string{"MIT"}, []text{{"LICENSE", []byte("of b")}}},
		"c.org/d": {"c.org/d", "v1.0.0", []string{"ISC", "MIT"}, []text{{"LICENSE", []byte("of d")}}},
	}
	linked, err := linkedInto(info, modules)
	if err != nil {
		t.Fatal(err)
	}
	texts := string(allTexts(linked))
	of := func(text string) int { return strings.Index(texts, text) }
	if b, d, std := of("of b"), of("of d"), of("==== std 1.26.0: LICENSE"); b < 0 || d < b || std < d {
		t.Errorf("the texts are %.200s", texts)
	}

	modules["c.org/d"] = module{path: "c.org/d", version: "v1.0.1"}
	if _, err := linkedInto(info, modules); err == nil ||
		!strings.Contains(err.Error(), "rebuild the binary") {
		t.Errorf("a binary of another go.mod: %v", err)
	}
}
