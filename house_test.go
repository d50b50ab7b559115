// Package dispatcher holds no code: the tests here keep the house in order. They parse the files and ask no
// build tool, so that a cached result is never a stale one.
package dispatcher

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/seed-ff5a32d8/dispatcher"

// commands is where the packages of the program are.
const commands = "cmd/dispatcher/internal/"

// plumbing is what the SQL store knows of databases.
const plumbing = "store/sqlstore/internal/sqldb"

// own says which of our packages each package may import. A package that is not listed is a mistake.
var own = map[string][]string{
	".":                  {},
	"store":              {},
	"schedule":           {},
	"migrations":         {},
	"client":             {},
	"schedule/redisq":    {"schedule", "internal/metric"},
	"schedule/memq":      {"schedule"},
	"schedule/queuetest": {"schedule", "internal/transcript"},
	"store/sqlstore":     {"store", "migrations", plumbing},
	plumbing:             {"store", "migrations", "internal/metric"},
	"store/storetest":    {"store", "internal/transcript"},

	"dispatch/process": {"internal/metric"},
	"dispatch/clock":   {"schedule"},
	"dispatch/secret":  {"store", "dispatch/clock", "dispatch/process", "dispatch/outbound/sign"},
	"dispatch/index":   {"store", "schedule", "dispatch/clock", "dispatch/process"},
	"dispatch/trace":   {"store", "dispatch/process"},
	"dispatch/accept":  parts("dispatch/index", "dispatch/secret"),
	"dispatch/report":  parts("dispatch/index", "dispatch/secret", "dispatch/accept"),
	"dispatch/attempt": parts("dispatch/index", "dispatch/secret", "dispatch/accept"),
	"dispatch/alert": parts("dispatch/index", "dispatch/secret", "dispatch/accept",
		"dispatch/outbound/sink"),
	"dispatch/control":  parts("dispatch/index", "dispatch/secret", "dispatch/accept"),
	"dispatch/watchdog": parts("dispatch/outbound/sink"),
	"dispatch/relay": {
		"client", "store", "schedule", "dispatch/clock", "dispatch/process", "dispatch/relay/source",
	},
	"dispatch/relay/source": {},
	"dispatch": parts("dispatch/index", "dispatch/secret", "dispatch/accept", "dispatch/report",
		"dispatch/alert", "dispatch/attempt",
		"dispatch/control"),

	"dispatch/outbound": {
		"store", "dispatch/outbound/sign", "dispatch/outbound/rule", "dispatch/outbound/internal/parse",
	},
	"dispatch/outbound/sign":           {"store", "dispatch/outbound/internal/parse"},
	"dispatch/outbound/sign/signtest":  {"dispatch/outbound/sign"},
	"dispatch/outbound/rule":           {"store", "dispatch/outbound/internal/parse"},
	"dispatch/outbound/internal/parse": {"store"},
	"dispatch/outbound/sink": {
		"store", "dispatch/outbound/sign", "dispatch/outbound/rule", "dispatch/outbound/internal/parse",
	},
	"internal/transcript": {},
	"internal/metric":     {},

	"web/httperr":    face(),
	"web/query":      face(),
	"web/api":        face("web/httperr", "web/query"),
	"web/signin":     {"store"},
	"web/ui":         face("web/httperr", "web/query", "web/signin", "web/ui/picture"),
	"web/ui/picture": {},
	"web":            face("web/httperr", "web/query", "web/api", "web/ui", "internal/metric"),
	"web/webtest": {
		"dispatch", "dispatch/control", "dispatch/outbound", "dispatch/secret", "schedule/memq",
		"store/sqlstore", "web", "web/api", "web/ui", "internal/testserver",
	},
	"internal/testserver": {},
	"internal/testrun":    {},
	"internal/docpage":    {},
	"deploy":              {}, "deploy/check/program": {"internal/testserver"},
	"deploy/check/chart":   {"deploy/check/program"},
	"deploy/check/compose": {"deploy/check/program", "internal/testserver"},
	"deploy/check/image":   {"deploy/check/program", "internal/testserver"},
	"cmd/dispatcher":       {"*"},

	commands + "machine": {},
	commands + "console": {"client", "schedule"},
	commands + "config": {
		"store", "schedule", "schedule/redisq", "dispatch/outbound", "dispatch/outbound/sink",
		"dispatch/trace", "dispatch", "dispatch/relay", "migrations", "web/signin", commands + "console",
	},
	commands + "remote": {"client", commands + "console", commands + "config"},
	commands + "cli": {
		"client", "store", "schedule", "dispatch/outbound/sign", "dispatch/relay/source",
		commands + "console", commands + "config",
		commands + "remote", commands + "importer",
	},
	commands + "importer": {
		"client", "store", "web/api", commands + "console", commands + "machine", commands + "remote",
	},
	commands + "listen": {
		"store", "schedule", "dispatch/outbound/sign", commands + "console", commands + "config",
	},
	commands + "backup": {
		"client", "store", "store/sqlstore", "dispatch/secret", commands + "app", commands + "console",
		commands + "config", commands + "machine",
	},
	commands + "app":      {"*"}, // the wiring
	commands + "demo":     {"*"}, // a whole server and its receiver
	commands + "loadtest": {"*"},
	commands + "doctor":   {"*"},
	commands + "cmdtest": {"dispatch/outbound/sign", "internal/testserver", commands + "console",
		"internal/transcript"},
	commands + "apptest": {
		"client", "internal/testserver", commands + "app", commands + "cmdtest", commands + "config",
		commands + "console",
		commands + "remote", "dispatch/relay/source",
	},
	"e2e/harness":        {"client", "internal/testserver", "e2e/harness/judge", "e2e/harness/procfs"},
	"e2e/harness/judge":  {},
	"e2e/harness/procfs": {},
	"e2e/smoke":          {"client", "internal/testserver", "e2e/harness", "e2e/harness/judge"},
	"e2e/faults": {"client", "internal/testserver", "e2e/harness", "e2e/harness/judge",
		"e2e/harness/procfs"},
	"e2e/relay": {"client", "internal/testserver", "e2e/harness", "e2e/harness/judge",
		"e2e/harness/procfs"},
	"e2e/packages": {"e2e/harness"},
	"e2e/docs":     {"client", "internal/docpage", "internal/testserver", "e2e/harness"},
	"e2e/browser":  {"client", "internal/testserver", "e2e/harness", "e2e/harness/procfs"},
	"e2e/alerts":   {"client", "internal/testserver", "e2e/harness"},
	// modules of their own, with the same rules
	"e2e/bench":  {"client", "e2e/harness/procfs", "internal/testserver"},
	"outbox":     {},
	"e2e/outbox": {"outbox", "dispatch/relay/source", "internal/testserver"},
}

