package main

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// A fuzzTarget is one fuzz test and the directory of its package.
type fuzzTarget struct{ dir, name string }

var fuzzFunc = regexp.MustCompile(`(?m)^func (Fuzz\w+)\(`)

// fuzzTargets finds every fuzz test below a directory.
func fuzzTargets(root string) []fuzzTarget {
	var targets []fuzzTarget
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(name, "_test.go") {
			return err
		}
		text, err := os.ReadFile(name)
		for _, m := range fuzzFunc.FindAllSubmatch(text, -1) {
			targets = append(targets, fuzzTarget{"./" + filepath.Dir(name), string(m[1])})
		}
		return err
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, "testrun: find the fuzz tests:", err)
		os.Exit(1)
	}
	return targets
}
