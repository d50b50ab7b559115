package docs

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/client"
	"github.com/seed-ff5a32d8/dispatcher/e2e/harness"
	"github.com/seed-ff5a32d8/dispatcher/internal/docpage"
)

// The recipes of the guide run from the document itself: every block unchanged, in one shell. Only the
// .example addresses become those of local receivers, and durations are shorter. testdata/recipes.txt has the
// expected results.

// A recipe is one section of the document: its blocks, and the steps that check their results.
type recipe struct {
	title  string
	blocks []string
	steps  []string
}

// readRecipes returns the sections of the document. The blocks before the first section belong to all of
// them.
func readRecipes(t *testing.T) (preamble string, list []recipe) {
	text, err := os.ReadFile(filepath.Join(root, byRecipes))
	expected, err2 := os.ReadFile("testdata/recipes.txt")
	harness.Check(t, errors.Join(err, err2))
	steps := strings.Split(string(expected), "\n== ")
	sections := strings.Split(string(text), "\n## ")
	if len(sections) != len(steps) {
		t.Fatalf("the document has %d recipes, the test data has %d", len(sections)-1, len(steps)-1)
	}
	for i, section := range sections {
		title, body, _ := strings.Cut(section, "\n")
		r := recipe{title: title, steps: strings.Split(steps[i], "\n")[1:]}
		blocks, wrong := docpage.Parse(body)
		if len(wrong) > 0 {
			t.Fatalf("%q: %q", title, wrong)
		}
		for _, b := range blocks {
			if b.Kind == docpage.Command {
				r.blocks = append(r.blocks, b.Text)
			}
		}
		list = append(list, r)
	}
	return strings.Join(list[0].blocks, "\n"), list[1:]
}

// A docShell runs the blocks of recipes and checks their effects.
type docShell struct {
	*shell
	p     *harness.Process
	shop  *harness.Receiver
	names map[string]string // values of the names in the steps so far
}

// newDocShell starts a shell in a new directory.
func newDocShell(t *testing.T, p *harness.Process, r *harness.Receiver) *docShell {
	return &docShell{
		shell: newShell(t, t.TempDir(), "DISPATCHER_SERVER="+p.Base, "DISPATCHER_KEY="+harness.AdminKey),
		p:     p, shop: r, names: map[string]string{},
	}
}

// scaled matches the durations in JSON that are waits. They become shorter by the factor pace: a minute
// becomes a tenth of a second. The timeout of an attempt stays.
var scaled = regexp.MustCompile(`("timeout": )?"(\d+)([smh])"`)

const pace = 600

// text returns a block with local addresses and short times, and with word replaced by another.
func (c *docShell) text(block, word, another string) string {
	block = scaled.ReplaceAllStringFunc(block, func(found string) string {
		m := scaled.FindStringSubmatch(found)
		n, err := time.ParseDuration(m[2] + m[3])
		if err != nil || m[1] != "" {
			return found
		}
		return strconv.Quote((n / pace).String())
	})
	if word != "" {
		block = strings.ReplaceAll(block, word, another)
	}
	return example.ReplaceAllString(block, c.shop.URL+"/$1")
}

// hole matches a placeholder in an expected text.
var hole = regexp.MustCompile(`<(\w+|\*)>`)

// matches compares a text with the expected one, and stores the values of its placeholders.
func (c *docShell) matches(got, want string) {
	c.Helper()
	var names []string
	pattern := regexp.QuoteMeta(hole.ReplaceAllStringFunc(want, func(found string) string {
		name := strings.Trim(found, "<>")
		if known := c.names[name]; known != "" {
			return known
		}
		names = append(names, name)
		return "<>"
	}))
	m := regexp.MustCompile("^" + strings.ReplaceAll(pattern, "<>", "(.*?)") + "$").FindStringSubmatch(got)
	if m == nil {
		c.Fatalf("got\n%s\nwant\n%s", got, want)
	}
	for i, name := range names {
		if name != "*" {
			c.names[name] = m[i+1]
		}
	}
}