// parts are what a part of the engine may import: what stands below all parts, and others.
func parts(others ...string) []string {
	return append(others, "store", "schedule", "dispatch/clock", "dispatch/process", "dispatch/trace",
		"dispatch/outbound", "dispatch/outbound/sign", "dispatch/outbound/rule")
}

// face are what a face of the server may import: the engine and its parts, and others.
func face(others ...string) []string {
	return parts(append(others, "client", "dispatch", "dispatch/accept", "dispatch/alert",
		"dispatch/attempt", "dispatch/outbound/sink",
		"dispatch/control",
		"dispatch/index", "dispatch/report", "dispatch/secret")...)
}

// forTests may be imported by the test files of any package beside what the package itself may import.
// The last one is there because a test that wants a whole engine must give it a client that sends.
var forTests = []string{"schedule/queuetest", "store/storetest", "schedule/memq", "store/sqlstore",
	"dispatch/outbound", "dispatch/outbound/sign", "dispatch/outbound/sign/signtest",
	"dispatch/outbound/rule", "dispatch/outbound/sink", "internal/transcript", "e2e/harness/judge",
	"e2e/harness/procfs", "internal/testserver", "internal/docpage", "web/webtest",
	commands + "cmdtest", commands + "apptest"}

// behind names the packages that alone may import a module from outside, so that each can be replaced in one
// place.
var behind = map[string][]string{
	"github.com/redis/go-redis/v9": {"schedule/redisq", "internal/testserver", commands + "app",
		commands + "loadtest"},
	"github.com/hashicorp/go-retryablehttp": {"dispatch/outbound"},
	"code.dny.dev/ssrf":                     {"dispatch/outbound"},
	"github.com/gin-gonic/gin":              {"web", "web/api", "web/ui", "web/httperr"},
	"github.com/robfig/cron/v3":             {"schedule"},
	"github.com/swaggest/swgui":             {"web/api"},
	"modernc.org/sqlite":                    {plumbing},
	"zombiezen.com/go/sqlite":               {plumbing},
	// app: the lock of an embedded index
	"github.com/jackc/pgx/v5": {plumbing, "dispatch/relay/source", "internal/testserver",
		commands + "app", commands + "doctor", commands + "loadtest"},
	"github.com/go-sql-driver/mysql":  {"dispatch/relay/source", "internal/testserver"},
	"github.com/pressly/goose/v3":     {plumbing},
	"github.com/alecthomas/kong":      {commands + "console", commands + "config", commands + "cli"},
	"github.com/goccy/go-yaml":        {commands + "config"},
	"github.com/lmittmann/tint":       {commands + "app"},
	"github.com/jedib0t/go-pretty/v6": {commands + "console"},
	"golang.org/x/term":               {commands + "console"},
	"github.com/alexedwards/scs/v2":   {"web/ui"},
	"github.com/standard-webhooks/":   {},
	"github.com/coreos/go-oidc/v3":    {"web/signin"},
	"golang.org/x/oauth2":             {"web/signin"},
	// its exporter is the only client besides dispatch/outbound that a server sends with
	"go.opentelemetry.io/otel":       {"dispatch/trace"},
	"go.opentelemetry.io/proto/otlp": {"internal/testserver"},
	"github.com/getkin/kin-openapi":  {},
	"github.com/google/go-cmp": {"internal/transcript", "schedule/queuetest",
		"store/storetest"},
	"pgregory.net/rapid": {"schedule/queuetest", "store/storetest"},
	"go.uber.org/goleak": {},
	"github.com/prometheus/client_golang/prom": {"dispatch", "dispatch/process", "dispatch/secret",
		"dispatch/index", "dispatch/attempt", "dispatch/control", "dispatch/report", "dispatch/outbound",
		"dispatch/relay",
		"schedule/redisq", "schedule/memq", "store/sqlstore", plumbing, "web", "web/api", commands + "app"},
}

