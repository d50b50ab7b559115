package docs

import (
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/seed-ff5a32d8/dispatcher/e2e/harness"
	"github.com/seed-ff5a32d8/dispatcher/internal/docpage"
	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
)

// root is the root of the project.
const root = "../.."

func TestMain(m *testing.M) { harness.Main(m) }

// byRecipes is the page that TestRecipes runs, several times and with other words in its blocks.
const byRecipes = "docs/guide/recipes.md"

// TestEveryCommandRuns runs the blocks of each page. Its log lists the blocks that ran, and those that did
// not with the reason.
func TestEveryCommandRuns(t *testing.T) {
	ran := 0
	for _, p := range readPages(t) {
		name, blocks := p.Name, p.Blocks
		if len(blocks) == 0 {
			continue
		}
		for _, b := range blocks {
			if b.Runs() {
				ran++
			}
		}
		t.Run(strings.ReplaceAll(name, "/", ":"), func(t *testing.T) {
			t.Parallel()
			for _, w := range p.Wrong {
				t.Errorf("%s, %s", name, w)
			}
			for _, b := range blocks {
				switch {
				case b.Kind == docpage.NotRun:
					t.Logf("%s:%d does not run: %s\n%s", name, b.Line, b.Name, b.Text)
				case b.Runs():
					t.Logf("%s:%d runs\n%s", name, b.Line, b.Text)
				}
			}
			if name != byRecipes && len(p.Wrong) == 0 && slices.ContainsFunc(blocks, docpage.Block.Runs) {
				newPage(t, blocks).play()
			}
		})
	}
	if ran < 20 {
		t.Errorf("found %d blocks: the test runs in the wrong directory", ran)
	}
}

// readPages reads the pages of the project.
func readPages(t *testing.T) []docpage.Page {
	pages, err := docpage.Read(os.DirFS(root))
	harness.Check(t, err)
	return pages
}

// blocksOf returns the blocks of one page.
func blocksOf(t *testing.T, name string) []docpage.Block {
	for _, p := range readPages(t) {
		if p.Name == name && len(p.Wrong) == 0 {
			return p.Blocks
		}
	}
	t.Fatalf("no page %s, or its blocks are wrong", name)
	return nil
}

// A page is played in one directory.
type page struct {
	*testing.T
	blocks  []docpage.Block
	dir     string
	env     []string
	replace *strings.Replacer
	hosts   string // the address of the receiver that stands for the hosts *.example
	windows map[string]*window
}

// newPage prepares a directory, servers and addresses for the blocks of a page.
func newPage(t *testing.T, blocks []docpage.Block) *page {
	p := &page{T: t, blocks: blocks, dir: t.TempDir(), windows: map[string]*window{}}
	var text string
	for i := range blocks {
		if blocks[i].Runs() {
			text += blocks[i].Text + "\n"
		}
	}
	if regexp.MustCompile(`(?m)^make |\bgo run `).MatchString(text) {
		copyProject(t, p.dir)
	}
	commands := t.TempDir()
	harness.Check(t, os.Symlink(harness.Binary(t), filepath.Join(commands, "dispatcher")))
	api, ops, receiver := testserver.FreePort(t), testserver.FreePort(t), testserver.FreePort(t)
	p.env = []string{
		"PATH=" + commands + string(os.PathListSeparator) + os.Getenv("PATH"),
		"DISPATCHER_LISTEN=127.0.0.1:" + api, "DISPATCHER_OPS_LISTEN=127.0.0.1:" + ops,
		"DISPATCHER_SERVER=http://127.0.0.1:" + api,
		// A build in any directory finds what another one has compiled.
		"GOFLAGS=-trimpath",
	}
	words := []string{"8080", api, "8081", ops, "9090", receiver, "9091", testserver.FreePort(t),
		"dispatcher listen --addr", "dispatcher listen --addr",
		"dispatcher listen", "dispatcher listen --addr 127.0.0.1:" + receiver}
	if address := regexp.MustCompile(`postgres://[^\s"]+`).FindString(text); address != "" {
		words = append(words, address, testserver.SharedPostgres(t).Database(t))
	}
	if address := regexp.MustCompile(`redis://[^\s"]+`).FindString(text); address != "" {
		words = append(words, address, testserver.NewRedis(t).URL)
	}
	if regexp.MustCompile(`(?m)^mysql\b|\| mysql\b`).MatchString(text) {
		words = append(words, "127.0.0.1:3306", p.useMariaDB())
	}
	p.replace = strings.NewReplacer(words...)
	p.hosts = harness.NewReceiver(t, harness.ScriptOf(t, "testdata/kitchen.txt")).URL
	if !regexp.MustCompile(`dispatcher (serve|demo)\b`).MatchString(text) {
		p.open("server", "dispatcher serve --egress-allow 127.0.0.1/32")
	}
	return p
}

