package main

import (
	"bytes"
	"debug/buildinfo"
	"encoding/json"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
)

// A licence is recognized by its text; a module without one is an error, not a blank.
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
		if ids, texts, err := licencesIn(dir); err != nil || !slices.Equal(ids, []string{"Apache-2.0"}) ||
			len(texts) != 1 {
			t.Errorf("%s: %v, %d texts, %v; want Apache-2.0", name, ids, len(texts), err)
		}
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "LICENSE"), []byte("You may not use this.\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	if ids, _, err := licencesIn(dir); err == nil {
		t.Errorf("a text that is no licence was taken for %v", ids)
	}
}

// The document names every module of the binary once, in the version that was compiled, and is the same each
// time.
func TestDocument(t *testing.T) {
	const sum = "h1:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
	info := &buildinfo.BuildInfo{
		GoVersion: "go1.26.0", Path: "a.org/dispatcher/cmd/dispatcher",
		Main: debug.Module{Path: "a.org/dispatcher"},
		Deps: []*debug.Module{
			{Path: "c.org/d", Version: "v1.0.0", Sum: sum},
			{Path: "a.org/b", Version: "v2.0.0", Replace: &debug.Module{Path: "a.org/b", Version: "v1.9.0",
				Sum: sum}},
		},
		Settings: []debug.BuildSetting{{Key: "-tags", Value: "nomsgpack"}},
	}
	modules := map[string]module{
		"a.org/b": {"a.org/b", "v1.9.0", []string{"MIT"}, []text{{"LICENSE", []byte("of b")}}},
		"c.org/d": {"c.org/d", "v1.0.0", []string{"ISC", "MIT"}, []text{{"LICENSE", []byte("of d")}}},
	}
	parts, err := partsOf(info, modules)
	if err != nil {
		t.Fatal(err)
	}
	document, err := cyclonedx(info, "1.2.3", parts)
	if err != nil {
		t.Fatal(err)
	}
	slices.Reverse(info.Deps)
	again, err := partsOf(info, modules)
	if err != nil {
		t.Fatal(err)
	}
	if second, err := cyclonedx(info, "1.2.3", again); err != nil || !bytes.Equal(document, second) {
		t.Errorf("the document changes with the order of the modules: %v\n%s\n%s", err, document, second)
	}

	var read bom
	if err := json.Unmarshal(document, &read); err != nil {
		t.Fatal(err)
	}
	var refs []string
	for _, c := range read.Components {
		refs = append(refs, c.Ref)
		if c.Name != "std" && (len(c.Hashes) != 1 ||
			!strings.HasPrefix(c.Hashes[0].Content, "000102030405")) {
			t.Errorf("%s has the hashes %v", c.Name, c.Hashes)
		}
		if len(c.Licences) == 0 {
			t.Errorf("%s has no licence", c.Name)
		}
	}
	want := []string{"pkg:golang/a.org/b@v1.9.0", "pkg:golang/c.org/d@v1.0.0", "pkg:golang/std@1.26.0"}
	if !slices.Equal(refs, want) || !slices.Equal(read.Depends[0].On, want) {
		t.Errorf("the parts are %q, the program depends on %q; want %q", refs, read.Depends[0].On, want)
	}
	if ref := read.Metadata.Component.Ref; ref != "pkg:golang/a.org/dispatcher@1.2.3#cmd/dispatcher" {
		t.Errorf("the program is %s", ref)
	}
	if texts := string(allTexts(parts)); !strings.Contains(texts, "of b") ||
		!strings.Contains(texts, "of d") {
		t.Errorf("the texts are %.200s", texts)
	}

	modules["c.org/d"] = module{path: "c.org/d", version: "v1.0.1"}
	if _, err := partsOf(info, modules); err == nil || !strings.Contains(err.Error(), "build it anew") {
		t.Errorf("a binary of another go.mod: %v", err)
	}
}