// A file is one parsed Go file.
type file struct {
	path string // slash-separated, from the root
	dir  string
	test bool
	src  []byte
	fset *token.FileSet
	ast  *ast.File
}

func (f file) at(n ast.Node) string {
	return fmt.Sprintf("%s:%d", f.path, f.fset.Position(n.Pos()).Line)
}

// files parses every Go file of the module, whatever its build tags.
func files(t *testing.T) []file {
	t.Helper()
	var all []file
	err := filepath.WalkDir(".", func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			name := d.Name()
			if p != "." && (strings.HasPrefix(name, ".") || name == "testdata" || name == "tools" ||
				name == "bin") {
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(p, ".go") {
			return nil
		}
		src, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		fset := token.NewFileSet()
		parsed, err := parser.ParseFile(fset, p, src, parser.ParseComments)
		if err != nil {
			return err
		}
		p = filepath.ToSlash(p)
		all = append(all, file{
			path: p, dir: path.Dir(p), test: strings.HasSuffix(p, "_test.go"), src: src, fset: fset,
			ast: parsed,
		})
		return nil
	})
	if err != nil {
		t.Fatalf("read the module: %v", err)
	}
	if len(all) < 10 {
		t.Fatalf("found %d Go files: the test runs in the wrong directory", len(all))
	}
	return all
}