// play runs the steps of a recipe.
func (c *docShell) play(r recipe) {
	c.Helper()
	var printed *json.Decoder // output of the last block
	end := func() {
		if printed != nil && printed.More() {
			c.Error("the block printed more than expected")
		}
	}
	defer end()
	for _, line := range r.steps {
		words := strings.Fields(hole.ReplaceAllStringFunc(line, func(name string) string {
			if known := c.names[strings.Trim(name, "<>")]; known != "" {
				return known
			}
			return name
		}))
		switch {
		case len(words) == 0:
		case words[0] == "block":
			n, err := strconv.Atoi(words[1])
			if err != nil || n >= len(r.blocks) {
				c.Fatalf("%s: %v", line, err)
			}
			end()
			word, another, _ := strings.Cut(strings.Join(words[2:], ""), "=")
			printed = json.NewDecoder(strings.NewReader(c.run(c.text(r.blocks[n], word, another))))
		case words[0] == "attempts":
			c.eventually(line, words[2:], func() (string, error) {
				got, err := c.p.AttemptsOf(words[1])
				return fmt.Sprint(len(got)), err
			})
		case words[0] == "terminal":
			c.eventually(line, words[2:], func() (string, error) {
				cb, err := c.p.Callback(c.Context(), words[1])
				return strings.TrimSpace(fmt.Sprint(cb.State, " ", cb.Reason)), err
			})
		case words[0] == "arrived":
			c.eventually(line, words[2:], func() (string, error) {
				got := c.arrived(words[1])
				if n := len(got); n > 0 && len(words) > 3 {
					return fmt.Sprintf("%d %s", n, got[n-1].Body), nil
				}
				return fmt.Sprint(len(got)), nil
			})
		case words[0] == "result":
			var text string
			c.eventually(line, []string{"1"}, func() (string, error) {
				n := 0
				for _, a := range c.arrived(words[1]) {
					var result client.PollResult
					if json.Unmarshal(a.Body, &result) == nil && result.Ref == words[2] {
						n, text = n+1, c.compact(a.Body)
					}
				}
				return fmt.Sprint(n), nil
			})
			c.matches(text, strings.Join(words[3:], " "))
		default:
			var value json.RawMessage
			if err := printed.Decode(&value); err != nil {
				c.Fatalf("the block printed no more, want %s: %v", line, err)
			}
			c.matches(c.compact(value), line)
		}
	}
}

// compact removes the spaces from JSON.
func (c *docShell) compact(raw []byte) string {
	var b bytes.Buffer
	if err := json.Compact(&b, raw); err != nil {
		c.Fatalf("%s: %v", raw, err)
	}
	return b.String()
}

// eventually waits until look returns the wanted words.
func (c *docShell) eventually(line string, want []string, look func() (string, error)) {
	c.Helper()
	harness.Eventually(c, 30*time.Second, line, func() error {
		is, err := look()
		if err == nil && is != strings.Join(want, " ") {
			err = fmt.Errorf("got %s", is)
		}
		return err
	})
}

// arrived returns the arrivals at a path.
func (c *docShell) arrived(path string) (list []harness.Arrival) {
	for _, a := range c.shop.All() {
		if a.Path == path {
			list = append(list, a)
		}
	}
	return list
}

func TestRecipes(t *testing.T) {
	t.Parallel()
	preamble, list := readRecipes(t)
	b := harness.NewBackend(t, harness.SQLiteEmbedded)
	b.SkipReconciliation("callbacks of the shell are not counted")
	r := harness.NewReceiver(t, harness.ScriptOf(t, "testdata/kitchen.txt"))
	p := harness.Serve(t, harness.Launch{On: b})
	for _, recipe := range list {
		t.Run(recipe.title, func(t *testing.T) {
			c := newDocShell(t, p, r)
			c.run(c.text(preamble, "", ""))
			c.play(recipe)
		})
	}
	// The bank asked for a wait of one second. It got its own token and no signature.
	asked := (&docShell{shop: r}).arrived("/bank/refunds/refund-9001")
	if len(asked) < 3 {
		t.Fatalf("the bank was asked %d times; all recipes must run", len(asked))
	}
	if wait := asked[2].At.Sub(asked[1].End); wait < time.Second ||
		asked[0].Header.Get("Authorization") != "Bearer the-banks-token" ||
		asked[0].Header.Get("Webhook-Signature") != "" {
		t.Errorf("the bank asked for a second and got %s; it was first asked with %v", wait, asked[0].Header)
	}
}
