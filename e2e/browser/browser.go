// Package browser tests the admin pages in a real Chromium against the built binary: what an operator does,
// how pages stay up to date, and the rules of layout, contrast and keyboard that every page keeps.
package browser

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/audits"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/seed-ff5a32d8/dispatcher/e2e/harness"
)

// The admin pages are tested in a real Chromium, against the real binary: what is asserted is what somebody
// sees and can do. Each test has a browser context of its own, as a private window is: nobody has signed in,
// and nothing is kept. Whatever the browser complains of, an exception, an error in the console, something
// that the content policy forbids, a dialog, fails the test, wherever it happens.

// pageTime bounds every wait for a page. It is long because many tests share few cores; none of them is a
// goal.
const pageTime = 30 * time.Second

// chromiumNames are the programs that will do; tools/setup.sh looks for the same.
var chromiumNames = []string{"chromium", "chromium-browser", "google-chrome", "google-chrome-stable"}

// chromium starts the one browser of the tests that run beside each other.
var chromium = sync.OnceValues(func() (context.Context, error) {
	program := ""
	for _, name := range chromiumNames {
		if found, err := exec.LookPath(name); err == nil {
			program = found
			break
		}
	}
	if program == "" {
		return nil, fmt.Errorf("none of %s is installed; tools/setup.sh installs it",
			strings.Join(chromiumNames, ", "))
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(program), chromedp.NoSandbox, chromedp.DisableGPU, chromedp.WindowSize(1280, 900),
		chromedp.WSURLReadTimeout(harness.StartTime),
		// Its profile and its files lie beside the binary: what a killed browser leaves goes with that.
		chromedp.UserDataDir(filepath.Join(harness.WorkDir, "chromium")),
		chromedp.Flag("disable-quic", true), chromedp.Flag("disable-component-update", true),
		chromedp.Flag("lang", "en-US"),
		// Nothing may be fetched from elsewhere, by the pages or by the browser itself.
		chromedp.Flag("host-resolver-rules", "MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"),
		// A proxy of the machine is not for the loopback.
		chromedp.Flag("no-proxy-server", true),
		chromedp.Env("TZ=UTC", "LANG=en_US.UTF-8", "TMPDIR="+harness.WorkDir))
	allocated, free := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, _ := chromedp.NewContext(allocated) // ended by Cancel below, which also waits
	if err := chromedp.Do(ctx); err != nil {
		free()
		return nil, fmt.Errorf("start %s: %w", program, err)
	}
	endChromium = func() error {
		bounded, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		defer free()
		if err := chromedp.Cancel(bounded); err != nil {
			fmt.Printf("end %s: %v\n", program, err)
		}
		return nil
	}
	return ctx, nil
})

// endChromium ends the browser, so that it does not outlive the tests.
var endChromium = func() error { return nil }

// A tab is one page of a private window of its own.
type tab struct {
	testing.TB
	ctx context.Context
	// base is the server's address, without a path.
	base string

	mu       sync.Mutex
	wrong    []string
	forgiven []*regexp.Regexp
	loads    map[network.RequestID]*fetched
	order    []network.RequestID
}

// A fetched thing is one request of a page.
type fetched struct {
	url, kind string
	status    int64
	bytes     int64 // of the body, unpacked
	over      bool
}

// newTab opens an empty page.
func newTab(tb testing.TB, base string) *tab {
	tb.Helper()
	started, err := chromium()
	harness.Check(tb, err)
	t := &tab{TB: tb, base: base}
	return t.pageIn(started, chromedp.WithNewBrowserContext())
}

// pageIn opens a page, and listens to it, beside what the tab has forgiven. In the tab's own context it is a
// second one of the same window, with the same session.
func (t *tab) pageIn(parent context.Context, options ...chromedp.ContextOption) *tab {
	t.Helper()
	ctx, cancel := chromedp.NewContext(parent, options...)
	t.Cleanup(cancel)
	t = &tab{TB: t.TB, ctx: ctx, base: t.base, forgiven: t.forgiven, loads: map[network.RequestID]*fetched{}}
	if err := chromedp.Do(ctx); err != nil {
		t.Fatalf("open a page: %v", err)
	}
	if err := chromedp.Listen(ctx, t.hear); err != nil {
		t.Fatalf("listen to a page: %v", err)
	}
	call(t, audits.Enable, cdp.Empty{})
	t.size(1280)
	t.Cleanup(t.judge)
	return t
}

// hear notes what a page does. It is called between the messages of the browser, and must not ask it for
// anything.
func (t *tab) hear(event any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		text := e.ExceptionDetails.Text
		if e.ExceptionDetails.Exception != nil {
			text += " " + e.ExceptionDetails.Exception.Description
		}
		t.wrong = append(t.wrong, "exception: "+text)
	case *runtime.EventConsoleAPICalled:
		if e.Type == runtime.ConsoleAPICalledTypeError || e.Type == runtime.ConsoleAPICalledTypeAssert ||
			e.Type == runtime.ConsoleAPICalledTypeWarning {
			var words []string
			for _, arg := range e.Args {
				words = append(words, string(arg.Value)+arg.Description)
			}
			t.wrong = append(t.wrong, fmt.Sprintf("console %s: %s", e.Type, strings.Join(words, " ")))
		}
	case *log.EventEntryAdded:
		if e.Entry.Level == log.EntryLevelError || e.Entry.Level == log.EntryLevelWarning {
			t.wrong = append(t.wrong, fmt.Sprintf("%s: %s %s", e.Entry.Source, e.Entry.Text, e.Entry.URL))
		}
	case *audits.EventIssueAdded:
		t.wrong = append(t.wrong, fmt.Sprintf("issue: %s %s", e.Issue.Code, issueText(e.Issue)))
	case *page.EventJavascriptDialogOpening:
		t.wrong = append(t.wrong, fmt.Sprintf("dialog: %s %q", e.Type, e.Message))
		// or the page stands still
		go chromedp.Call(t.ctx, page.HandleJavaScriptDialog, page.HandleJavaScriptDialogParams{})
	default:
		t.hearNetwork(event)
	}
}

