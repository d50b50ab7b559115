package docpage

import (
	"fmt"
	"strings"
	"testing"
	"testing/fstest"
)

func TestPagesAreReadOnce(t *testing.T) {
	project := fstest.MapFS{}
	for _, name := range []string{"README.md", "README.zh.md", "docs/index.md", "docs/guide/admin.md",
		"docs/zh/admin.md", "deploy/b/c.md", "web/d.md", "docs/img/e.png"} {
		project[name] = &fstest.MapFile{}
	}
	pages, err := Read(project)
	var names []string
	for _, p := range pages {
		names = append(names, p.Name)
	}
	const want = "README.md deploy/b/c.md docs/guide/admin.md docs/index.md"
	if got := strings.Join(names, " "); got != want || err != nil {
		t.Errorf("read %s (%v), want %s", got, err, want)
	}
}

func TestBlocksAreClassified(t *testing.T) {
	const fence = "```"
	for text, want := range map[string]string{
		"sh\nls":                      "[{1 1  ls}] []",
		"sh @server\nls":              "[{2 1 server ls}] []",
		"go a.go\npackage a\n\nvar a": "[{3 1 a.go package a\n\nvar a}] []",
		"text output\n…":              "[{4 1 output …}] []",
		"text soon\n…":                "[{5 1 soon …}] []",
		"text @server\n…":             "[{6 1 server …}] []",
		"sh not run: a reason\nls":    "[{7 1 a reason ls}] []",
		"json\n{}\n{}":                "[{0 1  {}\n{}}] []",
		"json\n{a}": "[{0 1  {a}}] [line 1: not JSON: invalid character 'a' " +
			"looking for beginning of object key string]",
		"text\n    indented": "[{0 1      indented}] []",
		"\nls": "[{0 1  ls}] [line 1: a block without a language; " +
			"write sh, text, json or another]",
		"bash\nls":        "[{0 1  ls}] [line 1: the language of commands is sh, not bash]",
		"sh not run:\nls": `[{7 1  ls}] [line 1: no reason why "sh not run:" is not run]`,
		"sh\nls\n  sudo ls": `[{0 1  ls
  sudo ls}] [line 1: "sudo" acts on more than the directory of the test; say why it is not run]`,
		"sh server\nls": `[{0 1 server ls}] [line 1: "server" is not known after sh]`,
		"go\npackage a": "[{0 1  package a}] [line 1: name the file of the program and run it, " +
			"or say why it is not run]",
	} {
		blocks, wrong := Parse(fence + text + "\n" + fence + "\n")
		if got := fmt.Sprint(blocks, " ", wrong); got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
	for text, want := range map[string]string{
		"a\n\n    ls\n":           "[line 3: an indented block; use ```]",
		"- a\n\n    more of a\n":  "[]",
		"- a\n  ```sh\nls\n```\n": "[line 2: a block within a list; move it out]",
		"a\n\n```sh\nls\n":        "[line 3: the block does not end]",
	} {
		if _, wrong := Parse(text); fmt.Sprint(wrong) != want {
			t.Errorf("%q: %q, want %s", text, wrong, want)
		}
	}
}