// imports lists the import paths of a file.
func (f file) imports(t *testing.T) []string {
	t.Helper()
	var paths []string
	for _, spec := range f.ast.Imports {
		p, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			t.Fatalf("%s: import %s: %v", f.path, spec.Path.Value, err)
		}
		paths = append(paths, p)
	}
	return paths
}

func TestImportsPointDownOnly(t *testing.T) {
	for _, f := range files(t) {
		allowed, known := own[f.dir]
		if !known {
			t.Errorf("%s: package %s is not in the table of the house; add it with what it may import",
				f.path, f.dir)
			continue
		}
		for _, imported := range f.imports(t) {
			rest, ours := strings.CutPrefix(imported, module)
			if !ours {
				continue
			}
			rest = strings.TrimPrefix(rest, "/")
			ok := slices.Contains(allowed, rest) || slices.Contains(allowed, "*") ||
				f.test && (slices.Contains(forTests, rest) || rest == f.dir)
			if !ok {
				t.Errorf("%s imports %s; %s may import of ours: %q", f.path, rest, f.dir, allowed)
			}
		}
	}
}

func TestOutsideModulesStandBehindOnePackage(t *testing.T) {
	for _, f := range files(t) {
		// tests may look from outside; the root has no code
		if f.test || f.dir == "." || strings.HasPrefix(f.dir, "e2e/") {
			continue
		}
		for _, imported := range f.imports(t) {
			for prefix, dirs := range behind {
				if strings.HasPrefix(imported, prefix) && !slices.Contains(dirs, f.dir) {
					t.Errorf("%s imports %s, which only %q may", f.path, imported, dirs)
				}
			}
			if slices.Contains([]string{"store", "migrations", "client", "outbox"}, f.dir) &&
				strings.Contains(strings.Split(imported, "/")[0], ".") {
				t.Errorf("%s imports %s; %s uses the standard library alone", f.path, imported, f.dir)
			}
			// it sends what others log through package log to slog
			redirects := imported == "log" && f.dir == commands+"app"
			if imported == "math/rand" || imported == "io/ioutil" || imported == "log" && !redirects {
				t.Errorf("%s imports %s; use math/rand/v2, io and os, log/slog", f.path, imported)
			}
		}
	}
}

func TestEveryPackageSaysWhatItIs(t *testing.T) {
	comments := map[string]string{}
	names := map[string]string{}
	for _, f := range files(t) {
		if f.test && f.dir != "." {
			continue
		}
		names[f.dir] = f.ast.Name.Name
		if f.ast.Doc != nil && f.ast.Doc.Text() != "" {
			if comments[f.dir] != "" {
				t.Errorf("%s: package %s has a second package comment", f.path, f.dir)
			}
			comments[f.dir] = f.ast.Doc.Text()
		}
	}
	for dir, name := range names {
		base := path.Base(dir)
		want := []string{"Package " + name + " "}
		if name == "main" {
			want = []string{"Command " + base + " ", strings.ToUpper(base[:1]) + base[1:] + " "}
		}
		if !slices.ContainsFunc(want, func(w string) bool { return strings.HasPrefix(comments[dir], w) }) {
			t.Errorf("package %s needs one comment that begins with %q and says what it is, guarantees and "+
				"does not do", dir, want[0])
		}
	}
}

func TestNoInitAndNoHiddenSkips(t *testing.T) {
	for _, f := range files(t) {
		for _, decl := range f.ast.Decls {
			if fn, ok := decl.(*ast.FuncDecl); ok && fn.Recv == nil && fn.Name.Name == "init" {
				t.Errorf("%s has an init function: nothing may happen on import", f.at(fn))
			}
		}
		checkSkips(t, f)
	}
}

var skips = regexp.MustCompile(`^Skip(f|Now)?$`)

