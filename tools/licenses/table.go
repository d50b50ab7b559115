package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

const intro = "# Licences of the modules in go.mod\n\n" +
	"`make licenses` writes this page from the licence files of the modules. The house test " +
	"compares it with\n" +
	"go.mod, and with the licences that may be used. `make sbom` writes the texts, which must go with a\n" +
	"binary, to `bin/licenses.txt`.\n"

// table is the page of licences: the modules that are compiled into the program on any system, then the
// others.
func table(modules map[string]module, compiled map[string]bool) []byte {
	var page strings.Builder
	page.WriteString(intro)
	section := func(title string, in bool) {
		fmt.Fprintf(&page, "\n## %s\n\n| module | version | licence |\n|---|---|---|\n", title)
		if in {
			page.WriteString("| Go standard library | of the compiler | BSD-3-Clause |\n")
		}
		for _, path := range slices.Sorted(maps.Keys(modules)) {
			if m := modules[path]; compiled[path] == in {
				fmt.Fprintf(&page, "| %s | %s | %s |\n", m.path, m.version, strings.Join(m.ids, ", "))
			}
		}
	}
	section("Compiled into the program", true)
	section("For tests only, or not compiled at all", false)
	return []byte(page.String())
}
