// Command licenses lists the licences of the program's modules. It reads the licence files in the module
// cache. A module without a known licence is an error. It writes two files, each if its flag is set:
//
//   - -table: the table of all modules of go.mod for docs/reports/licenses.md
//   - -texts: the licence texts that must be distributed with a binary
package main

import (
	"bytes"
	"cmp"
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/google/licensecheck"
)

func main() {
	root := flag.String("root", "..", "directory of the product's go.mod")
	page := flag.String("table", "", "write the table of licences to this file")
	binary := flag.String("binary", "", "a built binary, for -texts")
	texts := flag.String("texts", "", "write the licence texts to this file")
	flag.Parse()
	if err := run(*root, *page, *binary, *texts); err != nil {
		fmt.Fprintln(os.Stderr, "licenses:", err)
		os.Exit(1)
	}
}

func run(root, page, binary, texts string) error {
	modules, err := download(root)
	if err != nil {
		return err
	}
	if page != "" {
		compiled, err := compiledIn(root)
		if err != nil {
			return err
		}
		if err := write(page, table(modules, compiled)); err != nil {
			return err
		}
	}
	if texts == "" {
		return nil
	}
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		return fmt.Errorf("read the modules of the binary: %w", err)
	}
	linked, err := linkedInto(info, modules)
	if err != nil {
		return err
	}
	return write(texts, allTexts(linked))
}

func write(name string, content []byte) error {
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	return os.WriteFile(name, content, 0o644)
}

// A module is a module of go.mod with its licences.
type module struct {
	path    string // import path
	version string // of the replacement, if go.mod has one
	ids     []string
	texts   []text
}

// A text is one licence file.
type text struct {
	name string
	data []byte
}

// download loads all modules of go.mod into the module cache and reads their licences.
func download(root string) (map[string]module, error) {
	paths, err := required(root)
	if err != nil {
		return nil, err
	}
	if _, err := goTool(root, nil, append([]string{"mod", "download"}, paths...)...); err != nil {
		return nil, err
	}
	out, err := goTool(root, nil, append([]string{"list", "-m", "-json"}, paths...)...)
	if err != nil {
		return nil, err
	}
	modules := map[string]module{}
	var unrecognized error
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var m struct {
			Path, Version, Dir string
			Replace            *struct{ Version, Dir string }
		}
		if err := decoder.Decode(&m); errors.Is(err, io.EOF) {
			return modules, unrecognized
		} else if err != nil {
			return nil, fmt.Errorf("go list -m -json: %w", err)
		}
		if m.Replace != nil {
			m.Version, m.Dir = m.Replace.Version, m.Replace.Dir
		}
		ids, texts, err := licencesIn(m.Dir)
		if err != nil {
			unrecognized = errors.Join(unrecognized, fmt.Errorf("%s %s: %w", m.Path, m.Version, err))
		}
		modules[m.Path] = module{m.Path, m.Version, ids, texts}
	}
}

var requirement = regexp.MustCompile(`(?m)^(?:require )?\s*([\w.-]+\.[\w.-]+\S*) v\S+`)

// required returns the module paths that go.mod requires.
func required(root string) (paths []string, err error) {
	mod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	for _, m := range requirement.FindAllSubmatch(mod, -1) {
		paths = append(paths, string(m[1]))
	}
	return paths, err
}

// compiledIn returns the modules with packages in the program, on any of its target systems.
func compiledIn(root string) (map[string]bool, error) {
	compiled := map[string]bool{}
	for _, system := range []string{"linux", "darwin", "windows"} {
		out, err := goTool(root, []string{"GOOS=" + system},
			"list", "-deps", "-tags", "nomsgpack", "-f", "{{with .Module}}{{.Path}}{{end}}",
			"./cmd/dispatcher")
		if err != nil {
			return nil, err
		}
		for path := range strings.FieldsSeq(string(out)) {
			compiled[path] = true
		}
	}
	return compiled, nil
}

// goTool runs the go command in the product's module.
func goTool(root string, env []string, args ...string) ([]byte, error) {
	cmd := exec.Command("go", args...)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), env...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go %s: %w: %s", strings.Join(args, " "), err, stderr.Bytes())
	}
	return out, nil
}

var licenceFile = regexp.MustCompile(`(?i)(licen[cs]e|copying|notice)`)

// licencesIn returns the licences in a module's root directory, and the texts of its licence files. Without a
// known licence it returns an error.
func licencesIn(dir string) (ids []string, texts []text, err error) {
	entries, err := os.ReadDir(dir)
	for _, entry := range entries {
		if entry.IsDir() || !licenceFile.MatchString(entry.Name()) || strings.HasSuffix(entry.Name(), ".go") {
			continue
		}
		data, err := os.ReadFile(filepath.Join(dir, entry.Name()))
		if err != nil {
			return nil, nil, err
		}
		texts = append(texts, text{entry.Name(), data})
		for _, match := range licensecheck.Scan(data).Match {
			if !match.IsURL && !slices.Contains(ids, match.ID) {
				ids = append(ids, match.ID)
			}
		}
	}
	if err == nil && len(ids) == 0 {
		err = errors.New("no known licence found")
	}
	slices.Sort(ids)
	return ids, texts, err
}

const intro = "# Licences of the modules in go.mod\n\n" +
	"`make licenses` writes this page from the licence files of the modules. The house test " +
	"compares it with\n" +
	"go.mod, and with the licences that may be used. `make sbom` writes the texts, which must go with a\n" +
	"binary, to `bin/licenses.txt`.\n"

// table returns the page of licences. Modules that are compiled into the program on any system come first.
func table(modules map[string]module, compiled map[string]bool) []byte {
	var page strings.Builder
	page.WriteString(intro)
	section := func(title string, in bool) {
		fmt.Fprintf(&page, "\n## %s\n\n| module | version | licence |\n|---|---|---|\n", title)
		if in {
			page.WriteString("| Go standard library | of the compiler | BSD-3-Clause |\n")
		}
		for _, path := range slices.Sorted(maps.Keys(modules)) {
			m := modules[path]
			if compiled[path] == in {
				fmt.Fprintf(&page, "| %s | %s | %s |\n", m.path, m.version, strings.Join(m.ids, ", "))
			}
		}
	}
	section("Compiled into the program", true)
	section("For tests only, or not compiled at all", false)
	return []byte(page.String())
}

// linkedInto returns the modules of the binary and the standard library, sorted by path. It returns an error
// if the binary was built with other versions than go.mod has.
func linkedInto(info *buildinfo.BuildInfo, modules map[string]module) ([]module, error) {
	root, err := goTool(".", nil, "env", "GOROOT")
	if err != nil {
		return nil, err
	}
	ids, texts, err := licencesIn(strings.TrimSpace(string(root)))
	if err != nil {
		return nil, fmt.Errorf("read licence of the standard library: %w", err)
	}
	linked := []module{{"std", strings.TrimPrefix(info.GoVersion, "go"), ids, texts}}
	for _, dep := range info.Deps {
		used := dep
		if dep.Replace != nil {
			used = dep.Replace
		}
		m, ok := modules[dep.Path]
		if !ok || m.version != used.Version {
			return nil, fmt.Errorf("the binary has %s %s, go.mod has %q: rebuild the binary", dep.Path,
				used.Version, m.version)
		}
		linked = append(linked, m)
	}
	slices.SortFunc(linked, func(a, b module) int { return cmp.Compare(a.path, b.path) })
	return linked, nil
}

// allTexts joins the licence files of all modules. The name of the module precedes each file.
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