// hearNetwork notes what a page loads.
func (t *tab) hearNetwork(event any) {
	switch e := event.(type) {
	case *network.EventRequestWillBeSent:
		if strings.HasPrefix(e.Request.URL, "data:") {
			return
		}
		if t.loads[e.RequestID] == nil {
			t.order = append(t.order, e.RequestID)
		}
		t.loads[e.RequestID] = &fetched{url: e.Request.URL, kind: string(e.Type)}
	case *network.EventResponseReceived:
		if l := t.loads[e.RequestID]; l != nil {
			l.status, l.kind = e.Response.Status, string(e.Type)
		}
	case *network.EventDataReceived:
		if l := t.loads[e.RequestID]; l != nil {
			l.bytes += e.DataLength
		}
	case *network.EventLoadingFinished:
		t.over(e.RequestID)
	case *network.EventLoadingFailed: // a stream that is left
		t.over(e.RequestID)
	}
}

// over notes that a request is over.
func (t *tab) over(id network.RequestID) {
	if l := t.loads[id]; l != nil {
		l.over = true
	}
}

// issueText is what an issue says, where it says something that helps.
func issueText(issue *audits.InspectorIssue) string {
	switch d := issue.Details; {
	case d == nil:
	case d.ContentSecurityPolicyIssueDetails != nil:
		c := d.ContentSecurityPolicyIssueDetails
		return fmt.Sprintf("%s %s %s", c.ContentSecurityPolicyViolationType, c.ViolatedDirective,
			c.BlockedURL)
	case d.GenericIssueDetails != nil:
		return fmt.Sprintf("%s %s", d.GenericIssueDetails.ErrorType,
			d.GenericIssueDetails.ViolatingNodeAttribute)
	}
	return ""
}

// forgive says what the browser may complain of in this test: what the test brings about by itself.
func (t *tab) forgive(patterns ...string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, p := range patterns {
		t.forgiven = append(t.forgiven, regexp.MustCompile(p))
	}
}

// complaints takes what the browser has complained of so far and was not forgiven.
func (t *tab) complaints() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	left := slices.DeleteFunc(t.wrong, func(text string) bool {
		return slices.ContainsFunc(t.forgiven, func(p *regexp.Regexp) bool { return p.MatchString(text) })
	})
	t.wrong = nil
	return left
}

// judge fails the test for what the browser has complained of.
func (t *tab) judge() {
	for _, text := range t.complaints() {
		t.Errorf("the browser complains: %s", text)
	}
	if t.Failed() && t.ctx.Err() == nil {
		t.Logf("the page at the end: %s\n%.1500s", t.where(), t.pageText())
	}
}

// forget begins to count anew what is loaded.
func (t *tab) forget() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.loads, t.order = map[network.RequestID]*fetched{}, nil
}

// loaded is what was requested since forget, in order.
func (t *tab) loaded() []fetched {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := make([]fetched, len(t.order))
	for i, id := range t.order {
		all[i] = *t.loads[id]
	}
	return all
}

// eventually waits, as long as for any page, until a condition holds.
func (t *tab) eventually(what string, cond func() error) {
	t.Helper()
	harness.Eventually(t, pageTime, what, cond)
}

// bounded is the tab's context with a bound.
func (t *tab) bounded() (context.Context, context.CancelFunc) {
	return context.WithTimeout(t.ctx, pageTime)
}

// call asks the browser for something that must not fail.
func call[P, R any](t *tab, command cdp.Command[P, R], params P) R {
	t.Helper()
	ctx, cancel := t.bounded()
	defer cancel()
	result, err := chromedp.Call(ctx, command, params)
	if err != nil {
		t.Fatalf("%s: %v", command.Method, err)
	}
	return result
}

// evaluate runs an expression in the page. It fails while a page is being exchanged for another, as any look
// at it may.
func evaluate[T any](t *tab, expression string) (T, error) {
	ctx, cancel := t.bounded()
	defer cancel()
	v, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	if err != nil {
		err = fmt.Errorf("%.120s: %w", expression, err)
	}
	return v, err
}

// ask is evaluate for what must come to work within the bound of a page.
func ask[T any](t *tab, expression string) (v T) {
	t.Helper()
	t.eventually("the page answers", func() (err error) {
		v, err = evaluate[T](t, expression)
		return err
	})
	return v
}

// open loads a page of ours, and is back when it stands. It says by which status it was answered.
func (t *tab) open(path string) int64 {
	t.Helper()
	ctx, cancel := t.bounded()
	defer cancel()
	response, err := chromedp.RunResponse(ctx, chromedp.Navigate(t.base+path))
	if err != nil {
		t.Fatalf("open %s: %v", path, err)
	}
	if response == nil {
		t.Fatal(errors.New("open " + path + ": no answer"))
	}
	return response.Status
}

// signIn signs in with a key, as a person does.
func (t *tab) signIn(key string) {
	t.Helper()
	t.open("/ui/sign-in")
	t.fill("#key", key)
	t.click("button", "Sign in")
	t.see("h1", "Overview")
}

// streams waits until the page is kept up to date.
func (t *tab) streams() {
	t.Helper()
	t.eventually("the page is kept up to date", func() error {
		for _, l := range t.loaded() {
			if l.kind == "EventSource" && l.status == http.StatusOK && !l.over {
				return nil
			}
		}
		return errors.New("no stream is open")
	})
}