// useMariaDB gives the page's client mysql the administrator's login, as a reader has it. It returns the
// server's address.
func (p *page) useMariaDB() string {
	u, err := url.Parse(testserver.SharedMariaDB(p).URL())
	harness.Check(p, err)
	password, _ := u.User.Password()
	home := p.TempDir()
	harness.Check(p, os.WriteFile(filepath.Join(home, ".my.cnf"), fmt.Appendf(nil,
		"[client]\nhost=%s\nport=%s\nuser=%s\npassword=%s\n", u.Hostname(), u.Port(), u.User.Username(),
		password), 0o600))
	p.env = append(p.env, "HOME="+home)
	return u.Host
}

// copyProject copies the project, without what was built and the data of a server that was run in it.
func copyProject(t *testing.T, dir string) {
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		to, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		to = filepath.Join(dir, to)
		switch {
		case d.IsDir() && slices.Contains([]string{".git", "bin", "dispatcher-data", "screens"}, d.Name()):
			return fs.SkipDir
		case d.IsDir():
			return os.MkdirAll(to, 0o755)
		case !d.Type().IsRegular():
			return nil
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		return os.WriteFile(to, text, info.Mode().Perm())
	})
	harness.Check(t, err)
}

// example matches a host that is no host: the name before it becomes the first segment of the path.
var example = regexp.MustCompile(`https?://(\w+)\.example\b`)

// local returns a text with the addresses of the test.
func (p *page) local(text string) string {
	return example.ReplaceAllString(p.replace.Replace(text), p.hosts+"/$1")
}

// open runs a block in a terminal. Another one of the same name ends.
func (p *page) open(name, text string) {
	if w := p.windows[name]; w != nil {
		w.interrupt()
	}
	p.windows[name] = openWindow(p, p.dir, text, p.env...)
}

// play runs the blocks in order.
func (p *page) play() {
	s := newShell(p, p.dir, p.env...)
	last, printed := "", ""
	for _, b := range p.blocks {
		text := p.local(b.Text)
		switch b.Kind {
		case docpage.Command:
			last, printed = text, s.run(text)
		case docpage.Terminal:
			p.open(b.Name, text)
		case docpage.File:
			harness.Check(p, os.WriteFile(filepath.Join(p.dir, b.Name), []byte(text+"\n"), 0o644))
		case docpage.Output:
			if !fits(printed, text, false) {
				p.Errorf("line %d: the block\n%s\nprinted\n%s\nand the page shows\n%s", b.Line, last,
					printed, text)
			}
		case docpage.Soon:
			harness.Eventually(p, printTime, fmt.Sprintf("line %d is printed", b.Line), func() error {
				if fits(printed, text, false) {
					return nil
				}
				printed = s.run(last)
				return fmt.Errorf("the block\n%s\nprinted\n%s\nand the page shows\n%s", last, printed, text)
			})
		case docpage.Shown:
			w := p.windows[b.Name]
			if w == nil {
				p.Fatalf("line %d: no terminal %s", b.Line, b.Name)
			}
			harness.Eventually(p, printTime, fmt.Sprintf("line %d is printed", b.Line), func() error {
				if got := w.text(); !fits(got, text, true) {
					return fmt.Errorf("%s printed\n%s\nand the page shows\n%s", b.Name, got, text)
				}
				return nil
			})
		}
	}
}