// checkSkips reports calls of Skip, of any receiver, that are not the body of "if testing.Short()": a test
// that needs something and does not find it must fail. A package of tests has them in files of any name.
func checkSkips(t *testing.T, f file) {
	t.Helper()
	allowed := map[*ast.CallExpr]bool{}
	allow := func(body ast.Node, receiver string) {
		ast.Inspect(body, func(n ast.Node) bool {
			if call, ok := n.(*ast.CallExpr); ok && (receiver == "" || isCall(call, receiver, "Skip")) {
				allowed[call] = true
			}
			return true
		})
	}
	ast.Inspect(f.ast, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.IfStmt:
			if isCall(n.Cond, "testing", "Short") {
				allow(n.Body, "")
			}
		case *ast.FuncLit: // with rapid, Skip discards one random step and skips no test
			if name := rapidParam(n.Type); name != "" {
				allow(n.Body, name)
			}
		case *ast.FuncDecl:
			if name := rapidParam(n.Type); name != "" && n.Body != nil {
				allow(n.Body, name)
			}
		}
		return true
	})
	ast.Inspect(f.ast, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok || allowed[call] {
			return true
		}
		if sel, ok := call.Fun.(*ast.SelectorExpr); ok && skips.MatchString(sel.Sel.Name) {
			t.Errorf("%s skips a test outside of if testing.Short(): make it fail instead", f.at(call))
		}
		return true
	})
}

// rapidParam is the name of a function's parameter of type *rapid.T, or empty.
func rapidParam(fn *ast.FuncType) string {
	for _, field := range fn.Params.List {
		star, ok := field.Type.(*ast.StarExpr)
		if !ok || len(field.Names) == 0 {
			continue
		}
		if sel, ok := star.X.(*ast.SelectorExpr); ok && sel.Sel.Name == "T" {
			if pkg, ok := sel.X.(*ast.Ident); ok && pkg.Name == "rapid" {
				return field.Names[0].Name
			}
		}
	}
	return ""
}

// isCall says whether the expression is the call x.name(…).
func isCall(e ast.Expr, x, name string) bool {
	call, ok := e.(*ast.CallExpr)
	if !ok {
		return false
	}
	sel, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	ident, ok := sel.X.(*ast.Ident)
	return ok && ident.Name == x && sel.Sel.Name == name
}

// secretName matches the names of what the time of a comparison must say nothing of.
var secretName = regexp.MustCompile(`(?i)(hash|token|secret|password|digest|mac|adminkey|apikey)$`)

// TestSecretsAreComparedInConstantTime is case 46 of the security cases, as far as code shows it: the faces
// compare no key, token or hash with == or bytes.Equal. Keys are found in SQL by their hash, of which a
// guesser learns nothing.
func TestSecretsAreComparedInConstantTime(t *testing.T) {
	for _, f := range files(t) {
		if f.test || f.dir != "web" && !strings.HasPrefix(f.dir, "web/") {
			continue
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			var compared []ast.Expr
			if binary, ok := n.(*ast.BinaryExpr); ok && (binary.Op == token.EQL || binary.Op == token.NEQ) {
				compared = []ast.Expr{binary.X, binary.Y}
			}
			if call, ok := n.(*ast.CallExpr); ok && isCall(call, "bytes", "Equal") {
				compared = call.Args
			}
			if slices.ContainsFunc(compared, isSecret) && !slices.ContainsFunc(compared, isPlain) {
				t.Errorf("%s compares a secret: use subtle.ConstantTimeCompare or hmac.Equal", f.at(n))
			}
			return true
		})
	}
}

// isSecret says whether an expression is named as a secret is.
func isSecret(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.Ident:
		return secretName.MatchString(e.Name)
	case *ast.SelectorExpr:
		return isSecret(e.Sel)
	case *ast.SliceExpr:
		return isSecret(e.X)
	case *ast.CallExpr: // a conversion
		name, ok := e.Fun.(*ast.Ident)
		return ok && name.Name == "string" && len(e.Args) == 1 && isSecret(e.Args[0])
	}
	return false
}

// isPlain says whether an expression is a literal or nil: to compare with it tells only whether there is a
// secret.
func isPlain(e ast.Expr) bool {
	name, isName := e.(*ast.Ident)
	_, isLiteral := e.(*ast.BasicLit)
	return isLiteral || isName && name.Name == "nil"
}
