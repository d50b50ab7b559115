package main

import (
	"bytes"
	"cmp"
	"debug/buildinfo"
	"fmt"
	"slices"
	"strings"
)

// linkedInto are the modules of the binary and the standard library, by path.
func linkedInto(info *buildinfo.BuildInfo, modules map[string]module) ([]module, error) {
	root, err := goTool(".", nil, "env", "GOROOT")
	if err != nil {
		return nil, err
	}
	ids, texts, err := licencesIn(strings.TrimSpace(string(root)))
	if err != nil {
		return nil, fmt.Errorf("the standard library: %w", err)
	}
	linked := []module{{"std", strings.TrimPrefix(info.GoVersion, "go"), ids, texts}}
	for _, dep := range info.Deps {
		used := dep
		if dep.Replace != nil {
			used = dep.Replace
		}
		m, ok := modules[dep.Path]
		if !ok || m.version != used.Version {
			return nil, fmt.Errorf("the binary has %s %s, go.mod has %q: build it anew", dep.Path,
				used.Version, m.version)
		}
		linked = append(linked, m)
	}
	slices.SortFunc(linked, func(a, b module) int { return cmp.Compare(a.path, b.path) })
	return linked, nil
}

// allTexts joins the licence files of all modules, each under the name of its module.
func allTexts(linked []module) []byte {
	var all bytes.Buffer
	for _, m := range linked {
		for _, t := range m.texts {
			fmt.Fprintf(&all, "==== %s %s: %s ====\n\n%s\n\n", m.path, m.version, t.name,
				bytes.TrimSpace(t.data))
		}
	}
	return all.Bytes()
}
