package client_test

import (
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// plain are the methods of standard interfaces. They have no examples, because programs do not call them.
var plain = []string{"Error", "Is", "Unwrap", "IsZero", "MarshalJSON", "UnmarshalJSON", "Format",
	"LogValue"}

// parsed returns the files of the package, without its tests or only these.
func parsed(t *testing.T, tests bool) (all []*ast.File) {
	t.Helper()
	names, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") != tests {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, f)
	}
	return all
}

// receiver returns the name of a method's type and an underscore, or nothing for a function.
func receiver(fn *ast.FuncDecl) string {
	if fn.Recv == nil {
		return ""
	}
	of := fn.Recv.List[0].Type
	if star, ok := of.(*ast.StarExpr); ok {
		of = star.X
	}
	if generic, ok := of.(*ast.IndexExpr); ok {
		of = generic.X
	}
	return of.(*ast.Ident).Name + "_"
}

// TestEveryCallHasAnExample checks that each exported function and method has an example with an output, and
// that each example is of something exported.
func TestEveryCallHasAnExample(t *testing.T) {
	runs := map[string]bool{}
	for _, example := range doc.Examples(parsed(t, true)...) {
		runs[example.Name] = example.Output != ""
	}
	known := map[string]bool{"": true}
	for _, f := range parsed(t, false) {
		for _, decl := range f.Decls {
			if types, ok := decl.(*ast.GenDecl); ok {
				for _, spec := range types.Specs {
					if named, ok := spec.(*ast.TypeSpec); ok {
						known[named.Name.Name] = true
					}
				}
			}
			fn, ok := decl.(*ast.FuncDecl)
			if !ok || !fn.Name.IsExported() {
				continue
			}
			name := receiver(fn) + fn.Name.Name
			known[name] = true
			if !runs[name] && !slices.Contains(plain, fn.Name.Name) {
				t.Errorf("%s has no example with an output", name)
			}
		}
	}
	if len(known) < 100 {
		t.Errorf("found only %d names", len(known))
	}
	variant := regexp.MustCompile(`_[a-z]+$`)
	for name := range maps.Keys(runs) {
		if !known[variant.ReplaceAllString(name, "")] {
			t.Errorf("Example%s is of nothing", name)
		}
	}
}

// TestGuideHasTheExamples checks that the Go code of the guide is in the examples, which run. The tests of
// pages run its whole program.
func TestGuideHasTheExamples(t *testing.T) {
	guide, err := os.ReadFile("../docs/guide/go-client.md")
	if err != nil {
		t.Fatal(err)
	}
	names, err := filepath.Glob("example*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	var source strings.Builder
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		source.Write(text)
	}
	blocks := regexp.MustCompile("(?s)```go[^\n]*\n(.*?)```").FindAllStringSubmatch(string(guide), -1)
	if len(blocks) < 5 {
		t.Fatalf("the guide has only %d blocks of code", len(blocks))
	}
	for _, block := range blocks {
		if strings.HasPrefix(block[1], "package main") {
			continue
		}
		if !strings.Contains(flat(source.String()), flat(block[1])) {
			t.Errorf("this is in no example:\n%s", block[1])
		}
	}
}

// flat removes the indentation and empty lines.
func flat(code string) string {
	return regexp.MustCompile(`\n\s*`).ReplaceAllString("\n"+code, "\n")
}
